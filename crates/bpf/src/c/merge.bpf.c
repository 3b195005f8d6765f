/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Gathers small packets per next hop and class at tc egress, and sends meta packets.
 *
 * Principle: a packet that would have to wait anyway is copied into the frame under construction of
 * its queue and consumed. A frame leaves in a carrier: a tick frame that user space sends, the packet
 * in hand, or a copy of a packet that must not overtake it. The carrier takes the frame's bytes and
 * passes the interface's egress hook again, because the kernel notes the length that shapers count
 * before this hook runs.
 *
 * Who waits: under `busy` a packet is gathered only while frames of its gate are under way. Either
 * the device counts its frames (`told`, the emulated medium), or user space tracks its tick frames
 * until their memory is free again and closes the gate meanwhile. Packets that leave in place, with
 * the gate open, cannot be tracked. So the gate adds up what they take the device, and a packet goes
 * by a tick when it would have to wait for them anyway until user space sends the tick; now and then
 * one goes as a probe.
 *
 * Order over several CPUs: a queue's frames are taken under its lock in order, but what is taken
 * first must also reach the device first. A frame that leaves on a packet in hand is handed over
 * within a call, and `emitting` says that it has not returned. For ticks and for packets that leave in
 * place every CPU counts its entries into this program: it runs from here to the driver without being
 * preempted by its own transmissions, so once the count has moved on the packet has arrived (or after
 * 100 ms: the CPU may be gone); and user space reports when a tick's transmission is over. As long
 * as the order is not sure, packets stay gathered, and user space is asked for a tick.
 *
 * Order behind this hook: a FIFO keeps it. Fair queues keep it for frames of one flow hash, so what
 * a gate sends bears one hash until user space has seen everything leave (an epoch); so do packets
 * of the same flows that are too large to be gathered.
 *
 * Fail open: user space takes every question back (`asked_at`) when it looks. A question that stays
 * for 20 ms means that it hangs; then everything leaves at once and nothing is gathered.
 *
 * Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapter 3; the policy `busy`
 * as in the aggregate crate, whose model gives the same bytes.
 */
#include "detour.h"
#include "packet.h"

/* A private EtherType (IEEE 802, local experimental 1). */
#define ETH_P_TICK 0x88B5
/* tcx: on to the next program, as if this one were not there. */
#define NEXT -1
#define TCX_DROP 2
/* No interface has it: redirecting there frees the packet and tells its sender "sent". */
#define NOWHERE 0x7fffffff

#define SLOTS 64
#define RING 16
/* Room for the longest outer header before the inner packets. */
#define HEADROOM 40
#define RULES 16
#define CPUS 256
/* After so long a CPU is taken to have handed its frame over. In ns. */
#define OWNER_TIMEOUT 100000000
/* The same where many frames wait, or nobody would send a tick: hundreds of times what it takes. A
 * tick's transmission may be over long before its call returns, which receives packets, too. In ns. */
#define CROWDED_TIMEOUT 1000000
/* Owners of a queue's last frame that are not the CPU of a packet that left in place. */
#define NOBODY 0xfffffffe /* it left within a call: it is over when `emitting` is 0 */
/* After so long without a look at a question, user space hangs: longer than a busy machine keeps a
 * real-time thread from running, and shorter than a listener notices (ITU-T G.114). In ns. */
#define PATIENCE 20000000
/* Packets of one gate that follow each other within this time may serve as a probe. In ns. */
#define NEAR 64000000
/* Words of the set of flows that use a gate's hash: 512 bits, so that 10 flows meet a stranger in one
 * of fifty, who then shares their queue. */
#define SEEN 8
/* The most that bpf_skb_adjust_room() pulls away is 4095 bytes. */
#define MAX_PULL 4000

enum { FORCED, BUSY };
enum cause { BY_SIZE, BY_READY, BY_TIMEOUT, RECLAIM };
enum { NONEMPTY, CARRIER, NO_SLOT };

struct rule {
	__u32 mark, mask;
	__u16 sport_min, sport_max, dport_min, dport_max;
	__u16 max_len;
	__u8 protocol; /* 0: any */
	__u8 dscp;     /* 255: any */
};

struct merge_config {
	__u64 cookie;
	__u64 wait; /* ns: the longest that a packet is held */
	__u32 policy;
	__u32 inflight;
	__u32 queue_frames;
	__u32 total_frames;
	__u32 rules;
	__u32 acks;
	struct rule rule[RULES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct merge_config);
} merge_config SEC(".maps");

