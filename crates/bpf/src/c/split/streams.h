/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Format 2: frames with their place in a stream, and packets that are cut.
 */
#ifndef SPLIT_STREAMS_H
#define SPLIT_STREAMS_H

#include "blocks.h"
#include "deliver.h"

/* Frames ahead of the newest that count as newer (RFC 1982). */
#define AHEAD 128
#define CE 3

/* 32 bits that frames with other bytes have in common with a chance of 2^-32; never 0. */
static __always_inline __u32 fingerprint(struct work *work)
{
	const __u64 *words = (const __u64 *)(work->bytes + MARGIN + START);
	__u64 hash = work->len, last, factor = 0x9e3779b97f4a7c15ULL;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_FRAME / 8; i++) {
		if (i >= work->len / 8)
			break;
		hash = (hash ^ bpf_be64_to_cpu(words[i])) * factor;
		hash ^= hash >> 32;
	}
	last = bpf_be64_to_cpu(words[work->len / 8 & (MAX_FRAME / 4 - 1)]);
	hash = (hash ^ (last & ~(~0ULL >> 8 * (work->len & 7)))) * factor;
	hash = (hash ^ hash >> 32) * factor >> 32;
	return hash ?: 1;
}

/* Whether a sender without a name may have another stream. */
static __always_inline bool has_room(struct work *work, struct split_config *config)
{
	struct made *made = bpf_map_lookup_elem(&made_so_far, &work->zero);

	return made && (__s32)(made->streams - config->streams_swept) < STREAMS_UNNAMED;
}

/* Gives a new stream its number. */
static __always_inline void number_stream(struct work *work, struct stream *stream)
{
	struct made *made = bpf_map_lookup_elem(&made_so_far, &work->zero);

	stream->last = bpf_ktime_get_ns();
	if (!made)
		return;
	stream->id = __sync_fetch_and_add(&made->ids, 2) | (work->named ? NAMED : 0);
	if (!work->named)
		__sync_fetch_and_add(&made->streams, 1);
}

/* The stream of the frame, a new one if need be; NULL when there is no room. */
static __always_inline struct stream *stream_of(struct work *work, struct split_config *config)
{
	struct stream *stream = bpf_map_lookup_elem(&streams, &work->event.stream);

	if (stream)
		return stream;
	if (!work->named && !has_room(work, config))
		return NULL;
	stream = bpf_map_lookup_elem(&blank, &work->zero);
	if (!stream)
		return NULL;
	/* Another CPU may just have made it. */
	work->result = bpf_map_update_elem(&streams, &work->event.stream, stream, BPF_NOEXIST);
	stream = bpf_map_lookup_elem(&streams, &work->event.stream);
	if (stream && !work->result)
		number_stream(work, stream);
	return stream;
}

/* Joins the part of a block that is in the stream with what the frame at `at` has of it. */
static __always_inline void join(struct __sk_buff *skb, struct work *work, struct stream *stream,
				 const struct crc_table *crc, __u32 at)
{
	__u32 have = stream->have, rest = work->offset, sum = CRC32_START;
	__u64 *to = (__u64 *)(work->bytes + MARGIN), *from = (__u64 *)stream->bytes;
	const __u8 *block = work->bytes + MARGIN;

	FORGET(have);
	FORGET(rest);
	if (have >= MAX_FRAME || rest < 1 || rest > MAX_FRAME)
		return;
	/* An older verifier forgets that where it moves the number to the stack. */
	FORGET(have);
	have &= MAX_FRAME - 1;
	/* Four words at once, which may go beyond the part. The bounds of loops are in memory: the
	 * verifier would learn of another number in each turn. */
	work->limit = have;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_FRAME / 8; i += 4) {
		if (i * 8 >= work->limit)
			break;
		to[i] = from[i];
		to[i + 1] = from[i + 1];
		to[i + 2] = from[i + 2];
		to[i + 3] = from[i + 3];
	}
	if (bpf_skb_load_bytes(skb, at + FRAME_HEADER, (void *)block + have,
			       LENGTH(rest, MAX_FRAME)))
		return;
	work->joined = have + rest;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_FRAME; i += 4) {
		if (i + 4 > work->joined)
			break;
		sum = crc32_word(crc, sum, *(__u32 *)(block + i));
	}
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < 3; i++) {
		if (i >= (work->joined & 3))
			break;
		sum = crc32_byte(crc, sum, *block_at(work, (work->joined & ~3) + i));
	}
	/* Two frames that are not neighbours look like it once in a while. */
	if (crc32_of(sum) == stream->check) {
		work->unjoined = 0;
		work->cursor = 0;
	} else {
		work->joined = 0;
	}
}

