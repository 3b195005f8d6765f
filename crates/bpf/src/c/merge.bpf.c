/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Gathers small packets per next hop and class at tc egress, and sends meta packets.
 *
 * Principle: a packet that would have to wait anyway is copied into the frame under construction of
 * its queue and consumed. A frame leaves in a carrier: a tick frame that user space sends, the
 * packet in hand, or a copy of a packet that must not overtake it. The carrier takes the frame's
 * bytes and passes the interface's egress hook again, because the kernel notes the length that
 * shapers count before this hook runs.
 *
 * Who waits: under `busy` a packet is gathered only while frames of its gate are under way. Either
 * the device counts its frames (`told`, the emulated medium), or user space tracks its tick frames
 * until their memory is free again and closes the gate meanwhile. Packets that leave in place, with
 * the gate open, cannot be tracked. So the gate adds up what they take the device, and a packet
 * goes by a tick when it would have to wait for them anyway until user space sends the tick; now
 * and then one goes as a probe.
 *
 * Order over several CPUs: a queue's frames are taken under its lock in order, but what is taken
 * first must also reach the device first. A frame that leaves on a packet in hand is handed over
 * within a call, and `emitting` says that it has not returned. For ticks and for packets that leave
 * in place every CPU counts its entries into this program: it runs from here to the driver without
 * being preempted by its own transmissions, so once the count has moved on the packet has arrived
 * (or after 100 ms: the CPU may be gone); and user space reports when a tick's transmission is
 * over. As long as the order is not sure, packets stay gathered, and user space is asked for a
 * tick.
 *
 * Order behind this hook: a FIFO keeps it. Fair queues keep it for frames of one flow hash, so
 * frames of gathered packets bear one hash, and so do other packets of the same flows until the
 * frames have left. A sparse flow whose packets leave in place keeps its own (place_of()).
 *
 * A device that is done at once with what it gets (veth, TUN) is never busy. There packets pass
 * without a look at them, but for a probe now and then.
 *
 * Below IP: small frames of batman-adv are gathered as Ethernet payloads, towards next hops that
 * say that they take them apart. And frames of format 2 to a neighbour may have no header of IP,
 * but an EtherType of their own.
 *
 * Groups: packets of UDP to one group are gathered as those to a next hop are, while user space
 * says so. All groups of a family have one next hop, whose destination is the group of the packet.
 * Their frames are of format 2 and stand for themselves, as who hears one may have heard none
 * before.
 *
 * Format 2: a packet to a next hop that takes frames of it is found to be gathered here, as any
 * other, and then goes on in a second program, which packs it. When a frame is to leave with it, it
 * comes back.
 *
 * Fail open: user space takes every question back (`asked_at`) when it looks. A question that stays
 * for 20 ms means that it hangs; then everything leaves at once and nothing is gathered.
 *
 * Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapter 3; the policy `busy`
 * as in the aggregate crate, whose model gives the same bytes.
 */
#include "detour.h"
#include "merge/block.h"
#include "merge/classify.h"
#include "merge/frame.h"
#include "merge/gather.h"
#include "merge/maps.h"
#include "merge/order.h"
#include "merge/queues.h"
#include "merge/user_space.h"
#include "packet.h"

/* Whether a packet passes without a look at it: the device is done at once with all that it gets,
 * so nothing waits behind it and nothing is gathered. This is what a cable or a tunnel costs. The
 * clock of a tick's precision ends it some milliseconds late, before the next probe. */
static __always_inline bool passes_unseen(struct device *device, struct entry *gen)
{
	/* First what is held, then the time: who leaves has ended that before. */
	bool held = *(volatile __u32 *)&device->held;
	__u64 until = *(volatile __u64 *)&device->unseen_until;

	return until && !held && coarse_ns(&gen->clock) < until;
}

/* Whether a stranger's frame is gone before anybody would wait for it: a small one in a FIFO that
 * has nothing else, such as a HELLO or an acknowledgement. Counted as one that is ahead it would
 * make the next packet a probe. */
static __always_inline bool is_gone_soon(struct device *device, __u32 len)
{
	__u32 zero = 0;
	struct gate *gate = bpf_map_lookup_elem(&gates, &zero);

	return device->fifo && len <= SMALL && gate && !gate->closed &&
	       gate->strangers == device->passed;
}

