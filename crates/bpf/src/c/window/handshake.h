/* SPDX-License-Identifier: GPL-2.0 */
/* From the first SYN to the third packet of a connection. */
#ifndef WINDOW_HANDSHAKE_H
#define WINDOW_HANDSHAKE_H

#include "rewrite.h"

#define THIRD_ACK 65535

/* Segments that a sender begins with (RFC 6928). */
#define INITIAL_SEGMENTS 10
/* The least of a first window: Linux sends no segments larger than half of it, ever
 * (tcp_bound_to_half_wnd). */
#define LEAST_SEGMENTS 2

/* What flows with data of this direction were given of late. A handshake takes longer than the time
 * between two signs of life, so the time before counts, too. */
static __always_inline struct begun *begun_of(struct control *settings, __u32 way)
{
	__u32 index = way & 1, passed;
	struct begun *begun = bpf_map_lookup_elem(&beginnings, &index);

	if (!begun)
		return 0;
	passed = settings->beats - begun->beats;
	if (passed) {
		begun->before = passed == 1 ? begun->given : 0;
		begun->given = 0;
		begun->beats = settings->beats;
	}
	return begun;
}

/* What they may still be given of `left` bytes. */
static __always_inline __u32 left_of(struct begun *begun, __u32 left)
{
	left = left > begun->given ? left - begun->given : 0;
	return left > begun->before ? left - begun->before : 0;
}

/* The window that a flow begins with which is alone, or with others. */
static __always_inline __u32 begin_with(struct control *settings, __u32 way, __u32 mss, bool again)
{
	struct begun *begun = begun_of(settings, way);
	__u32 limit;

	if (!begun)
		return mss * LEAST_SEGMENTS;
	limit = left_of(begun, settings->spare[way & 1]);
	if (limit > mss * INITIAL_SEGMENTS)
		limit = mss * INITIAL_SEGMENTS;
	if (limit > settings->initial[way & 1])
		limit = settings->initial[way & 1];
	if (limit < mss * LEAST_SEGMENTS)
		limit = mss * LEAST_SEGMENTS;
	if (!again)
		__sync_fetch_and_add(&begun->given, limit);
	return limit;
}

/* A SYN or the answer to one; the window field that it shall have. Its window is the first that the
 * other end hears of, so that nothing is taken back; sent again, it is not smaller than before. */
static __always_inline __u16 handshake(struct scratch *room, struct control *settings,
				       __u32 direction, bool live)
{
	struct packet *packet = &room->packet;
	struct embryo *old;
	struct syn syn = {}, *before = 0;
	__u32 limit;

	old = bpf_map_lookup_elem(&embryos, &packet->key);
	syn.since = bpf_ktime_get_ns();
	syn.first = packet->seq + 1;
	syn.data = packet->payload;
	syn.asked = packet->field;
	syn.mss = packet->has_mss ? packet->mss : packet->v6 ? 1220 : 536;
	syn.scale = packet->scale;
	syn.timestamps = packet->timestamps;
	syn.timestamp = packet->tsval;
	if (packet->flags & ACK) {
		if (!old || old->initiator == direction ||
		    packet->ack - old->syn.first > old->syn.data)
			return packet->field;
		if (old->answered && old->answer.first == syn.first)
			before = &old->answer;
	} else if (old && old->initiator == direction && old->syn.first == syn.first) {
		before = &old->syn;
	}
	limit = 65535;
	if (live && settings->initial[~direction & 1])
		limit = begin_with(settings, ~direction & 1, syn.mss, before);
	if (before && limit < before->window)
		limit = before->window;
	syn.window = limit < packet->field ? limit : packet->field;
	/* Sent again: nobody knows which one the answer is for. */
	if (before)
		syn.since = 0;
	if (!(packet->flags & ACK)) {
		struct embryo *embryo = &room->embryo;

		__builtin_memset(embryo, 0, sizeof(*embryo));
		embryo->syn = syn;
		embryo->initiator = direction;
		bpf_map_update_elem(&embryos, &packet->key, embryo, BPF_ANY);
		return syn.window;
	}
	/* It was there above; the verifier reads the flags anew. */
	if (!old)
		return syn.window;
	old->answer = syn;
	old->answered = 1;
	/* Both ends begin anew: what was known under this key was another connection. Where it was
	 * another key, only the tag is the same (table.h): this one must not be known either. */
	if (!forget(&packet->key, hash_of(packet->words, settings)))
		bpf_map_delete_elem(&embryos, &packet->key);
	return syn.window;
}