/* Appends what the frame at `at`, which has nothing else, has of a block to the part of it that is
 * in the stream. */
static __always_inline void append(struct __sk_buff *skb, struct work *work, struct stream *stream,
				   __u32 at)
{
	__u32 have = stream->have, left = work->len - FRAME_HEADER, part;

	/* In two pieces: the verifier adds the largest offset to the largest length, and that is
	 * still within the stream. */
#pragma clang loop unroll(disable)
	for (int i = 0; i < 2; i++) {
		part = left < MAX_FRAME / 2 ? left : MAX_FRAME / 2;
		FORGET(part);
		FORGET(have);
		if (part < 1 || part > MAX_FRAME / 2 || have >= MAX_FRAME ||
		    have + part > MAX_FRAME ||
		    bpf_skb_load_bytes(skb, at + FRAME_HEADER, stream->bytes + have,
				       LENGTH(part, MAX_FRAME / 2)))
			break;
		have += part;
		left -= part;
		at += part;
	}
	stream->have = have;
}

/* Frames from the newest to this one, modulo 256. */
static __always_inline __u8 ahead_of(struct work *work, struct stream *stream)
{
	return work->sequence - stream->newest;
}

/* Takes note of the frame in its stream. Returns 0 or why it is refused. */
static __always_inline int find_place(struct work *work, struct stream *stream)
{
	__u8 sequence = work->sequence, newest = stream->newest;
	__u32 seen = stream->seen[sequence];
	bool late = false;

	if (!stream->started) {
		stream->started = 1;
	} else if (ahead_of(work, stream) - 1U < AHEAD) {
		/* What the numbers in between had was 256 frames ago. */
#pragma clang loop unroll(disable)
		for (__u32 i = 1; i < AHEAD; i++) {
			if (i >= ahead_of(work, stream))
				break;
			stream->seen[newest + i & 0xff] = 0;
		}
		if (ahead_of(work, stream) > 1)
			count(MISSING, ahead_of(work, stream) - 1);
	} else if (!seen) {
		late = true;
		count(LATE, 1);
	} else if (seen == work->print) {
		return FRAME_DUPLICATE;
	} else {
#pragma clang loop unroll(disable)
		for (__u32 i = 0; i < 256; i++)
			stream->seen[i] = 0;
	}
	count(FRAMES, 1);
	stream->seen[sequence] = work->print;
	if (!late)
		stream->newest = sequence;
	work->late = late;
	return 0;
}

/* Hands what is to be said about the frame to user space. */
static __always_inline void tell(struct work *work, __u32 kind, __u32 bytes)
{
	work->event.kind = kind;
	bytes += __builtin_offsetof(struct event, items);
	FORGET(bytes);
	if (bytes <= sizeof(work->event))
		bpf_ringbuf_output(&events, &work->event, bytes, 0);
}

static __always_inline void tell_items(struct work *work)
{
	__u32 count = work->event.count;

	if (count)
		tell(work, TO_SAY, count * sizeof(struct item));
}

