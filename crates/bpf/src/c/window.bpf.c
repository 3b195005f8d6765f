/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Lowers the advertised windows of transiting TCP connections, at tc ingress and egress of one
 * interface.
 *
 * Principle: a sender never has more in flight than the window in the last acknowledgement. Every
 * acknowledgement passes here; user space gives each flow a window, and this program writes the
 * smaller of that and the receiver's own. It never raises one, never takes a right edge back, never
 * goes below one segment, and stops when its controller has not shown itself for two seconds.
 *
 * Written for verifiers from Linux 6.1 on, and for kernels without a JIT: no callbacks, no
 * functions that are called, and loops whose state the verifier does not follow.
 *
 * The crate `window` has the same in Rust (rewrite.rs and flow.rs), with the reasons; a
 * differential test holds both to the same bytes.
 *
 * Several CPUs: the packets of one direction of one flow come one after the other (they must, or
 * they would be reordered), and every field is written by packets of one direction only, apart from
 * those that time packets, where a lost update costs RTT samples for ten seconds at most, and those
 * that copies of acknowledgements write, too, where it lets a segment go sooner or later. A place
 * in the table is claimed by exchanging its tag; who loses such a race tries again with its next
 * packet.
 *
 * window/maps.h       what is kept, and read by user space
 * window/packet.h     headers
 * window/table.h      flows by their addresses
 * window/rtt.h        round-trip times
 * window/rewrite.h    windows
 * window/pace.h       the clock of uploads
 * window/handshake.h  how flows begin
 * window/rest.h       what windows do not govern
 * window/settings.h   what user space sets
 *
 * Source: "An OpenWRT solution for future wireless homes" (2010); RFC 9293 3.8.6, RFC 7323, RFC
 * 1624.
 */
#include "detour.h"
#include "line.h"
#include "window/handshake.h"
#include "window/pace.h"
#include "window/rest.h"
#include "window/settings.h"

/* tcx: on to the next program, as if this one were not there. */
#define NEXT -1
/* The mark of copies that come back, on their way to the interface. Marks that people use are small
 * numbers or masks; this one is neither, and it is taken off. */
#define BACK_MARK 0x5aead000
#define HEARTBEAT_TIMEOUT (2 * SECOND)

static __always_inline bool is_live(const struct control *settings, __u64 now)
{
	return settings->heartbeat &&
	       (__s64)(now - settings->heartbeat) <= (__s64)HEARTBEAT_TIMEOUT;
}

static __always_inline bool is_bare_ack(const struct packet *packet)
{
	return packet->protocol == PROTO_TCP && !packet->payload &&
	       (packet->flags & (ACK | FIN | SYN | RST)) == ACK;
}

/* The window field of an acknowledgement that acknowledges `step` bytes of an upload, as far as the
 * clock lets its window open. What it must not give, a copy gives later. */
static __always_inline __u32 pace_window(struct __sk_buff *skb, struct packet *packet,
					 struct control *settings, struct side *side, __u32 index,
					 __u32 step, __u32 growth)
{
	__u32 zero = 0, base, limit, field, goal;
	struct pace *pace = bpf_map_lookup_elem(&paces, &zero);
	struct flow *flow = bpf_map_lookup_elem(&flows, &index);

	if (!pace || !flow)
		return limit_of(side, packet, step, growth, side->edge);
	base = goal_of(flow, side);
	limit = limit_of(side, packet, step, growth, base);
	goal = packet->ack + (limit << (side->scale & 15));
	flow->goal = after(goal, base) ? goal : base;
	field = open_by(pace, settings->pace, side, packet->ack, limit, exact_ns(settings));
	if (field < limit)
		copy(skb, settings, pace);
	return field;
}

/* A packet of a connection that is established, or that becomes so with it; false for one of which
 * nothing is known. */
