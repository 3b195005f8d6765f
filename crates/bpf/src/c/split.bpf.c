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
 * Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapter 3; ECN by RFC 6040,
 * normal mode.
 */
#include "sheaf.h"

/* Newer than some distributions' headers (Linux 6.3). */
#define ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7)
#define ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8)

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
	META_PACKETS,
	PACKETS,
	ECN_NOT_CAPABLE,
	REINJECT_FAILED,
	COUNTS,
};

struct split_config {
	__u32 ifindex;
	/* Accept meta packets from anyone. */
	__u32 any;
	/* Of the network namespace; the pair tells one splitter from all others. */
	__u64 netns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct split_config);
} split_config SEC(".maps");

struct address {
	__u8 bytes[16];
};

/* Who may send meta packets: IPv6, or IPv4 mapped into it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &what);

	if (value)
		*value += 1;
}

static __always_inline int refuse(__u32 why)
{
	count(why);
	return TC_ACT_SHOT;
}

struct inner {
	__u32 len;
	__u8 version;
	__u8 ecn;
};

/* Reads the inner packet at `at`, of which `left` bytes remain. Answers 0 or why it is refused. */
static __always_inline int read_inner(struct __sk_buff *skb, __u32 at, __u32 left, bool first,
				      struct inner *inner)
{
	__u8 head[V4_LEN];

	if (left < V4_LEN || bpf_skb_load_bytes(skb, at, head, sizeof(head)))
		return first ? TRUNCATED : TRAILING;
	inner->version = head[0] >> 4;
	if (inner->version == 4) {
		__u32 header = (head[0] & 0xf) * 4;

		inner->len = be16(head + 2);
		inner->ecn = head[1] & 3;
		if (header < V4_LEN)
			return BAD_VERSION;
		if (header > left)
			return TRUNCATED;
		if (inner->len < header)
			return BAD_VERSION;
		if (inner->len > left)
			return TRUNCATED;
		return head[9] == PROTO_META ? NESTED : 0;
	}
	if (inner->version == 6) {
		inner->len = V6_LEN + be16(head + 4);
		inner->ecn = head[1] >> 4 & 3;
		if (inner->len > left)
			return TRUNCATED;
		return head[6] == PROTO_META ? NESTED : 0;
	}
	return BAD_VERSION;
}