/* Checks the message of contexts that is in hand and hands it to user space. */
static __always_inline int hear(struct __sk_buff *skb, struct work *work, __u32 at)
{
	const __u8 *message = work->bytes + MARGIN + START;
	__u32 len = work->len, items = message[1], end;

	if (len < 2)
		return refuse(FRAME_TRUNCATED);
	if (items < 1 || items > MAX_ITEMS)
		return refuse(FRAME_BAD_FEEDBACK);
	work->cursor = 2;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_ITEMS; i++) {
		__u32 next = work->cursor, kind;

		if (i >= items)
			break;
		if (next >= len)
			return refuse(FRAME_TRUNCATED);
		kind = message[next & (MAX_FRAME - 1)] >> 4;
		if (kind == KNOWN)
			next += 8;
		else if (kind == UNKNOWN)
			next += 2;
		else if (kind == LOST)
			next += 1;
		else
			return refuse(FRAME_BAD_FEEDBACK);
		if (next > len)
			return refuse(FRAME_TRUNCATED);
		work->cursor = next;
	}
	end = work->cursor;
	/* Ethernet pads a short one with zeros. */
	if (sum_bytes(work, START + end, len - end))
		return refuse(FRAME_BAD_FEEDBACK);
	end = work->cursor;
	FORGET(end);
	if (end < 1 || end > MAX_FEEDBACK ||
	    bpf_skb_load_bytes(skb, at, work->event.message, LENGTH(end, 512)))
		return TC_ACT_SHOT;
	work->event.count = end;
	tell(work, HEARD, end);
	return TC_ACT_SHOT;
}

/* Bytes in which an unfinished checksum may begin and end. */
#define UNFINISHED 40
#define ROOM 64

/*
 * Makes the frame, whose payload is at `at`, a packet that may have any length and content: what
 * the kernel knows about its content does not hold for the packets that it will be. Returns 0 when
 * it is.
 *
 * A checksum that the device has verified is forgotten by the first call, a sum over all bytes when
 * the frame grows, and an unfinished checksum when the place is pulled away where it begins; if
 * that is farther, the frame cannot be cut so short. With what is pulled away goes the place of a
 * transport header, too, before which a frame could not be cut either.
 */
static __always_inline long empty(struct __sk_buff *skb, __u32 at)
{
	bpf_csum_level(skb, BPF_CSUM_LEVEL_RESET);
	return bpf_skb_change_tail(skb, at + UNFINISHED, 0) ?:
	       bpf_skb_change_tail(skb, at + ROOM + ROOM, 0) ?:
	       bpf_skb_adjust_room(skb, -(__s32)(at - ETH_LEN + ROOM), BPF_ADJ_ROOM_MAC, 0);
}

/* Length of the headers that were restored, for the verifier. */
static __always_inline __u32 header_of(struct work *work)
{
	__u32 len = work->header_len & 63;

	FORGET(len);
	return len;
}

/* Length of what follows them, likewise. */
static __always_inline __u32 payload_of(struct work *work)
{
	__u32 len = work->payload_len & (2 * MAX_FRAME - 1);

	FORGET(len);
	return len;
}

/* Delivers the Ethernet payload that is the packet in hand already: of a neighbour only, who could
 * also send it in a frame of its own. */
static __always_inline void deliver_ethernet(struct __sk_buff *skb, struct work *work,
					     struct line *line)
{
	if (work->far) {
		work->not_believed++;
		return;
	}
	/* Its type is the end of its block's header. */
	work->result |= bpf_skb_store_bytes(skb, ETH_LEN - sizeof(__u16),
					    block_at(work, work->payload - sizeof(__u16)),
					    sizeof(__u16), 0);
	if (work->result || put_in_line(skb, line))
		work->failed++;
	else
		work->packets++;
}

/* Delivers the packet whose restored headers, if it has any, are in `bytes`. */
static __always_inline void deliver_packet(struct __sk_buff *skb, struct work *work,
					   struct line *line, const __u8 *bytes)
{
	__u32 start, len, joined;

