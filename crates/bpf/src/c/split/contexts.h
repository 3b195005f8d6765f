/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Compressed headers: contexts are defined, and packets restored from them.
 */
#ifndef SPLIT_CONTEXTS_H
#define SPLIT_CONTEXTS_H

#include "maps.h"

/* The most that bpf_csum_diff() sums at once on any kernel. */
#define MAX_SUM 512
/* Counters up to so many before the newest have a place of their own among the low bits. */
#define BEFORE_COMPACT 15
#define BEFORE_LONG 63
/* A time stamp's base is moved once it is so far back, by half of it. */
#define BASE_FAR 0x4000
/* Bytes of the constants that an acknowledgement's CRC-32 covers. */
#define CONSTANTS 69

static __always_inline __u8 *block_at(struct work *work, __u32 at)
{
	return work->bytes + MARGIN + (at & (2 * MAX_FRAME - 1));
}

/* Says something about context `number` of the frame's stream. */
static __always_inline void say(struct work *work, __u8 kind, __u8 number, __u16 generation,
				__u32 check)
{
	__u32 count = work->event.count;

	if (count >= ITEMS)
		return;
	work->event.items[count].kind = kind;
	work->event.items[count].number = number;
	work->event.items[count].generation = generation;
	work->event.items[count].check = check;
	work->event.count = count + 1;
}

/* A packet could not be restored. Of a stream without any context one message stands for all. */
static __always_inline void miss(struct work *work, struct stream *stream, __u8 number)
{
	say(work, stream->defined ? UNKNOWN : LOST, stream->defined ? number : 0, 0, 0);
}

/* Takes whole words off what is left to be summed, and returns how many bytes. */
static __always_inline __u32 next_part(struct work *work)
{
	__u32 left = work->sum_left & (2 * MAX_FRAME - 4), over = left - MAX_SUM;
	__u32 part = MAX_SUM + (over & if_negative(over));

	work->sum_at += part;
	work->sum_left -= part;
	FORGET(part);
	return part & (2 * MAX_SUM - 1);
}

/* Sum of the `len` bytes at `at`, as words on the cable. */
static __always_inline __u32 sum_bytes(struct work *work, __u32 at, __u32 len)
{
	const __u8 *rest;
	__u32 last;

	work->sum_at = at;
	work->sum_left = len;
	work->sum = 0;
	/* Of nothing the sum is soon made; to leave the loop would be one more way. */
#pragma clang loop unroll(disable)
	for (int i = 0; i < MAX_FRAME / MAX_SUM; i++) {
		at = work->sum_at;
		work->sum = bpf_csum_diff(NULL, 0, (void *)block_at(work, at), next_part(work),
					  work->sum);
	}
	rest = block_at(work, work->sum_at);
	last = (__u32)rest[0] << 16 | rest[1] << 8 | rest[2];
	last &= ~(0xffffff >> 8 * (len & 3));
	return bpf_ntohs(fold(work->sum)) + (last >> 8) + (last << 8 & 0xffff);
}

/* Copies the headers of the packet at `at` to their places in `headers`. */
static __always_inline void copy_headers(struct work *work, __u32 at, bool v6)
{
	const __u8 *from = block_at(work, at);

	if (!v6)
		from -= V4_AT;
	bpf_map_update_elem(&headers_of_one, &work->zero, from, BPF_ANY);
}

/* Sum of addresses and ports, in the order of bytes of this machine. */
static __always_inline __u64 sum_ends(const __u32 *words, bool v6)
{
	__u64 sum = (__u64)words[8] + words[9] + words[10];

	if (v6)
		sum += (__u64)words[2] + words[3] + words[4] + words[5] + words[6] + words[7];
	return sum;
}

/* Sum of the words of an IPv4 header, likewise. */
static __always_inline __u64 sum_ip(const __u32 *words)
{
	return (__u64)words[5] + words[6] + words[7] + words[8] + words[9];
}

/* UDP's checksum of what has this sum: zero would mean "no checksum". */
static __always_inline __u16 udp_checksum(__u32 sum)
{
	__u32 checksum = ~fold(sum) & 0xffff;

	return checksum | if_negative(checksum - 1);
}

/* Whether the packet of the definition in hand can define a context: restoring it would give the
 * same bytes. */
