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
 * For kernels from Linux 6.1 on, with and without type information and JIT: bounded loops, no
 * callbacks, no calls between functions, no flag of a helper that is younger.
 *
 * Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapter 3; ECN by RFC 6040,
 * normal mode.
 */
#include "sheaf.h"
#include "line.h"

#define AF_INET 2
#define AF_INET6 10
#define PACKET_HOST 0

/* Outer hop limit of a neighbour's meta packets. */
#define HOP_LIMIT_NEIGHBOUR 255
/* ICMPv6 types of neighbour discovery: router solicitation to redirect (RFC 4861). */
#define DISCOVERY_FIRST 133
#define DISCOVERY_LAST 137
#define PROTO_ICMPV6 58

#define CPUS 256 /* a power of two */
/* What is in the backlog after so long was dropped there or by another program. In ns. */
#define LOST 100000000

/* Order and meaning as enum Refusal of the wire crate, then what only this program counts. */
enum count {
	NOT_META,
	TRUNCATED,
	TRAILING,
	NESTED,
	BAD_VERSION,
	BAD_CHECKSUM,
	UNKNOWN_PEER,
	OPTIONS,
	FRAGMENT,
	OVERSIZED,
	NOT_FROM_THE_LINK,
	META_PACKETS,
	PACKETS,
	ECN_NOT_CAPABLE,
	ONLY_NEIGHBOURS_SAY,
	NOT_OURS,
	REINJECT_FAILED,
	COUNTS,
};

/* What a sender may be. Bits, as an address may be both. */
#define NEIGHBOUR 1
#define FAR_END 2

struct split_config {
	/* Every address may be a neighbour. */
	__u32 any;
	/* Families of which `own` has all addresses: 4 and 6 as bits 0 and 1. */
	__u32 own_known;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct split_config);
} split_config SEC(".maps");

/* IPv6, or IPv4 mapped into it. */
struct address {
	__u8 bytes[16];
};

/* Who may send meta packets: NEIGHBOUR, FAR_END or both. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} peers SEC(".maps");

/* This host's addresses, for destinations of which the routing tables do not say whose they are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} own SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* What a CPU has put into its backlog, and what has come out. */
struct line {
	__u32 in, out;
	__u64 last; /* ns: when something was put in */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS);
	__type(key, __u32);
	__type(value, struct line);
} lines SEC(".maps");

static __always_inline void count(__u32 what, __u64 times)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &what);

	if (value)
		*value += times;
}

static __always_inline int refuse(__u32 why)
{
	count(why, 1);
	return TC_ACT_SHOT;
}

/*
 * Returns `value`, of which the verifier then knows nothing. It follows a loop turn by turn, and
 * takes two ways through a turn for one only where they leave the same behind; a length that it
 * knows to be 20 or more on one way and 40 or more on the other doubles its work with each turn.
 */
static __always_inline __s32 forget(struct __sk_buff *skb, __s32 value)
{
	volatile __u32 *cell = &skb->cb[0];

	*cell = value;
	return *cell;
}

/* Reads the first bytes of the inner packet at `at`, of which `left` bytes remain. Returns its
 * length, or below 0 why it is refused. */
static __always_inline __s32 read_inner(struct __sk_buff *skb, __u32 at, __u32 left, bool first,
					__u8 head[V4_LEN])
{
	__u32 header, len;

	if (left < V4_LEN || bpf_skb_load_bytes(skb, at, head, V4_LEN))
		return first ? -TRUNCATED : -TRAILING;
	if (head[0] >> 4 == 4) {
		header = (head[0] & 0xf) * 4;
		len = be16(head + 2);
		if (header < V4_LEN)
			return -BAD_VERSION;
		if (header > left)
			return -TRUNCATED;
		if (len < header)
			return -BAD_VERSION;
		if (head[9] == PROTO_META && len <= left)
			return -NESTED;
	} else if (head[0] >> 4 == 6) {
		len = V6_LEN + be16(head + 4);
		if (head[6] == PROTO_META && len <= left)
			return -NESTED;
	} else {
		return -BAD_VERSION;
	}
	return len > left ? -TRUNCATED : (__s32)len;
}

/* Link-local, or multicast, reserved and broadcast. */
static __always_inline bool v4_is_of_the_link(const __u8 *address)
{
	return address[0] >= 224 || (address[0] == 169 && address[1] == 254);
}

static __always_inline bool v6_is_of_the_link(const __u8 *address)
{
	return address[0] == 0xff || (address[0] == 0xfe && (address[1] & 0xc0) == 0x80);
}

