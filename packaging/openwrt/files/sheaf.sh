#!/bin/sh
# A trunk as an interface of /etc/config/network:
#
#   config interface 'wan'
#           option proto 'sheaf'
#           list path '192.0.2.7 198.51.100.1'
#           list path 'wwan0 198.51.100.1'
#           option key '/etc/sheaf/wan.key'
#           list ipaddr '10.99.0.1/24'
#           option gateway '10.99.0.2'
#
# Options: path, link (the words "dev IF peer ADDR"), key or plain '1', scheduler, copies, loose,
# mtu, and ipaddr, ip6addr and gateway, which netifd sets.

[ -n "$INCLUDE_ONLY" ] || {
	. /lib/functions.sh
	. ../netifd-proto.sh
	init_proto "$@"
}

SHEAF=${SHEAF:-/usr/sbin/sheaf}
# Where quotas are kept: /var is lost at each boot.
STATE=${STATE:-/etc/sheaf}
# Seconds in which the trunk's interface must be there; it takes milliseconds.
PATIENCE=5

proto_sheaf_init_config() {
	available=1
	no_device=1
	proto_config_add_array 'path:list(string)'
	proto_config_add_array 'link:list(string)'
	proto_config_add_array 'copies:list(string)'
	proto_config_add_array 'loose:list(string)'
	proto_config_add_string key
	proto_config_add_boolean plain
	proto_config_add_string scheduler
	proto_config_add_int mtu
	proto_config_add_array 'ipaddr:list(cidr4)'
	proto_config_add_array 'ip6addr:list(cidr6)'
	proto_config_add_string gateway
}

# What json_for_each_item calls for each item of a list: with the item, its key, and more words. For
# an option that is not set it calls once, with nothing.

# Adds word $3 with value $1.
sheaf_word() {
	[ -z "$1" ] || words="$words $3 $1"
}

# Adds the words of link $1, which begin with dev.
sheaf_link() {
	[ -z "$1" ] || words="$words $1"
}

sheaf_address() {
	[ -z "$1" ] || proto_add_ipv4_address "${1%/*}" "${1#*/}"
}

sheaf_address6() {
	[ -z "$1" ] || proto_add_ipv6_address "${1%/*}" "${1#*/}"
}

proto_sheaf_setup() {
	local config=$1 device words='' key plain scheduler mtu gateway waited=0
	# Names of interfaces have at most 15 characters.
	device=$(printf 'sheaf-%.9s' "$config")
	json_get_vars key plain scheduler mtu gateway
	json_for_each_item sheaf_link link
	json_for_each_item sheaf_word path path
	json_for_each_item sheaf_word copies copies
	json_for_each_item sheaf_word loose loose
	[ -z "$key" ] || words="$words key $key"
	[ "$plain" != 1 ] || words="$words plain"
	[ -z "$scheduler" ] || words="$words scheduler $scheduler"
	[ -z "$mtu" ] || words="$words mtu $mtu"

	proto_export "STATE_DIRECTORY=$STATE"
	# shellcheck disable=SC2086
	proto_run_command "$config" "$SHEAF" trunk "$device" $words
	until ip link show dev "$device" >/dev/null 2>&1; do
		if [ $waited = $PATIENCE ]; then
			proto_notify_error "$config" NO_DEVICE
			proto_kill_command "$config"
			return 1
		fi
		sleep 1
		waited=$((waited + 1))
	done
	proto_init_update "$device" 1
	json_for_each_item sheaf_address ipaddr
	json_for_each_item sheaf_address6 ip6addr
	[ -z "$gateway" ] || proto_add_ipv4_route 0.0.0.0 0 "$gateway"
	proto_send_update "$config"
}

proto_sheaf_teardown() {
	proto_kill_command "$1"
}

[ -n "$INCLUDE_ONLY" ] || add_protocol sheaf
