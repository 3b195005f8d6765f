/* SPDX-License-Identifier: GPL-2.0 */
/* The window that a packet may carry (RFC 9293 3.8.6), and how it gets into the packet. */
#ifndef WINDOW_REWRITE_H
#define WINDOW_REWRITE_H

#include "rtt.h"

static __always_inline __u32 round_up(__u32 bytes, __u32 scale)
{
	return (bytes + (1u << scale) - 1) >> scale;
}

/* The smallest field that keeps the rules, at least 1. */
static __always_inline __u32 field_for(struct side *side, __u32 ack)
{
	__u32 scale = side->scale & 15, mss = side->mss ? side->mss : 1, room = side->edge - ack;
	__u32 window = side->window, field, other;

	if (window < mss)
		window = mss;
	if (window > MAX_WINDOW)
		window = MAX_WINDOW;
	field = window >> scale;
	other = round_up(mss, scale);
	if (field < other)
		field = other;
	if (room <= MAX_WINDOW) {
		other = round_up(room, scale);
		if (field < other)
			field = other;
	}
	return field > 65535 ? 65535 : field;
}

/* The window field that the packet shall have, and what is kept about it. */
static __always_inline __u16 advertise(struct side *side, struct packet *packet, bool live)
{
	__u32 field = packet->field, scale = side->scale & 15, edge;

	if (live && side->window && field) {
		__u32 limit = field_for(side, packet->ack);

		if (limit < field) {
			field = limit;
			side->clamped++;
		}
	}
	side->asked = packet->field;
	side->written = field;
	side->shift = scale;
	edge = packet->ack + (field << scale);
	if (after(edge, side->edge))
		side->edge = edge;
	return field;
}

/* Writes the window. The helper knows what the bytes do not tell: an unfinished checksum has no part
 * of the window and stays; a sum that the device made stays right, since both changes cancel out. */
static __always_inline void write_window(struct __sk_buff *skb, struct packet *packet, __u16 field)
{
	__u16 old = bpf_htons(packet->field), new = bpf_htons(field);

	if (!bpf_l4_csum_replace(skb, packet->at + 16, old, new, 2))
		bpf_skb_store_bytes(skb, packet->at + 14, &new, 2, 0);
}

#endif
