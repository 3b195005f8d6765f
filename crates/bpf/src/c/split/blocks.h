/* SPDX-License-Identifier: GPL-2.0 */
/*
 * First pass over a frame: its blocks are found, and all of them checked.
 */
#ifndef SPLIT_BLOCKS_H
#define SPLIT_BLOCKS_H

#include "contexts.h"

/* Length of the packet at the start of `bytes`, or below 0 why it is refused. */
static __always_inline __s32 packet_len(const __u8 *bytes, __u32 left)
{
	__u32 header, len;

	if (!left)
		return -FRAME_TRUNCATED;
	if (bytes[0] >> 4 == 4) {
		if (left < V4_LEN)
			return -FRAME_TRUNCATED;
		header = (bytes[0] & 0xf) * 4;
		len = be16(bytes + 2);
		if (header < V4_LEN)
			return -FRAME_BAD_PACKET;
		if (header > left)
			return -FRAME_TRUNCATED;
		if (len < header)
			return -FRAME_BAD_PACKET;
		if (bytes[9] == PROTO_META && len <= left)
			return -FRAME_NESTED;
	} else if (bytes[0] >> 4 == 6) {
		if (left < V6_LEN)
			return -FRAME_TRUNCATED;
		len = V6_LEN + be16(bytes + 4);
		if (bytes[6] == PROTO_META && len <= left)
			return -FRAME_NESTED;
	} else {
		return -FRAME_BAD_PACKET;
	}
	return len > left ? -FRAME_TRUNCATED : (__s32)len;
}

/* Whether the packet at the start of `bytes`, of the outer header's version, is to its group. */
static __always_inline bool is_to_group(struct work *work, const __u8 *bytes)
{
	__u32 differ = 0;

	bytes += work->group == 6 ? 24 : 16;
#pragma unroll
	for (int i = 0; i < 4; i++)
		differ |= bytes[i] ^ work->to[i];
	if (work->group == 6) {
#pragma unroll
		for (int i = 4; i < 16; i++)
			differ |= bytes[i] ^ work->to[i];
	}
	return !differ;
}

/*
 * Length of the block at `at`, of `left` bytes at most. 0: it ends the frame, for which the reason
 * is in `unknown` or `ended`. Below 0: why the frame is refused.
 */
static __always_inline __s32 next_block(struct work *work, struct stream *stream, __u32 at,
					__u32 left)
{
	const __u8 *block = block_at(work, at);
	__u32 kind = block[0] >> 4;
	__s32 len;

	if (work->group && !IS_OF_GROUPS(kind))
		return -FRAME_GROUP;
	if (kind == DEFINITION) {
		struct definition *one = &work->defined[work->definitions & (DEFINITIONS - 1)];

		if (left < DEFINITION_HEADER)
			return -FRAME_TRUNCATED;
		work->sum = packet_len(block + DEFINITION_HEADER, left - DEFINITION_HEADER);
		len = work->sum;
		if (len < 0)
			return len;
		if (work->definitions < DEFINITIONS) {
			one->at = at;
			one->len = len;
			one->implied = work->implied;
			one->blocks = work->count;
			one->items = work->event.count;
			work->definitions++;
		}
		return DEFINITION_HEADER + len;
	}
	if (IS_COMPRESSED(kind)) {
		__u32 header, number, payload;
		bool has_length = kind == LONG && block[0] & FLAG_LENGTH;

		if (left < (kind == LONG ? LONG_HEADER : COMPACT_HEADER))
			return -FRAME_TRUNCATED;
		read_compressed(work, at);
		header = work->header;
		number = work->number & 0xff;
		if (left < header)
			return -FRAME_TRUNCATED;
		if (has_length) {
			work->sum = be16(block + LONG_HEADER) + 1;
		} else {
			payload = stream->lens[number];
			if (!payload) {
				work->unknown = number + 1;
				return 0;
			}
			work->sum = payload;
		}
		payload = work->sum - 1;
		if (header + payload > left)
			return -FRAME_TRUNCATED;
		/* In case of a fault behind it. */
		if (!has_length) {
			work->implied = 1;
			miss(work, stream, number);
		}
		return header + payload;
	}
	if (kind == PAD || kind == CUT) {
		work->ended = kind + 1;
		return 0;
	}
	if (kind == ETHERNET) {
		__u32 type;

		if (left < ETHERNET_HEADER)
			return -FRAME_TRUNCATED;
		len = ETHERNET_HEADER + (be16(block) & 0xfff);
		type = be16(block + 2);
		/* What IP says of itself is not looked for here. */
		if (type < LEAST_TYPE || type == ETH_P_IP || type == ETH_P_IPV6)
			return -FRAME_BAD_PACKET;
		return len > left ? -FRAME_TRUNCATED : len;
	}
	if (!IS_PACKET(kind))
		return -FRAME_UNKNOWN_BLOCK;
	len = packet_len(block, left);
	if (work->group && len >= 0 && (kind != work->group || !is_to_group(work, block)))
		return -FRAME_GROUP;
	return len;
}

