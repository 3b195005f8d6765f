/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bytes: checksums that are finished, the outer header, and packets that become carriers.
 */
#ifndef MERGE_FRAME_H
#define MERGE_FRAME_H

#include "../frames.h"
#include "maps.h"

/* Bytes of a frame that is too short for the packet that carries it: of IPv6 in a frame of a mesh
 * the transport header stands at 78, with a VLAN at 82. */
#define PADDED 128

/* Whether frames to this hop have no header of IP. */
static __always_inline bool is_link(const struct hop *hop)
{
	return !hop->family;
}

/* The most that bpf_skb_adjust_room() pulls away is 4095 bytes. */
#define MAX_PULL 4000

/* Whether `len` bytes more, the outer header among them, fit into a frame under construction of at
 * most `max`, and may: it is of the stream with this tag. A cut block may come on top. */
static __always_inline bool has_room(const struct pending *pending, __u32 len,
				     __u32 max, __u32 tag)
{
	return pending->tag == tag && pending->len + len <= max &&
	       pending->count < (tag ? MAX_BLOCKS - 1 : MAX_PACKETS);
}

/* Whether it is one packet, which leaves as it is. */
static __always_inline bool is_alone(const struct pending *pending)
{
	return pending->count == 1 && pending->plain;
}

/* Place of the checksum in a packet of UDP or TCP. */
static __always_inline __u32 field_of(struct packet *packet)
{
	return (packet->v6 ? V6_LEN : V4_LEN) + (packet->protocol == PROTO_UDP ? 6 : 16);
}

/* The sum of the bytes from `at` on of the packet of `len` bytes in `frame`. */
static __always_inline __s64 sum_from(struct frame *frame, __u32 at, __u32 len)
{
	__s64 sum = 0;
	__u32 left, from;

	if (len > MAX_META || len < at)
		return 0;
	/* The sum goes by four bytes. */
	frame->bytes[len] = 0;
	frame->bytes[len + 1] = 0;
	frame->bytes[len + 2] = 0;
	left = len - at;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u32 part = left > 512 ? 512 : (left + 3) & ~3;

		if (!left)
			break;
		if (part > 512)
			part = 512;
		/* Below `len`, as there is something left. Masked: an older verifier forgets what a
		 * comparison has said of a number that it then finds on the stack. */
		from = at;
		FORGET(from);
		from &= MAX_META - 1;
		sum = bpf_csum_diff(NULL, 0, (void *)(frame->bytes + from), part, sum);
		at += 512;
		left = left > 512 ? left - 512 : 0;
	}
	return sum;
}

/* The finished checksum of a packet whose segment, the pseudo header's sum in it, has this sum. UDP
 * says by zero that there is no checksum. In TCP zero and 0xffff are the same, and Linux writes
 * 0xffff (skb_checksum_help()). */
static __always_inline __u16 finished(__s64 sum)
{
	__u16 checksum = ~fold(sum);

	return checksum ? checksum : 0xffff;
}

/* Writes the outer header, if there is one, in front of the inner packets of `frame`. */
static __always_inline void write_header(struct frame *frame, struct queue_key *key,
					 struct hop *hop, __u32 len)
{
	__u8 class = key->dscp << 2 | key->ecn;

	if (hop->family == 4) {
		__u8 *header = frame->bytes + HEADROOM - V4_LEN;

		header[0] = 0x45;
		header[1] = class;
		put16(header + 2, V4_LEN + len);
		put16(header + 4, 0);
		put16(header + 6, 0x4000); /* DF */
		header[8] = hop->ttl;
		header[9] = PROTO_META;
		put16(header + 10, 0);
		__builtin_memcpy(header + 12, hop->src, 4);
		__builtin_memcpy(header + 16, hop->dst, 4);
		put16(header + 10, ~fold(sum_v4(header)));
	} else if (hop->family == 6) {
		__u8 *header = frame->bytes + HEADROOM - V6_LEN;

		header[0] = 0x60 | class >> 4;
		header[1] = class << 4;
		put16(header + 2, 0);
		put16(header + 4, len);
		header[6] = PROTO_META;
		header[7] = hop->ttl;
		__builtin_memcpy(header + 8, hop->src, 16);
		__builtin_memcpy(header + 24, hop->dst, 16);
	}
}

static __always_inline __u32 header_len(struct hop *hop)
{
	if (is_link(hop))
		return 0;
	return hop->family == 4 ? V4_LEN : V6_LEN;
}

/*
 * Makes a packet of `len` IP bytes fit to carry frames of up to `max` bytes, whatever is in it: its
 * content is gone afterwards. Returns 0 when it can.
 *
 * What its sender left to the device, a checksum, would be written into the frame that it is to
 * carry. There is no call that clears this, but skb_postpull_rcsum() does it when the place where
 * the checksum starts is pulled away; so everything of the packet is.
 */
static __always_inline int clear(struct __sk_buff *skb, __u32 len, __u32 max)
{
	__u32 pull = len + ETH_LEN;

	if (pull > MAX_PULL)
		return -1;
	/* Behind what is pulled away no checksum may start: the first call forgets one that ends
	 * there, or fails, by kernel. Then a header must remain there. The calls fail for
	 * tunnels. */
	return bpf_skb_change_tail(skb, pull, 0) ?:
	       bpf_skb_change_tail(skb, ETH_LEN + pull + V6_LEN, 0) ?:
	       bpf_skb_adjust_room(skb, -(__s32)pull, BPF_ADJ_ROOM_MAC, 0) ?:
	       bpf_skb_change_tail(skb, ETH_LEN + max, 0);
}

#endif
