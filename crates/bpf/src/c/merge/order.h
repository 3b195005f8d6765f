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

/* A millisecond, nearly: so many bits of a time in ns are less than one. */
#define FLOWLET_UNIT 20
/* Packets of one flow that are so far apart do not meet in a device's queue: half of what calls
 * have between two (20 ms), and more than a turn of fair queues takes for a flow that is sparse. */
#define FLOWLET 10
/* After so long what was known of a flow is forgotten. */
#define FORGET_FLOW 1000

/* Whether frames that this CPU takes now reach the device after those taken before. */
static __always_inline bool in_order(struct device *device, struct queue *queue, __u32 owner,
				     __u64 gen, __u64 time, __u32 cpu, __u32 slot)
{
	struct entry *entered;
	__u64 now;
	struct gate *gate;
	bool hurry;

	if (queue->emitting)
		return false;
	if (owner == cpu || owner == NOBODY)
		return true;
	entered = bpf_map_lookup_elem(&entries, &owner);
	if (!entered || entered->count != gen)
		return true;
	gate = bpf_map_lookup_elem(&gates, &slot);
	if (!gate || gate->ticks == gate->ticks_done)
		return true;
	now = bpf_ktime_get_ns();
	/* User space, which could send a tick on that CPU, hangs; or there is no time to wait for
	 * it. */
	hurry = queue->tail - queue->head > RING / 2 || hangs(device, now);
	/* Signed: clocks of two CPUs may differ a little. */
	return (__s64)(now - time) > (hurry ? CROWDED_TIMEOUT : OWNER_TIMEOUT);
}

/* Counts, under the queue's lock, a packet of `len` bytes of IP that leaves where it is. */
static __always_inline void count_alone(struct queue *queue, __u32 len)
{
	queue->stats.unaggregated_packets++;
	queue->stats.unaggregated_bytes += len;
	queue->stats.by_ready++;
}

/* Notes, under the queue's lock, that a packet of `len` bytes of IP leaves where it is. It carries
 * nobody else's, and its own flow's next packet comes after it on this CPU; so nobody has to wait
 * until it is handed over. */
static __always_inline void leave_in_place(struct queue *queue, __u32 len)
{
	queue->owner_cpu = NOBODY;
	count_alone(queue, len);
}

