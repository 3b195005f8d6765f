/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Splits meta packets at tc ingress.
 *
 * Principle: check everything, then deliver. A first pass walks the inner packets by their own
 * length fields; only when they tile the meta packet exactly does the second pass strip the outer
 * header and re-inject each inner packet on the same interface, so early that firewall, conntrack
 * and routing see it as if it had arrived alone. A refused meta packet is dropped whole and
 * counted by reason. Meta packets that are on their way to somebody else are left to the stack.
 *
 * Trust: a hop limit of 255 proves that the sender is on the link, so a neighbour has to send it
 * (GTSM, RFC 5082). From a far end, inner packets that only a neighbour may send are dropped.
 *
 * Order: a re-injected packet waits in the processor's backlog, while the frames that the interface
 * received together with the meta packet go on at once. So packets that come while inner ones are
 * in the backlog take their place behind them there.
 *
 * Frames to a group (group of the wire crate) are taken of neighbours, whoever is a member: what is
 * in them is for the kernel to judge. Nothing is in them but packets to that group.
 *
 * Format 2 (aggfrag and compress of the wire crate) is told by the first nibble behind the outer
 * header. Its frames are copied out of the packet, checked, and then each packet is put together
 * and becomes the content of the packet in hand, of which a copy is put in line. Streams and
 * contexts are in hash maps that take memory as they are filled; user space removes silent ones.
 * What is to be said about contexts, and what others say, goes to user space, which sends it.
 * Frames of one stream that two CPUs receive at once can cost packets: then a check fails. None
 * gets out wrong, since a packet is put together in memory of the CPU and checked there.
 *
 * Its frames may also be right behind the Ethernet header, of an EtherType of their own. Then the
 * stations' link addresses, as addresses of IPv6 that no host has, are in place of those of IP.
 * What is of that EtherType and no frame of a known station is somebody else's, and goes on as it
 * is.
 *
 * One program, and no second one by a tail call: the kernel empties a map of programs when the last
 * process that holds it goes, and the splitter stays. The model is the aggregate crate's; it does
 * the same, but for what is bounded (STREAMS, CONTEXTS, DEFINITIONS).
 *
 * For kernels from Linux 6.1 on, with and without type information and JIT: bounded loops, no
 * callbacks, no calls between functions, no flag of a helper that is younger.
 *
 * Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapter 3; ECN by RFC 6040,
 * normal mode.
 */
#include "split/deliver.h"
#include "split/maps.h"
#include "split/meta.h"
#include "split/streams.h"

/* Format 2 can be switched on. Written before the program is loaded: where it is 0, the verifier
 * does not look at the rest, which is three quarters of its work. */
const volatile __u32 takes_frames = 0;

#define AF_INET 2
#define AF_INET6 10

/* First byte of the prefix 100::/64, which stands for stations on the link (RFC 6666). */
#define DISCARD 1

static __always_inline void map_address(struct address *address, const __u8 *bytes, bool v6)
{
	if (v6) {
		__builtin_memcpy(address->bytes, bytes, 16);
	} else {
		__builtin_memset(address->bytes, 0, 10);
		address->bytes[10] = 0xff;
		address->bytes[11] = 0xff;
		__builtin_memcpy(address->bytes + 12, bytes, 4);
	}
}

/*
 * Whether the packet with this outer header is for this host.
 *
 * The routing tables say so on an interface that forwards. On one that does not, the kernel reports
 * just that, whatever the destination; likewise link-local destinations are never looked up. There
 * the addresses count that user space has noted, if it has.
 */
static __always_inline bool is_ours(struct __sk_buff *skb, const __u8 *head, bool v6,
				    struct split_config *config)
{
	struct bpf_fib_lookup fib = {};
	struct address destination;
	int result;