/* What came of sending a frame: the queue dropped it (linux/netdevice.h). Above the mask are flags
 * of the queue's own. */
#define NET_XMIT_DROP 1
#define NET_XMIT_MASK 0xf

/* Whether `sent` says that the queue dropped a frame. Errors are negative. */
static __always_inline bool is_refused(long sent)
{
	return sent > 0 && (sent & NET_XMIT_MASK) == NET_XMIT_DROP;
}

/* A copy passes the filters before this program again, so one packet in so many is one at most. */
#define BETWEEN_COPIES 32

/* Whether the packet in hand, should it leave in place, is to leave as a copy, of which the kernel
 * says whether the queue took it: once in a tick of the kernel's at most. A full queue frees at
 * once what it refuses, as an idle device does, so nothing else shows it. */
static __always_inline bool asks(struct merge_config *config, struct device *device,
				 struct entry *gen)
{
	__u64 tick;

	if (gen->count - gen->asked_count < BETWEEN_COPIES || config->policy != BUSY ||
	    !device->fifo || device->told)
		return false;
	tick = bpf_jiffies64();
	if (gen->asked == tick)
		return false;
	gen->asked = tick;
	gen->asked_count = gen->count;
	return true;
}

static __always_inline __u32 fill(struct device *device)
{
	__s64 waiting = device->sent - device->done;

	return device->told && waiting > 0 ? waiting : 0;
}

/* A mesh frame becomes a carrier without more ado: nothing of it was left to the device, as the
 * mesh interface can do nothing of the kind for its packets. But it cannot be cut short of where
 * the kernel has noted a transport header in it, for which PADDED is enough. */