/* Whether the device serves flows in turn, and tells nothing of its frames. */
static __always_inline bool has_fair_queues(const struct device *device)
{
	return !device->told && !device->fifo;
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

/* The flow uses the gate's hash from now on. */
static __always_inline void note_flow(struct gate *gate, __u64 flow)
{
	__u64 *word = &gate->seen[word_of(flow)];

	if (!(*word & bit_of(flow)))
		__sync_fetch_and_or(word, bit_of(flow));
}

/* The same of a packet with ports, behind which what has none between its addresses stays. */
static __always_inline void note_packet(struct gate *gate, const struct packet *packet)
{
	note_flow(gate, packet->flow);
	note_flow(gate, packet->pair);
}

/* Whether frames with the gate's hash may still be in the device's queues. */
static __always_inline bool is_under_way(const struct gate *gate)
{
	return gate->ticks != gate->left || gate->untracked != gate->gone;
}

/* Whether packets of `flow` with the gate's hash may still be in front of the next one. They are in
 * the same queue as the gate's ticks, so a tick that has left leaves none behind that came before
 * it. */
static __always_inline bool shares(const struct gate *gate, __u64 flow)
{
	__u32 word = word_of(flow);

	if (gate->seen[word] & bit_of(flow))
		return true;
	return (gate->before[word] & bit_of(flow)) && (__s32)(gate->left - gate->turned) < 0;
}

/* With the tick that leaves now, which holds the last that was gathered, a generation of flows
 * ends. */
static __always_inline void turn(struct gate *gate)
{
	gate->turned = gate->ticks;
	for (int i = 0; i < SEEN; i++) {
		gate->before[i] = gate->seen[i];
		gate->seen[i] = 0;
	}
}

/* Whether the gate's first frame of several flows at `now` takes a queue of its own. Queues have
 * their turns in the order in which they began, so what left in place is in front of it then,
 * however long it waits. Beside many strangers such packets go on, and none of them waits for
 * frames. */
static __always_inline bool begins_queue(const struct gate *gate, __u64 now)
{
	return !gate->hurried && gate->own_at &&
	       (__u32)(now >> FLOWLET_UNIT) - gate->own_at < FORGET_FLOW;
}

/* Gives a packet its gate's flow hash; `hash` is the one that it has by itself. */
static __always_inline void take_hash(struct __sk_buff *skb, struct gate *gate, __u32 hash)
{
	if (!gate->hash)
		gate->hash = hash;
	bpf_set_hash(skb, gate->hash);
}

/* The same of a packet that user space does not track. */
static __always_inline void go_untracked(struct __sk_buff *skb, struct gate *gate, __u32 hash)
{
	__sync_fetch_and_add(&gate->untracked, 1);
	take_hash(skb, gate, hash);
}

/* The name in a gate's sets of what has no ports (fragments) between the addresses of `pair`. */
static __always_inline __u64 portless_of(__u64 pair)
{
	return pair * 0x9e3779b97f4a7c15ULL;
}

/* Whose hash a packet has that leaves in place, in fair queues. */
enum place {
	DENSE,  /* the gate's */
	SHARED, /* the gate's, though the flow is sparse: what is in front of it has that */
	FREE,   /* its own; the gate's would do, too */
	BOUND,  /* its own, because the packet before it may still be in that queue */
};

/* Time from the flow's last packet to one that comes at `at`. */
static __always_inline __u32 since_last(const struct flowlet *flowlet, __u32 at)
{
	return (at - (flowlet->last >> 4)) & (~0U >> 4);
}

/* The moments of a flow of which a packet comes at `now`. Those of a new flow take the place of one
 * that is forgotten. */
static __always_inline struct flowlet *flowlet_of(__u32 slot, __u64 flow, __u64 now)
{
	struct flowlets *gate = bpf_map_lookup_elem(&flowlets, &slot);
	__u32 at = now >> FLOWLET_UNIT, name = flow;
	struct flowlet *set, *free = 0;

	if (!gate)
		return 0;
	set = &gate->of[(flow >> (64 - FLOWLET_BITS)) * FLOWLET_WAYS];
	for (int i = 0; i < FLOWLET_WAYS; i++) {
		if (set[i].name == name)
			return &set[i];
		if (since_last(&set[i], at) >= FORGET_FLOW)
			free = &set[i];
	}
	if (!free)
		return set;
	free->own = 0;
	free->large = 0;
	free->name = name;
	return free;
}

/* Notes that a packet of the flow comes at `at`. Returns how sparse the flow is, from 0 on: each
 * packet that comes long after the one before it counts for four that do not. Sets `gap` where this
 * one does. */
static __always_inline __u32 note_time(struct flowlet *flowlet, __u32 at, bool *gap)
{
	__u32 since = since_last(flowlet, at), sparse = flowlet->last & 15;

	*gap = since >= FLOWLET;
	if (since >= FORGET_FLOW)
		sparse = 0;
	else if (*gap)
		sparse = sparse > 8 ? 12 : sparse + 4;
	else if (sparse)
		sparse--;
	flowlet->last = at << 4 | sparse;
	return sparse;
}

/* Notes that a packet that is too large to gather leaves at `now` with its own hash. */
static __always_inline void note_large(struct flowlet *flowlet, __u64 now)
{
	__u32 at = now >> FLOWLET_UNIT;
	bool gap;

	note_time(flowlet, at, &gap);
	flowlet->own = at;
	flowlet->large = at;
}

/* The place of a packet that comes at `now`; `held`, if others wait in its gate's frames.
 *
 * A flow whose packets come far apart keeps its own hash, and so its place among the strangers': a
 * fair queue serves it first. A dense one would queue there, and could not be gathered without
 * overtaking itself, so it has the gate's hash, in place and gathered. One with large packets never
 * has: others would wait behind these.
 *
 * A flow changes only where its packets are so far apart that the last one has left; where only one
 * is in front, which its own queue serves at once; or where nothing else has the gate's hash: then
 * the gate takes the flow's. */
static __always_inline enum place place_of(struct __sk_buff *skb, struct flowlet *flowlet,
					   struct gate *gate, const struct packet *packet,
					   bool held, __u64 now)
{
	bool gap;
	__u32 at = now >> FLOWLET_UNIT, sparse = note_time(flowlet, at, &gap);

	if (at - flowlet->own >= FLOWLET) {
		if ((held || is_under_way(gate)) &&
		    (shares(gate, packet->flow) || shares(gate, portless_of(packet->pair))))
			return sparse ? SHARED : DENSE;
		return gap ? FREE : DENSE;
	}
	if (at - flowlet->large < FORGET_FLOW)
		return BOUND;
	if (!sparse)
		return DENSE;
	if (is_under_way(gate))
		return BOUND;
	gate->hash = bpf_get_hash_recalc(skb);
	return SHARED;
}

/* Gives a packet that leaves in place the flow hash of its `place`. */
static __always_inline void keep_order(struct __sk_buff *skb, struct gate *gate,
				       struct flowlet *flowlet, const struct packet *packet,
				       enum place place, __u64 now)
{
	/* Computed here, because cake computes another one where there is none. */
	__u32 hash = bpf_get_hash_recalc(skb);

	if (place == FREE || place == BOUND) {
		flowlet->own = now >> FLOWLET_UNIT;
		if (flowlet->own - flowlet->large >= FORGET_FLOW)
			gate->own_at = flowlet->own;
		return;
	}
	note_packet(gate, packet);
	go_untracked(skb, gate, hash);
}

#endif