/* Checks what ends the frame's blocks, a cut block or a pad. Returns 0 or why it is refused. */
static __always_inline int check_end(struct work *work)
{
	const __u8 *block = block_at(work, work->cursor);
	__u32 left = work->limit - work->cursor, len;

	if (work->ended == PAD + 1) {
		/* A sum with its carries is 0 of zeros only. */
		if (sum_bytes(work, work->cursor, left))
			return FRAME_PADDING;
	} else if (work->ended == CUT + 1) {
		if (left < CUT_HEADER)
			return FRAME_TRUNCATED;
		left -= CUT_HEADER;
		len = be16(block) & 0xfff;
		if (len > MAX_FRAME || len <= left)
			return FRAME_BAD_CUT;
		work->cut_len = len;
		work->cut_have = left;
		work->cut_check = (__u32)be16(block + 2) << 16 | be16(block + 4);
	}
	return 0;
}

/*
 * Finds the blocks from `cursor` on. A joined block is looked at first; a fault in it is not the
 * frame's. Returns 0 or why the frame is refused, but for definitions.
 */
static __always_inline int find_blocks(struct work *work, struct stream *stream)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_BLOCKS + 2; i++) {
		__u32 at = work->cursor, limit = work->limit;
		__s32 len;

		if (at >= limit)
			break;
		work->sum_at = next_block(work, stream, at, limit - at);
		at = work->cursor;
		len = work->sum_at;
		if (at < START) {
			if (len == work->limit) {
				work->at[0] = 0;
				work->ends[0] = len;
				work->count = 1;
			} else {
				work->joined = 0;
				work->definitions = 0;
				work->unknown_joined = work->unknown;
				work->unjoined = !work->unknown;
			}
			work->unknown = 0;
			work->ended = 0;
			work->implied = 0;
			work->event.count = 0;
			work->cursor = START + FRAME_HEADER + work->offset;
			work->limit = START + work->len;
			continue;
		}
		if (len < 0)
			return -len;
		if (!len)
			break;
		if (work->count >= MAX_BLOCKS + !!work->joined)
			return FRAME_TOO_MANY;
		work->at[work->count & 0xff] = at;
		work->ends[work->count & 0xff] = at + len;
		work->count++;
		work->cursor = at + len;
	}
	work->why = check_end(work);
	return work->why;
}

/* Checks all of the frame. Returns 0 or why it is refused. */
static __always_inline int check_blocks(struct work *work, struct stream *stream,
					const struct crc_table *crc, __u8 *bytes)
{
	const struct definition *bad;

	work->why = find_blocks(work, stream);
	if (check_definitions(work, crc, bytes)) {
		bad = &work->defined[work->bad & (DEFINITIONS - 1)];
		work->why = FRAME_BAD_DEFINITION;
		work->implied = bad->implied;
		work->count = bad->blocks;
		work->event.count = bad->items;
	}
	if (work->why) {
		/* A context may not be the sender's: then the blocks behind its packets are not,
		 * either. */
		if (!work->implied || work->why == FRAME_TOO_MANY)
			return work->why;
		work->doubtful = 1;
		return 0;
	}
	if (work->len == FRAME_HEADER ||
	    (work->count == !!work->joined && !work->cut_len && !work->unknown && !work->offset))
		return FRAME_EMPTY;
	return 0;
}

#endif
