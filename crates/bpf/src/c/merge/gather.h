/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A packet joins its queue: a place in a frame, and what follows from that.
 */
#ifndef MERGE_GATHER_H
#define MERGE_GATHER_H

#include "block.h"
#include "frame.h"
#include "maps.h"
#include "order.h"
#include "user_space.h"

/* Counts a frame of `packets` packets and `bytes` bytes of IP that goes out to the device, where
 * that counts, too. Elsewhere no packet writes what all CPUs read. */
static __always_inline void count_sent(struct device *device, __u64 packets, __u32 bytes)
{
	if (!device->told)
		return;
	device->last = packets << 32 | bytes;
	if (device->sent <= device->done)
		device->handed = bpf_ktime_get_ns();
	__sync_fetch_and_add(&device->sent, 1);
}

static __always_inline int consume(void)
{
	return bpf_redirect(NOWHERE, 0);
}

/* Outcome of joining a queue. */
enum joined {
	JOINED,
	NOT_ITS, /* the slot was given to another queue */
	CROWDED, /* every frame is in use; it is counted as one that leaves alone */
};

/* Finds the place for the packet in hand, or for its `block` where it is one, and holds it until
 * its bytes are there. */
static __always_inline enum joined join(struct joint *joint, struct __sk_buff *skb,
					struct merge_config *config, struct device *dev,
					struct queue *queue, struct hop *hop,
					const struct queue_key *key, const struct packet *packet,
					struct block *block, __u32 slot, __u64 now, __u32 hash,
					__u32 waiting, bool dense)
{
	__u32 header = header_len(hop), len = packet->len, bytes = block ? block->len : len;
	__u32 tag = block ? block->tag : 0, ring, last;
	struct pending *pending;

	bpf_spin_lock(&queue->lock);
	if (!same_key(&queue->key, key)) {
		bpf_spin_unlock(&queue->lock);
		return NOT_ITS;
	}
	joint->empty = queue->head == queue->tail;
	ring = (queue->tail - 1) & (RING - 1);
	pending = &queue->pending[ring];
	if (joint->empty || !has_room(pending, header + bytes, joint->max, tag)) {
		last = ring;
		ring = queue->tail & (RING - 1);
		pending = &queue->pending[ring];
		if (queue->tail - queue->head >= RING || pending->taken || pending->writers) {
			/* Another CPU has not come to hand its frame over for thousands of packets.
			 * To lose this one would be worse than to let it overtake them. */
			queue->stats.over_bound++;
			queue->stats.unaggregated_packets++;
			queue->stats.unaggregated_bytes += len;
			bpf_spin_unlock(&queue->lock);
			return CROWDED;
		}
		pending->oldest = now;
		pending->hash = hash;
		pending->mark = skb->mark;
		pending->priority = skb->priority;
		pending->len = 0;
		pending->count = 0;
		pending->payload = 0;
		pending->offset = 0;
		pending->tag = tag;
		pending->plain = ANY_PLAIN;
		if (tag) {
			pending->len = FRAME_HEADER;
			queue->begun++;
			if (!joint->empty && !packet->group)
				cut_block(queue, block, last, joint->max - header);
			if (block->cut) {
				bytes -= block->cut;
				pending->offset = bytes;
				pending->plain = NOT_PLAIN;
			}
		}
		queue->tail++;
		/* Nothing passes unseen while this waits, nor while it leaves: only user space
		 * sees when that is over. */
		dev->unseen_until = 0;
		__sync_fetch_and_add(&dev->held, 1);
		if (joint->empty) {
			/* Its addresses and sizes may have changed since the queue was taken into
			 * use. */
			queue->hop = *hop;
			__sync_fetch_and_or(&dev->holding, 1ULL << (slot & (SLOTS - 1)));
		}
	}
	/* The last packet's mark may have changed it. */
	queue->hop.min = hop->min;
	joint->ring = ring;
	joint->at = pending->len;
	joint->oldest = pending->oldest;
	pending->len += bytes;
	pending->count++;
	pending->payload += len;
	if (block)
		pending->plain &= block->plain;
	/* Others end their copies without the lock. */
	__sync_fetch_and_add(&pending->writers, 1);
	queue->bytes += bytes;
	queue->packets++;
	queue->flows |= bit_of(packet->flow);
	queue->pairs |= bit_of(packet->pair);
	if (dense)
		queue->dense = 1;
	joint->enough = config->policy == FORCED && queue->bytes >= hop->min &&
			(!dev->told || waiting < dev->limit);
	joint->full = queue->tail - queue->head > 1 || header + pending->len + bytes > joint->max;
	if (joint->full)
		__sync_fetch_and_or(&dev->filled, 1ULL << (slot & (SLOTS - 1)));
	joint->over = queue->tail - queue->head > config->queue_frames ||
		      dev->held > config->total_frames;
	bpf_spin_unlock(&queue->lock);
	return JOINED;
}

/* The bytes of the packet are in its frame. */
static __always_inline void is_written(struct queue *queue, const struct joint *joint)
{
	__sync_fetch_and_sub(&queue->pending[joint->ring & (RING - 1)].writers, 1);
}

/* Whether the oldest frame of the queue that a packet has joined may leave now; `ready`, if the
 * device takes a frame. */
static __always_inline bool may_leave(const struct joint *joint, struct merge_config *config,
				      struct device *dev, struct gate *gate, struct queue *queue,
				      const struct packet *packet, __u32 slot, __u32 waiting,
				      bool fair, bool ready)
{
	bool alone;

	ready |= joint->enough;
	if (fair)
		note_packet(gate, packet);
	if (joint->empty) {
		/* While a frame is under way, its end wakes user space. */
		alone = config->policy == BUSY && !dev->told && (!gate->closed || gate->hurried);
		tell(dev, NONEMPTY, slot, joint->oldest,
		     alone || dev->look_at > joint->oldest + config->wait);
	}
	if (config->policy == BUSY && joint->full) {
		if (dev->told) {
			ready |= waiting < config->inflight;
		} else if (gate->credit) {
			/* User space gives new credit whenever it looks. */
			gate->credit--;
			ready = true;
		} else if (gate->rests) {
			tell(dev, FILLED, slot, 0, true);
		}
	}
	if (joint->over && !ready) {
		ready = true;
		__sync_fetch_and_add(&queue->stats.over_bound, 1);
	}
	return ready;
}

/* Why that frame leaves. */
static __always_inline __u32 cause_of(const struct joint *joint, const struct merge_config *config)
{
	return joint->full || config->policy == FORCED ? BY_SIZE : BY_READY;
}

#endif