	work->result = bpf_skb_change_tail(skb, ETH_LEN + header_of(work) + payload_of(work), 0);
	len = header_of(work);
	if (len) {
		start = work->start & 31;
		FORGET(start);
		work->result |= bpf_skb_store_bytes(skb, ETH_LEN, bytes + start,
						    LENGTH(len, 64), 0);
	}
	len = payload_of(work);
	if (len)
		work->result |= bpf_skb_store_bytes(skb, ETH_LEN + header_of(work),
						    block_at(work, work->payload),
						    LENGTH(len, 2 * MAX_FRAME), 0);
	if (work->ethernet) {
		deliver_ethernet(skb, work, line);
		return;
	}
	work->result |= bpf_skb_load_bytes(skb, ETH_LEN, work->head, V4_LEN);
	/* That of a joined block may be another one. */
	joined = if_negative(work->block - START);
	work->outer_ecn = (work->ecn_joined & joined) | (work->ecn & ~joined);
	if (work->result)
		work->failed++;
	else
		deliver(skb, work, line, header_of(work) + payload_of(work));
}

/*
 * Second pass: delivers the packets of all blocks.
 *
 * Behind a compressed packet that could not be restored, the blocks may be wrong ones: its context
 * may have another length than the sender's. A compressed packet that is restored behind it shows
 * that they are right, as its own check covers its place. Until then nothing else is believed.
 */
static __always_inline void deliver_blocks(struct __sk_buff *skb, struct work *work,
					   struct stream *stream, struct line *line, __u8 *bytes)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_BLOCKS + 1; i++) {
		__u32 place = i + work->first, kind;

		if (place >= work->count)
			break;
		work->block = work->at[place & 0xff];
		work->block_end = work->ends[place & 0xff];
		kind = *block_at(work, work->block) >> 4;
		if (IS_COMPRESSED(kind)) {
			read_compressed(work, work->block);
			if (!restore(work, stream, bytes)) {
				work->unrestored++;
				if (work->block >= START && !work->doubt) {
					work->doubt = 1;
					work->doubt_from = work->event.count;
				}
				miss(work, stream, work->number);
				continue;
			}
			work->doubt = 0;
			work->ethernet = 0;
		} else {
			work->payload = work->block;
			work->ethernet = kind == ETHERNET;
			if (kind == ETHERNET)
				work->payload += ETHERNET_HEADER;
			if (kind == DEFINITION) {
				work->payload += DEFINITION_HEADER;
				work->next_definition++;
				if (!work->doubt && work->next_definition <= work->definitions)
					define(work, stream);
			}
			if (work->doubt) {
				work->unrestored++;
				continue;
			}
			work->payload_len = work->block_end - work->payload;
			work->header_len = 0;
		}
		deliver_packet(skb, work, line, bytes);
	}
}

/*
 * Takes the frame apart whose payload of `len` bytes is at `at`; who sent it where is in the event
 * of `work`, which also has its ECN field and whether it came from afar.
 *
 * A stream is made before its first frame is checked: who may send a frame can have one anyway.
 * Frames to groups stand for themselves. All share a stream without a name, in which nothing is
 * kept.
 */
static __always_inline int take_frame(struct __sk_buff *skb, struct split_config *config,
				      struct work *work, __u32 at, __u32 len)
{
	const __u8 *frame = work->bytes + MARGIN + START;
	struct crc_table *crc;
	struct headers *headers;
	struct stream *stream;
	struct line *line;
	__u32 left;
	__u64 now;
	int why;

	FORGET(len);
	if (len < 1 || len > MAX_FRAME)
		return refuse(FRAME_OVERSIZED);
	if (bpf_skb_load_bytes(skb, at, (void *)frame, LENGTH(len, MAX_FRAME)))
		return refuse(FRAME_TRUNCATED);
	work->len = len;
	if (frame[0] == SUB_TYPE_FEEDBACK)
		return work->group ? refuse(FRAME_GROUP) : hear(skb, work, at);
	if (len < FRAME_HEADER)
		return refuse(FRAME_TRUNCATED);
	if (frame[0] != SUB_TYPE_FRAME)
		return refuse(FRAME_SUB_TYPE);
	work->sequence = frame[1];
	work->offset = be16(frame + 2) & 0xfff;
	work->event.stream.tag = work->group ? 0 : frame[2] >> 4;
	if (work->group && work->offset)
		return refuse(FRAME_GROUP);
	work->event.count = 0;
	work->count = 0;
	work->joined = 0;
	work->unjoined = 0;
	work->unknown_joined = 0;
	work->implied = 0;
	work->unknown = 0;
	work->ended = 0;
	work->doubt = 0;
	work->doubtful = 0;
	work->follows = 0;
	work->definitions = 0;
	work->cut_len = 0;
	work->unrestored = 0;
	work->no_context = 0;
	work->secret = config->secret;
	work->contexts_swept = config->contexts_swept;

