/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of flows: each has eight places in each of two buckets, by its hash, and the one that
 * was used the longest ago makes room. A hash map of the kernel would hash with more than twice the
 * instructions, by a call, and go through a list whose links are cold.
 *
 * With many flows the memory is what costs. A packet touches two cache lines: its bucket, and the
 * side of its direction. So the addresses, which alone fill most of a line, are not compared with
 * each packet; a tag of 48 bits stands for them, beside the 11 bits that choose the bucket, all of
 * a hash with secret factors. That a connection meets the tag of another one, where at most 16 are
 * looked at, has a probability of 16 / 2^48 = 6e-14: at a hundred new connections a second, once in
 * 5000 years. Nobody can choose addresses for it without the secret. Where a handshake finds the
 * tag of another connection, neither is touched from then on (handshake.h). User space, which comes
 * seldom, compares addresses.
 *
 * With a few flows branches are what cost: which place of eight it is cannot be predicted, and a
 * branch that goes another way than expected waits for the hash and for the line. So all eight are
 * compared by arithmetic, and there is one branch, on whether it was among them.
 */
#ifndef WINDOW_TABLE_H
#define WINDOW_TABLE_H

#include "packet.h"

#define TAG_SHIFT 16
#define FREE 0
#define CLAIMED (1ULL << TAG_SHIFT)
/* No flow has a tag below this. */
#define FIRST_TAG (2ULL << TAG_SHIFT)
/* A bucket with so many flows shares with the other; below that all are found at once. With 4, a
 * table of 16384 places loses none of 10,000 flows (simulated: none in 50,000 tables, and a flow in
 * one table of 80 with 6); a fifth of so many is in its second bucket. */
#define ENOUGH 4

/* A place of the table. */
struct place {
	struct bucket *bucket;
	__u32 way;
	__u32 flow;            /* its number */
};

/* About seconds, for 19 hours; then the old look young. */
static __always_inline __u16 stamp_of(__u64 now)
{
	return now >> 30;
}

/* When a place was used last: the part of it that is no tag. */
static __always_inline __u16 *stamp_at(__u64 *place)
{
	return (__u16 *)place + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 3);
}

/* Two multiplications with secret factors: after one, the highest bit of a word would still change
 * one bit alone, and known ones. */
static __always_inline __u64 scramble(__u64 word, __u64 mask, __u64 first, __u64 second)
{
	word = (word ^ mask) * first;
	return (word ^ word >> 32) * second;
}

/* The words are scrambled side by side, not one after the other: all else waits for this. */
static __always_inline __u64 hash_of(const __u64 *words, const struct control *settings)
{
	__u64 a = settings->seed[0], b = settings->seed[1];
	__u64 first = settings->seed[2] | 1, second = settings->seed[3] | 1;
	__u64 hash = scramble(words[1], a, first, second) + scramble(words[3], b, first, second) +
		     scramble(words[0], a, second, first) + scramble(words[2], b, second, first) +
		     scramble(words[4], a ^ b, first, second);

	hash = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

static __always_inline __u64 tag_of(__u64 hash)
{
	return hash >> TAG_SHIFT << TAG_SHIFT | FIRST_TAG;
}

/* The two buckets that it can be in. */
static __always_inline __u32 bucket_of(__u64 hash, int which)
{
	return (which ? hash >> TAG_SHIFT : hash) & (BUCKETS - 1);
}

/* Bit 8 * way where the tag of that way is `tag`. */
static __always_inline __u64 same_tag(const struct bucket *bucket, int way, __u64 tag)
{
	/* Less than 2^48, so below zero when one is taken off means zero. */
	__u64 differs = (bucket->place[way] ^ tag) >> TAG_SHIFT;

	/* Or clang would make a branch of it. */
	asm("" : "+r"(differs));
	return (differs - 1) >> 63 << (8 * way);
}

/* Where the flow of `hash` is; false where it is not. */
static __always_inline bool find(__u64 hash, struct place *place)
{
	__u64 tag = tag_of(hash);

#pragma unroll
	for (int which = 0; which < 2; which++) {
		__u32 index = bucket_of(hash, which);
		struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
		__u64 same;

		if (!bucket)
			return false;
		same = same_tag(bucket, 0, tag) | same_tag(bucket, 1, tag) |
		       same_tag(bucket, 2, tag) | same_tag(bucket, 3, tag) |
		       same_tag(bucket, 4, tag) | same_tag(bucket, 5, tag) |
		       same_tag(bucket, 6, tag) | same_tag(bucket, 7, tag);
		if (!same)
			continue;
		/* The lowest bit 8 * way shifts the factor so that `way` comes to stand on top. */
		place->way = (same & -same) * 0x0020406080a0c0e0ULL >> 61;
		place->bucket = bucket;
		place->flow = index * WAYS + place->way;
		return true;
	}
	return false;
}

static __always_inline bool is_same(const struct key *a, const struct key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3] &&
	       *(const __u32 *)&a->outside_port == *(const __u32 *)&b->outside_port;
}

