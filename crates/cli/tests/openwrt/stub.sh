# What OpenWrt's own files bring to an init script and a protocol handler, as far as Sheaf's use it:
# of /lib/functions.sh, rc.common, procd.sh, netifd-proto.sh and jshn.sh. Calls that would reach
# procd or netifd are printed.

# ---- /lib/functions.sh: the file of UCI is shell code --------------------------------------------

config() {
	CONFIG_SECTION=${2:-cfg}
	config_cb "$@"
}

option() {
	local name=$1
	shift
	option_cb "$name" "$*"
}

list() {
	local name=$1
	shift
	list_cb "$name" "$*"
}

config_load() {
	CONFIG_SECTION=
	. "$CONFIG/$1"
	${CONFIG_SECTION:+config_cb}
}

# ---- procd.sh ------------------------------------------------------------------------------------

procd_open_instance() { :; }
procd_close_instance() { :; }
procd_set_param() { echo "procd $*"; }
procd_add_reload_trigger() { echo "reload when $* changes"; }

# ---- jshn.sh: $JSON holds lines "NAME VALUE", a list has several of one name ---------------------

json_get_vars() {
	local name
	for name; do
		eval "$name=\$(printf '%s\n' \"\$JSON\" | sed -n \"s/^$name //p\")"
	done
}

json_for_each_item() {
	local function=$1 name=$2 key=0 value values
	shift 2
	values=$(printf '%s\n' "$JSON" | sed -n "s/^$name //p")
	if [ -z "$values" ]; then
		$function "" "" "$@"
		return
	fi
	local IFS='
'
	for value in $values; do
		unset IFS
		key=$((key + 1))
		$function "$value" "$key" "$@"
	done
}

# ---- netifd-proto.sh -----------------------------------------------------------------------------

add_protocol() { :; }
proto_config_add_array() { echo "takes $1"; }
proto_config_add_string() { echo "takes $1"; }
proto_config_add_int() { echo "takes $1"; }
proto_config_add_boolean() { echo "takes $1"; }
# Sets a variable of the environment of what proto_run_command starts.
proto_export() {
	echo "export $1"
	export "$1"
}
proto_run_command() {
	echo "run $*"
	shift
	"$@" >/dev/null 2>&1 &
	process=$!
}
proto_kill_command() {
	echo "kill $*"
	[ -z "$process" ] || kill "$process"
}
proto_notify_error() { echo "error $*"; }
proto_init_update() { echo "interface $*"; }
proto_add_ipv4_address() { echo "address $*"; }
proto_add_ipv6_address() { echo "address6 $*"; }
proto_add_ipv4_route() { echo "route $*"; }
proto_send_update() { echo "up $*"; }
