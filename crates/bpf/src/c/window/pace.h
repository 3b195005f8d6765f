/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The clock of uploads: their right edges advance together at the rate of the link, and what an
 * acknowledgement must not give a copy of it gives later. The crate `window` has the same in
 * pace.rs, with the reasons.
 *
 * A copy goes out by a TAP interface, whose other end holds it for some milliseconds and sends it
 * back; there `sheaf_back` gives it its window and lets it arrive on the interface that the
 * acknowledgement came by.
 */
#ifndef WINDOW_PACE_H
#define WINDOW_PACE_H

#include "rewrite.h"

/* Segments that may go back to back after a pause. */
#define PACE_BURST 2
/* ns: longest wait of a segment. */
#define PACE_AHEAD (SECOND / 10)

/* Bytes that may be let go now, of segments of `mss` bytes. */
static __always_inline __u32 credit(struct pace *pace, __u32 cost, __u32 mss, __u64 now)
{
	__u64 burst = time_of(PACE_BURST * mss, cost), due = pace->due;
	__u64 earliest = now > burst ? now - burst : 0;

	if (due < earliest)
		due = earliest;
	if (due > now + PACE_AHEAD)
		due = now + PACE_AHEAD;
	pace->due = due;
	return now > due ? ((now - due) << COST_SHIFT) / cost : 0;
}

/* The right edge without a clock. An old one is not near this one. */
static __always_inline __u32 goal_of(const struct flow *flow, const struct side *side)
{
	return flow->goal - side->edge <= side->window ? flow->goal : side->edge;
}

/* The part of the window field `whole` that may be written now: one segment, or what was
 * advertised already, and what the clock lets go. */
static __always_inline __u32 open_by(struct pace *pace, __u32 cost, const struct side *side,
				     __u32 ack, __u32 whole, __u64 now)
{
	__u32 scale = side->scale & 15, mss = side->mss ? side->mss : 1, room = side->edge - ack;
	__u32 open, least, other, field;

	/* A sender that went beyond the edge has no room. */
	if (room > MAX_WINDOW)
		room = 0;
	open = (room + credit(pace, cost, mss, now)) >> scale;
	least = round_up(room, scale);
	other = round_up(mss, scale);
	if (least < other)
		least = other;
	if (open < least)
		open = least;
	field = whole < open ? whole : open;
	if (field << scale > room)
		pace->due += time_of((field << scale) - room, cost);
	return field;
}

/* Sends a copy of the packet as it is now to where copies come back from. */
static __always_inline void copy(struct __sk_buff *skb, const struct control *settings,
				 struct pace *pace)
{
	pace->copies++;
	if (settings->back)
		bpf_clone_redirect(skb, settings->back, 0);
}

/* Gives a copy of an acknowledgement, which comes back, what may be given of the window that was
 * withheld; false where that is nothing: then the link has enough, and what was let go brings the
 * next acknowledgement. */
static __always_inline bool release(struct __sk_buff *skb, struct packet *packet,
				    struct control *settings, bool live)
{
	__u32 zero = 0, cost = settings->pace, whole = 65535, field, scale, index;
	struct pace *pace = bpf_map_lookup_elem(&paces, &zero);
	struct place place;
	struct flow *flow;
	struct side *side;

	if (!pace || !find(hash_of(packet->words, settings), &place))
		return false;
	index = place.flow;
	side = side_at(place.flow, IN);
	flow = bpf_map_lookup_elem(&flows, &index);
	/* A newer one has passed. */
	if (!side || !flow || packet->ack != (__u32)side->ack)
		return false;
	scale = side->scale & 15;
	if (live && side->window) {
		__u32 room = goal_of(flow, side) - packet->ack;

		if (room > MAX_WINDOW)
			return false;
		whole = room >> scale;
	}
	if (whole > packet->field)
		whole = packet->field;
	field = whole;
	if (live && cost)
		field = open_by(pace, cost, side, packet->ack, whole, exact_ns(settings));
	if (!after(packet->ack + (field << scale), side->edge))
		return false;
	side->written = field;
	side->edge = packet->ack + (field << scale);
	if (field < whole)
		copy(skb, settings, pace);
	if (field != packet->field)
		write_window(skb, packet, field);
	return true;
}

#endif
