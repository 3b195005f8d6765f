/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Header compression of format 2: which packets define a context, and which use it. The model is
 * crates/aggregate/src/compressor.rs, the layouts are in crates/wire/src/compress.
 *
 * Contexts are found by their flows, and belong to a number as long as they say so. Numbers have
 * their last flow, for whoever looks for one that is free, and for user space, which hears of
 * numbers only.
 *
 * Several CPUs: a context changes under its lock. Two that see a new flow first make a context
 * each, of which one stays; numbers are counted out, so no two flows get the same one. Two packets
 * of one flow may get into their frames in another order than through here: then the one that was
 * first here is late at the other end, where a context takes packets up to 15 late. User space
 * writes what the splitter said over a context as it read it a moment before. What it undoes by
 * that is at most a definition, which is sent again with the next packet that needs one, or the
 * step of a reference, which the window bears. A context that was given to another flow meanwhile
 * keeps its key, so that nobody else finds it.
 */
#ifndef MERGE_COMPRESS_H
#define MERGE_COMPRESS_H

#include "crc.h"
#include "maps.h"
#include "streams.h"

#define UDP_LEN 8
#define RTP_LEN 12
/* The most bytes of headers: IPv6, UDP, RTP. */
#define MAX_HEADERS (V6_LEN + UDP_LEN + RTP_LEN)

/* The pauses between two definitions: the first, and the longest. In ns. */
#define FIRST_PAUSE 20000000
#define LONGEST_PAUSE 1280000000
/* Numbers that are looked at for a new flow. */
#define CANDIDATES 8
/* Further frames in which packets carry their time stamp after a jump. */
#define REPEATS 2
/* Packets in a row that are not compact before the rules of a flow are chosen anew, and how often
 * that is doubled. */
#define STRAIN 8
#define MAX_RELEARNED 10
/* Steps of RTP's sequence number that two packets may be apart to show the rules. */
#define MAX_STEPS 8
/* A time stamp's base is moved once it is this far back. */
#define FAR_BACK 0x4000

enum state { LEARNING, DEFINING, KNOWN, SPENT };
enum outcome { AS_IT_IS, DEFINES, COMPRESSED };

/* Fields of one packet of a flow that show its rules. */
struct sample {
	__u32 timestamp, source;
	__u16 id, sequence;
	__u8 payload_type, marker;
	__u8 has_id, is_rtp;
};

struct context {
	struct bpf_spin_lock lock;
	__u32 epoch;	 /* its stream's */
	__u64 last_used; /* ns */
	__u64 next;	 /* ns: from then on it is defined again */
	__u32 pause;	 /* ns: to the definition after that */
	__u32 frame;	 /* of the last packet */
	__u32 strained;	 /* packets in a row that were not compact */
	__u32 relearned;
	struct sample sample;
	struct base lines[2]; /* of time stamps: since the last jump, and before it */
	__u16 newest;	      /* counter */
	/* The newest before `frame`, and before the one before it: the latter reached the receiver
	 * even if a frame was lost. */
	__u16 before[2];
	__u16 generation;
	__u16 payload; /* bytes */
	__u16 stride;
	__u16 id; /* less the counter, where it follows that */
	__u8 number;
	__u8 state;
	__u8 repeats; /* frames in which packets still carry their time stamp */
	__u8 rtp;
	__u8 id_rule;
	__u8 headers; /* bytes */
	__u32 template[MAX_HEADERS / 4];
};

/* Addresses and ports, with zeros behind those of IPv4. */
struct flow_key {
	struct stream_key stream;
	__u32 words[9];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CONTEXTS);
	__type(key, struct flow_key);
	__type(value, struct context);
} contexts SEC(".maps");

struct number_key {
	struct stream_key stream;
	__u32 number;
};

struct number {
	struct flow_key flow;
	__u32 epoch;
	__u64 last_used; /* ns: by the flow, before it got another number */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CONTEXTS);
	__type(key, struct number_key);
	__type(value, struct number);
} numbers SEC(".maps");

