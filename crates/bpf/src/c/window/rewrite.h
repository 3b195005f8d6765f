/* SPDX-License-Identifier: GPL-2.0 */
/* The window that a packet may carry (RFC 9293 3.8.6), and how it gets into the packet. */
#ifndef WINDOW_REWRITE_H
#define WINDOW_REWRITE_H

#include "rtt.h"

static __always_inline __u32 round_up(__u32 bytes, __u32 scale)
{
	return (bytes + (1u << scale) - 1) >> scale;
}

/* 2^32 by the golden ratio. */
#define DITHER 0x9e3779b1
/* Bytes of a growth of nothing; 0 would be any. */
#define NO_GROWTH 1

/* The largest window after `step` bytes of the `before` that were advertised have arrived: limited
 * slow start (RFC 3742). The field would always round down less than its unit, so what is left over
 * is rounded up at times, by bits of the number that is acknowledged. */
static __always_inline __u32 grown(__u32 ack, __u32 before, __u32 step, __u32 growth, __u32 scale)
{
	__u32 more = before > growth ? (__u64)step * growth / before : step;

	return before + more + (ack * DITHER >> 16 & ((1u << scale) - 1));
}

/* The smallest field that keeps the rules, at least 1. Windows grow from the edge `base` on. */
static __always_inline __u32 field_for(struct side *side, __u32 ack, __u32 step, __u32 growth,
				       __u32 base)
{
	__u32 scale = side->scale & 15, mss = side->mss ? side->mss : 1, room = base - ack;
	__u32 window = side->window, field, other;

	if (window > MAX_WINDOW)
		window = MAX_WINDOW;
	/* A receiver that held its sender itself goes on as it likes. */
	if (growth && room <= MAX_WINDOW && side->asked > side->written && window > room + step) {
		other = grown(ack, room + step, step, growth, scale);
		if (window > other)
			window = other;
	}
	if (window < mss)
		window = mss;
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

/* The window field that the packet may have, which acknowledges `step` bytes, where windows grow
 * from the edge `base` on by `growth` bytes in a round trip at most; 0: any. */
static __always_inline __u32 limit_of(struct side *side, struct packet *packet, __u32 step,
				      __u32 growth, __u32 base)
{
	__u32 limit = field_for(side, packet->ack, step, growth, base);

	return limit < packet->field ? limit : packet->field;
}

/* Keeps what is written into the packet. */
static __always_inline void keep(struct side *side, struct packet *packet, __u32 field)
{
	__u32 scale = side->scale & 15, edge = packet->ack + (field << scale);

	if (field < packet->field)
		side->clamped++;
	side->asked = packet->field;
	side->written = field;
	side->shift = scale;
	if (after(edge, side->edge))
		side->edge = edge;
}

/* Whether the checksum may be left to the device: then its field is the sum of the pseudo header
 * (RFC 9293 3.1). Words in the packet's own order, as such sums allow; 0xffff, which stands in
 * front of an IPv4 address in a key, adds nothing to them. A finished one looks like that once in
 * 65535 times. */
static __always_inline bool seems_unfinished(const struct packet *packet, __u16 checksum)
{
	__u64 sum = bpf_htons(PROTO_TCP) + bpf_htons(packet->len - (packet->at - packet->ip));

#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (packet->words[i] & 0xffffffff) + (packet->words[i] >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return fold(sum) == (checksum ? checksum : 0xffff);
}

/*
 * Writes the two bytes `at` in the TCP header, which are `old`, and mends the checksum (RFC 1624,
 * equation 3). In place: the two helpers for it cost more than all else that is done to a packet.
 * (The kernel makes packets that share their header with a copy writable before the program begins.
 * Those are local TCP's, and what a capture sees.)
 *
 * Only the helpers know what the bytes do not tell: an unfinished checksum has no part of the
 * header and stays. So they have their turn where it may be one. A sum that the device made stays
 * right in any case, since both changes cancel out.
 */
static __always_inline void replace(struct __sk_buff *skb, struct packet *packet, __u32 at,
				    __u16 old, __u16 new)
{
	__u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u8 *tcp = data + (packet->at & 127);

	old = bpf_htons(old);
	new = bpf_htons(new);
	if (!skb->gso_size && tcp + TCP_LEN <= end) {
		__u16 *checksum = (__u16 *)(tcp + 16);

		if (!seems_unfinished(packet, *checksum)) {
			*(__u16 *)(tcp + at) = new;
			*checksum = ~fold((__u16)~*checksum + (__u16)~old + new);
			return;
		}
	}
	if (!bpf_l4_csum_replace(skb, packet->at + 16, old, new, 2))
		bpf_skb_store_bytes(skb, packet->at + at, &new, 2, 0);
}

/*
 * Whether a packet of `own` data shall be pushed: a receiver acknowledges that at once, where it
 * would wait for a second segment else, and the acknowledgement of two lets two go, back to back.
 * (Linux since 6.6: tcp_measure_rcv_mss.) PSH says nothing about data or its order (RFC 9293
 * 3.9.1). Of a super-packet the last segment has it, as segmentation does.
 */
static __always_inline bool shall_push(const struct side *own, const struct packet *packet,
				       const struct control *settings, __u32 direction, bool live)
{
	return packet->payload && !(packet->flags & PSH) && own->governed &&
	       settings->push[direction & 1] && live;
}

static __always_inline void write_push(struct __sk_buff *skb, struct packet *packet)
{
	replace(skb, packet, 12, packet->lead, packet->lead | PSH);
}

static __always_inline void write_window(struct __sk_buff *skb, struct packet *packet, __u16 field)
{
	replace(skb, packet, 14, packet->field, field);
}

#endif