/* The device; user space or the emulated medium writes `done`, `limit`, `told`. */
struct device {
	__u64 done;       /* frames it has finished with */
	__u64 sent;       /* frames it was given */
	__u64 handed;     /* ns: since when it works, if it was idle before */
	__u64 rest_until; /* ns: until when only full frames leave */
	__u64 look_at;    /* ns: when user space will read its events anyway */
	__u64 asked_at;   /* ns: since when a question to user space is open; 0: none is */
	__u64 holding;    /* slots of queues that hold something, as bits */
	__u64 last;       /* the last frame: its packets, and below them 32 bits of its bytes of IP */
	__u32 limit;
	__u32 told;
	__u32 held;   /* frames that wait in all queues */
	__u32 passed; /* frames that were not ours */
	__u32 fifo;   /* what strangers send stays ahead of what comes later */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct device);
} device SEC(".maps");

/* Where frames under way are counted together: all queues of a FIFO use gate 0, each queue of a
 * device with fair queues has its own. */
struct gate {
	__u64 last;       /* ns: when a packet last left in place */
	__u64 busy_until; /* ns: until when what left in place keeps the device busy, at least */
	__u64 service;    /* ns: what a frame takes the device; written by user space */
	__u64 reaction;   /* ns: what user space takes to look at a question; by user space */
	__u64 probe_at;   /* ns: from then on a packet within NEAR of the last is a probe; by user space */
	__u32 closed;   /* frames are under way; by user space */
	__u32 credit;   /* full frames that may leave without a tick; by user space */
	__u32 strangers; /* strangers' frames before the last tick that is done; by user space */
	__u32 untracked; /* what left without a tick */
	__u32 ticks;      /* ticks of this slot that left */
	__u32 ticks_done; /* and whose transmission is over; by user space */
	__u32 hash;       /* flow hash of this epoch; 0: none yet */
	__u32 pad;
	__u64 seen[SEEN]; /* flows of this epoch, as bits of their hashes */
	__u64 before[SEEN]; /* and of the frame with which it began */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct gate);
} gates SEC(".maps");

struct hop {
	__u32 id;
	__u32 min;
	__u16 max; /* 0: this hop cannot split */
	__u8 family;
	__u8 ttl; /* 255 towards a neighbour (RFC 5082) */
	__u8 src[16];
	__u8 dst[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct mac);
	__type(value, struct hop);
} hops SEC(".maps");

/* Far ends, by destination: IPv6, or IPv4 mapped into it. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, struct hop);
} far_ends SEC(".maps");

struct queue_key {
	__u8 mac[6] __attribute__((aligned(8)));
	__u8 dscp;
	__u8 ecn;
	__u32 hop;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS);
	__type(key, struct queue_key);
	__type(value, __u32);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, SLOTS);
	__uint(key_size, 0);
	__type(value, __u32);
} free_slots SEC(".maps");

struct stats {
	__u64 aggregated_packets, aggregated_bytes;
	__u64 meta_packets, meta_bytes;
	__u64 unaggregated_packets, unaggregated_bytes;
	__u64 by_timeout, by_size, by_ready;
	__u64 over_bound; /* frames let go because the queue was at its bound */
};

/* One frame under construction, but for its bytes. */
struct pending {
	__u64 oldest;
	__u64 flow; /* of its first packet, as are mark and priority */
	__u32 mark, priority;
	__u32 len; /* inner bytes */
	__u32 count;
	__u32 writers; /* packets whose bytes are still being copied */
	__u32 taken;   /* its bytes are being read */
};

struct queue {
	struct bpf_spin_lock lock;
	__u32 head, tail; /* frames head..tail wait */
	__u32 bytes, packets;
	__u32 owner_cpu;
	__u64 owner_gen, owner_time;
	__u64 flows; /* bits of the flows that are held, and of their pairs of addresses */
	__u64 pairs;
	struct queue_key key;
	struct hop hop;
	__u32 asked; /* user space knows that it wants a tick */
	__u32 emitting; /* a CPU is handing its last frame to the device */
	__u32 ticked; /* its last frame left on a tick */
	struct stats stats;
	struct pending pending[RING];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

/* Twice the largest frame: an offset and a length are each below it, which the verifier can see. */
struct frame {
	__u8 bytes[HEADROOM + 2 * MAX_META];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS * RING);
	__type(key, __u32);
	__type(value, struct frame);
} frames SEC(".maps");