/* The packet in hand as it is put into frames. */
struct block {
	__u32 tag;   /* of its stream, plus 1; 0: it goes into a meta packet */
	__u32 len;   /* bytes */
	__u32 start; /* place in the buffer, where its head is written over what is not needed */
	__u32 head;  /* bytes of its own in front of the packet's */
	__u32 plain; /* whether it is the packet as it is: enum plain */
	__u32 cut;   /* bytes in the frame before; 0: it is whole */
	__u32 ring, at; /* place of these */
	__u8 bytes[16]; /* the head */
	__u8 under[DEFINITION_HEADER]; /* what was there before the head of a definition */
	__u16 checksum;	    /* finished, where it was left to the device */
};

/* What the packet in hand is compressed with. */
struct packing {
	struct block block;
	struct stream_key name;
	struct stream stream; /* a new one */
	struct flow_key flow;
	struct number_key number;
	struct number taken; /* a new one */
	__u64 context[sizeof(struct context) / 8]; /* a new one; a lock may not be here */
	struct sample sample;
	__u32 constants[MAX_HEADERS / 4];
	__u32 len;	 /* bytes of the packet */
	__u32 headers;	 /* and of its headers */
	__u32 generation;
	__u32 compact;
	__u32 low;   /* bits of the counter */
	__u32 flags; /* fields of the long form */
	__u32 rules; /* in a definition */
	__u32 stride;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packing);
} packings SEC(".maps");

/* Reads the headers of the packet in `words`; its checksums have to be right. Returns whether it
 * could be restored. `summed`: the sum of its addresses and segment, where that was not finished
 * here. */
static __always_inline bool read_headers(struct packing *mine, const struct packet *packet,
					 __u32 *words, __s64 summed)
{
	__u32 at = packet->transport, len = packet->len, rtp, *constants = mine->constants;
	__u32 *flow = mine->flow.words;
	struct sample *sample = &mine->sample;
	bool checked;

	if (packet->protocol != PROTO_UDP || len < at + UDP_LEN)
		return false;
	mine->len = len;
	if (!packet->v6) {
		__u32 sum = 0;
		__u16 *halves = (__u16 *)words;

#pragma clang loop unroll(disable)
		for (int i = 0; i < V4_LEN / 2; i++)
			sum += i == 5 ? 0 : halves[i];
		/* Zero and 0xffff are not the same: only one of them would be restored. */
		if ((__u16)~fold(sum) != halves[5])
			return false;
		sample->has_id = 1;
		sample->id = bpf_ntohl(words[1]) >> 16;
		constants[0] = words[0] & bpf_htonl(0xffff0000);
		constants[1] = words[1] & bpf_htonl(0xffff);
		constants[2] = words[2] & bpf_htonl(0xffff0000);
		constants[3] = words[3];
		constants[4] = words[4];
		__builtin_memset(flow, 0, sizeof(mine->flow.words));
		flow[0] = words[3];
		flow[1] = words[4];
		flow[2] = words[5];
		words += V4_LEN / 4;
		constants += V4_LEN / 4;
	} else {
		sample->has_id = 0;
		sample->id = 0;
		constants[0] = words[0];
		constants[1] = words[1] & bpf_htonl(0xffff);
#pragma clang loop unroll(disable)
		for (int i = 2; i < V6_LEN / 4; i++)
			constants[i] = flow[i - 2] = words[i];
		flow[8] = words[V6_LEN / 4];
		words += V6_LEN / 4;
		constants += V6_LEN / 4;
	}
	if (bpf_ntohl(words[1]) >> 16 != len - at)
		return false;
	checked = ((__u16 *)words)[3];
	if (!checked && packet->v6)
		return false;
	if (packet->unfinished) {
		((__u16 *)words)[3] = mine->block.checksum;
	} else if (checked) {
		summed += bpf_htons(PROTO_UDP) + bpf_htons(len - at);
		if (fold((summed & 0xffffffff) + (summed >> 32)) != 0xffff)
			return false;
	}
	constants[0] = words[0];
	constants[1] = bpf_htonl(checked);
	rtp = bpf_ntohl(words[2]);
	sample->is_rtp = len >= at + UDP_LEN + RTP_LEN && rtp >> 24 == RTP_FIRST;
	sample->marker = rtp >> 23 & 1;
	sample->payload_type = rtp >> 16 & 0x7f;
	sample->sequence = rtp;
	sample->timestamp = bpf_ntohl(words[3]);
	sample->source = words[4];
	constants[2] = words[2] & bpf_htonl(0xff7f0000);
	constants[3] = 0;
	constants[4] = words[4];
	return true;
}