static __always_inline bool is_mesh(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_MESH);
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
	__u32 zero = 0, cpu = bpf_get_smp_processor_id(), slot, ring, index, at, waiting;
	__u32 len, most;
	__u32 owner, cause, size, start, count, expected = 0, fresh = 0;
	struct merge_config *config = bpf_map_lookup_elem(&merge_config, &zero);
	struct device *dev = bpf_map_lookup_elem(&device, &zero);
	struct work *mine = bpf_map_lookup_elem(&work, &zero);
	struct entry *gen = bpf_map_lookup_elem(&entries, &cpu);
	__u64 now = 0, oldest, owner_gen, owner_time, flow;
	bool joins, empty, ready = false, more, again, held, apart, portless;
	bool nested = false, ticked = false, tracked = false, idle = false, copied, own_order;
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
	struct joint *joint;
	struct flowlet *flowlet = NULL;
	enum place place = SHARED;
	bool fair;
	__u32 hash;

	/* It was gathered, or passed, when it left for the detour. */
	if (is_back_from_detour(skb))
		return NEXT;
	if (!config || !dev || !mine || !gen)
		return NEXT;
	if (mine->pass) {
		mine->pass = 0;
		return NEXT;
	}
	packet = &mine->packet;
	key = &mine->key;
	joint = &mine->joint;
	if (mine->carry) {
		slot = mine->carry - 1;
		mine->carry = 0;
		cause = BY_READY;
		nested = true;
		goto emit;
	}
	if (mine->step) {
		slot = mine->slot;
		cause = mine->cause;
		count = mine->step;
		mine->step = FROM_START;
		if (count == LEAVE)
			goto emit;
		goto stranger;
	}
	gen->count++;
	if (skb->protocol == bpf_htons(ETH_P_TICK)) {
		struct {
			__u64 cookie;
			__u32 slot, cause, untracked, fresh, checked, pad;
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
		tracked = !tick.checked;
		ticked = true;
		goto emit;
	}
	copied = asks(config, dev, gen);
	if (!copied && passes_unseen(dev, gen)) {
		gen->unseen++;
		return NEXT;
	}
	__builtin_memset(packet, 0, sizeof(*packet));
	kind = read_packet(skb, packet);
	if (kind == OPAQUE)
		goto stranger;
	hop = packet->mesh || packet->group ? NULL :
					      bpf_map_lookup_elem(&far_ends, &packet->to);
	if (!hop)
		hop = bpf_map_lookup_elem(&hops, &packet->via);
	/* Where groups get no frames any more, what is held of a flow still leaves before it. */
	if (!hop || (!hop->max && !packet->group))
		goto stranger;
	mine->hop = *hop;
	hop = &mine->hop;
	if (packet->group)
		aim(hop, packet);
	verdict = kind == PORTLESS ? ALONE : classify(skb, config, packet, kind == LARGE);
	if (packet->group && packet->protocol != PROTO_UDP)
		verdict = PASS;
	/* Flows of packets that pass are never gathered, but for those of acknowledgements. */
	apart = verdict == PASS && !(config->acks && packet->protocol == PROTO_TCP);
	if (verdict == PASS)
		verdict = ALONE;
	len = packet->len;
	most = header_len(hop) + format_len(hop, packet) + len;
	joint->max = largest(skb, config, hop);
	if (verdict == GATHER && (len < V4_LEN || most > joint->max || most > MAX_META ||
				  (packet->mesh && !(hop->mesh && hop->format)) ||
				  ((packet->group || is_link(hop)) && !hop->format)))
		verdict = ALONE;
	portless = kind == PORTLESS;
	flow = portless ? packet->pair : packet->flow;

	__builtin_memcpy(key->mac, packet->mac.bytes, 6);
	key->dscp = packet->class;
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
	/* Of two groups with one link address and one id, the second passes. */
	if (packet->group && !same_destination(&queue->hop, hop))
		goto stranger;
	mine->slot = slot;
	fair = has_fair_queues(dev);

	if (verdict == GATHER) {
		empty = queue->head == queue->tail;
		pending = &queue->pending[(queue->tail - 1) & (RING - 1)];
		/* A packet that joins a frame starts no deadline. A clock of a tick's precision,
		 * which costs nothing, is then good enough to see a controller that hangs. */
		joins = !empty && config->policy == FORCED && !hop->format == !pending->tag &&
			has_room(pending, most, joint->max, pending->tag);
		now = joins ? coarse_ns(&gen->clock) : bpf_ktime_get_ns();
		waiting = fill(dev);
		ready = false;
		if (hangs(dev, now)) {
			ready = true;
		} else if (config->policy == BUSY) {
			__u64 since = now - gate->last;

			if (dev->told)
				ready = waiting < config->inflight && now >= dev->rest_until;
			else if (dev->fifo && gate->strangers != dev->passed)
				/* Their frames are ahead: whoever waits here loses the place in the
				 * line. */
				ready = now < gate->probe_at || since > NEAR;
			else
				/* Waiting for user space costs nothing while earlier packets are in
				 * front. */
				idle = !gate->closed && dev->busy_until <= now + gate->reaction;
			if (!dev->told && idle)
				ready = now < gate->probe_at || since > NEAR ||
					(gate->in_place < gate->between && since > gate->dense);
		}
		if (fair && config->policy == BUSY)
			flowlet = flowlet_of(slot, flow, now);
		if (flowlet)
			place = place_of(skb, flowlet, gate, packet, !empty, now);
		/* An idle link adds no delay: nothing waits here, and the device is free. */
		if (ready && empty) {
			/* Together: who sees the queue empty also sees who took its last frame. */
			bpf_spin_lock(&queue->lock);
			empty = queue->head == queue->tail;
			owner = queue->owner_cpu;
			owner_gen = queue->owner_gen;
			owner_time = queue->owner_time;
			/* Most often nobody is carrying a frame of it on a tick. */
			own_order = empty && !queue->emitting && (owner == cpu || owner == NOBODY);
			if (own_order)
				leave_in_place(queue, len);
			bpf_spin_unlock(&queue->lock);
			if (own_order)
				goto in_place;
			if (empty &&
			    in_order(dev, queue, owner, owner_gen, owner_time, cpu, slot)) {
				bpf_spin_lock(&queue->lock);
				leave_in_place(queue, len);
				bpf_spin_unlock(&queue->lock);
				goto in_place;
			}
		}
		/* It would overtake the one before it in another queue. Or a fair queue serves it
		 * before the many strangers, but not their frame of several. Or a probe waits for
		 * user space, and nothing else does. */
		if (place == BOUND || (place == FREE && (gate->hurried || (idle && !empty)))) {
			bpf_spin_lock(&queue->lock);
			count_alone(queue, len);
			bpf_spin_unlock(&queue->lock);
			goto in_place;
		}
		gate->in_place = 0;
		/* A packet of a tunnel may have an unfinished checksum inside, of which nothing is
		 * seen here. This call fails for it, and changes nothing otherwise. */
		if (bpf_skb_change_tail(skb, skb->len, 0))
			goto stranger;
		/* Nor can one be finished that is anywhere but in the transport header. */
		if (!packet->unfinished && is_unfinished_anywhere(skb, packet))
			verdict = ALONE;
	}

	if (verdict == ALONE) {
		held = portless ? queue->pairs & bit_of(packet->pair) :
					  queue->flows & bit_of(packet->flow);
		/* What is held of its flow leaves first. */
		for (int i = 0; held && i < RING; i++) {
			if (queue->head == queue->tail || !leave_in_copy(skb, mine, queue, slot))
				break;
		}
		if (!fair || apart)
			goto stranger;
		/* Behind its small packets in a fair queue, too. */
		if (held || shares(gate, flow)) {
			note_flow(gate, flow);
			if (portless)
				note_flow(gate, portless_of(flow));
			go_untracked(skb, gate, bpf_get_hash_recalc(skb));
		} else if (config->policy == BUSY) {
			now = coarse_ns(&gen->clock);
			flowlet = flowlet_of(slot, flow, now);
			if (flowlet)
				note_large(flowlet, now);
		}
		goto stranger;
	}

	if (hop->format) {
		mine->now = now;
		mine->waiting = waiting;
		mine->ready = ready;
		mine->dense = place == DENSE;
		bpf_tail_call(skb, &programs, SECOND_PROGRAM);
		/* A kernel that does not take it gets meta packets. */
		if (packet->mesh || packet->group || is_link(hop))
			goto stranger;
	}
	if (packet->unfinished) {
		/* A copy: one that lives on is kept on the stack, where older verifiers lose the
		 * check. */
		size = len;
		FORGET(size);
		if (size < V4_LEN || size > MAX_META ||
		    bpf_skb_load_bytes(skb, ETH_LEN, mine->copy.bytes, size))
			goto stranger;
		size = packet->len;
		checksum = finished(sum_from(&mine->copy, packet->transport, size));
	}
	hash = fair ? bpf_get_hash_recalc(skb) : 0;
	switch (join(joint, skb, config, dev, queue, hop, key, packet, NULL, slot, now, hash,
		     waiting, place == DENSE)) {
	case JOINED:
		break;
	case CROWDED:
		if (fair)
			go_untracked(skb, gate, hash);
		count_sent(dev, 1, len);
		return NEXT;
	default:
		goto stranger;
	}
	index = slot * RING + joint->ring;
	frame = bpf_map_lookup_elem(&frames, &index);
	if (!frame)
		return TCX_DROP;
	at = joint->at;
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
	is_written(queue, joint);
	if (!may_leave(joint, config, dev, gate, queue, packet, slot, waiting, fair, ready))
		return consume();
	cause = cause_of(joint, config);
	goto emit;

in_place:
	if (!dev->told) {
		gate->last = now;
		gate->in_place++;
		dev->busy_until =
			(dev->busy_until > now ? dev->busy_until : now) + gate->service;
		if (flowlet)
			keep_order(skb, gate, flowlet, packet, place, now);
	}
	count_sent(dev, 1, len);
	if (!copied)
		return NEXT;
	mine->pass = 1;
	copied = is_refused(bpf_clone_redirect(skb, skb->ifindex, 0));
	mine->pass = 0;
	if (!copied)
		return consume();
	dev->unseen_until = 0;
	tell(dev, FULL, slot, 0, true);
	/* As the queue would have said. */
	return TCX_DROP;

stranger:
	if (is_gone_soon(dev, skb->len)) {
		gen->unseen++;
	} else {
		__sync_fetch_and_add(&dev->passed, 1);
		__sync_fetch_and_add(&dev->passed_bytes, skb->len);
	}
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
	 * consumed (dropped, where it was a tick) when the queue is empty, a packet is still being
	 * copied into the frame, or the order could suffer. */
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
	    (!ticked && is_mesh(skb) && bpf_skb_change_tail(skb, PADDED, 0)) ||
	    (ticked || is_mesh(skb) ?
		     bpf_skb_change_tail(skb, ETH_LEN + size, 0) :
		     clear(skb, nested ? MAX_PULL - ETH_LEN : packet->len, size)) ||
	    /* Queues would read and mark a header of IP where there is none. */
	    (!ticked && is_link(&queue->hop) &&
	     set_protocol(skb, bpf_htons(ETH_P_FRAMES)))) {
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
	hash = pending->hash;
	queue->head++;
	queue->bytes -= pending->tag ? len - FRAME_HEADER : len;
	queue->packets -= count;
	more = queue->head != queue->tail;
	again = more && config->policy == FORCED && queue->bytes >= queue->hop.min;
	if (!more) {
		queue->flows = 0;
		queue->pairs = 0;
		queue->dense = 0;
		__sync_fetch_and_and(&dev->holding, ~(1ULL << (slot & (SLOTS - 1))));
	}
	if (queue->tail - queue->head < 2)
		__sync_fetch_and_and(&dev->filled, ~(1ULL << (slot & (SLOTS - 1))));
	oldest = queue->pending[queue->head & (RING - 1)].oldest;
	queue->owner_cpu = tracked ? cpu : NOBODY;
	queue->emitting = !tracked;
	/* Before anybody else may look whether it is over. */
	if (tracked)
		own->ticks++;
	queue->owner_gen = gen->count;
	queue->owner_time = now;
	if (is_alone(pending)) {
		queue->stats.unaggregated_packets++;
		queue->stats.unaggregated_bytes += pending->payload;
	} else {
		queue->stats.aggregated_packets += count;
		queue->stats.aggregated_bytes += pending->payload;
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
	/* Not known from before: the verifier would follow all since then once for each. */
	if (!is_alone(pending)) {
		if (pending->tag)
			write_frame_header(frame, queue->key.hop, pending->tag - 1,
					   pending->offset);
		write_header(frame, &queue->key, &queue->hop, len);
		start -= header_len(&queue->hop);
		size += header_len(&queue->hop);
		type = queue->hop.family == 4 ? bpf_htons(ETH_P_IP) :
		       is_link(&queue->hop)   ? bpf_htons(ETH_P_FRAMES) :
						bpf_htons(ETH_P_IPV6);
	} else {
		if (pending->tag) {
			start += FRAME_HEADER;
			size -= FRAME_HEADER;
		}
		type = frame->bytes[start] >> 4 == 4 ? bpf_htons(ETH_P_IP) :
						       bpf_htons(ETH_P_IPV6);
		if (pending->plain == PLAIN_MESH) {
			start += ETHERNET_HEADER;
			size -= ETHERNET_HEADER;
			type = bpf_htons(ETH_P_MESH);
		}
	}
	FORGET(start);
	FORGET(size);
	if (bpf_skb_change_tail(skb, ETH_LEN + size, 0)) {
		/* Zeros behind a packet are Ethernet's padding, of which nobody takes note. */
		at = start + size;
		FORGET(at);
		__builtin_memset(frame->bytes + (at & 0xff), 0, PADDED - ETH_LEN);
		size = PADDED - ETH_LEN;
		bpf_skb_change_tail(skb, PADDED, 0);
	}
	if (start > HEADROOM + FRAME_HEADER + ETHERNET_HEADER) {
		/* It is not, so this does not happen. */
		pending->taken = 0;
		return TCX_DROP;
	}
	/* Where the protocol is another one, radios, cake and filters see no class of IP. */
	if (ticked && skb->protocol != type && set_protocol(skb, type)) {
		pending->taken = 0;
		return TCX_DROP; /* There was no memory for four bytes. */
	}
	bpf_skb_store_bytes(skb, 0, queue->key.mac, 6, 0);
	bpf_skb_store_bytes(skb, 12, &type, 2, 0);
	bpf_skb_store_bytes(skb, ETH_LEN, frame->bytes + start, within(size, MAX_META), 0);
	skb->mark = pending->mark;
	skb->priority = pending->priority;
	pending->taken = 0;
	if (has_fair_queues(dev)) {
		/* Nothing with the gate's hash is in front of it or waits behind it, so the hash
		 * may change, to that of the flow that waited longest: then it stays where its
		 * packets were that left in place. One of several flows goes behind all these. */
		if (ticked && fresh && gate->untracked == expected) {
			if (count > 1 && begins_queue(gate, now))
				gate->hash = hash * (__u32)GOLDEN;
			else if (!more)
				gate->hash = hash;
		}
		if (ticked && !more && (__s32)(gate->left - gate->turned) >= 0)
			turn(gate);
		if (ticked)
			take_hash(skb, gate, hash);
		else
			go_untracked(skb, gate, hash);
	}
	/* User space asks what its tick has carried. */
	dev->last = (__u64)count << 32 | size;
	count_sent(dev, count, size);
	mine->carried = nested;
	mine->pass = 1;
	/* A tick stays the frame of its socket, which tells when it is free. Others leave as
	 * copies: when the call returns the device has them, so that the next frame may follow from
	 * any CPU. What becomes of the former nobody is told, but of the latter the program is. */
	if (tracked || nested)
		return bpf_redirect(skb->ifindex, 0);
	if (is_refused(bpf_clone_redirect(skb, skb->ifindex, 0)))
		__sync_fetch_and_add(&dev->refused, 1);
	mine->pass = 0;
	queue->emitting = 0;
	return consume();
}

/* Takes a packet that the first program has found to be gathered into frames of format 2. */
SEC("classifier")
int sheaf_pack(struct __sk_buff *skb)
{
	__u32 zero = 0, slot, index, at, hash, size, from;
	struct merge_config *config = bpf_map_lookup_elem(&merge_config, &zero);
	struct device *dev = bpf_map_lookup_elem(&device, &zero);
	struct work *mine = bpf_map_lookup_elem(&work, &zero);
	struct packing *packing = bpf_map_lookup_elem(&packings, &zero);
	struct packet *packet;
	struct queue *queue;
	struct frame *frame;
	struct joint *joint;
	struct gate *gate;
	struct hop *hop;
	__s64 summed = 0;
	bool fair;

	if (!config || !dev || !mine || !packing)
		return NEXT;
	packet = &mine->packet;
	hop = &mine->hop;
	joint = &mine->joint;
	slot = mine->slot;
	queue = bpf_map_lookup_elem(&queues, &slot);
	gate = gate_of(dev, slot);
	if (!queue || !gate)
		goto stranger;
	if (packet->unfinished || (hop->format == SHORT_HEADERS && !packet->mesh &&
				   packet->protocol == PROTO_UDP)) {
		size = packet->len;
		FORGET(size);
		if (size < V4_LEN || size > MAX_META ||
		    bpf_skb_load_bytes(skb, ETH_LEN, mine->copy.bytes, size))
			goto stranger;
		/* The addresses stand right before the segment. */
		from = packet->transport;
		if (!packet->unfinished)
			from = packet->v6 ? V6_LEN - 32 : V4_LEN - 8;
		summed = sum_from(&mine->copy, from, packet->len);
	}
	pack(packing, queue, hop, &mine->key, packet, &mine->copy, summed,
	     dev->clock ?: mine->now, config->wait);
	if ((packet->mesh || is_link(hop)) && !packing->block.tag)
		goto stranger;
	fair = has_fair_queues(dev);
	hash = fair ? bpf_get_hash_recalc(skb) : 0;
	switch (join(joint, skb, config, dev, queue, hop, &mine->key, packet, &packing->block,
		     slot, mine->now, hash, mine->waiting, mine->dense)) {
	case JOINED:
		break;
	case CROWDED:
		if (fair)
			go_untracked(skb, gate, hash);
		count_sent(dev, 1, packet->len);
		return NEXT;
	default:
		goto stranger;
	}
	index = slot * RING + joint->ring;
	frame = bpf_map_lookup_elem(&frames, &index);
	if (!frame)
		return TCX_DROP; /* There is one for each. */
	at = joint->at;
	FORGET(at);
	at &= MAX_META - 1;
	write_block(skb, packing, packet, &mine->copy, queue, slot, frame, at);
	is_written(queue, joint);
	if (!may_leave(joint, config, dev, gate, queue, packet, slot, mine->waiting, fair,
		       mine->ready))
		return consume();
	mine->step = LEAVE;
	mine->cause = cause_of(joint, config);
	bpf_tail_call(skb, &programs, FIRST_PROGRAM);
	mine->step = FROM_START;
	return consume();

stranger:
	mine->step = PASS_ON;
	bpf_tail_call(skb, &programs, FIRST_PROGRAM);
	mine->step = FROM_START;
	return NEXT;
}

char LICENSE[] SEC("license") = "GPL";