static __always_inline bool control_flow(struct __sk_buff *skb, struct packet *packet,
					 struct control *settings, __u32 direction, __u64 now,
					 bool live)
{
	__u64 hash = hash_of(packet->words, settings);
	struct place place;
	struct side *side;
	__u16 *stamp;
	__u32 step = 0, growth, wait, field = packet->field;

	if (!find(hash, &place) && !establish(packet, settings, direction, hash, &place))
		return false;
	stamp = stamp_at(&place.bucket->place[place.way]);
	if (*stamp != stamp_of(now))
		*stamp = stamp_of(now);
	side = side_at(place.flow, direction);
	if (!side)
		return true;
	side->wire += packet->wire;
	if (!side->timestamps || packet->timestamps) {
		packet->timestamps = side->timestamps;
		passes(side, place.flow, direction, packet, now);
		step = answered(side, place.flow, direction, packet);
	}
	growth = settings->growth[~direction & 1];
	wait = settings->wait[~direction & 1];
	/* Only while the capacity is searched for, as it takes a cache line more. */
	if (wait && growth && waits(place.flow, wait))
		growth = NO_GROWTH;
	if (live && side->window && field) {
		/* A copy of data would be data sent again. What acknowledges nothing new is a sign
		 * of loss, as long as it keeps its window (RFC 5681 3.2). */
		bool paced = direction == IN && settings->pace && is_bare_ack(packet);

		if (paced && step)
			field = pace_window(skb, packet, settings, side, place.flow, step, growth);
		else
			field = limit_of(side, packet, step, paced ? NO_GROWTH : growth,
					 side->edge);
	}
	keep(side, packet, field);
	if (shall_push(side, packet, settings, direction, live))
		write_push(skb, packet);
	if (field != packet->field)
		write_window(skb, packet, field);
	return true;
}

static __always_inline int pass(struct __sk_buff *skb, __u32 direction)
{
	__u32 zero = 0, index = direction;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct totals *total = bpf_map_lookup_elem(&totals, &index);
	struct scratch *room = bpf_map_lookup_elem(&scratch, &index);
	struct packet *packet;
	__u64 now;
	bool live, known;

	/* A copy that comes back has its window, and was counted as the packet that it is of. */
	if (direction == IN && skb->mark == BACK_MARK) {
		skb->mark = 0;
		return NEXT;
	}
	/* It was seen when it left for the detour. */
	if (direction == OUT && is_back_from_detour(skb))
		return NEXT;
	if (!settings || !total || !room)
		return NEXT;
	total->packets += skb->gso_segs > 1 ? skb->gso_segs : 1;
	packet = &room->packet;
	__builtin_memset(packet, 0, sizeof(*packet));
	packet->scale = NO_SCALE;
	packet->wire = skb->len;
	known = read_packet(skb, packet, settings->link, direction);
	total->wire += packet->wire;
	if (!known)
		return NEXT;
	/* Good enough to the millisecond, and cheap; only what is timed reads the exact clock. */
	now = coarse_ns(&room->clock);
	live = is_live(settings, now);
	if (packet->protocol == PROTO_UDP)
		goto rest;
	if (packet->flags & RST)
		return NEXT;
	if (packet->doff > TCP_LEN && !packet->timestamps)
		read_options(skb, room);
	if (packet->flags & SYN) {
		__u16 field;

		if (packet->flags & FIN)
			return NEXT;
		field = handshake(room, settings, direction, live);
		if (field < packet->field)
			write_window(skb, packet, field);
	} else if (packet->flags & ACK) {
		/* Acknowledgements are no load, and their loss slows nobody down. */
		if (!control_flow(skb, packet, settings, direction, now, live) && packet->payload)
			goto rest;
	}
	return NEXT;
rest:
	return rest_passes(skb, room, settings, total, direction, live) ? TC_ACT_SHOT : NEXT;
}

/* At tc ingress of the interface that copies of acknowledgements come back from. */
SEC("classifier")
int sheaf_back(struct __sk_buff *skb)
{
	__u32 zero = 0, index = BACK;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct scratch *room = bpf_map_lookup_elem(&scratch, &index);
	struct packet *packet;

	if (!settings || !room)
		return TC_ACT_SHOT;
	packet = &room->packet;
	__builtin_memset(packet, 0, sizeof(*packet));
	if (!read_packet(skb, packet, settings->link, IN) || !is_bare_ack(packet) ||
	    !release(skb, packet, settings, is_live(settings, coarse_ns(&room->clock))))
		return TC_ACT_SHOT;
	skb->mark = BACK_MARK;
	/* Detours and the splitter have seen it. */
	skb->tc_index = OUT_OF_LINE;
	return bpf_redirect(settings->dev, BPF_F_INGRESS);
}

SEC("classifier")
int sheaf_in(struct __sk_buff *skb)
{
	return pass(skb, IN);
}

SEC("classifier")
int sheaf_out(struct __sk_buff *skb)
{
	return pass(skb, OUT);
}

char LICENSE[] SEC("license") = "GPL";