/* The context of the packet's flow, taken into use for a new one where a number is free. */
static __always_inline struct context *context_of(struct packing *mine, struct stream *stream,
						  __u64 now)
{
	struct context *found, *old, *fresh = (void *)mine->context;
	struct number *owner = NULL;
	__u64 used;
	bool free = false;

	mine->flow.stream = mine->name;
	mine->number.stream = mine->name;
	found = bpf_map_lookup_elem(&contexts, &mine->flow);
	if (found && found->epoch != stream->epoch)
		found = NULL;
	if (found && found->state != SPENT)
		return found;
#pragma clang loop unroll(disable)
	for (int i = 0; i < CANDIDATES; i++) {
		mine->number.number = __sync_fetch_and_add(&stream->cursor, 1) & 255;
		owner = bpf_map_lookup_elem(&numbers, &mine->number);
		if (!owner || owner->epoch != stream->epoch) {
			free = true;
			break;
		}
		used = owner->last_used;
		old = bpf_map_lookup_elem(&contexts, &owner->flow);
		if (old && old->number == mine->number.number)
			used = old->last_used;
		if ((__s64)(now - used) >= REUSE) {
			free = true;
			break;
		}
	}
	if (!free)
		return NULL;
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->number = mine->number.number;
	fresh->epoch = stream->epoch;
	fresh->last_used = now;
	if (owner) {
		old = bpf_map_lookup_elem(&contexts, &owner->flow);
		if (old && old->number == fresh->number && old != found)
			bpf_map_delete_elem(&contexts, &owner->flow);
	}
	if (found) {
		fresh->relearned = found->relearned;
		/* Packets under its old number may still be on their way. */
		mine->number.number = found->number;
		owner = bpf_map_lookup_elem(&numbers, &mine->number);
		if (owner)
			owner->last_used = found->last_used;
		mine->number.number = fresh->number;
	}
	mine->taken.flow = mine->flow;
	mine->taken.epoch = fresh->epoch;
	mine->taken.last_used = now;
	if (bpf_map_update_elem(&numbers, &mine->number, &mine->taken, BPF_ANY) ||
	    bpf_map_update_elem(&contexts, &mine->flow, fresh, BPF_ANY))
		return NULL;
	return bpf_map_lookup_elem(&contexts, &mine->flow);
}

/* Steps from one counter to another; negative: that is before it. */
static __always_inline __s32 distance(__u16 from, __u16 to)
{
	return (__s16)(to - from);
}

/* The time stamp of the packet with this counter, if none jumped. */
static __always_inline __u32 timestamp_of(const struct context *context, __u16 counter)
{
	const struct base *line = &context->lines[0];

	if (distance(line->counter, counter) < 0)
		line = &context->lines[1];
	return line->timestamp + distance(line->counter, counter) * context->stride;
}

/* Takes note of a packet that is sent compressed. */
static __always_inline void observe(struct context *context, __u16 counter, __u32 timestamp)
{
	struct base *lines = context->lines;
	__u16 behind;

	if (distance(context->newest, counter) > 0) {
		if (timestamp_of(context, counter) != timestamp) {
			lines[1] = lines[0];
			lines[0].counter = counter;
			lines[0].timestamp = timestamp;
		}
		context->newest = counter;
	}
	behind = context->newest - lines[0].counter;
	if (behind >= FAR_BACK && behind < 0x8000) {
		counter = lines[0].counter + FAR_BACK / 2;
		lines[0].timestamp = timestamp_of(context, counter);
		lines[0].counter = counter;
		lines[1] = lines[0];
	}
}

/* A packet was not compact. After many in a row the rules are chosen anew. */
static __always_inline void strain(struct context *context)
{
	if (++context->strained < STRAIN << (context->relearned & 15))
		return;
	context->strained = 0;
	if (context->relearned < MAX_RELEARNED)
		context->relearned++;
	context->state = SPENT;
}

static __always_inline __u16 counter_of(const struct context *context,
					const struct sample *sample)
{
	if (context->rtp)
		return sample->sequence;
	return context->id_rule == ID_FOLLOWS ? sample->id : 0;
}

/* Chooses the rules that the last packet of the flow and this one show. Returns whether they show
 * any. */