/* What one CPU is doing. */
struct work {
	__u32 pass;  /* the frame that comes next is finished */
	__u32 carry; /* the packet that comes next is a copy to carry the queue of slot `carry` - 1 */
	__u32 carried; /* and it did */
	__u32 slot;    /* of the queue that the last packet joined */
	/* In memory and not on the stack: the verifier follows each value on the stack, so that every
	 * kind of packet would be another way through all that comes later. */
	struct packet packet;
	struct queue_key key;
	struct frame copy;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} work SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS);
	__type(key, __u32);
	__type(value, __u64);
} entries SEC(".maps");

struct event {
	__u32 kind;
	__u32 slot;
	__u64 oldest;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

/* Waking user space costs more than gathering a dozen packets: it is done only for what cannot wait
 * until user space looks by itself, and while it has been woken for nothing else. */
static __always_inline void tell(struct device *device, __u32 kind, __u32 slot, __u64 oldest,
				 bool wake)
{
	struct event event = { .kind = kind, .slot = slot, .oldest = oldest };
	bool first = wake && !device->asked_at;

	/* Racing CPUs write nearly the same time. Before the event: user space takes the question back
	 * first and reads the events then. */
	if (first)
		device->asked_at = bpf_ktime_get_ns();
	bpf_ringbuf_output(&events, &event, sizeof(event),
			   first ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	/* It took the other question back meanwhile, and may have read the events before this one. */
	if (wake && !first && !device->asked_at) {
		device->asked_at = bpf_ktime_get_ns();
		bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_FORCE_WAKEUP);
	}
}

/* The queue in `slot` may leave, but nothing in hand can carry it. */
static __always_inline void tell_carrier(struct device *device, struct queue *queue, __u32 slot)
{
	if (__sync_lock_test_and_set(&queue->asked, 1) == 0)
		tell(device, CARRIER, slot, 0, true);
}

/* Whether user space has left a question open for too long. */
static __always_inline bool hangs(struct device *device, __u64 now)
{
	__u64 asked = device->asked_at, look = device->look_at;

	/* Signed: clocks of two CPUs may differ a little. */
	return (asked && (__s64)(now - asked) > PATIENCE) ||
	       (look != ~0ULL && (__s64)(now - look) > PATIENCE);
}

static __always_inline __u32 fill(struct device *device)
{
	__s64 waiting = device->sent - device->done;

	return device->told && waiting > 0 ? waiting : 0;
}

/* Counts a frame of `packets` packets and `bytes` bytes of IP that goes out to the device. */
static __always_inline void count_sent(struct device *device, __u64 packets, __u32 bytes)
{
	device->last = packets << 32 | bytes;
	if (device->told && device->sent <= device->done)
		device->handed = bpf_ktime_get_ns();
	__sync_fetch_and_add(&device->sent, 1);
}

static __always_inline int consume(void)
{
	return bpf_redirect(NOWHERE, 0);
}

enum verdict { PASS, GATHER, ALONE };

static __always_inline enum verdict classify(struct __sk_buff *skb, struct merge_config *config,
					     struct packet *packet, bool large)
{
	enum verdict verdict = PASS;

	if (config->acks && packet->pure_ack && !large)
		return GATHER;
	for (__u32 i = 0; i < RULES; i++) {
		struct rule *rule = &config->rule[i];
		bool any;

		if (i >= config->rules)
			break;
		any = rule->sport_min == 0 && rule->sport_max == 0xffff && rule->dport_min == 0 &&
		      rule->dport_max == 0xffff;
		if (rule->protocol && rule->protocol != packet->protocol)
			continue;
		if (rule->dscp != 255 && rule->dscp != packet->dscp)
			continue;
		if ((skb->mark & rule->mask) != rule->mark)
			continue;
		if (!any && (packet->protocol != PROTO_UDP && packet->protocol != PROTO_TCP))
			continue;
		if (!any && (packet->sport < rule->sport_min || packet->sport > rule->sport_max ||
			     packet->dport < rule->dport_min || packet->dport > rule->dport_max))
			continue;
		if (!large && packet->len <= rule->max_len)
			return GATHER;
		verdict = ALONE;
	}
	return verdict;
}

static __always_inline bool same_key(const struct queue_key *a, const struct queue_key *b)
{
	return *(__u64 *)a == *(__u64 *)b && a->hop == b->hop;
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
	/* User space, which could send a tick on that CPU, hangs; or there is no time to wait for it. */
	hurry = queue->tail - queue->head > RING / 2 || hangs(device, now);
	/* Signed: clocks of two CPUs may differ a little. */
	return (__s64)(now - time) > (hurry ? CROWDED_TIMEOUT : OWNER_TIMEOUT);
}

/* Whether `len` bytes more, the outer header among them, fit into a frame under construction. */
static __always_inline bool has_room(const struct pending *pending, __u32 len,
				     const struct hop *hop)
{
	return pending->len + len <= hop->max && pending->count != MAX_PACKETS;
}

/* Place of the checksum in a packet of UDP or TCP. */
static __always_inline __u32 field_of(struct packet *packet)
{
	return (packet->v6 ? V6_LEN : V4_LEN) + (packet->protocol == PROTO_UDP ? 6 : 16);
}

/* The finished checksum of the packet whose bytes are in `frame`. */
static __always_inline __u16 finish(struct frame *frame, struct packet *packet)
{
	__u32 at = packet->v6 ? V6_LEN : V4_LEN, left;
	__u32 len = packet->len;
	__s64 sum = 0;
	__u16 checksum;

	if (len > MAX_META || len < at)
		return 0;
	/* The sum goes by four bytes. */
	frame->bytes[len] = 0;
	frame->bytes[len + 1] = 0;
	frame->bytes[len + 2] = 0;
	left = len - at;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u32 part = left > 512 ? 512 : (left + 3) & ~3;

		if (part > 512)
			part = 512;
		if (at <= MAX_META)
			sum = bpf_csum_diff(NULL, 0, (void *)(frame->bytes + at), part, sum);
		at += 512;
		left = left > 512 ? left - 512 : 0;
	}
	checksum = ~fold(sum);
	return !checksum && packet->protocol == PROTO_UDP ? 0xffff : checksum;
}