	fib.ifindex = skb->ingress_ifindex;
	if (v6) {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, head + 8, 16);
		__builtin_memcpy(fib.ipv6_dst, head + 24, 16);
	} else {
		fib.family = AF_INET;
		__builtin_memcpy(&fib.ipv4_src, head + 12, 4);
		__builtin_memcpy(&fib.ipv4_dst, head + 16, 4);
	}
	result = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	if (result != BPF_FIB_LKUP_RET_NOT_FWDED && result != BPF_FIB_LKUP_RET_FWD_DISABLED)
		return false;
	if (result == BPF_FIB_LKUP_RET_NOT_FWDED && !(v6 && v6_is_of_the_link(head + 24)))
		return true;
	if (!(config->own_known & (v6 ? 2 : 1)))
		return true;
	map_address(&destination, head + (v6 ? 24 : 16), v6);
	return bpf_map_lookup_elem(&own, &destination) != NULL;
}

/* Notes that a frame came from `source`, where user space wants to know. */
static __always_inline void note_heard(struct address *source)
{
	__u64 *at = bpf_map_lookup_elem(&heard, source);

	if (at)
		*at = bpf_ktime_get_coarse_ns();
}

/* Checks who sent the packet with this outer header. Returns 0 or why it is refused. */
static __always_inline int check_sender(struct work *work, const __u8 *head, bool v6,
					struct split_config *config)
{
	__u8 *known, kind = 0;

	map_address(&work->from, head + (v6 ? 8 : 12), v6);
	known = bpf_map_lookup_elem(&peers, &work->from);
	work->named = 0;
	if (known) {
		work->named = 1;
		kind = *known;
	}
	if (config->any)
		kind |= NEIGHBOUR;
	work->far = !(kind & NEIGHBOUR) || head[v6 ? 7 : 8] != HOP_LIMIT_NEIGHBOUR;
	if (!work->far || kind & FAR_END)
		return 0;
	return kind & NEIGHBOUR ? NOT_FROM_THE_LINK : UNKNOWN_PEER;
}

/* Notes to which group a frame is, by its outer header; see take_frame(). */
static __always_inline void take_group(struct work *work, const __u8 *head, bool v6)
{
	__builtin_memset(&work->event.stream, 0, sizeof(work->event.stream));
	__builtin_memset(work->to, 0, sizeof(work->to));
	if (v6) {
		__builtin_memcpy(work->to, head + 24, 16);
		work->group = 6;
	} else {
		__builtin_memcpy(work->to, head + 16, 4);
		work->group = 4;
	}
	/* That of all has room. */
	work->named = 1;
}

/* Notes the link addresses of a frame without a header of IP as those of its stream, and whether
 * the configuration names its sender. Returns whether it is one of a sender that may send it. */
static __always_inline bool is_from_station(struct __sk_buff *skb, struct work *work,
					    struct split_config *config)
{
	struct stream_name *stream = &work->event.stream;
	__u8 kind = config->any ? NEIGHBOUR : 0, first = 0xff;
	__u8 *known;

	__builtin_memset(stream, 0, sizeof(*stream));
	stream->source.bytes[0] = DISCARD;
	stream->destination.bytes[0] = DISCARD;
	if (bpf_skb_load_bytes(skb, 6, stream->source.bytes + 10, 6) ||
	    bpf_skb_load_bytes(skb, 0, stream->destination.bytes + 10, 6) ||
	    bpf_skb_load_bytes(skb, ETH_LEN, &first, 1))
		return false;
	known = bpf_map_lookup_elem(&peers, &stream->source);
	work->named = !!known;
	if (known)
		kind |= *known;
	if (!(kind & NEIGHBOUR)) {
		count(UNKNOWN_PEER, 1);
		return false;
	}
	if (first != SUB_TYPE_FRAME && first != SUB_TYPE_FEEDBACK) {
		count(FRAME_SUB_TYPE, 1);
		return false;
	}
	note_heard(&stream->source);
	return true;
}