static __always_inline bool learn(struct context *context, const struct packing *mine)
{
	const struct sample *before = &context->sample, *after = &mine->sample;
	__u16 id = after->id - before->id, steps = after->sequence - before->sequence;
	__u32 grown = after->timestamp - before->timestamp;
	bool has_id = before->has_id && after->has_id;

	if (before->is_rtp && after->is_rtp && before->payload_type == after->payload_type &&
	    before->source == after->source && steps && steps <= MAX_STEPS) {
		/* Only neighbours show the stride; the first packet after a silence does not. */
		if (steps != 1 || after->marker || grown > 0xffff)
			return false;
		context->rtp = 1;
		context->stride = grown;
		context->id_rule = !has_id || !id ? ID_CONSTANT :
				   id == steps	  ? ID_FOLLOWS :
						    ID_EXPLICIT;
	} else {
		/* The packet before this one is not known yet. */
		if (!before->has_id && (after->has_id || (!before->is_rtp && after->is_rtp)))
			return false;
		context->rtp = 0;
		context->stride = 0;
		context->id_rule = !has_id || !id ? ID_CONSTANT : ID_FOLLOWS;
	}
	context->headers = (after->has_id ? V4_LEN : V6_LEN) + UDP_LEN;
	context->headers += context->rtp ? RTP_LEN : 0;
	context->payload = mine->len - context->headers;
	context->id = context->id_rule == ID_EXPLICIT ? 0 : after->id;
	if (context->id_rule == ID_FOLLOWS)
		context->id -= counter_of(context, after);
#pragma clang loop unroll(disable)
	for (int i = 0; i < MAX_HEADERS / 4; i++) {
		if (i * 4 >= context->headers)
			break;
		context->template[i] = mine->constants[i];
	}
	return true;
}

/* Whether the packet has the constants of the context. */
static __always_inline bool fits(const struct context *context, const struct packing *mine)
{
	__u32 differ = mine->len < context->headers || (context->rtp && !mine->sample.is_rtp);

#pragma clang loop unroll(disable)
	for (int i = 0; i < MAX_HEADERS / 4; i++) {
		if (i * 4 >= context->headers)
			break;
		differ |= context->template[i] ^ mine->constants[i];
	}
	return !differ;
}

/* Compresses a packet that fits its context; false: its counter is too far away. */
static __always_inline bool shorten(struct context *context, struct packing *mine, __u32 frame)
{
	const struct sample *sample = &mine->sample;
	__u16 counter = counter_of(context, sample), payload = mine->len - context->headers;
	__u16 id = context->id + (context->id_rule == ID_FOLLOWS ? counter : 0);
	__u32 timestamp = context->rtp ? sample->timestamp : 0;
	bool jumps = context->rtp && timestamp != timestamp_of(context, counter);
	__u32 flags = 0;
	__s32 behind, ahead;

	if (frame != context->frame) {
		context->frame = frame;
		context->before[1] = context->before[0];
		context->before[0] = context->newest;
		if (context->repeats)
			context->repeats--;
	}
	if (jumps)
		context->repeats = REPEATS + 1; /* This frame, and further ones. */
	if (context->rtp && sample->marker)
		flags |= FLAG_MARKER;
	if (payload != context->payload)
		flags |= FLAG_LENGTH;
	if (context->rtp && (jumps || context->repeats))
		flags |= FLAG_TIMESTAMP;
	if (sample->has_id && (context->id_rule == ID_EXPLICIT || sample->id != id))
		flags |= FLAG_ID;
	behind = distance(context->newest, counter);
	ahead = distance(context->before[1], counter);
	/* Half of what the receiver takes: as many may be lost besides. */
	if (behind < -31 || ahead > 128)
		return false;
	mine->compact = !flags && behind >= -7 && ahead <= 24;
	mine->flags = flags;
	mine->low = counter & (mine->compact ? 0x3f : 0xff);
	observe(context, counter, timestamp);
	if (mine->compact)
		context->strained = 0;
	else if (jumps || !context->repeats)
		strain(context);
	return true;
}

/* Defines the context by the packet again, unless it is not like the one that defined it first. */
static __always_inline bool define(struct context *context, const struct packing *mine, __u64 now)
{
	const struct sample *sample = &mine->sample;
	__u16 counter = counter_of(context, sample), id = context->id;
	__u16 payload = mine->len - context->headers;
	__u32 pause = context->pause;

	if (context->id_rule == ID_FOLLOWS)
		id += counter;
	if (payload != context->payload || (context->id_rule != ID_EXPLICIT && id != sample->id))
		return false;
	context->next = now + pause;
	context->pause = pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE;
	context->newest = counter;
	context->lines[0].counter = counter;
	context->lines[0].timestamp = context->rtp ? sample->timestamp : 0;
	context->lines[1] = context->lines[0];
	if (pause == FIRST_PAUSE) {
		context->before[0] = counter;
		context->before[1] = counter;
	}
	return true;
}