/* Writes the outer header in front of the inner packets of `frame`. */
static __always_inline void write_header(struct frame *frame, struct queue_key *key,
					 struct hop *hop, __u32 len)
{
	__u8 class = key->dscp << 2 | key->ecn;

	if (hop->family == 4) {
		__u8 *header = frame->bytes + HEADROOM - V4_LEN;

		header[0] = 0x45;
		header[1] = class;
		put16(header + 2, V4_LEN + len);
		put16(header + 4, 0);
		put16(header + 6, 0x4000); /* DF */
		header[8] = hop->ttl;
		header[9] = PROTO_META;
		put16(header + 10, 0);
		__builtin_memcpy(header + 12, hop->src, 4);
		__builtin_memcpy(header + 16, hop->dst, 4);
		put16(header + 10, ~fold(sum_v4(header)));
	} else {
		__u8 *header = frame->bytes + HEADROOM - V6_LEN;

		header[0] = 0x60 | class >> 4;
		header[1] = class << 4;
		put16(header + 2, 0);
		put16(header + 4, len);
		header[6] = PROTO_META;
		header[7] = hop->ttl;
		__builtin_memcpy(header + 8, hop->src, 16);
		__builtin_memcpy(header + 24, hop->dst, 16);
	}
}

static __always_inline __u32 header_len(struct hop *hop)
{
	return hop->family == 4 ? V4_LEN : V6_LEN;
}

/*
 * Makes a packet of `len` IP bytes fit to carry frames of up to `max` bytes, whatever is in it: its
 * content is gone afterwards. Answers 0 when it can.
 *
 * What its sender left to the device, a checksum, would be written into the frame that it is to
 * carry. There is no call that clears this, but skb_postpull_rcsum() does it when the place where the
 * checksum starts is pulled away; so everything of the packet is.
 */