/* Whether a host would believe the inner packet at `at`, of `len` bytes, only of a neighbour. */
static __always_inline bool only_neighbours_say(struct __sk_buff *skb, __u32 at, __u32 len,
						const __u8 head[V4_LEN])
{
	__u8 destination[2], type;

	if (head[0] >> 4 == 4)
		return head[8] == HOP_LIMIT_NEIGHBOUR || v4_is_of_the_link(head + 12) ||
		       v4_is_of_the_link(head + 16);
	if (head[7] == HOP_LIMIT_NEIGHBOUR || v6_is_of_the_link(head + 8))
		return true;
	if (bpf_skb_load_bytes(skb, at + 24, destination, 2) || v6_is_of_the_link(destination))
		return true;
	/* Behind extension headers it needs no look: discovery counts with a hop limit of 255 only.
	 * */
	if (head[6] != PROTO_ICMPV6 || len <= V6_LEN)
		return false;
	return bpf_skb_load_bytes(skb, at + V6_LEN, &type, 1) ||
	       (type >= DISCOVERY_FIRST && type <= DISCOVERY_LAST);
}

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

/* Writes the ECN field of the inner packet that now begins behind the Ethernet header. */
static __always_inline void set_ecn(struct __sk_buff *skb, const __u8 head[V4_LEN], __u8 ecn)
{
	__u8 word[2] = { head[0], head[1] };

	if (head[0] >> 4 == 4) {
		__u16 before = bpf_htons(be16(word));

		word[1] = (word[1] & ~3) | ecn;
		bpf_l3_csum_replace(skb, ETH_LEN + 10, before, bpf_htons(be16(word)), 2);
	} else {
		word[1] = (word[1] & ~0x30) | ecn << 4;
	}
	bpf_skb_store_bytes(skb, ETH_LEN, word, 2, 0);
}

/* The packet must be dropped: it met congestion and cannot be marked. */
#define ECN_DROP 4

/* RFC 6040, figure 4: the inner field that is delivered, or ECN_DROP. Figures in a row of nibbles,
 * by inner and outer field: no branches that the verifier would have to follow. */
static __always_inline __u8 decapsulate(__u8 inner, __u8 outer)
{
	return 0x3333321231114000ULL >> (inner << 4 | outer << 2) & 7;
}

/* Checks who sent the packet with this outer header. Returns 0 or why it is refused. */
static __always_inline int check_sender(const __u8 *head, bool v6, struct split_config *config,
					bool *far)
{
	struct address source;
	__u8 *known, kind;

	map_address(&source, head + (v6 ? 8 : 12), v6);
	known = bpf_map_lookup_elem(&peers, &source);
	kind = (known ? *known : 0) | (config->any ? NEIGHBOUR : 0);
	*far = !(kind & NEIGHBOUR) || head[v6 ? 7 : 8] != HOP_LIMIT_NEIGHBOUR;
	if (!*far || kind & FAR_END)
		return 0;
	return kind & NEIGHBOUR ? NOT_FROM_THE_LINK : UNKNOWN_PEER;
}

/* First pass: checks that inner packets tile the `left` bytes before `end`. Returns 0 or why not.
 * */
static __always_inline int check_inner(struct __sk_buff *skb, __u32 left, __u32 end)
{
	__u8 head[V4_LEN];

	if (!left)
		return TRUNCATED;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_PACKETS; i++) {
		__s32 len = forget(skb, read_inner(skb, end - left, left, i == 0, head));

		if (len < 0)
			return -len;
		left = forget(skb, left - len);
		if (!left)
			return 0;
	}
	return TRAILING;
}

/* Puts a copy of the packet into the backlog, from where it passes this program again. Returns 0
 * when it is there. */
static __always_inline int put_in_line(struct __sk_buff *skb, struct line *line)
{
	int refused;

	/* First, as with receive packet steering it may come out on another CPU meanwhile. */
	__sync_fetch_and_add(&line->in, 1);
	refused = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	if (refused)
		__sync_fetch_and_sub(&line->in, 1);
	return refused;
}

/* A packet that comes out of the backlog. */
static __always_inline int come_out(struct __sk_buff *skb)
{
	__u32 cpu = skb->tc_index & (CPUS - 1);
	struct line *line = bpf_map_lookup_elem(&lines, &cpu);

	skb->tc_index = 0;
	/* One that was taken for lost may come, too. */
	if (line && line->in != line->out)
		__sync_fetch_and_add(&line->out, 1);
	return TC_ACT_UNSPEC;
}

