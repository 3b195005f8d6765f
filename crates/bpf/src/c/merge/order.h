/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The order of one queue's frames over several CPUs, and of one flow's packets behind the device's
 * own queues.
 */
#ifndef MERGE_ORDER_H
#define MERGE_ORDER_H

#include "maps.h"
#include "user_space.h"

/* After so long a CPU is taken to have handed its frame over. In ns. */
#define OWNER_TIMEOUT 100000000
/* The same where many frames wait, or nobody would send a tick: hundreds of times what it takes. A
 * tick's transmission may be over long before its call returns, which receives packets, too. In ns.
 * */
#define CROWDED_TIMEOUT 1000000

/* Whether frames that this CPU takes now reach the device after those taken before. */
static __always_inline bool in_order(struct device *device, struct queue *queue, __u32 owner,
				     __u64 gen, __u64 time, __u32 cpu, __u32 slot)
{
	__u64 *entered, now;
	bool hurry;

	if (queue->emitting)
		return false;
	if (owner == cpu || owner == NOBODY)
		return true;
	entered = bpf_map_lookup_elem(&entries, &owner);
	if (!entered || *entered != gen)
		return true;
	if (queue->ticked) {
		struct gate *gate = bpf_map_lookup_elem(&gates, &slot);

		if (!gate || gate->ticks == gate->ticks_done)
			return true;
	}
	now = bpf_ktime_get_ns();
	/* User space, which could send a tick on that CPU, hangs; or there is no time to wait for
	 * it. */
	hurry = queue->tail - queue->head > RING / 2 || hangs(device, now);
	/* Signed: clocks of two CPUs may differ a little. */
	return (__s64)(now - time) > (hurry ? CROWDED_TIMEOUT : OWNER_TIMEOUT);
}

/* Notes, under the queue's lock, that a packet of `len` bytes of IP leaves where it is. */
static __always_inline void leave_in_place(struct queue *queue, __u32 cpu, __u64 gen, __u64 now,
					   __u32 len)
{
	queue->owner_cpu = cpu;
	queue->ticked = 0;
	queue->owner_gen = gen;
	queue->owner_time = now;
	queue->stats.unaggregated_packets++;
	queue->stats.unaggregated_bytes += len;
	queue->stats.by_ready++;
}

/* The gate of the queue in `slot`. */
static __always_inline struct gate *gate_of(struct device *device, __u32 slot)
{
	__u32 index = device->fifo ? 0 : slot;

	return bpf_map_lookup_elem(&gates, &index);
}

/* The word of a set of flows that has the bit of `flow`. */
static __always_inline __u32 word_of(__u64 flow)
{
	return flow >> 55 & (SEEN - 1);
}

/* The flow belongs to the gate's epoch from now on. */
static __always_inline void note_flow(struct gate *gate, __u64 flow)
{
	__u64 *word = &gate->seen[word_of(flow)];

	if (!(*word & bit_of(flow)))
		__sync_fetch_and_or(word, bit_of(flow));
}

/* Lets a packet of `flow`, which user space does not track, go with its gate's flow hash. */
static __always_inline void go_untracked(struct __sk_buff *skb, struct gate *gate, __u64 flow)
{
	__sync_fetch_and_add(&gate->untracked, 1);
	if (!gate->hash)
		gate->hash = (__u32)(flow >> 16) | 1;
	bpf_set_hash(skb, gate->hash);
}

#endif