	stream = stream_of(work, config);
	if (!stream)
		return refuse(FRAME_TOO_MANY_STREAMS);
	crc = bpf_map_lookup_elem(&crc_table, &work->zero);
	headers = bpf_map_lookup_elem(&headers_of_one, &work->zero);
	if (!crc || !headers)
		return TC_ACT_SHOT;
	work->print = fingerprint(work);
	if (stream->started && ahead_of(work, stream) == 1 && stream->len &&
	    work->offset == (__u32)stream->len - stream->have)
		work->follows = 1;
	left = work->len - FRAME_HEADER;
	work->cursor = START + FRAME_HEADER + (left < work->offset ? left : work->offset);
	work->limit = START + FRAME_HEADER + left;
	if (work->follows && left >= work->offset) {
		work->unjoined = 1;
		join(skb, work, stream, crc, at);
		work->limit = work->joined ?: START + work->len;
	}
	why = check_blocks(work, stream, crc, headers->bytes);
	if (why)
		return refuse(why);
	now = bpf_ktime_get_ns();
	stream->last = now;
	if (work->doubtful) {
		/* No block of it is delivered; what was missed was noted with each. */
		work->unrestored = work->count - !!work->joined;
		goto over;
	}
	work->event.count = 0;
	if (work->group) {
		work->late = 0;
		count(FRAMES, 1);
	} else {
		why = find_place(work, stream);
		if (why)
			return refuse(why);
	}

	left = work->len - FRAME_HEADER;
	if (work->late) {
		if (work->offset && left)
			count(UNJOINED, 1);
	} else {
		if (work->follows) {
			if (work->ecn == CE)
				stream->ecn = CE;
			if (left < work->offset) {
				append(skb, work, stream, at);
				goto over;
			}
			work->ecn_joined = stream->ecn;
		}
		if (work->follows ? work->unjoined : work->offset)
			count(UNJOINED, 1);
		stream->len = 0;
		/* While it is in the packet in hand, which changes from now on. */
		left = work->cut_have;
		FORGET(left);
		if (work->cut_len && left > 0 && left <= MAX_FRAME)
			bpf_skb_load_bytes(skb, at + work->len - left, stream->bytes,
					   LENGTH(left, MAX_FRAME));
	}
	if (work->unknown_joined) {
		work->unrestored = 1;
		miss(work, stream, work->unknown_joined - 1);
	}
	if (work->count) {
		line = begin_line(skb);
		if (!line || empty(skb, at)) {
			count(REINJECT_FAILED, 1);
			return TC_ACT_SHOT;
		}
		work->first = 0;
		work->next_definition = 0;
		if (work->joined && work->unjoined) {
			/* It is a definition that is none. */
			work->first = 1;
			work->next_definition = 1;
		}
		deliver_blocks(skb, work, stream, line, headers->bytes);
	}
	if (work->doubt) {
		/* The others may be numbers that nobody sent. */
		work->event.count = work->doubt_from + 1;
	} else {
		if (work->unknown) {
			work->unrestored++;
			miss(work, stream, work->unknown - 1);
		}
		if (work->cut_len && work->late) {
			count(UNJOINED, 1);
		} else if (work->cut_len) {
			stream->have = work->cut_have;
			stream->check = work->cut_check;
			stream->ecn = work->ecn;
			stream->len = work->cut_len;
		}
	}
over:
	end_count(work);
	if (work->unrestored)
		count(UNRESTORED, work->unrestored);
	if (work->no_context)
		count(NO_CONTEXT, work->no_context);
	tell_items(work);
	return TC_ACT_SHOT;
}

#endif