/* What becomes of a packet that is not split: it goes on, behind inner packets that came before. */
static __always_inline int go_on(struct __sk_buff *skb)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct line *line = bpf_map_lookup_elem(&lines, &cpu);

	if (!line || line->in == line->out || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	if (bpf_ktime_get_ns() - line->last > LOST) {
		line->out = line->in;
		return TC_ACT_UNSPEC;
	}
	skb->tc_index = OUT_OF_LINE | (cpu & (CPUS - 1));
	if (!put_in_line(skb, line))
		return TC_ACT_SHOT;
	/* The backlog is full. */
	skb->tc_index = 0;
	return TC_ACT_UNSPEC;
}

/*
 * Second pass: strips what is in front of the next inner packet and re-injects a copy of the rest,
 * which the IP layer trims. The last one is copied, too: of a packet that the program itself
 * becomes (bpf_redirect) nobody learns that the backlog refused it.
 */
static __always_inline void deliver(struct __sk_buff *skb, __u32 left, __u8 outer_ecn, bool far)
{
	/* Of the outer header, an IPv6 one already cut to this length. */
	__u32 strip = V4_LEN;
	/* Kept where the verifier forgets in each turn which way the last one went. */
	volatile __u32 *from_afar = &skb->cb[1];
	__u32 cpu = bpf_get_smp_processor_id();
	struct line *line = bpf_map_lookup_elem(&lines, &cpu);
	__u8 head[V4_LEN];
	__u64 delivered = 0;

	*from_afar = far;
	if (!line) {
		cpu = 0;
		line = bpf_map_lookup_elem(&lines, &cpu);
		if (!line)
			return;
	}
	line->last = bpf_ktime_get_ns();
	skb->tc_index = OUT_OF_LINE | (cpu & (CPUS - 1));

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_PACKETS; i++) {
		__s32 len = forget(skb, read_inner(skb, ETH_LEN + strip, left, false, head));
		__u8 before, ecn;
		__u16 type;

		if (len < 0 || bpf_skb_adjust_room(skb, -(__s32)strip, BPF_ADJ_ROOM_MAC, 0)) {
			count(REINJECT_FAILED, 1);
			break;
		}
		if (head[0] >> 4 == 4) {
			before = head[1] & 3;
			type = bpf_htons(ETH_P_IP);
		} else {
			before = head[1] >> 4 & 3;
			type = bpf_htons(ETH_P_IPV6);
		}
		ecn = decapsulate(before, outer_ecn);
		if (*from_afar && only_neighbours_say(skb, ETH_LEN, len, head)) {
			count(ONLY_NEIGHBOURS_SAY, 1);
		} else if (ecn == ECN_DROP) {
			count(ECN_NOT_CAPABLE, 1);
		} else {
			if (ecn != before)
				set_ecn(skb, head, ecn);
			/* The receiving side reads the protocol anew from here. */
			bpf_skb_store_bytes(skb, 12, &type, 2, 0);
			if (put_in_line(skb, line))
				count(REINJECT_FAILED, 1);
			else
				delivered++;
		}
		strip = len;
		left = forget(skb, left - len);
		if (!left)
			break;
	}
	count(PACKETS, delivered);
}

SEC("classifier")
int sheaf_split(struct __sk_buff *skb)
{
	struct split_config *config;
	__u8 head[V6_LEN] = {};
	__u32 header, len, left, zero = 0;
	__u8 outer_ecn;
	bool v6, far;
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
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_LEN, head, V6_LEN) || head[6] != PROTO_META)
			return go_on(skb);
		v6 = true;
		header = V6_LEN;
		len = V6_LEN + be16(head + 4);
		outer_ecn = head[1] >> 4 & 3;
	} else {
		return TC_ACT_UNSPEC;
	}
	/* What a promiscuous capture brings in is not ours. */
	config = bpf_map_lookup_elem(&split_config, &zero);
	if (!config || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	if (!is_ours(skb, head, v6, config)) {
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
	why = check_sender(head, v6, config, &far);
	if (why)
		return refuse(why);
	/* One way from here on, whichever led here. */
	far = forget(skb, far);
	len = forget(skb, len);
	left = forget(skb, len - header);
	outer_ecn = forget(skb, outer_ecn);
	why = check_inner(skb, left, ETH_LEN + len);
	if (why)
		return refuse(why);

	count(META_PACKETS, 1);
	/* For a packet of IPv6, bpf_skb_adjust_room would always leave 40 bytes: more than a small
	 * IPv4 packet has. Declared IPv4, it leaves 20. (Its flags that say so came with Linux
	 * 6.3.) */
	if (skb->protocol == bpf_htons(ETH_P_IPV6) &&
	    bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0)) {
		count(REINJECT_FAILED, 1);
		return TC_ACT_SHOT;
	}
	deliver(skb, left, outer_ecn, far);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
