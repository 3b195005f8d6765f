/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Gathers small packets per next hop and class at tc egress, and sends meta packets.
 *
 * Principle: a packet that may wait is copied into the frame under construction of its queue and
 * consumed. A frame leaves by taking over a packet in hand, its carrier: the packet that completed
 * it, or a tick frame that user space sends when a deadline has come or the device is free again.
 *
 * Order over several CPUs: a queue's frames are taken under its lock in order, but what is taken
 * first must also reach the device first. From this hook to the driver a CPU runs without being
 * preempted by its own transmissions, so once a CPU enters this program again, its last transmission
 * is over. Every CPU counts its entries; a queue remembers who took its last frame and that CPU's
 * count. Another CPU takes the next one only when the count has moved on (or after 100 ms: the CPU
 * may be gone); otherwise the packet stays gathered and user space is asked for a tick, which it
 * sends on that CPU.
 *
 * Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapter 3; the policy `busy`
 * as in the aggregate crate, whose model gives the same bytes.
 */
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
#define OWNER_TIMEOUT 100000000 /* ns */

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

/* What the device tells; user space or the emulated medium writes `done`, `limit`, `told`. */
struct device {
	__u64 done;       /* frames it has finished with */
	__u64 sent;       /* frames it was given */
	__u64 handed;     /* ns: since when it works, if it was idle before */
	__u64 rest_until; /* ns: until when only full frames leave */
	__u64 look_at;    /* ns: when user space will read its events anyway */
	__u32 limit;
	__u32 told;
	__u32 held;       /* frames that wait in all queues */
	__u32 passed;     /* frames that were not ours */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct device);
} device SEC(".maps");

struct hop {
	__u32 id;
	__u32 min;
	__u16 max; /* 0: this hop cannot split */
	__u8 family;
	__u8 pad;
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
	__u64 dropped;
};

/* One frame under construction, but for its bytes. */
struct pending {
	__u64 oldest;
	__u32 len; /* inner bytes */
	__u32 count;
	__u32 writers; /* packets whose bytes are still being copied */
	__u32 closed;
	__u32 taken; /* its bytes are being read */
	__u32 pad;
};

struct queue {
	struct bpf_spin_lock lock;
	__u32 head, tail; /* frames head..tail wait */
	__u32 bytes, packets;
	__u32 owner_cpu;
	__u64 owner_gen, owner_time;
	__u64 flows;
	struct queue_key key;
	struct hop hop;
	__u32 asked; /* user space knows that it wants a tick */
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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frame);
} scratch SEC(".maps");

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

/* Waking user space costs more than gathering a dozen packets, so it is done only for what cannot
 * wait until user space looks by itself. */
