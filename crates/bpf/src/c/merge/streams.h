/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Streams of format 2: whose tag is which, and the numbers of their frames. The model is
 * crates/aggregate/src/streams.rs.
 *
 * A stream is a queue's: two with one tag could not number their frames in the order in which these
 * leave. It outlives the queue's slot, so that the numbers go on.
 */
#ifndef MERGE_STREAMS_H
#define MERGE_STREAMS_H

#include "maps.h"
#include "queues.h"

/* The tag has four bits; the last is that of probes. */
#define TAGS 15
/* A tag is used for another class once its stream sent nothing for this long beyond the longest
 * wait: no frame of it waits or is on its way. In ns. */
#define REUSE 2000000000LL

struct stream_key {
	__u32 hop;
	__u32 tag;
};

struct stream {
	struct queue_key key;
	__u64 last_used; /* ns */
	__u32 sequence;  /* of the next frame to leave; its low 8 bits travel */
	__u32 cursor;	 /* the context's number that is looked at first for a new flow */
	__u32 epoch;	 /* contexts of another one belong to an earlier class with this tag */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, STREAMS);
	__type(key, struct stream_key);
	__type(value, struct stream);
} streams SEC(".maps");

/* The stream of the queue with `key`, whose tag is in `name` then; NULL while all tags are in use
 * by others. `own` is the tag that the queue had before, plus 1. */
static __always_inline struct stream *stream_of(struct stream_key *name, struct stream *fresh,
						const struct queue_key *key, __u32 own, __u64 now,
						__u64 wait)
{
	struct stream *stream;
	__u64 used;

	name->hop = key->hop;
	if (own) {
		name->tag = own - 1;
		stream = bpf_map_lookup_elem(&streams, name);
		if (stream && same_key(&stream->key, key)) {
			stream->last_used = now;
			return stream;
		}
	}
#pragma clang loop unroll(disable)
	for (__u32 tag = 0; tag < TAGS; tag++) {
		name->tag = tag;
		stream = bpf_map_lookup_elem(&streams, name);
		if (!stream) {
			__builtin_memset(fresh, 0, sizeof(*fresh));
			fresh->key = *key;
			/* Another CPU may be first, for another class even. */
			bpf_map_update_elem(&streams, name, fresh, BPF_NOEXIST);
			stream = bpf_map_lookup_elem(&streams, name);
		}
		if (stream && same_key(&stream->key, key)) {
			stream->last_used = now;
			return stream;
		}
	}
#pragma clang loop unroll(disable)
	for (__u32 tag = 0; tag < TAGS; tag++) {
		name->tag = tag;
		stream = bpf_map_lookup_elem(&streams, name);
		if (!stream)
			continue;
		used = stream->last_used;
		/* Signed: clocks of two CPUs may differ a little. Of two CPUs one gets it. */
		if ((__s64)(now - used) < (__s64)wait + REUSE ||
		    __sync_val_compare_and_swap(&stream->last_used, used, now) != used)
			continue;
		/* The sequence goes on, so that the receiver does not see a restart. */
		stream->epoch++;
		stream->cursor = 0;
		stream->key = *key;
		return stream;
	}
	return NULL;
}

#endif