/* The data of one direction: `own` carries it, `other` its windows. */
static __always_inline void grow(struct side *own, struct side *other, struct syn *sender,
				 struct syn *receiver, bool scaled, bool timestamps, __u32 window)
{
	own->governed = window != 0;
	own->seen = timestamps ? sender->timestamp : sender->first + sender->data;
	other->window = window;
	other->edge = sender->first + receiver->window;
	other->ack = sender->first;
	other->asked = receiver->asked;
	other->written = receiver->window;
	other->clamped = receiver->window < receiver->asked;
	other->mss = sender->mss < receiver->mss ? sender->mss : receiver->mss;
	other->scale = scaled ? receiver->scale : 0;
	other->timestamps = timestamps;
}

/* The window of a flow that begins now: twice that of its SYN, as its second round has, as long as
 * that is there. */
static __always_inline __u32 window_of(struct control *settings, __u32 way, struct syn *receiver)
{
	struct begun *begun = begun_of(settings, way);
	__u32 spare = settings->spare[way & 1], most = settings->initial[way & 1], more = 0;

	if (begun && !settings->growth[way & 1]) {
		/* What nobody else began with is for those that are here. */
		more = left_of(begun, spare);
		more = more > receiver->window ? more - receiver->window : 0;
	} else if (begun) {
		more = left_of(begun, spare > ~0u / 2 ? ~0u : 2 * spare);
		if (more > receiver->window)
			more = receiver->window;
		__sync_fetch_and_add(&begun->given, more);
	}
	more += receiver->window;
	return more < most ? more : most;
}

/* Fills a claimed place with what the handshake said; `direction` is its initiator's. */
static __always_inline bool fill(__u32 index, __u32 direction, const struct key *key,
				 struct embryo *embryo, struct control *settings, __u64 now)
{
	struct side *own = side_at(index, direction), *other = side_at(index, !direction);
	struct flow *flow = bpf_map_lookup_elem(&flows, &index);
	struct syn *syn = &embryo->syn, *answer = &embryo->answer;
	bool scaled, timestamps;
	__u32 way = direction & 1;

	if (!own || !other || !flow)
		return false;
	__builtin_memset(own, 0, sizeof(*own));
	__builtin_memset(other, 0, sizeof(*other));
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->key = *key;
	flow->first[way] = syn->first;
	flow->first[!way] = answer->first;
	scaled = syn->scale != NO_SCALE && answer->scale != NO_SCALE;
	timestamps = syn->timestamps && answer->timestamps;
	grow(own, other, syn, answer, scaled, timestamps, window_of(settings, way, answer));
	grow(other, own, answer, syn, scaled, timestamps, window_of(settings, !way, syn));
	if (answer->since) {
		if (syn->since)
			sample(&flow->rtt[way], answer->since - syn->since, now);
		sample(&flow->rtt[!way], now - answer->since, now);
	}
	return true;
}

/* Makes a flow of a handshake of which this is the third packet; where it is now. */
static __always_inline bool establish(struct packet *packet, struct control *settings,
				      __u32 direction, __u64 hash, struct place *place)
{
	struct embryo *embryo;
	__u64 now;

	embryo = bpf_map_lookup_elem(&embryos, &packet->key);
	if (!embryo || !embryo->answered || embryo->initiator != direction ||
	    packet->ack - embryo->answer.first > THIRD_ACK)
		return false;
	now = bpf_ktime_get_ns();
	if (!claim(hash, stamp_of(now), place) ||
	    !fill(place->flow, direction & 1, &packet->key, embryo, settings, now))
		return false;
	publish(place, hash, stamp_of(now));
	bpf_map_delete_elem(&embryos, &packet->key);
	return true;
}

#endif