static __always_inline void tell(__u32 kind, __u32 slot, __u64 oldest, bool wake)
{
	struct event event = { .kind = kind, .slot = slot, .oldest = oldest };

	bpf_ringbuf_output(&events, &event, sizeof(event),
			   wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* The oldest packet of the queue in `slot` waits since `oldest`. */
static __always_inline void tell_waits(struct merge_config *config, struct device *device,
				       __u32 slot, __u64 oldest)
{
	tell(NONEMPTY, slot, oldest, device->look_at > oldest + config->wait);
}

/* The queue in `slot` may leave, but nothing in hand can carry it. */
static __always_inline void tell_carrier(struct queue *queue, __u32 slot)
{
	if (__sync_lock_test_and_set(&queue->asked, 1) == 0)
		tell(CARRIER, slot, 0, true);
}

static __always_inline __u32 fill(struct device *device)
{
	__s64 waiting = device->sent - device->done;

	return device->told && waiting > 0 ? waiting : 0;
}

/* A frame goes out to the device. */
static __always_inline int send(struct device *device)
{
	if (device->told && device->sent <= device->done)
		device->handed = bpf_ktime_get_ns();
	__sync_fetch_and_add(&device->sent, 1);
	return NEXT;
}

static __always_inline int consume(void)
{
	return bpf_redirect(NOWHERE, 0);
}

enum verdict { PASS, GATHER, ALONE };

static __always_inline enum verdict classify(struct __sk_buff *skb, struct merge_config *config,
					     struct packet *packet)
{
	enum verdict verdict = PASS;

	if (config->acks && packet->pure_ack)
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
		if (packet->len <= rule->max_len)
			return GATHER;
		verdict = ALONE;
	}
	return verdict;
}

/* The slot of a queue, taken into use where it has none; SLOTS when there is none left. */
static __always_inline __u32 slot_of(struct queue_key *key, struct hop *hop)
{
	__u32 *found = bpf_map_lookup_elem(&slots, key), slot;
	struct queue *queue;

	if (found)
		return *found;
	if (bpf_map_pop_elem(&free_slots, &slot)) {
		tell(NO_SLOT, 0, 0, true);
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

static __always_inline bool same_key(const struct queue_key *a, const struct queue_key *b)
{
	return *(__u64 *)a == *(__u64 *)b && a->hop == b->hop;
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
	}
	bpf_spin_unlock(&queue->lock);
	return idle ? bpf_map_delete_elem(&slots, &key) : -1;
}

/* Whether frames that this CPU takes now reach the device after those taken before. */
static __always_inline bool in_order(__u32 owner, __u64 gen, __u64 time, __u32 cpu)
{
	__u64 *entered;

	if (owner == cpu)
		return true;
	entered = bpf_map_lookup_elem(&entries, &owner);
	/* Signed: clocks of two CPUs may differ a little. */
	return !entered || *entered != gen ||
	       (__s64)(bpf_ktime_get_ns() - time) > OWNER_TIMEOUT;
}

/* Whether `len` bytes more, the outer header among them, fit into a frame under construction. */
static __always_inline bool has_room(const struct pending *pending, __u32 len,
				     const struct hop *hop)
{
	return !pending->closed && pending->len + len <= hop->max &&
	       pending->count != MAX_PACKETS;
}

/* Finishes the checksum of the packet of `len` bytes in `bytes`. */
static __always_inline void finish(struct frame *frame, struct packet *packet)
{
	__u32 at = packet->v6 ? V6_LEN : V4_LEN, left, field;
	__u32 len = packet->len;
	__s64 sum = 0;
	__u16 checksum;

	if (len > MAX_META || len < at)
		return;
	/* The sum goes by four bytes. */
	frame->bytes[len] = 0;
	frame->bytes[len + 1] = 0;
	frame->bytes[len + 2] = 0;
	left = len - at;
	field = at + (packet->protocol == PROTO_UDP ? 6 : 16);
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
	if (!checksum && packet->protocol == PROTO_UDP)
		checksum = 0xffff;
	if (field <= MAX_META) {
		frame->bytes[field] = checksum;
		frame->bytes[field + 1] = checksum >> 8;
	}
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
		header[8] = 64;
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
		header[7] = 64;
		__builtin_memcpy(header + 8, hop->src, 16);
		__builtin_memcpy(header + 24, hop->dst, 16);
	}
}

static __always_inline __u32 header_len(struct hop *hop)
{
	return hop->family == 4 ? V4_LEN : V6_LEN;
}

/*
 * Takes from a packet what its sender left to the device, the checksum: it would be written into
 * the frame that the packet is to carry, where its transport header used to be. There is no call for
 * it, but skb_postpull_rcsum() does it when the place where the checksum starts is pulled away.
 */
static __always_inline int forget_checksum(struct __sk_buff *skb)
{
	/* Beyond the longest header before a transport header, and short enough to leave one. */
	enum { PULLED = ETH_LEN + V6_LEN + 2 };

	return bpf_skb_change_tail(skb, ETH_LEN + PULLED + V6_LEN, 0) ?:
	       bpf_skb_adjust_room(skb, -PULLED, BPF_ADJ_ROOM_MAC, 0);
}

/*
 * Turns `skb` into the oldest frame of the queue in `slot`. Answers 0, or -1 when the queue is
 * empty, a packet is still being copied into it, or the order could suffer.
 */
static __noinline int emit(struct __sk_buff *skb, __u32 slot, __u32 cause, bool unfinished)
{
	struct queue *queue = bpf_map_lookup_elem(&queues, &slot);
	__u32 zero = 0, cpu = bpf_get_smp_processor_id(), index, size, start, len, count, ring;
	struct merge_config *config = bpf_map_lookup_elem(&merge_config, &zero);
	struct device *dev = bpf_map_lookup_elem(&device, &zero);
	__u64 *gen = bpf_map_lookup_elem(&entries, &cpu);
	__u64 now = bpf_ktime_get_ns(), owner_gen, owner_time, oldest;
	struct pending *pending;
	struct frame *frame;
	__u32 owner;
	__u16 type;
	bool more, again;

	if (!queue || !dev || !gen || !config)
		return -1;
	owner = queue->owner_cpu;
	owner_gen = queue->owner_gen;
	owner_time = queue->owner_time;
	if (!in_order(owner, owner_gen, owner_time, cpu))
		return -1;

	bpf_spin_lock(&queue->lock);
	ring = queue->head & (RING - 1);
	pending = &queue->pending[ring];
	if (queue->head == queue->tail || pending->writers || queue->owner_cpu != owner ||
	    queue->owner_gen != owner_gen) {
		bpf_spin_unlock(&queue->lock);
		return -1;
	}
	pending->taken = 1;
	queue->asked = 0;
	len = pending->len;
	count = pending->count;
	queue->head++;
	queue->bytes -= len;
	queue->packets -= count;
	more = queue->head != queue->tail;
	again = more && config->policy == FORCED && queue->bytes >= queue->hop.min;
	if (!more)
		queue->flows = 0;
	oldest = queue->pending[queue->head & (RING - 1)].oldest;
	queue->owner_cpu = cpu;
	queue->owner_gen = *gen;
	queue->owner_time = now;
	if (count == 1) {
		__sync_fetch_and_add(&queue->stats.unaggregated_packets, 1);
		__sync_fetch_and_add(&queue->stats.unaggregated_bytes, len);
	} else {
		queue->stats.aggregated_packets += count;
		queue->stats.aggregated_bytes += len;
		queue->stats.meta_packets++;
		queue->stats.meta_bytes += len + (queue->hop.family == 4 ? V4_LEN : V6_LEN);
	}
	if (cause == BY_TIMEOUT)
		queue->stats.by_timeout++;
	else if (cause == BY_READY)
		__sync_fetch_and_add(&queue->stats.by_ready, 1);
	else
		queue->stats.by_size++;
	bpf_spin_unlock(&queue->lock);

	__sync_fetch_and_sub(&dev->held, 1);
	if (more)
		tell_waits(config, dev, slot, oldest);
	if (again)
		tell_carrier(queue, slot);
	index = slot * RING + ring;
	frame = bpf_map_lookup_elem(&frames, &index);
	if (!frame)
		return -1;
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
	if (start > HEADROOM || size < V4_LEN || size > MAX_META ||
	    (unfinished && forget_checksum(skb)) ||
	    bpf_skb_change_tail(skb, ETH_LEN + size, 0)) {
		pending->taken = 0;
		__sync_fetch_and_add(&queue->stats.dropped, count);
		return -2;
	}
	bpf_skb_store_bytes(skb, 0, queue->key.mac, 6, 0);
	bpf_skb_store_bytes(skb, 12, &type, 2, 0);
	bpf_skb_store_bytes(skb, ETH_LEN, frame->bytes + start, size, 0);
	pending->taken = 0;
	send(dev);
	return 0;
}

/* A tick frame: the queue it names leaves on it. */
static __always_inline int tick(struct __sk_buff *skb, struct merge_config *config)
{
	struct {
		__u64 cookie;
		__u32 slot, cause;
	} tick;

	if (bpf_skb_load_bytes(skb, ETH_LEN, &tick, sizeof(tick)) || tick.cookie != config->cookie)
		return NEXT;
	if (tick.cause == RECLAIM)
		return reclaim(tick.slot) ? TCX_DROP : consume();
	return emit(skb, tick.slot, tick.cause, false) ? TCX_DROP : NEXT;
}

SEC("classifier")
int sheaf_merge(struct __sk_buff *skb)
{
	__u32 zero = 0, cpu = bpf_get_smp_processor_id(), slot, ring, index, at, header, waiting, len;
	struct merge_config *config = bpf_map_lookup_elem(&merge_config, &zero);
	struct device *dev = bpf_map_lookup_elem(&device, &zero);
	struct frame *copy = bpf_map_lookup_elem(&scratch, &zero), *frame;
	__u64 *gen = bpf_map_lookup_elem(&entries, &cpu), now = 0, oldest;
	struct packet packet = {};
	struct queue_key key = {};
	struct pending *pending;
	struct queue *queue;
	enum verdict verdict;
	struct hop *hop;
	bool need, full, empty, ready, alone, over, strange, ordered;
	__u64 owner_gen, owner_time;
	__u32 owner;
	int result;

	if (!config || !dev || !copy || !gen)
		return NEXT;
	*gen += 1;
	if (skb->protocol == bpf_htons(ETH_P_TICK))
		return tick(skb, config);
	if (!read_packet(skb, &packet))
		goto pass;
	verdict = classify(skb, config, &packet);
	if (verdict == PASS)
		goto pass;
	hop = bpf_map_lookup_elem(&far_ends, &packet.to);
	if (!hop)
		hop = bpf_map_lookup_elem(&hops, &packet.mac);
	if (!hop || !hop->max)
		goto pass;
	header = header_len(hop);
	len = packet.len;
	if (len < V4_LEN || len > MAX_META)
		goto pass;
	if (header + len > hop->max)
		verdict = ALONE;

	__builtin_memcpy(key.mac, packet.mac.bytes, 6);
	key.dscp = packet.dscp;
	key.ecn = packet.ecn;
	key.hop = hop->id;
	slot = slot_of(&key, hop);
	queue = bpf_map_lookup_elem(&queues, &slot);
	if (!queue)
		goto pass;
	alone = verdict == ALONE;
	/* Together: who sees the queue empty also sees who took its last frame. */
	bpf_spin_lock(&queue->lock);
	empty = queue->head == queue->tail;
	strange = !(queue->flows & packet.flow);
	owner = queue->owner_cpu;
	owner_gen = queue->owner_gen;
	owner_time = queue->owner_time;
	pending = &queue->pending[(queue->tail - 1) & (RING - 1)];
	need = empty || alone || !has_room(pending, header + len, hop);
	bpf_spin_unlock(&queue->lock);
	ordered = in_order(owner, owner_gen, owner_time, cpu);
	if (alone && strange && ordered)
		goto pass;
	waiting = fill(dev);
	/* The clock is dear: most packets are only added to a frame, and need none. */
	ready = config->policy == BUSY && waiting < config->inflight;
	if (need || ready)
		now = bpf_ktime_get_ns();
	ready = ready && now >= dev->rest_until;
	/* An idle link adds no delay: nothing waits here, and the device is free. */
	if (ready && empty && ordered) {
		__sync_fetch_and_add(&queue->stats.unaggregated_packets, 1);
		__sync_fetch_and_add(&queue->stats.unaggregated_bytes, len);
		__sync_fetch_and_add(&queue->stats.by_ready, 1);
		return send(dev);
	}

	if (packet.unfinished) {
		if (bpf_skb_load_bytes(skb, ETH_LEN, copy->bytes, len))
			goto pass;
		finish(copy, &packet);
	}

	bpf_spin_lock(&queue->lock);
	if (!same_key(&queue->key, &key)) {
		bpf_spin_unlock(&queue->lock);
		goto pass;
	}
	empty = queue->head == queue->tail;
	ring = (queue->tail - 1) & (RING - 1);
	pending = &queue->pending[ring];
	oldest = pending->oldest;
	need = empty || alone || !has_room(pending, header + len, hop);
	if (need) {
		__u32 ahead = config->policy == BUSY ? waiting : 0;

		ring = queue->tail & (RING - 1);
		pending = &queue->pending[ring];
		over = queue->tail - queue->head + ahead >= config->queue_frames ||
		       pending->taken || pending->writers || dev->held >= config->total_frames;
		if (over) {
			__sync_fetch_and_add(&queue->stats.dropped, 1);
			bpf_spin_unlock(&queue->lock);
			return TCX_DROP;
		}
		/* Without the clock, another CPU has just filled or taken the frame before. */
		pending->oldest = now ?: empty ? queue->owner_time : oldest;
		pending->len = 0;
		pending->count = 0;
		pending->closed = alone;
		queue->tail++;
		__sync_fetch_and_add(&dev->held, 1);
	}
	at = pending->len;
	oldest = pending->oldest;
	pending->len += len;
	pending->count++;
	/* Others end their copies without the lock. */
	__sync_fetch_and_add(&pending->writers, 1);
	queue->bytes += len;
	queue->packets++;
	queue->flows |= packet.flow;
	if (config->policy == FORCED)
		ready = queue->bytes >= hop->min && (!dev->told || waiting < dev->limit);
	full = queue->tail - queue->head > 1 || pending->closed ||
	       header + pending->len + len > hop->max;
	bpf_spin_unlock(&queue->lock);

	index = slot * RING + ring;
	frame = bpf_map_lookup_elem(&frames, &index);
	if (!frame)
		return TCX_DROP;
	at &= MAX_META - 1;
	if (packet.unfinished)
		bpf_probe_read_kernel(frame->bytes + HEADROOM + at, len, copy->bytes);
	else /* Cannot fail: read_packet() has seen that so much is there. */
		bpf_skb_load_bytes(skb, ETH_LEN, frame->bytes + HEADROOM + at, len);
	__sync_fetch_and_sub(&pending->writers, 1);

	if (empty)
		tell_waits(config, dev, slot, oldest);
	if (config->policy == BUSY && waiting < config->inflight && full)
		ready = true;
	if (!ready)
		return consume();
	result = emit(skb, slot, full || config->policy == FORCED ? BY_SIZE : BY_READY,
		      packet.unfinished);
	if (result == 0)
		return NEXT;
	if (result == -1)
		tell_carrier(queue, slot);
	return consume();

pass:
	__sync_fetch_and_add(&dev->passed, 1);
	return send(dev);
}

char LICENSE[] SEC("license") = "GPL";