static __always_inline bool defines(struct work *work, const __u8 *bytes)
{
	const __u8 *head = block_at(work, work->block);
	bool v6 = head[DEFINITION_HEADER] >> 4 == 6;
	__u32 segment, sum, wrong, rule = head[0] & 0xb, rtp = if_odd(head[0] >> 2);
	const __u32 *words = (const __u32 *)bytes;

	copy_headers(work, work->block + DEFINITION_HEADER, v6);
	if (v6) {
		wrong = (bytes[6] ^ PROTO_UDP) | rule;
		segment = work->payload_len - V6_LEN;
	} else {
		__u16 first = *(__u16 *)(bytes + 28), checksum = *(__u16 *)(bytes + 30);
		__u16 computed = ~fold64(sum_ip(words) - words[7] + first);

		wrong = bytes[V4_AT] ^ 0x45;
		FORGET(wrong);
		wrong |= (be16(bytes + 26) & 0x3fff) | (bytes[29] ^ PROTO_UDP);
		FORGET(wrong);
		wrong |= (checksum ^ computed) | (rule & 8) | (rule & rule >> 1 & 1);
		segment = work->payload_len - V4_LEN;
	}
	FORGET(wrong);
	wrong |= be16(bytes + 44) ^ segment;
	FORGET(wrong);
	wrong |= if_negative(segment - (RTP_AT - UDP_AT));
	wrong |= (if_negative(segment - (RTP_END - UDP_AT)) | (bytes[RTP_AT] ^ RTP_FIRST)) & rtp;
	wrong |= (head[2] | head[3]) & ~rtp;
	FORGET(wrong);
	if (wrong)
		return false;
	if (!be16(bytes + 46))
		return !v6;
	work->udp_sum = bpf_ntohs(fold64(sum_ends(words, v6))) + PROTO_UDP + 2 * segment;
	segment -= RTP_AT - UDP_AT;
	sum = sum_bytes(work, work->block + DEFINITION_HEADER + work->payload_len - segment,
			segment);
	return be16(bytes + 46) == udp_checksum(sum + work->udp_sum);
}

/*
 * The next generation: a Feistel network of four rounds over the number drawn, so that none comes
 * twice before all have come, in an order that only who has the secret knows.
 */
static __always_inline __u16 draw(struct made *made, __u64 secret)
{
	__u32 drawn = __sync_fetch_and_add(&made->generations, 1);
	__u8 left = drawn >> 8, right = drawn;

#pragma clang loop unroll(disable)
	for (__u32 round = 0; round < 4; round++) {
		__u8 before = right;

		right = left ^ mix(secret + (round << 8 | right)) >> 56;
		left = before;
	}
	return left << 8 | right;
}

/* Whether both have the same constants. */
static __always_inline bool is_same(const struct context *a, const struct context *b)
{
	__u64 other = 0;

#pragma unroll
	for (int i = 0; i < 8; i++)
		other |= a->template[i] ^ b->template[i];
	return !other && a->payload_len == b->payload_len && a->id == b->id &&
	       a->stride == b->stride && a->rule == b->rule && a->rtp == b->rtp;
}

/* CRC-32 of the constants of `context` under `number`; `bytes` are its template. */
static __always_inline __u32 name_constants(const struct crc_table *crc, __u8 *bytes,
					    const struct context *context, __u8 number)
{
	__u32 start = context->start & 28, sum = CRC32_START;
	__u8 *tail = bytes + start + RTP_END;

	/* In their own order, the constants begin with the IP header and fill 60 bytes. */
#pragma unroll
	for (int i = RTP_END; i < 96; i += 4)
		*(__u32 *)(bytes + i) = 0;
	put16(tail, context->payload_len);
	put16(tail + 2, context->id);
	put16(tail + 4, context->stride);
	tail[6] = context->rtp;
	tail[7] = context->rule;
	tail[8] = number;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < CONSTANTS - 1; i += 4)
		sum = crc32_word(crc, sum, *(__u32 *)(bytes + start + i));
	return crc32_of(crc32_byte(crc, sum, number));
}