/* Whether the packet with this outer header is for this host: no route leads on. */
static __always_inline bool is_ours(struct __sk_buff *skb, const __u8 *head, bool v6)
{
	struct bpf_fib_lookup fib = {};
	int result;

	fib.ifindex = skb->ingress_ifindex;
	if (v6) {
		fib.family = 10; /* AF_INET6 */
		__builtin_memcpy(fib.ipv6_src, head + 8, 16);
		__builtin_memcpy(fib.ipv6_dst, head + 24, 16);
	} else {
		fib.family = 2; /* AF_INET */
		fib.tot_len = be16(head + 2);
		__builtin_memcpy(&fib.ipv4_src, head + 12, 4);
		__builtin_memcpy(&fib.ipv4_dst, head + 16, 4);
	}
	result = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	return result == BPF_FIB_LKUP_RET_NOT_FWDED || result == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

static __always_inline bool is_peer(const __u8 *head, bool v6)
{
	struct address source = {};
	__u32 zero = 0;
	struct split_config *config = bpf_map_lookup_elem(&split_config, &zero);

	if (config && config->any)
		return true;
	if (v6) {
		__builtin_memcpy(source.bytes, head + 8, 16);
	} else {
		source.bytes[10] = 0xff;
		source.bytes[11] = 0xff;
		__builtin_memcpy(source.bytes + 12, head + 12, 4);
	}
	return bpf_map_lookup_elem(&peers, &source) != NULL;
}

/* Writes the ECN field of the inner packet that now begins behind the Ethernet header. */
static __always_inline void set_ecn(struct __sk_buff *skb, struct inner *inner, __u8 ecn)
{
	__u8 word[2];

	if (bpf_skb_load_bytes(skb, ETH_LEN, word, 2))
		return;
	if (inner->version == 4) {
		__u16 before = bpf_htons(be16(word));

		word[1] = (word[1] & ~3) | ecn;
		bpf_l3_csum_replace(skb, ETH_LEN + 10, before, bpf_htons(be16(word)), 2);
	} else {
		word[1] = (word[1] & ~0x30) | ecn << 4;
	}
	bpf_skb_store_bytes(skb, ETH_LEN, word, 2, 0);
}

/* RFC 6040, figure 4: the inner field, or -1 for a packet that must be dropped. */
static __always_inline int decapsulate(__u8 inner, __u8 outer)
{
	if (outer == 3)
		return inner == 0 ? -1 : 3;
	if (inner == 2 && outer == 1)
		return 1;
	return inner;
}

/* What the passes over the inner packets share. */
struct pass {
	struct __sk_buff *skb;
	__u32 at;
	__u32 end;
	__u32 packets;
	__u32 strip;
	int why;
	__u8 outer_ecn;
	bool last_dropped;
};

/* First pass: is the next inner packet whole? */
static long check_one(__u32 i, struct pass *pass)
{
	struct inner inner;

	if (pass->at >= pass->end)
		return 1;
	pass->why = read_inner(pass->skb, pass->at, pass->end - pass->at, i == 0, &inner);
	if (pass->why)
		return 1;
	pass->at += inner.len;
	pass->packets++;
	return 0;
}

/* Second pass: strips what is in front of the next inner packet, and re-injects a copy of it unless
 * it is the last; that one the packet in hand becomes. */
static long deliver_one(__u32 i, struct pass *pass)
{
	struct __sk_buff *skb = pass->skb;
	struct inner inner;
	__u64 family;
	__u16 type;
	int ecn;

	if (read_inner(skb, ETH_LEN + pass->strip, pass->end, false, &inner)) {
		pass->why = REINJECT_FAILED;
		return 1;
	}
	family = inner.version == 4 ? ADJ_ROOM_DECAP_L3_IPV4 : ADJ_ROOM_DECAP_L3_IPV6;
	if (bpf_skb_adjust_room(skb, -(__s32)pass->strip, BPF_ADJ_ROOM_MAC, family)) {
		pass->why = REINJECT_FAILED;
		return 1;
	}
	type = bpf_htons(inner.version == 4 ? ETH_P_IP : ETH_P_IPV6);
	bpf_skb_store_bytes(skb, 12, &type, 2, 0);
	ecn = decapsulate(inner.ecn, pass->outer_ecn);
	if (ecn >= 0 && ecn != inner.ecn)
		set_ecn(skb, &inner, ecn);
	if (ecn < 0)
		count(ECN_NOT_CAPABLE);
	pass->last_dropped = ecn < 0;
	pass->strip = inner.len;
	pass->end -= inner.len;
	if (i + 1 < pass->packets && ecn >= 0)
		count(bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) ? REINJECT_FAILED
									   : PACKETS);
	return 0;
}

SEC("classifier")
int sheaf_split(struct __sk_buff *skb)
{
	__u8 head[V6_LEN] = {};
	struct pass pass = { .skb = skb };
	__u32 header, len;
	bool v6;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_LEN, head, V4_LEN) || head[9] != PROTO_META)
			return TC_ACT_UNSPEC;
		v6 = false;
		header = V4_LEN;
		len = be16(head + 2);
		pass.outer_ecn = head[1] & 3;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_LEN, head, V6_LEN) || head[6] != PROTO_META)
			return TC_ACT_UNSPEC;
		v6 = true;
		header = V6_LEN;
		len = V6_LEN + be16(head + 4);
		pass.outer_ecn = head[1] >> 4 & 3;
	} else {
		return TC_ACT_UNSPEC;
	}
	/* PACKET_HOST: what a promiscuous capture brings in is not ours. */
	if (skb->pkt_type != 0 || !is_ours(skb, head, v6))
		return TC_ACT_UNSPEC;

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
	if (!is_peer(head, v6))
		return refuse(UNKNOWN_PEER);

	pass.at = ETH_LEN + header;
	pass.end = ETH_LEN + len;
	bpf_loop(MAX_PACKETS, check_one, &pass, 0);
	if (pass.why)
		return refuse(pass.why);
	if (pass.packets == 0)
		return refuse(TRUNCATED);
	if (pass.at != pass.end)
		return refuse(TRAILING);

	count(META_PACKETS);
	pass.strip = header;
	pass.end = len - header;
	bpf_loop(pass.packets, deliver_one, &pass, 0);
	if (pass.why)
		return refuse(pass.why);
	if (pass.last_dropped)
		return TC_ACT_SHOT;
	count(PACKETS);
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