/* Whether the flow in `place` is that of `key` itself. */
static __always_inline bool is_flow_of(const struct key *key, const struct place *place)
{
	__u32 index = place->flow;
	struct flow *flow = bpf_map_lookup_elem(&flows, &index);

	return flow && is_same(key, &flow->key);
}

/* Takes out the flow of `hash`. False where it was that of another key. */
static __always_inline bool forget(const struct key *key, __u64 hash)
{
	struct place place;
	__u64 known;
	bool same;

	if (!find(hash, &place))
		return true;
	same = is_flow_of(key, &place);
	known = place.bucket->place[place.way];
	/* Another CPU may have given the place to another flow, or used it just now; then it stays.
	 * */
	if (tag_of(known) == tag_of(hash))
		__sync_val_compare_and_swap(&place.bucket->place[place.way], known, FREE);
	return same;
}

/* Of a place that is free; more than the age of any other. */
#define FREE_AGE (1 << 16)

/* How well a place suits a new flow: its age and one, above its number; 0 while another CPU fills
 * it. By arithmetic, as above, and since the verifier would follow each of sixteen branches both
 * ways. */
static __always_inline __u64 merit(const struct bucket *bucket, __u64 way, __u16 stamp)
{
	__u64 known = bucket->place[way], tag = known >> TAG_SHIFT;
	__u64 is_free = (tag - 1) >> 63, is_claimed = ((tag ^ CLAIMED >> TAG_SHIFT) - 1) >> 63, age;

	asm("" : "+r"(is_free), "+r"(is_claimed));
	age = ((__u16)(stamp - known) & (is_free - 1)) + is_free * FREE_AGE;
	return ((age + 1) * WAYS + way) & (is_claimed - 1);
}

static __always_inline __u64 larger(__u64 a, __u64 b)
{
	__s64 more = a - b, sign = more >> 63;

	asm("" : "+r"(sign));
	return b + (more & ~sign);
}

/* The merit of the best place of a bucket. */
static __always_inline __u64 best(const struct bucket *bucket, __u16 stamp)
{
	__u64 most = 0;

#pragma unroll
	for (__u64 way = 0; way < WAYS; way++)
		most = larger(merit(bucket, way, stamp), most);
	return most;
}

/* How many flows a bucket has. */
static __always_inline __u64 count(const struct bucket *bucket)
{
	__u64 flows = 0;

#pragma unroll
	for (int way = 0; way < WAYS; way++)
		/* Tags of flows are above that of a claimed place. */
		flows += ((CLAIMED >> TAG_SHIFT) - (bucket->place[way] >> TAG_SHIFT)) >> 63;
	return flows;
}

/* Room for a new flow, in its first bucket, or in the second where there is more. Nobody finds it
 * before `publish`. False where another CPU was faster. */
static __always_inline bool claim(__u64 hash, __u16 stamp, struct place *place)
{
	__u32 first = bucket_of(hash, 0), second = bucket_of(hash, 1), index = first;
	struct bucket *here = bpf_map_lookup_elem(&buckets, &first);
	struct bucket *there = bpf_map_lookup_elem(&buckets, &second);
	__u64 known, merits[2];

	if (!here || !there)
		return false;
	merits[0] = best(here, stamp);
	merits[1] = best(there, stamp);
	place->bucket = here;
	place->way = merits[0] % WAYS;
	if (count(here) >= ENOUGH && merits[1] / WAYS >= merits[0] / WAYS &&
	    (merits[0] / WAYS <= FREE_AGE || count(there) < count(here))) {
		index = second;
		place->bucket = there;
		place->way = merits[1] % WAYS;
	}
	place->flow = index * WAYS + place->way;
	known = place->bucket->place[place->way];
	return known >> TAG_SHIFT != CLAIMED >> TAG_SHIFT &&
	       __sync_val_compare_and_swap(&place->bucket->place[place->way], known, CLAIMED) ==
		       known;
}

/* Makes a claimed place known. */
static __always_inline void publish(const struct place *place, __u64 hash, __u16 stamp)
{
	/* With a barrier: who sees the tag sees the flow. */
	__sync_lock_test_and_set(&place->bucket->place[place->way], tag_of(hash) | stamp);
}

#endif