/* Reads the context of the definition in hand, whose headers are in `bytes`. */
static __always_inline void read_context(struct work *work, const struct crc_table *crc,
					 __u8 *bytes)
{
	struct context *new = &work->contexts[work->next_definition & (DEFINITIONS - 1)];
	const __u8 *head = block_at(work, work->block);
	bool v6 = head[DEFINITION_HEADER] >> 4 == 6;
	__u32 *words = (__u32 *)bytes;

	new->rtp = head[0] >> 2 & 1;
	new->rule = head[0] & 3;
	new->stride = be16(head + 2);
	new->id = 0;
	new->start = 0;
	if (v6) {
		put16(bytes + 4, 0);
	} else {
		new->start = V4_AT;
		new->id = be16(bytes + 24);
		*(__u64 *)bytes = 0;
		*(__u64 *)(bytes + 8) = 0;
		words[4] = 0;
		put16(bytes + 22, 0);
		put16(bytes + 24, 0);
		put16(bytes + 30, 0);
	}
	put16(bytes + 44, 0);
	put16(bytes + 46, be16(bytes + 46) != 0);
	new->newest = 0;
	new->lines[0].timestamp = 0;
	if (new->rtp) {
		new->end = RTP_END;
		new->newest = be16(bytes + 50);
		new->lines[0].timestamp = (__u32)be16(bytes + 52) << 16 | be16(bytes + 54);
		bytes[49] &= ~RTP_MARKER;
		put16(bytes + 50, 0);
		words[13] = 0;
	} else {
		new->end = RTP_AT;
		if (new->rule == ID_FOLLOWS)
			new->newest = new->id;
		words[12] = 0;
		words[13] = 0;
		words[14] = 0;
	}
	words[15] = 0;
	new->lines[0].counter = new->newest;
	new->lines[1] = new->lines[0];
	new->payload_len = work->payload_len - (new->end - new->start);
	if (new->rule == ID_FOLLOWS)
		new->id -= new->newest;
	else if (new->rule == ID_EXPLICIT)
		new->id = 0;
	new->sum = bpf_ntohs(fold64(sum_ends(words, v6) + words[12] + words[13] + words[14])) +
		   PROTO_UDP;
	new->ip_sum = bpf_ntohs(fold64(sum_ip(words)));
#pragma unroll
	for (int i = 0; i < 8; i++)
		new->template[i] = ((__u64 *)bytes)[i];
	new->check = name_constants(crc, bytes, new, head[1]);
}

/*
 * Checks the definitions of the frame and reads their contexts, apart from the other blocks because
 * there are few: with each turn of a loop the verifier has the work again. Returns 0, or
 * FRAME_BAD_DEFINITION for the first that is bad, whose place is then in `bad`. That of a joined
 * block is not the frame's fault.
 */
static __always_inline int check_definitions(struct work *work, const struct crc_table *crc,
					     __u8 *bytes)
{
	work->next_definition = 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < DEFINITIONS; i++) {
		struct definition *one;

		if (work->next_definition >= work->definitions)
			break;
		one = &work->defined[work->next_definition & (DEFINITIONS - 1)];
		work->block = one->at;
		work->payload_len = one->len;
		if (defines(work, bytes)) {
			read_context(work, crc, bytes);
		} else if (work->block < START) {
			work->unjoined = 1;
		} else {
			work->bad = work->next_definition;
			return FRAME_BAD_DEFINITION;
		}
		work->next_definition++;
	}
	return 0;
}

/*
 * Takes note of the next definition, the block in hand. A context with other constants than the one
 * before it gets a new generation.
 */
static __always_inline void define(struct work *work, struct stream *stream)
{
	__u32 place = (work->next_definition - 1) & (DEFINITIONS - 1);
	struct context *new = &work->contexts[place], *known;
	struct made *made;

	work->number = block_at(work, work->block)[1];
	work->name.stream = stream->id;
	work->name.number = work->number;
	known = bpf_map_lookup_elem(&contexts, &work->name);
	if (known && is_same(known, new)) {
		new->generation = known->generation;
		known->newest = new->newest;
		known->lines[0] = new->lines[0];
		known->lines[1] = new->lines[1];
	} else {
		/* Of a sender without a name, one more. */
		bool more = !known && !(stream->id & NAMED);

		made = bpf_map_lookup_elem(&made_so_far, &work->zero);
		if (!made)
			return;
		new->generation = draw(made, work->secret);
		if ((more && (__s32)(made->contexts - work->contexts_swept) >= CONTEXTS_UNNAMED) ||
		    bpf_map_update_elem(&contexts, &work->name, new, BPF_ANY)) {
			/* There is no room. It is defined again until it is acknowledged. */
			work->no_context++;
			return;
		}
		if (more)
			__sync_fetch_and_add(&made->contexts, 1);
	}
	stream->defined = 1;
	stream->lens[work->number & 0xff] = new->payload_len + 1;
	say(work, KNOWN, work->number, new->generation, new->check);
}

/* The time stamp of the packet with this counter, if none jumped. */
static __always_inline __u32 timestamp_of(const struct context *context, __u16 counter)
{
	__u16 behind = counter - context->lines[0].counter;
	/* Before the jump, if it is negative. */
	const struct base *line = &context->lines[behind >> 15];

	return line->timestamp + (__s16)(counter - line->counter) * (__s32)context->stride;
}

/* Takes note of a packet that was restored. */
static __always_inline void observe(struct work *work, struct context *context)
{
	__u16 counter = work->counter, behind;

	if ((__s16)(counter - context->newest) > 0) {
		if (work->expected != work->timestamp) {
			context->lines[1] = context->lines[0];
			context->lines[0].counter = counter;
			context->lines[0].timestamp = work->timestamp;
		}
		context->newest = counter;
	}
	/* Distances between counters are right up to 32,767. */
	behind = context->newest - context->lines[0].counter;
	if (behind >= BASE_FAR && behind < 0x8000) {
		context->lines[0].counter += BASE_FAR / 2;
		context->lines[0].timestamp += BASE_FAR / 2 * (__u32)context->stride;
		context->lines[1] = context->lines[0];
	}
}