SEC("classifier")
int sheaf_split(struct __sk_buff *skb)
{
	struct split_config *config;
	__u8 head[V6_LEN] = {};
	__u32 header, len, left, zero = 0;
	__u8 outer_ecn;
	bool v6, group;
	struct work *mine;
	__u8 first;
	int why;

	if (skb->tc_index & OUT_OF_LINE)
		return come_out(skb);
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_LEN, head, V4_LEN) || head[9] != PROTO_META)
			return go_on(skb);
		v6 = false;
		header = V4_LEN;
		len = be16(head + 2);
		outer_ecn = head[1] & 3;
		group = head[16] >> 4 == 0xe;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_LEN, head, V6_LEN) || head[6] != PROTO_META)
			return go_on(skb);
		v6 = true;
		header = V6_LEN;
		len = V6_LEN + be16(head + 4);
		outer_ecn = head[1] >> 4 & 3;
		group = head[24] == 0xff;
	} else if (skb->protocol == bpf_htons(ETH_P_MESH)) {
		return go_on(skb);
	} else if (takes_frames && skb->protocol == bpf_htons(ETH_P_FRAMES)) {
		config = bpf_map_lookup_elem(&split_config, &zero);
		mine = bpf_map_lookup_elem(&work, &zero);
		if (!config || !mine || !config->frames || !config->link || skb->vlan_present ||
		    skb->pkt_type != PACKET_HOST || !is_from_station(skb, mine, config))
			return go_on(skb);
		left = forget(skb, skb->len - ETH_LEN);
		header = 0;
		mine->group = 0;
		mine->far = 0;
		mine->ecn = 0;
		begin_count(mine);
		/* Only of a packet of IP the beginning is pulled away; see empty(). */
		if (set_protocol(skb, bpf_htons(ETH_P_IP))) {
			count(REINJECT_FAILED, 1);
			return TC_ACT_SHOT;
		}
		goto frame;
	} else {
		return TC_ACT_UNSPEC;
	}
	/* What a promiscuous capture brings in is not ours. */
	config = bpf_map_lookup_elem(&split_config, &zero);
	if (!config || skb->pkt_type > (group ? PACKET_MULTICAST : PACKET_HOST))
		return TC_ACT_UNSPEC;
	if (group) {
		/* Without format 2 it is one of a protocol that nobody knows. */
		if (!takes_frames || !config->frames)
			return TC_ACT_UNSPEC;
	} else if (!is_ours(skb, head, v6, config)) {
		count(NOT_OURS, 1);
		return go_on(skb);
	}

	if (!v6 && (head[0] & 0xf) < 5)
		return refuse(BAD_VERSION);
	if (len > skb->len - ETH_LEN || len < header)
		return refuse(len < header && !v6 ? BAD_VERSION : TRUNCATED);
	if (len > MAX_META)
		return refuse(OVERSIZED);
	if (!v6) {
		if (head[0] != 0x45)
			return refuse(OPTIONS);
		if (be16(head + 6) & 0x3fff)
			return refuse(FRAGMENT);
		if (fold(sum_v4(head)) != 0xffff)
			return refuse(BAD_CHECKSUM);
	}
	mine = bpf_map_lookup_elem(&work, &zero);
	if (!mine)
		return TC_ACT_SHOT;
	why = check_sender(mine, head, v6, config);
	if (why)
		return refuse(why);
	if (group && mine->far)
		return refuse(NOT_FROM_THE_LINK);
	note_heard(&mine->from);
	/* One way from here on, whichever led here. */
	mine->group = 0;
	len = forget(skb, len);
	left = forget(skb, len - header);
	mine->ecn = outer_ecn;
	begin_count(mine);
	if (takes_frames && config->frames && left &&
	    !bpf_skb_load_bytes(skb, ETH_LEN + header, &first, 1) && !(first >> 4)) {
		if (group) {
			take_group(mine, head, v6);
		} else {
			map_address(&mine->event.stream.source, head + (v6 ? 8 : 12), v6);
			map_address(&mine->event.stream.destination, head + (v6 ? 24 : 16), v6);
		}
frame:
		return take_frame(skb, config, mine, ETH_LEN + forget(skb, header), left);
	}
	if (group)
		return refuse(FRAME_GROUP);
	why = check_inner(skb, mine, left, ETH_LEN + len);
	if (why)
		return refuse(why);

	/* For a packet of IPv6, bpf_skb_adjust_room would always leave 40 bytes: more than a small
	 * IPv4 packet has. Declared IPv4, it leaves 20. (Its flags that say so came with Linux
	 * 6.3.) */
	if (skb->protocol == bpf_htons(ETH_P_IPV6) &&
	    bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0)) {
		mine->failed = 1;
	} else {
		deliver_inner(skb, mine, left);
	}
	end_count(mine);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
