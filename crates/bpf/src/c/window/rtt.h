/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Round-trip times, passively: from a packet that passes towards an end to the first that comes
 * back and proves its arrival, by the echo of its time stamp (RFC 7323 4.1) or by its
 * acknowledgement.
 *
 * What is awaited stands where the packets that bring it look anyway, in the side of the other
 * direction. A packet that is timed, and the one that answers it, touch both sides; all between,
 * one.
 */
#ifndef WINDOW_RTT_H
#define WINDOW_RTT_H

#include "table.h"

#define MAX_WINDOW (65535u << 14)
#define SECOND 1000000000ULL
#define RTT_AGE (30 * SECOND)
#define WATCH_TIMEOUT (10 * SECOND)
/* Ticks as powers of two, ns. */
#define SINCE_TICK 10
#define LAST_TICK 22
#define TIMED_TICK 26

static __always_inline bool after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

static __always_inline void sample(struct rtt *rtt, __u64 nanos, __u64 now)
{
	if (!nanos)
		nanos = 1;
	if (!rtt->count || now - rtt->since >= RTT_AGE) {
		rtt->old_min = rtt->min;
		rtt->min = nanos;
		rtt->since = now;
	} else if (nanos < rtt->min) {
		rtt->min = nanos;
	}
	rtt->sum += nanos;
	rtt->count++;
	nanos /= 1000;
	rtt->latest = nanos > 0xffffffff ? 0xffffffff : nanos;
}

/* Whether the latest round trip of flow `index` beyond the interface was longer than the smallest
 * one by more than `wait` us. */
static __always_inline bool waits(__u32 index, __u32 wait)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, &index);
	struct rtt *rtt;
	__u64 floor;

	if (!flow)
		return false;
	rtt = &flow->rtt[OUT];
	floor = rtt->min;
	if (rtt->old_min && rtt->old_min < floor)
		floor = rtt->old_min;
	return floor && rtt->latest > floor / 1000 + wait;
}

/* Nothing of `direction` is timed any more; its answer was awaited in `other`. */
static __always_inline void stop_timing(struct side *own, struct side *other)
{
	other->since = 0;
	own->timed = 0;
}

/* A packet of `direction` that is newer than all before: times it, if none is timed. */
static __always_inline void time_packet(struct side *own, __u32 flow, __u32 direction, __u32 mark,
					__u64 now)
{
	struct side *other;
	__u16 tick = now >> TIMED_TICK | 1;

	if (own->timed && (__u16)(tick - own->timed) < WATCH_TIMEOUT >> TIMED_TICK)
		return;
	other = side_at(flow, !direction);
	if (!other)
		return;
	/* In this order, so that an answer on another CPU ends what has begun. */
	own->timed = tick;
	other->watch = mark;
	other->since = bpf_ktime_get_ns() >> SINCE_TICK | 1;
}

/* Counts a packet of `direction`, and times it if its turn has come. */
static __always_inline void passes(struct side *side, __u32 flow, __u32 direction,
				   struct packet *packet, __u64 now)
{
	__u32 mark = packet->timestamps ? packet->tsval : packet->seq + packet->payload;

	if (packet->payload) {
		side->bytes += packet->payload;
		side->last = now >> LAST_TICK | 1;
	}
	if (!packet->timestamps && !packet->payload)
		return;
	if (after(mark, side->seen)) {
		side->seen = mark;
		time_packet(side, flow, direction, mark, now);
	} else if (!packet->timestamps && side->timed) {
		/* Sent again: its answer may be for either copy (Karn's rule, RFC 6298 3). */
		struct side *other = side_at(flow, !direction);

		if (other)
			stop_timing(side, other);
	}
}

/* What was awaited has come. */
static __always_inline void end_timing(struct side *side, __u32 index, __u32 direction, bool exact)
{
	struct side *other = side_at(index, !direction);
	struct flow *flow = bpf_map_lookup_elem(&flows, &index);
	__u64 now = bpf_ktime_get_ns();

	if (!other || !flow)
		return;
	if (exact) {
		__u32 ticks = (__u32)(now >> SINCE_TICK | 1) - side->since;

		sample(&flow->rtt[~direction & 1], (__u64)ticks << SINCE_TICK, now);
	}
	stop_timing(other, side);
}

/* Takes what a packet of `direction` proves about the data of the other; the bytes that it
 * acknowledges. */
static __always_inline __u32 answered(struct side *side, __u32 flow, __u32 direction,
				      struct packet *packet)
{
	__u32 proof = packet->timestamps ? packet->tsecr : packet->ack, step;

	if (side->since && !after(side->watch, proof))
		end_timing(side, flow, direction, !packet->timestamps || proof == side->watch);
	step = packet->ack - (__u32)side->ack;
	if (step > MAX_WINDOW)
		return 0;
	side->ack += step;
	return step;
}

#endif