/* Reads the header of the compressed packet at `at` into `work`. */
static __always_inline void read_compressed(struct work *work, __u32 at)
{
	const __u8 *block = block_at(work, at);
	__u32 flags;

	if (block[0] >> 4 == LONG) {
		flags = block[0];
		work->number = block[1];
		work->flags = flags;
		work->low_bits = block[2];
		work->mask = 0xff;
		work->before = BEFORE_LONG;
		work->check = be16(block + 3);
		/* Two bytes of length, four of time stamp, two of identification. */
		work->header =
			LONG_HEADER + (flags >> 1 & 2) + (flags << 1 & 4) + (flags << 1 & 2);
	} else {
		work->number = be16(block) >> 6 & 0xff;
		work->flags = 0;
		work->low_bits = block[1] & 0x3f;
		work->mask = 0x3f;
		work->before = BEFORE_COMPACT;
		work->check = be16(block + 2);
		work->header = COMPACT_HEADER;
	}
}

/* Goes on with the CRC-16 over headers from `from` to `to`, which are constants: a loop that may
 * end earlier is a branch in every turn. */
static __always_inline void sum_headers(struct work *work, const __u8 *bytes, __u32 from, __u32 to)
{
	__u32 rest = work->crc;

#pragma clang loop unroll(disable)
	for (__u32 i = from; i < to; i += 4)
		rest = crc16_word(rest, *(__u32 *)(bytes + i));
	work->crc = rest;
}

/*
 * Restores the headers of the compressed packet in hand, whose header was read. Returns whether
 * they are right; only then the context has taken note of the packet.
 */
static __always_inline bool restore(struct work *work, struct stream *stream, __u8 *bytes)
{
	__u32 flags = work->flags, sum, len, chosen;
	const __u8 *optional = block_at(work, work->block) + LONG_HEADER + (flags >> 1 & 2);
	struct context *context;
	__u16 oldest;

	work->name.stream = stream->id;
	work->name.number = work->number;
	context = bpf_map_lookup_elem(&contexts, &work->name);
	if (!context)
		return false;
	oldest = context->newest - work->before;
	work->counter = (oldest + ((work->low_bits - oldest) & work->mask)) & 0xffff;
	work->expected = timestamp_of(context, work->counter);
	chosen = if_odd(flags >> 1);
	sum = ((__u32)be16(optional) << 16 | be16(optional + 2)) & chosen;
	work->timestamp = sum | (work->expected & ~chosen);
	optional += flags << 1 & 4;

#pragma unroll
	for (int i = 0; i < 8; i++)
		((__u64 *)bytes)[i] = context->template[i];
	work->payload = work->block + work->header;
	work->payload_len = work->block_end - work->payload;
	work->start = context->start;
	work->header_len = context->end - context->start;
	len = work->payload_len + context->end - UDP_AT;
	put16(bytes + 44, len);
	/* Without RTP nobody looks at its place. */
	bytes[49] |= flags << 4 & RTP_MARKER;
	put16(bytes + 50, work->counter);
	put16(bytes + 52, work->timestamp >> 16);
	put16(bytes + 54, work->timestamp);
	sum = (flags << 4 & RTP_MARKER) + work->counter + (work->timestamp >> 16) +
	      (work->timestamp & 0xffff);
	work->udp_sum = (sum & if_odd(context->rtp)) + context->sum + 2 * len;
	work->crc = CRC16_START;
	if (context->start) {
		__u32 id = context->id + (work->counter & if_odd(context->rule));

		chosen = if_odd(flags);
		id = (be16(optional) & chosen) | (id & 0xffff & ~chosen);
		len += V4_LEN;
		put16(bytes + 22, len);
		put16(bytes + 24, id);
		put16(bytes + 30, ~fold(context->ip_sum + len + id));
	} else {
		put16(bytes + 4, len);
		sum_headers(work, bytes, 0, V4_AT);
	}
	sum = sum_bytes(work, work->payload, work->payload_len);
	put16(bytes + 46, udp_checksum(sum + work->udp_sum) & if_odd(bytes[47]));

	sum_headers(work, bytes, V4_AT, RTP_AT);
	if (context->rtp)
		sum_headers(work, bytes, RTP_AT, RTP_END);
	if (shuffle(crc16_of(work->crc), context->generation) != work->check)
		return false;
	observe(work, context);
	return true;
}

#endif
