/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues by next hop, class and ECN capability. A queue that is used has a slot; there are more
 * keys than slots, so user space has empty queues given back.
 */
#ifndef MERGE_QUEUES_H
#define MERGE_QUEUES_H

#include "maps.h"
#include "user_space.h"

static __always_inline bool same_key(const struct queue_key *a, const struct queue_key *b)
{
	return *(__u64 *)a == *(__u64 *)b && a->hop == b->hop;
}

/* Whether frames to both have one destination. */
static __always_inline bool same_destination(const struct hop *a, const struct hop *b)
{
	const __u32 *one = (const __u32 *)a->dst, *other = (const __u32 *)b->dst;

	return !((one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]) |
		 (one[3] ^ other[3]));
}

/* Makes the next hop of all groups that of the group to which the packet goes. Its id is the whole
 * group of IPv4; of IPv6 the link address says what the id does not, but for chance. */
static __always_inline void aim(struct hop *hop, const struct packet *packet)
{
	const __u32 *to = packet->to.address;
	__u32 *dst = (__u32 *)hop->dst;

	if (packet->v6) {
		dst[0] = to[0];
		dst[1] = to[1];
		dst[2] = to[2];
		dst[3] = to[3];
		hop->id = GROUP_ID | (((to[0] * GOLDEN ^ to[1]) * GOLDEN ^ to[2]) * GOLDEN) >> 33;
	} else {
		dst[0] = to[3];
		dst[1] = 0;
		dst[2] = 0;
		dst[3] = 0;
		hop->id = GROUP_ID | (bpf_ntohl(to[3]) & 0x0fffffff);
	}
}

/* The slot of a queue, taken into use where it has none; SLOTS when there is none left. */
static __always_inline __u32 slot_of(struct device *device, struct queue_key *key,
				     struct hop *hop)
{
	__u32 *found = bpf_map_lookup_elem(&slots, key), slot;
	struct queue *queue;

	if (found)
		return *found;
	if (bpf_map_pop_elem(&free_slots, &slot)) {
		tell(device, NO_SLOT, 0, 0, true);
		return SLOTS;
	}
	queue = bpf_map_lookup_elem(&queues, &slot);
	if (!queue)
		return SLOTS;
	queue->key = *key;
	queue->hop = *hop;
	if (!bpf_map_update_elem(&slots, key, &slot, BPF_NOEXIST))
		return slot;
	/* Another CPU was first. Nobody has found this slot; who takes it next finds it unused. */
	__builtin_memset(&queue->key, 0, sizeof(queue->key));
	queue->hop.max = 0;
	bpf_map_push_elem(&free_slots, &slot, 0);
	found = bpf_map_lookup_elem(&slots, key);
	return found ? *found : SLOTS;
}

/* Takes the empty queue in `slot` out of use; user space keeps its counters and frees the slot. */
static __always_inline int reclaim(__u32 slot)
{
	struct queue *queue = bpf_map_lookup_elem(&queues, &slot);
	struct queue_key key = {};
	bool idle;

	if (!queue)
		return -1;
	bpf_spin_lock(&queue->lock);
	idle = queue->head == queue->tail;
	if (idle) {
		key = queue->key;
		/* Who found the slot before us finds a stranger's key and lets the packet pass. */
		__builtin_memset(&queue->key, 0, sizeof(queue->key));
		queue->hop.max = 0;
	}
	bpf_spin_unlock(&queue->lock);
	return idle ? bpf_map_delete_elem(&slots, &key) : -1;
}

/* The lowest bit that is set in `bits`, which is not 0. */
static __always_inline __u32 lowest(__u64 bits)
{
	__u32 at = 0;

	if (!(bits & 0xffffffff)) {
		at += 32;
		bits >>= 32;
	}
	if (!(bits & 0xffff)) {
		at += 16;
		bits >>= 16;
	}
	if (!(bits & 0xff)) {
		at += 8;
		bits >>= 8;
	}
	if (!(bits & 0xf)) {
		at += 4;
		bits >>= 4;
	}
	if (!(bits & 3)) {
		at += 2;
		bits >>= 2;
	}
	return at + !(bits & 1);
}

#endif
