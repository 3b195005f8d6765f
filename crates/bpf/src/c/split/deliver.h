/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Delivery of one inner packet: whether it is believed, its ECN field, and its place in line.
 */
#ifndef SPLIT_DELIVER_H
#define SPLIT_DELIVER_H

#include "../line.h"
#include "maps.h"

#define PACKET_HOST 0
#define PACKET_MULTICAST 2 /* to all is below it */
/* What is in the backlog after so long was dropped there or by another program. In ns. */
#define LOST_AFTER 100000000

/* Outer hop limit of a neighbour's meta packets. */
#define HOP_LIMIT_NEIGHBOUR 255
/* ICMPv6 types of neighbour discovery: router solicitation to redirect (RFC 4861). */
#define DISCOVERY_FIRST 133
#define DISCOVERY_LAST 137
#define PROTO_ICMPV6 58

/* Link-local, or multicast, reserved and broadcast. */
static __always_inline bool v4_is_of_the_link(const __u8 *address)
{
	return address[0] >= 224 || (address[0] == 169 && address[1] == 254);
}

static __always_inline bool v6_is_of_the_link(const __u8 *address)
{
	return address[0] == 0xff || (address[0] == 0xfe && (address[1] & 0xc0) == 0x80);
}

/* Whether a host would believe the packet in hand, of `len` bytes, only of a neighbour. */
static __always_inline bool only_neighbours_say(struct __sk_buff *skb, struct work *work, __u32 len)
{
	const __u8 *head = work->head;

	if (head[0] >> 4 == 4)
		return head[8] == HOP_LIMIT_NEIGHBOUR || v4_is_of_the_link(head + 12) ||
		       v4_is_of_the_link(head + 16);
	if (head[7] == HOP_LIMIT_NEIGHBOUR || v6_is_of_the_link(head + 8))
		return true;
	if (bpf_skb_load_bytes(skb, ETH_LEN + 24, work->peek, 2) || v6_is_of_the_link(work->peek))
		return true;
	/* Behind extension headers it needs no look: discovery counts with a hop limit of 255 only.
	 * */
	if (head[6] != PROTO_ICMPV6 || len <= V6_LEN)
		return false;
	return bpf_skb_load_bytes(skb, ETH_LEN + V6_LEN, work->peek, 1) ||
	       (work->peek[0] >= DISCOVERY_FIRST && work->peek[0] <= DISCOVERY_LAST);
}

/* Writes the ECN field of the packet in hand. */
static __always_inline void set_ecn(struct __sk_buff *skb, struct work *work, __u8 ecn)
{
	const __u8 *head = work->head;
	__u8 *word = work->peek;

	word[0] = head[0];
	if (head[0] >> 4 == 4) {
		word[1] = (head[1] & ~3) | ecn;
		bpf_l3_csum_replace(skb, ETH_LEN + 10, bpf_htons(be16(head)),
				    bpf_htons(be16(word)), 2);
	} else {
		word[1] = (head[1] & ~0x30) | ecn << 4;
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

	if (!line || line->in == line->out || skb->pkt_type > PACKET_MULTICAST)
		return TC_ACT_UNSPEC;
	if (bpf_ktime_get_ns() - line->last > LOST_AFTER) {
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

/* The line of this CPU, which something is now put into. */
static __always_inline struct line *begin_line(struct __sk_buff *skb)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct line *line = bpf_map_lookup_elem(&lines, &cpu);

	if (!line) {
		cpu = 0;
		line = bpf_map_lookup_elem(&lines, &cpu);
		if (!line)
			return NULL;
	}
	line->last = bpf_ktime_get_ns();
	skb->tc_index = OUT_OF_LINE | (cpu & (CPUS - 1));
	return line;
}

/*
 * Puts a copy of the packet in hand in line, which begins behind the Ethernet header with `head`
 * and has `len` bytes. The last packet is copied, too: of one that the program itself becomes
 * (bpf_redirect) nobody learns that the backlog refused it.
 */
static __always_inline void deliver(struct __sk_buff *skb, struct work *work, struct line *line,
				    __u32 len)
{
	__u8 before;

	if (work->head[0] >> 4 == 4) {
		before = work->head[1] & 3;
		work->type = bpf_htons(ETH_P_IP);
	} else {
		before = work->head[1] >> 4 & 3;
		work->type = bpf_htons(ETH_P_IPV6);
	}
	work->before_ecn = before;
	work->new_ecn = decapsulate(before, work->outer_ecn);
	if (work->far && only_neighbours_say(skb, work, len)) {
		work->not_believed++;
		return;
	}
	if (work->new_ecn == ECN_DROP) {
		work->not_capable++;
		return;
	}
	if (work->new_ecn != work->before_ecn)
		set_ecn(skb, work, work->new_ecn);
	/* The receiving side reads the protocol anew from here. */
	bpf_skb_store_bytes(skb, 12, &work->type, 2, 0);
	if (put_in_line(skb, line))
		work->failed++;
	else
		work->packets++;
}

/* Begins to count what becomes of inner packets. */
static __always_inline void begin_count(struct work *work)
{
	work->packets = 0;
	work->not_capable = 0;
	work->not_believed = 0;
	work->failed = 0;
}

/* Counts what became of them, and the meta packet or frame around them. */
static __always_inline void end_count(struct work *work)
{
	count(META_PACKETS, 1);
	if (work->packets)
		count(PACKETS, work->packets);
	if (work->not_capable)
		count(ECN_NOT_CAPABLE, work->not_capable);
	if (work->not_believed)
		count(ONLY_NEIGHBOURS_SAY, work->not_believed);
	if (work->failed)
		count(REINJECT_FAILED, work->failed);
}

#endif
