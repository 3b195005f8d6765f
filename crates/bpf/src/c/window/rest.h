/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rest: bulk data that windows do not govern. Each flow has a virtual queue that drains at its
 * share, and CoDel (RFC 8289) marks or drops by the wait in it. The crate `window` has the same in
 * rest.rs, with the reasons.
 */
#ifndef WINDOW_REST_H
#define WINDOW_REST_H

#include "packet.h"

#define MILLISECOND 1000000ULL
#define TARGET (5 * MILLISECOND)
#define INTERVAL (100 * MILLISECOND)
#define LIMIT (200 * MILLISECOND)
#define SOON (16 * INTERVAL)
#define FULL_FRAME 1514

enum { EF = 46, CS6 = 48 };
enum verdict { PASS, MARK, DROP };

/* Both bits of the ECN field. (The helper for it does not look behind VLAN tags.) */
static __always_inline void set_ce(struct __sk_buff *skb, struct packet *packet)
{
	__u8 head[2] __attribute__((aligned(2)));
	__u16 old, new;

	if (bpf_skb_load_bytes(skb, packet->ip, head, 2))
		return;
	old = *(__u16 *)head;
	head[1] |= packet->v6 ? 0x30 : 3;
	new = *(__u16 *)head;
	if (packet->v6) {
		/* No checksum in the header: a sum that the device made must follow. */
		bpf_skb_store_bytes(skb, packet->ip, head, 2, BPF_F_RECOMPUTE_CSUM);
	} else if (!bpf_l3_csum_replace(skb, packet->ip + 10, old, new, 2)) {
		bpf_skb_store_bytes(skb, packet->ip, head, 2, 0);
	}
}

/* One step of Newton's method towards 1 / sqrt(count), as Linux's CoDel has it. */
static __always_inline void step_inverse(struct rest *flow)
{
	__u64 inverse = (__u64)flow->inverse << 16, square = inverse * inverse >> 32;
	__u64 part = flow->count * square, three = 3ULL << 32;

	if (flow->count == 1) {
		flow->inverse = 0xffff;
		return;
	}
	part = part < three ? (three - part) >> 2 : 0;
	flow->inverse = part * inverse >> (32 - 2 + 1 + 16);
}

/* CoDel's decision about a packet that would wait for `wait`. */
static __always_inline bool is_signal(struct rest *flow, __u64 wait, __u64 frame, __u64 now)
{
	if (wait <= TARGET || wait <= frame) {
		flow->above = 0;
		flow->signals = 0;
		return false;
	}
	if (!flow->above) {
		flow->above = now + INTERVAL;
		return false;
	}
	if (now < flow->above || (flow->signals && now < flow->next))
		return false;
	if (flow->signals) {
		if (flow->count != 0xffffffff)
			flow->count++;
	} else {
		__u32 before = flow->count > flow->first ? flow->count - flow->first : 0;

		flow->signals = 1;
		flow->count = before > 1 && now < flow->next + SOON ? before : 1;
		flow->first = flow->count;
		flow->next = now;
	}
	step_inverse(flow);
	flow->next += INTERVAL * flow->inverse >> 16;
	return true;
}

/* What becomes of a packet. */
static __always_inline enum verdict judge(struct rest *flow, struct packet *packet, __u32 cost,
					  bool drops, __u64 now)
{
	__u8 ecn = packet->class & 3;
	__u64 start, time;
	bool signal;

	if (ecn)
		flow->capable++;
	else if (!drops)
		return PASS;
	start = flow->due > now ? flow->due : now;
	if (drops && start - now > LIMIT)
		return DROP;
	signal = is_signal(flow, start - now, time_of(FULL_FRAME, cost), now);
	if (signal && !ecn)
		return DROP;
	time = start + time_of(packet->wire, cost);
	if (!drops && time > now + LIMIT)
		time = now + LIMIT;
	flow->due = time;
	return signal && ecn != 3 ? MARK : PASS;
}

/* A packet of the rest, which is marked here; whether it is to be dropped. */
static __always_inline bool rest_passes(struct __sk_buff *skb, struct scratch *room,
					struct control *settings, struct totals *total,
					__u32 direction, bool live)
{
	struct packet *packet = &room->packet;
	__u32 cost = settings->cost[direction & 1];
	__u8 class = packet->class >> 2;
	struct rest_pair *both;
	struct rest *flow;
	enum verdict verdict;

	if (!live || !cost)
		return false;
	if (class == EF || class == CS6) {
		total->voice += packet->wire;
		if (settings->voice[direction & 1])
			return false;
	}
	packet->rest.protocol = packet->protocol;
	both = bpf_map_lookup_elem(&rest, &packet->rest);
	if (!both) {
		__builtin_memset(&room->rest, 0, sizeof(room->rest));
		bpf_map_update_elem(&rest, &packet->rest, &room->rest, BPF_NOEXIST);
		both = bpf_map_lookup_elem(&rest, &packet->rest);
		if (!both)
			return false;
	}
	flow = &both->direction[direction & 1];
	verdict = judge(flow, packet, cost, settings->drops[direction & 1],
			exact_ns(settings));
	if (verdict == DROP) {
		total->dropped++;
		/* On its way out it takes nothing of the bottleneck. */
		if (direction == OUT)
			total->wire -= packet->wire;
		else
			flow->wire += packet->wire;
		return true;
	}
	flow->wire += packet->wire;
	if (verdict == MARK) {
		total->marked++;
		set_ce(skb, packet);
	}
	return false;
}

#endif