static __always_inline int clear(struct __sk_buff *skb, __u32 len, __u32 max)
{
	__u32 pull = len + ETH_LEN;

	if (pull > MAX_PULL)
		return -1;
	/* Behind what is pulled away no checksum may start: the first call forgets one that ends there, or
	 * fails, by kernel. Then a header must remain there. The calls fail for tunnels. */
	return bpf_skb_change_tail(skb, pull, 0) ?:
	       bpf_skb_change_tail(skb, ETH_LEN + pull + V6_LEN, 0) ?:
	       bpf_skb_adjust_room(skb, -(__s32)pull, BPF_ADJ_ROOM_MAC, 0) ?:
	       bpf_skb_change_tail(skb, ETH_LEN + max, 0);
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

/* Lets the oldest frame of the queue in `slot` leave in a copy of the packet in hand, which passes
 * this program as `mine->carry`. Returns whether it left. */
static __always_inline bool leave_in_copy(struct __sk_buff *skb, struct work *mine,
					  struct queue *queue, __u32 slot)
{
	mine->carry = slot + 1;
	mine->carried = 0;
	bpf_clone_redirect(skb, skb->ifindex, 0);
	mine->carry = 0;
	/* The call has returned: the device has the frame. */
	if (mine->carried)
		queue->emitting = 0;
	return mine->carried;
}

SEC("classifier")
int sheaf_merge(struct __sk_buff *skb)
{
	__u32 zero = 0, cpu = bpf_get_smp_processor_id(), slot, ring, index, at, header, waiting, len;
	__u32 owner, cause, size, start, count, expected = 0, fresh = 0;
	struct merge_config *config = bpf_map_lookup_elem(&merge_config, &zero);
	struct device *dev = bpf_map_lookup_elem(&device, &zero);
	struct work *mine = bpf_map_lookup_elem(&work, &zero);
	__u64 *gen = bpf_map_lookup_elem(&entries, &cpu);
	__u64 now = 0, oldest, owner_gen, owner_time, flow;
	bool need, full, joins, empty, ready = false, over, more, again, held, apart;
	bool nested = false, ticked = false, own_order;
	struct packet *packet;
	struct queue_key *key;
	struct pending *pending;
	struct queue *queue;
	struct frame *frame;
	struct gate *gate, *own;
	enum verdict verdict;
	enum kind kind;
	struct hop *hop;
	__u16 type, checksum = 0;

	/* It was gathered, or passed, when it left for the detour. */
	if (is_back_from_detour(skb))
		return NEXT;
	if (!config || !dev || !mine || !gen)
		return NEXT;
	if (mine->pass) {
		mine->pass = 0;
		return NEXT;
	}
	if (mine->carry) {
		slot = mine->carry - 1;
		mine->carry = 0;
		cause = BY_READY;
		nested = true;
		goto emit;
	}
	packet = &mine->packet;
	key = &mine->key;
	*gen += 1;
	if (skb->protocol == bpf_htons(ETH_P_TICK)) {
		struct {
			__u64 cookie;
			__u32 slot, cause, untracked, fresh;
		} tick;

		if (bpf_skb_load_bytes(skb, ETH_LEN, &tick, sizeof(tick)) ||
		    tick.cookie != config->cookie)
			return NEXT;
		if (tick.cause == RECLAIM)
			return reclaim(tick.slot) ? TCX_DROP : consume();
		slot = tick.slot;
		cause = tick.cause;
		expected = tick.untracked;
		fresh = tick.fresh;
		ticked = true;
		goto emit;
	}
	__builtin_memset(packet, 0, sizeof(*packet));
	kind = read_packet(skb, packet);
	if (kind == OPAQUE)
		goto stranger;
	hop = bpf_map_lookup_elem(&far_ends, &packet->to);
	if (!hop)
		hop = bpf_map_lookup_elem(&hops, &packet->mac);
	if (!hop || !hop->max)
		goto stranger;
	verdict = kind == PORTLESS ? ALONE : classify(skb, config, packet, kind == LARGE);
	/* Flows of packets that pass are never gathered, but for those of acknowledgements. */
	apart = verdict == PASS && !(config->acks && packet->protocol == PROTO_TCP);
	if (verdict == PASS)
		verdict = ALONE;
	header = header_len(hop);
	len = packet->len;
	if (verdict == GATHER && (len < V4_LEN || header + len > hop->max || header + len > MAX_META))
		verdict = ALONE;
	flow = kind == PORTLESS ? packet->pair : packet->flow;

	__builtin_memcpy(key->mac, packet->mac.bytes, 6);
	key->dscp = packet->dscp;
	key->ecn = packet->ecn;
	key->hop = hop->id;
	if (verdict == ALONE) {
		/* Only what shares a flow with gathered packets concerns us. */
		__u32 *found = bpf_map_lookup_elem(&slots, key);

		if (!found)
			goto stranger;
		slot = *found;
	} else {
		/* Mostly the one that the packet before it joined: no table is asked then. */
		slot = mine->slot;
		queue = bpf_map_lookup_elem(&queues, &slot);
		if (!queue || !queue->hop.max || !same_key(&queue->key, key))
			slot = slot_of(dev, key, hop);
	}
	queue = bpf_map_lookup_elem(&queues, &slot);
	gate = gate_of(dev, slot);
	if (!queue || !gate)
		goto stranger;
	mine->slot = slot;

	if (verdict == GATHER) {
		empty = queue->head == queue->tail;
		pending = &queue->pending[(queue->tail - 1) & (RING - 1)];
		/* A packet that joins a frame starts no deadline. A clock of a tick's precision, which
		 * costs nothing, is then good enough to see a controller that hangs. */
		joins = !empty && config->policy == FORCED && has_room(pending, header + len, hop);
		now = joins ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns();
		waiting = fill(dev);
		ready = false;
		if (hangs(dev, now)) {
			ready = true;
		} else if (config->policy == BUSY) {
			__u64 since = now - gate->last;

			if (dev->told)
				ready = waiting < config->inflight && now >= dev->rest_until;
			else if (dev->fifo && gate->strangers != dev->passed)
				/* Their frames are ahead: whoever waits here loses the place in the line. */
				ready = now < gate->probe_at || since > NEAR;
			else
				/* Waiting for user space costs nothing while earlier packets are in front. */
				ready = !gate->closed && gate->busy_until <= now + gate->reaction &&
					(now < gate->probe_at || since > NEAR);
		}
		/* An idle link adds no delay: nothing waits here, and the device is free. */
		if (ready && empty) {
			/* Together: who sees the queue empty also sees who took its last frame. */
			bpf_spin_lock(&queue->lock);
			empty = queue->head == queue->tail;
			owner = queue->owner_cpu;
			owner_gen = queue->owner_gen;
			owner_time = queue->owner_time;
			/* Most often the last frame left from this CPU, too. */
			own_order = empty && !queue->emitting && (owner == cpu || owner == NOBODY);
			if (own_order)
				leave_in_place(queue, cpu, *gen, now, len);
			bpf_spin_unlock(&queue->lock);
			if (own_order)
				goto in_place;
			if (empty && in_order(dev, queue, owner, owner_gen, owner_time, cpu, slot)) {
				bpf_spin_lock(&queue->lock);
				leave_in_place(queue, cpu, *gen, now, len);
				bpf_spin_unlock(&queue->lock);
				goto in_place;
			}
		}
		/* A packet of a tunnel may have an unfinished checksum inside, of which nothing is seen
		 * here. This call fails for it, and changes nothing otherwise. */
		if (bpf_skb_change_tail(skb, skb->len, 0))
			goto stranger;
		/* Nor can one be finished that is anywhere but in the transport header. */
		if (!packet->unfinished && is_unfinished_anywhere(skb, packet))
			verdict = ALONE;
	}

	if (verdict == ALONE) {
		bool shares;

		held = kind == PORTLESS ? queue->pairs & bit_of(packet->pair) :
					  queue->flows & bit_of(packet->flow);
		/* What is held of its flow leaves first. */
		for (int i = 0; held && i < RING; i++) {
			if (queue->head == queue->tail || !leave_in_copy(skb, mine, queue, slot))
				break;
		}
		shares = (gate->seen[word_of(flow)] | gate->before[word_of(flow)]) & bit_of(flow);
		/* Behind its small packets in a fair queue, too. */
		if (!dev->told && !dev->fifo && !apart && (held || shares)) {
			note_flow(gate, flow);
			go_untracked(skb, gate, flow);
		}
		goto stranger;
	}

	if (packet->unfinished) {
		/* A copy: one that lives on is kept on the stack, where older verifiers lose the check. */
		size = len;
		FORGET(size);
		if (size < V4_LEN || size > MAX_META ||
		    bpf_skb_load_bytes(skb, ETH_LEN, mine->copy.bytes, size))
			goto stranger;
		checksum = finish(&mine->copy, packet);
	}
	bpf_spin_lock(&queue->lock);
	if (!same_key(&queue->key, key)) {
		bpf_spin_unlock(&queue->lock);
		goto stranger;
	}
	empty = queue->head == queue->tail;
	ring = (queue->tail - 1) & (RING - 1);
	pending = &queue->pending[ring];
	need = empty || !has_room(pending, header + len, hop);
	if (need) {
		ring = queue->tail & (RING - 1);
		pending = &queue->pending[ring];
		if (queue->tail - queue->head >= RING || pending->taken || pending->writers) {
			/* Another CPU has not come to hand its frame over for thousands of packets. To lose
			 * this one would be worse than to let it overtake them. */
			queue->stats.over_bound++;
			queue->stats.unaggregated_packets++;
			queue->stats.unaggregated_bytes += len;
			bpf_spin_unlock(&queue->lock);
			if (!dev->told && !dev->fifo)
				go_untracked(skb, gate, packet->flow);
			count_sent(dev, 1, len);
			return NEXT;
		}
		pending->oldest = now;
		pending->flow = packet->flow;
		pending->mark = skb->mark;
		pending->priority = skb->priority;
		pending->len = 0;
		pending->count = 0;
		queue->tail++;
		__sync_fetch_and_add(&dev->held, 1);
		if (empty) {
			/* Its addresses and sizes may have changed since the queue was taken into use. */
			queue->hop = *hop;
			__sync_fetch_and_or(&dev->holding, 1ULL << (slot & (SLOTS - 1)));
		}
	}
	at = pending->len;
	oldest = pending->oldest;
	pending->len += len;
	pending->count++;
	/* Others end their copies without the lock. */
	__sync_fetch_and_add(&pending->writers, 1);
	queue->bytes += len;
	queue->packets++;
	queue->flows |= bit_of(packet->flow);
	queue->pairs |= bit_of(packet->pair);
	if (config->policy == FORCED)
		ready |= queue->bytes >= hop->min && (!dev->told || waiting < dev->limit);
	full = queue->tail - queue->head > 1 || header + pending->len + len > hop->max;
	over = queue->tail - queue->head > config->queue_frames || dev->held > config->total_frames;
	bpf_spin_unlock(&queue->lock);

	index = slot * RING + ring;
	frame = bpf_map_lookup_elem(&frames, &index);
	if (!frame)
		return TCX_DROP;
	FORGET(at);
	size = len;
	FORGET(size);
	at &= MAX_META - 1;
	if (size < V4_LEN || size > MAX_META)
		return TCX_DROP;
	/* Cannot fail: bpf_skb_change_tail() has seen that so much is there. */
	bpf_skb_load_bytes(skb, ETH_LEN, frame->bytes + HEADROOM + at, size);
	if (packet->unfinished) {
		at += field_of(packet);
		if (at <= 2 * MAX_META - 2) {
			frame->bytes[HEADROOM + at] = checksum;
			frame->bytes[HEADROOM + at + 1] = checksum >> 8;
		}
	}
	__sync_fetch_and_sub(&pending->writers, 1);
	if (!dev->told && !dev->fifo) {
		note_flow(gate, packet->flow);
		note_flow(gate, packet->pair);
	}

	if (empty) {
		/* While a frame is under way, its end wakes user space. */
		bool alone = config->policy == BUSY && !dev->told && !gate->closed;

		tell(dev, NONEMPTY, slot, oldest, alone || dev->look_at > oldest + config->wait);
	}
	cause = full || config->policy == FORCED ? BY_SIZE : BY_READY;
	if (config->policy == BUSY && full) {
		if (dev->told) {
			ready |= waiting < config->inflight;
		} else if (gate->credit) {
			/* User space gives new credit whenever it looks. */
			gate->credit--;
			ready = true;
		}
	}
	if (over && !ready) {
		ready = true;
		__sync_fetch_and_add(&queue->stats.over_bound, 1);
	}
	if (!ready)
		return consume();
	goto emit;

in_place:
	if (!dev->told) {
		gate->last = now;
		gate->busy_until = (gate->busy_until > now ? gate->busy_until : now) + gate->service;
		if (!dev->fifo) {
			note_flow(gate, packet->flow);
			note_flow(gate, packet->pair);
			go_untracked(skb, gate, packet->flow);
		}
	}
	count_sent(dev, 1, len);
	return NEXT;

stranger:
	__sync_fetch_and_add(&dev->passed, 1);
	/* In a FIFO, what is held would be behind this frame though it came before it. */
	for (int i = 0; i < 2 * RING; i++) {
		__u64 holding = dev->holding;

		if (!dev->fifo || dev->told || !holding || config->policy != BUSY)
			break;
		slot = lowest(holding);
		queue = bpf_map_lookup_elem(&queues, &slot);
		if (!queue || !leave_in_copy(skb, mine, queue, slot))
			break;
	}
	count_sent(dev, 1, skb->len - ETH_LEN);
	return NEXT;

emit:
	/* The oldest frame of the queue in `slot` leaves on the packet in hand, or the packet is
	 * consumed (dropped, where it was a tick) when the queue is empty, a packet is still being copied
	 * into the frame, or the order could suffer. */
	queue = bpf_map_lookup_elem(&queues, &slot);
	if (!queue)
		return TCX_DROP;
	gate = gate_of(dev, slot);
	own = bpf_map_lookup_elem(&gates, &slot);
	if (!gate || !own)
		return TCX_DROP;
	owner = queue->owner_cpu;
	owner_gen = queue->owner_gen;
	owner_time = queue->owner_time;
	size = queue->hop.max;
	if (queue->head == queue->tail)
		return ticked || nested ? TCX_DROP : consume();
	/* Everything that can fail comes before the frame is taken. */
	if (size > MAX_META)
		return TCX_DROP;
	if (!in_order(dev, queue, owner, owner_gen, owner_time, cpu, slot) ||
	    (ticked ? bpf_skb_change_tail(skb, ETH_LEN + size, 0) :
		      clear(skb, nested ? MAX_PULL - ETH_LEN : packet->len, size))) {
		if (ticked || nested)
			return TCX_DROP;
		tell_carrier(dev, queue, slot);
		return consume();
	}
	now = bpf_ktime_get_ns();

	bpf_spin_lock(&queue->lock);
	ring = queue->head & (RING - 1);
	pending = &queue->pending[ring];
	if (queue->head == queue->tail || pending->writers || queue->emitting ||
	    queue->owner_cpu != owner || queue->owner_gen != owner_gen) {
		held = queue->head != queue->tail;
		bpf_spin_unlock(&queue->lock);
		if (ticked || nested)
			return TCX_DROP;
		if (held)
			tell_carrier(dev, queue, slot);
		return consume();
	}
	pending->taken = 1;
	queue->asked = 0;
	len = pending->len;
	count = pending->count;
	flow = pending->flow;
	queue->head++;
	queue->bytes -= len;
	queue->packets -= count;
	more = queue->head != queue->tail;
	again = more && config->policy == FORCED && queue->bytes >= queue->hop.min;
	if (!more) {
		queue->flows = 0;
		queue->pairs = 0;
		__sync_fetch_and_and(&dev->holding, ~(1ULL << (slot & (SLOTS - 1))));
	}
	oldest = queue->pending[queue->head & (RING - 1)].oldest;
	queue->owner_cpu = ticked ? cpu : NOBODY;
	queue->ticked = ticked;
	queue->emitting = !ticked;
	/* Before anybody else may look whether it is over. */
	if (ticked)
		own->ticks++;
	queue->owner_gen = *gen;
	queue->owner_time = now;
	if (count == 1) {
		queue->stats.unaggregated_packets++;
		queue->stats.unaggregated_bytes += len;
	} else {
		queue->stats.aggregated_packets += count;
		queue->stats.aggregated_bytes += len;
		queue->stats.meta_packets++;
		queue->stats.meta_bytes += len + header_len(&queue->hop);
	}
	if (cause == BY_TIMEOUT)
		queue->stats.by_timeout++;
	else if (cause == BY_READY)
		queue->stats.by_ready++;
	else
		queue->stats.by_size++;
	bpf_spin_unlock(&queue->lock);

	__sync_fetch_and_sub(&dev->held, 1);
	if (more)
		tell(dev, NONEMPTY, slot, oldest,
		     !ticked && dev->look_at > oldest + config->wait);
	if (again && !ticked)
		tell_carrier(dev, queue, slot);
	index = slot * RING + ring;
	frame = bpf_map_lookup_elem(&frames, &index);
	if (!frame)
		return TCX_DROP; /* There is one for each. */
	start = HEADROOM;
	size = len;
	if (count > 1) {
		write_header(frame, &queue->key, &queue->hop, len);
		start -= header_len(&queue->hop);
		size += header_len(&queue->hop);
		type = queue->hop.family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	} else {
		type = frame->bytes[HEADROOM] >> 4 == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	}
	FORGET(start);
	FORGET(size);
	if (start > HEADROOM || size < V4_LEN || size > MAX_META ||
	    bpf_skb_change_tail(skb, ETH_LEN + size, 0)) {
		/* It is longer than that already, so this does not happen. */
		pending->taken = 0;
		return TCX_DROP;
	}
	bpf_skb_store_bytes(skb, 0, queue->key.mac, 6, 0);
	bpf_skb_store_bytes(skb, 12, &type, 2, 0);
	bpf_skb_store_bytes(skb, ETH_LEN, frame->bytes + start, size, 0);
	skb->mark = pending->mark;
	skb->priority = pending->priority;
	pending->taken = 0;
	if (!dev->told && !dev->fifo) {
		/* Nothing of ours is in front of it or waits behind it: an epoch begins, with the hash
		 * of the flow that waited longest, so that flows share as they would alone. */
		if (ticked && fresh && !more && gate->untracked == expected) {
			gate->hash = (__u32)(flow >> 16) | 1;
			for (int i = 0; i < SEEN; i++) {
				gate->before[i] = gate->seen[i];
				gate->seen[i] = 0;
			}
		}
		if (ticked && gate->hash)
			bpf_set_hash(skb, gate->hash);
		else
			go_untracked(skb, gate, flow);
	}
	count_sent(dev, count, size);
	mine->carried = nested;
	mine->pass = 1;
	/* A tick stays the frame of its socket, which tells when it is free. Others leave as copies: when
	 * the call returns the device has them, so that the next frame may follow from any CPU. */
	if (ticked || nested)
		return bpf_redirect(skb->ifindex, 0);
	bpf_clone_redirect(skb, skb->ifindex, 0);
	mine->pass = 0;
	queue->emitting = 0;
	return consume();
}

char LICENSE[] SEC("license") = "GPL";