/* Moves the context on by the packet, under its lock. */
static __always_inline enum outcome advance(struct context *context, struct packing *mine,
					    __u32 frame, __u64 now)
{
	bool learned = true, same;

	context->last_used = now;
	if (context->state == LEARNING) {
		learned = learn(context, mine);
		if (learned) {
			context->state = DEFINING;
			context->next = now;
			context->pause = FIRST_PAUSE;
		}
	}
	context->sample = mine->sample;
	if (!learned)
		return AS_IT_IS;
	same = fits(context, mine);
	mine->headers = context->headers;
	mine->generation = context->generation;
	mine->number.number = context->number;
	mine->rules = context->rtp << 2 | context->id_rule;
	mine->stride = context->stride;
	if (same && context->state == KNOWN) {
		if (shorten(context, mine, frame))
			return COMPRESSED;
		/* A definition says where the flow is now. */
		context->state = DEFINING;
		context->next = now;
		context->pause = FIRST_PAUSE;
	}
	if (context->state == DEFINING && context->next <= now) {
		if (same && define(context, mine, now))
			return DEFINES;
		strain(context);
	} else if (!same && context->state != SPENT) {
		strain(context);
	}
	return AS_IT_IS;
}

/* Writes the head of a compressed packet. */
static __always_inline void write_head(struct packing *mine, __u32 check)
{
	__u8 *bytes = mine->block.bytes;
	__u32 word, at = LONG_HEADER;

	if (mine->compact) {
		word = (__u32)COMPACT << 28 | mine->number.number << 22 | mine->low << 16 | check;
		*(__u32 *)bytes = bpf_htonl(word);
		mine->block.head = COMPACT_HEADER;
		return;
	}
	bytes[0] = LONG << 4 | mine->flags;
	bytes[1] = mine->number.number;
	bytes[2] = mine->low;
	put16(bytes + 3, check);
	if (mine->flags & FLAG_LENGTH) {
		put16(bytes + at, mine->len - mine->headers);
		at += 2;
	}
	FORGET(at);
	at &= 7;
	if (mine->flags & FLAG_TIMESTAMP) {
		put16(bytes + at, mine->sample.timestamp >> 16);
		put16(bytes + at + 2, mine->sample.timestamp);
		at += 4;
	}
	FORGET(at);
	at &= 15;
	if (at > 11)
		at = 11;
	if (mine->flags & FLAG_ID) {
		put16(bytes + at, mine->sample.id);
		at += 2;
	}
	mine->block.head = at;
}

/* Finds the block for the packet whose bytes are in `copy`, in the frame number `frame` or the next
 * one of the stream `mine->name`. */
static __always_inline void compress(struct packing *mine, struct stream *stream,
				     const struct packet *packet, struct frame *copy,
				     __s64 summed, __u32 frame, __u64 now)
{
	__u32 *words = (__u32 *)copy->bytes;
	struct block *block = &mine->block;
	struct context *context;
	enum outcome outcome;

	if (!read_headers(mine, packet, words, summed))
		return;
	context = context_of(mine, stream, now);
	if (!context)
		return;
	bpf_spin_lock(&context->lock);
	outcome = advance(context, mine, frame, now);
	bpf_spin_unlock(&context->lock);
	if (outcome == AS_IT_IS)
		return;
	block->plain = 0;
	if (outcome == DEFINES) {
		block->bytes[0] = DEFINITION << 4 | mine->rules;
		block->bytes[1] = mine->number.number;
		put16(block->bytes + 2, mine->stride);
		block->head = DEFINITION_HEADER;
		block->start = ETH_LEN - DEFINITION_HEADER;
		block->len = mine->len + DEFINITION_HEADER;
		return;
	}
	write_head(mine, shuffle(crc16(words, &mine->headers, MAX_HEADERS), mine->generation));
	block->start = ETH_LEN + mine->headers - block->head;
	block->len = mine->len - mine->headers + block->head;
}

#endif
