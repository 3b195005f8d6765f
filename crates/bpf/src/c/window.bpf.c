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
 * The crate `window` has the same in Rust (rewrite.rs and flow.rs), with the reasons; a
 * differential test holds both to the same bytes.
 *
 * Several CPUs: the packets of one direction of one flow come one after the other (they must, or
 * they would be reordered), and every field is written by packets of one direction only, apart
 * from `watch_since`, where a lost update costs one RTT sample.
 *
 * Source: "An OpenWRT solution for future wireless homes" (2010); RFC 9293 3.8.6, RFC 7323, RFC
 * 1624.
 */
#include "sheaf.h"

/* tcx: on to the next program, as if this one were not there. */
#define NEXT -1
#define TCP_LEN 20
#define OPTIONS_LEN 40
#define MAX_WINDOW (65535u << 14)
#define NO_SCALE 255
#define THIRD_ACK 65535
#define SECOND 1000000000ULL
#define HEARTBEAT_TIMEOUT (2 * SECOND)
#define RTT_AGE (30 * SECOND)
#define WATCH_TIMEOUT (10 * SECOND)
#define FLOWS 16384
#define EMBRYOS 4096
#define QUIC_FLOWS 4096
#define QUIC_PORT 443

enum { IN, OUT };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

/* What user space says. */
struct control {
	__u64 heartbeat;   /* ns: its last sign of life; 0: none yet */
	__u32 initial[2];  /* bytes: window of new flows, by direction of the data; 0: hands off */
	__u32 link;        /* bytes of link header: 14, or 0 where there is none */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* IPv6, or IPv4 mapped into it; ports in host order. */
struct key {
	__u8 outside[16];
	__u8 inside[16];
	__u16 outside_port;
	__u16 inside_port;
};

struct rtt {
	__u64 min;
	__u64 old_min;
	__u64 since;
	__u64 sum;
	__u32 count;
	__u32 pad;
};

/*
 * What packets of one direction touch, one cache line: their own data, and the windows that they
 * carry, which govern the data of the other direction. (With many flows the memory is what costs.)
 */
struct side {
	/* Of the data of this direction. */
	__u64 wire;
	__u64 watch_since;
	__u32 watch;
	__u32 seen;
	/* Of the data of the other direction. */
	__u64 acked;
	__u32 ack;
	__u32 window;
	__u32 edge;
	__u32 asked;
	__u32 written;
	__u32 clamped;
	__u16 mss;
	__u8 scale;
	__u8 timestamps;
	__u8 pad[4];
};

/* The rest of the data of one direction. */
struct data {
	__u64 bytes;
	__u64 last;
	struct rtt rtt;
};

struct connection {
	struct side side[2];
	struct data data[2];
};

struct syn {
	__u64 since;
	__u32 first;
	__u32 data;
	__u32 timestamp;
	__u16 window;
	__u16 mss;
	__u8 scale;
	__u8 timestamps;
	__u8 pad[6];
};

struct embryo {
	struct syn syn;
	struct syn answer;
	__u8 initiator;
	__u8 answered;
	__u8 pad[6];
};

struct quic {
	__u64 wire;
	__u32 capable;
	__u32 marked;
	__u32 every;
	__u32 since;
};

struct quic_pair {
	struct quic direction[2];
};

struct totals {
	__u64 wire;
	__u64 packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS);
	__type(key, struct key);
	__type(value, struct connection);
} flows SEC(".maps");

/* Apart, so that a flood of SYNs pushes out other beginnings, but no flow. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EMBRYOS);
	__type(key, struct key);
	__type(value, struct embryo);
} embryos SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, QUIC_FLOWS);
	__type(key, struct key);
	__type(value, struct quic_pair);
} quic SEC(".maps");

/* By direction. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

/* Room for a value that is too large for the stack. */
struct scratch {
	struct connection connection;
	struct embryo embryo;
	struct quic_pair quic;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

struct packet {
	struct key key;
	__u32 ip;      /* where the IP header begins */
	__u32 at;      /* where the TCP or UDP header does */
	__u32 len;     /* of the IP packet */
	__u32 wire;
	__u32 payload;
	__u32 seq, ack;
	__u32 tsval, tsecr;
	__u16 field;   /* the window's, host order */
	__u16 mss;
	__u8 doff;     /* TCP header, bytes */
	__u8 flags;
	__u8 scale;    /* NO_SCALE: none */
	__u8 timestamps;
	__u8 protocol;
	__u8 has_mss;
	__u8 v6;
	__u8 ecn;
};

static __always_inline __u32 be32(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

static __always_inline bool after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* The options area, and where reading it stands. The area has room behind it: nothing that is read
 * with a masked index lies outside. */
struct options {
	__u8 bytes[64 + 12];
	__u32 at, len;
	struct packet *packet;
};

static long read_option(__u32 index, void *context)
{
	struct options *options = context;
	struct packet *packet = options->packet;
	__u32 left = options->len - options->at;
	__u8 *option = options->bytes + (options->at & 63), size;

	if (options->at >= options->len || option[0] == 0)
		return 1;
	if (option[0] == 1) {
		options->at++;
		return 0;
	}
	size = option[1];
	if (left < 2 || size < 2 || size > left)
		return 1;
	if (option[0] == 2 && size == 4) {
		packet->mss = be16(option + 2);
		packet->has_mss = 1;
	} else if (option[0] == 3 && size == 3) {
		packet->scale = option[2] > 14 ? 14 : option[2];
	} else if (option[0] == 8 && size == 10) {
		packet->tsval = be32(option + 2);
		packet->tsecr = be32(option + 6);
		packet->timestamps = 1;
	}
	options->at += size;
	return 0;
}

/* Reads the options behind the header. */
static __noinline int read_options(struct __sk_buff *skb, struct packet *packet)
{
	struct options options = {};
	__u32 len;

	if (!packet)
		return -1;
	len = packet->doff - TCP_LEN;
	if (len - 1 >= OPTIONS_LEN ||
	    bpf_skb_load_bytes(skb, packet->at + TCP_LEN, options.bytes, len))
		return -1;
	options.len = len;
	options.packet = packet;
	bpf_loop(OPTIONS_LEN, read_option, &options, 0);
	return 0;
}

/* Reads a whole TCP or UDP packet that is no fragment; false for everything else. The headers are
 * read in place: helper calls would cost more than all the rest. */
static __always_inline bool read_packet(struct __sk_buff *skb, struct packet *packet, __u32 link,
					__u32 direction)
{
	const __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end, *head, *tcp;
	__u32 at = link & 15, header, room, source = direction == IN ? 0 : 16;
	__u32 words[4];
	__u8 *key = packet->key.outside;
	__u16 type = skb->protocol;

	/* Both headers without options, in the part of the packet that is not in pages. */
	if (data + 15 + 8 + V6_LEN + TCP_LEN > end) {
		__u32 want = 15 + 8 + V4_LEN + V6_LEN + TCP_LEN;

		if (end - data < (long)skb->len)
			bpf_skb_pull_data(skb, skb->len < want ? skb->len : want);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		if (data + at + 4 > end)
			return false;
		type = *(__u16 *)(data + at + 2);
		at += 4;
	}
	head = data + at;
	room = skb->len - at;
	if (type == bpf_htons(ETH_P_IP)) {
		if (head + V4_LEN > end)
			return false;
		header = (head[0] & 0xf) * 4;
		if (head[0] >> 4 != 4 || header < V4_LEN)
			return false;
		packet->len = be16(head + 2);
		packet->protocol = head[9];
		packet->ecn = head[1] & 3;
		if (be16(head + 6) & 0x3fff)
			packet->protocol = 0;
		__builtin_memcpy(words, head + 12, 8);
		*(__u16 *)(key + 10) = 0xffff;
		*(__u16 *)(key + 26) = 0xffff;
		*(__u32 *)(key + source + 12) = words[0];
		*(__u32 *)(key + 16 - source + 12) = words[1];
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (head + V6_LEN > end || head[0] >> 4 != 6)
			return false;
		header = V6_LEN;
		packet->v6 = 1;
		packet->len = V6_LEN + be16(head + 4);
		packet->protocol = head[6];
		packet->ecn = head[1] >> 4 & 3;
		__builtin_memcpy(key + source, head + 8, 16);
		__builtin_memcpy(key + 16 - source, head + 24, 16);
	} else {
		return false;
	}
	/* The length field of a super-packet may be too small for its length. */
	if (skb->gso_size)
		packet->len = room;
	if (packet->len < header || packet->len > room)
		return false;
	packet->wire = at + packet->len;
	packet->ip = at;
	packet->at = at + header;
	room = packet->len - header;
	tcp = head + header;
	if (packet->protocol == PROTO_TCP) {
		if (room < TCP_LEN || tcp + TCP_LEN > end)
			return false;
		packet->doff = (tcp[12] >> 4) * 4;
		if (packet->doff < TCP_LEN || packet->doff > room)
			return false;
		packet->seq = bpf_ntohl(*(__u32 *)(tcp + 4));
		packet->ack = bpf_ntohl(*(__u32 *)(tcp + 8));
		packet->flags = tcp[13];
		packet->field = be16(tcp + 14);
		packet->payload = room - packet->doff;
		/* Time stamps alone, in their usual place (RFC 7323, appendix A). */
		if (packet->doff == TCP_LEN + 12 && tcp + TCP_LEN + 12 <= end &&
		    *(__u32 *)(tcp + TCP_LEN) == bpf_htonl(0x0101080a)) {
			packet->tsval = bpf_ntohl(*(__u32 *)(tcp + TCP_LEN + 4));
			packet->tsecr = bpf_ntohl(*(__u32 *)(tcp + TCP_LEN + 8));
			packet->timestamps = 1;
		}
		if (skb->gso_segs > 1)
			packet->wire += (skb->gso_segs - 1) * (packet->wire - packet->payload);
	} else if (packet->protocol != PROTO_UDP || room < 8 || tcp + 8 > end) {
		return false;
	}
	packet->key.outside_port = be16(tcp + (direction == IN ? 0 : 2));
	packet->key.inside_port = be16(tcp + (direction == IN ? 2 : 0));
	return true;
}

static __always_inline void sample(struct rtt *rtt, __u64 nanos, __u64 now)
{
	if (!nanos)
		nanos = 1;
	if (!rtt->count || now - rtt->since >= RTT_AGE) {
		rtt->old_min = rtt->min;
		rtt->min = nanos;
		rtt->since = now;
	} else if (nanos < rtt->min) {
		rtt->min = nanos;
	}
	rtt->sum += nanos;
	rtt->count++;
}

static __always_inline void sample_since(struct rtt *rtt, __u64 since)
{
	__u64 now = bpf_ktime_get_ns();

	sample(rtt, now - since, now);
}

/* Counts a packet of this direction and begins to time it, if none is timed. */
static __always_inline void passes(struct side *side, struct data *data, struct packet *packet,
				   __u64 now)
{
	__u32 mark = packet->timestamps ? packet->tsval : packet->seq + packet->payload;

	if (packet->payload) {
		data->bytes += packet->payload;
		data->last = now;
	}
	if (!packet->timestamps && !packet->payload)
		return;
	if (after(mark, side->seen)) {
		side->seen = mark;
		if (!side->watch_since || (__s64)(now - side->watch_since) >= (__s64)WATCH_TIMEOUT) {
			side->watch = mark;
			side->watch_since = bpf_ktime_get_ns();
		}
	} else if (!packet->timestamps) {
		side->watch_since = 0;
	}
}

/* Takes what a packet of the other direction proves about this one. */
static __always_inline void answered(struct side *watched, struct rtt *rtt, struct side *side,
				     struct packet *packet)
{
	__u32 proof = packet->timestamps ? packet->tsecr : packet->ack, step;
	__u64 since = watched->watch_since;

	if (since && !after(watched->watch, proof)) {
		if (!packet->timestamps || proof == watched->watch)
			sample_since(rtt, since);
		watched->watch_since = 0;
	}
	step = packet->ack - side->ack;
	if (step && step <= MAX_WINDOW) {
		side->acked += step;
		side->ack = packet->ack;
	}
}

static __always_inline __u32 round_up(__u32 bytes, __u32 scale)
{
	return (bytes + (1u << scale) - 1) >> scale;
}

/* The smallest field that keeps the rules, at least 1. */
static __always_inline __u32 field_for(struct side *side, __u32 ack)
{
	__u32 scale = side->scale & 15, mss = side->mss ? side->mss : 1, room = side->edge - ack;
	__u32 window = side->window, field, other;

	if (window < mss)
		window = mss;
	if (window > MAX_WINDOW)
		window = MAX_WINDOW;
	field = window >> scale;
	other = round_up(mss, scale);
	if (field < other)
		field = other;
	if (room <= MAX_WINDOW) {
		other = round_up(room, scale);
		if (field < other)
			field = other;
	}
	return field > 65535 ? 65535 : field;
}

/* The window field that the packet shall have, and what is kept about it. */
static __always_inline __u16 advertise(struct side *side, struct packet *packet, bool live)
{
	__u32 field = packet->field, scale = side->scale & 15, written, edge;

	if (live && side->window && field) {
		__u32 limit = field_for(side, packet->ack);

		if (limit < field) {
			field = limit;
			side->clamped++;
		}
	}
	written = field << scale;
	side->asked = (__u32)packet->field << scale;
	side->written = written;
	edge = packet->ack + written;
	if (after(edge, side->edge))
		side->edge = edge;
	return field;
}

/* A SYN or the answer to one. */
static __noinline int handshake(struct packet *packet, __u32 direction)
{
	__u32 zero = 0;
	struct scratch *room = bpf_map_lookup_elem(&scratch, &zero);
	struct embryo *old;
	struct syn syn = {};

	if (!room || !packet)
		return 0;
	old = bpf_map_lookup_elem(&embryos, &packet->key);
	syn.since = bpf_ktime_get_ns();
	syn.first = packet->seq + 1;
	syn.data = packet->payload;
	syn.window = packet->field;
	syn.mss = packet->has_mss ? packet->mss : packet->v6 ? 1220 : 536;
	syn.scale = packet->scale;
	syn.timestamps = packet->timestamps;
	syn.timestamp = packet->tsval;
	if (!(packet->flags & ACK)) {
		struct embryo *embryo = &room->embryo;

		/* Sent again: nobody knows which one the answer is for. */
		if (old && old->initiator == direction && old->syn.first == syn.first)
			syn.since = 0;
		__builtin_memset(embryo, 0, sizeof(*embryo));
		embryo->syn = syn;
		embryo->initiator = direction;
		bpf_map_update_elem(&embryos, &packet->key, embryo, BPF_ANY);
		return 0;
	}
	if (!old || old->initiator == direction || packet->ack - old->syn.first > old->syn.data)
		return 0;
	if (old->answered && old->answer.first == syn.first)
		syn.since = 0;
	old->answer = syn;
	old->answered = 1;
	/* Both ends begin anew: what was known under this key was another connection. */
	bpf_map_delete_elem(&flows, &packet->key);
	return 0;
}

/* The data of one direction: `own` carries it, `other` its windows. */
static __always_inline void grow(struct side *own, struct side *other, struct syn *sender,
				 struct syn *receiver, bool scaled, bool timestamps, __u32 window)
{
	own->seen = timestamps ? sender->timestamp : sender->first + sender->data;
	other->window = window;
	other->edge = sender->first + receiver->window;
	other->ack = sender->first;
	other->asked = receiver->window;
	other->written = receiver->window;
	other->mss = sender->mss < receiver->mss ? sender->mss : receiver->mss;
	other->scale = scaled ? receiver->scale : 0;
	other->timestamps = timestamps;
}

/* Makes a flow of a handshake of which this is the third packet. */
static __noinline int establish(struct packet *packet, __u32 direction)
{
	__u32 zero = 0;
	struct scratch *room = bpf_map_lookup_elem(&scratch, &zero);
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct connection *connection;
	struct embryo *embryo;
	bool scaled, timestamps;
	__u64 now;

	if (!room || !settings || !packet)
		return -1;
	embryo = bpf_map_lookup_elem(&embryos, &packet->key);
	if (!embryo || !embryo->answered || embryo->initiator != direction ||
	    packet->ack - embryo->answer.first > THIRD_ACK)
		return -1;
	now = bpf_ktime_get_ns();
	connection = &room->connection;
	__builtin_memset(connection, 0, sizeof(*connection));
	scaled = embryo->syn.scale != NO_SCALE && embryo->answer.scale != NO_SCALE;
	timestamps = embryo->syn.timestamps && embryo->answer.timestamps;
	if (direction == IN) {
		grow(&connection->side[IN], &connection->side[OUT], &embryo->syn, &embryo->answer, scaled,
		     timestamps, settings->initial[IN]);
		grow(&connection->side[OUT], &connection->side[IN], &embryo->answer, &embryo->syn, scaled,
		     timestamps, settings->initial[OUT]);
	} else {
		grow(&connection->side[OUT], &connection->side[IN], &embryo->syn, &embryo->answer, scaled,
		     timestamps, settings->initial[OUT]);
		grow(&connection->side[IN], &connection->side[OUT], &embryo->answer, &embryo->syn, scaled,
		     timestamps, settings->initial[IN]);
	}
	if (embryo->answer.since) {
		if (embryo->syn.since)
			sample(&connection->data[direction & 1].rtt,
			       embryo->answer.since - embryo->syn.since, now);
		sample(&connection->data[~direction & 1].rtt, now - embryo->answer.since, now);
	}
	bpf_map_delete_elem(&embryos, &packet->key);
	return bpf_map_update_elem(&flows, &packet->key, connection, BPF_ANY);
}

/* Both bits of the ECN field. (The helper for it does not look behind VLAN tags.) */
static __always_inline void set_ce(struct __sk_buff *skb, struct packet *packet)
{
	__u8 head[2] __attribute__((aligned(2)));
	__u16 old, new;

	if (bpf_skb_load_bytes(skb, packet->ip, head, 2))
		return;
	old = *(__u16 *)head;
	head[1] |= packet->v6 ? 0x30 : 3;
	new = *(__u16 *)head;
	if (packet->v6) {
		/* No checksum in the header: a sum that the device made must follow. */
		bpf_skb_store_bytes(skb, packet->ip, head, 2, BPF_F_RECOMPUTE_CSUM);
	} else if (!bpf_l3_csum_replace(skb, packet->ip + 10, old, new, 2)) {
		bpf_skb_store_bytes(skb, packet->ip, head, 2, 0);
	}
}

/* Counts a QUIC packet, and marks it when its turn has come: congestion experienced (RFC 3168 5). */
static __noinline int count_quic(struct __sk_buff *skb, struct packet *packet, __u32 direction,
				 __u32 live)
{
	struct quic_pair *both;
	struct quic *flow;
	__u32 zero = 0;

	if (!packet)
		return 0;
	both = bpf_map_lookup_elem(&quic, &packet->key);
	if (!both) {
		struct scratch *room = bpf_map_lookup_elem(&scratch, &zero);

		if (!room)
			return 0;
		__builtin_memset(&room->quic, 0, sizeof(room->quic));
		bpf_map_update_elem(&quic, &packet->key, &room->quic, BPF_NOEXIST);
		both = bpf_map_lookup_elem(&quic, &packet->key);
		if (!both)
			return 0;
	}
	flow = &both->direction[direction & 1];
	flow->wire += packet->wire;
	if (!packet->ecn)
		return 0;
	flow->capable++;
	flow->since++;
	if (!live || !flow->every || flow->since < flow->every || packet->ecn == 3)
		return 0;
	flow->since = 0;
	flow->marked++;
	set_ce(skb, packet);
	return 0;
}

static __always_inline int pass(struct __sk_buff *skb, __u32 direction)
{
	__u32 zero = 0, index = direction;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct totals *total = bpf_map_lookup_elem(&totals, &index);
	struct packet packet = { .scale = NO_SCALE };
	struct connection *connection;
	struct side *side;
	__u16 field, old, new;
	__u64 now;
	bool live, tcp;

	if (!settings || !total)
		return NEXT;
	total->packets += skb->gso_segs > 1 ? skb->gso_segs : 1;
	packet.wire = skb->len;
	tcp = read_packet(skb, &packet, settings->link, direction);
	total->wire += packet.wire;
	if (!tcp)
		return NEXT;
	/* Good enough to the millisecond, and cheap; only what is timed reads the exact clock. */
	now = bpf_ktime_get_coarse_ns();
	live = settings->heartbeat && (__s64)(now - settings->heartbeat) <= (__s64)HEARTBEAT_TIMEOUT;
	if (packet.protocol == PROTO_UDP) {
		if (packet.key.outside_port == QUIC_PORT || packet.key.inside_port == QUIC_PORT)
			count_quic(skb, &packet, direction, live);
		return NEXT;
	}
	if (packet.flags & RST)
		return NEXT;
	if (packet.doff > TCP_LEN && !packet.timestamps)
		read_options(skb, &packet);
	if (packet.flags & SYN) {
		if (!(packet.flags & FIN))
			handshake(&packet, direction);
		return NEXT;
	}
	if (!(packet.flags & ACK))
		return NEXT;
	connection = bpf_map_lookup_elem(&flows, &packet.key);
	if (!connection) {
		if (establish(&packet, direction))
			return NEXT;
		connection = bpf_map_lookup_elem(&flows, &packet.key);
		if (!connection)
			return NEXT;
	}
	side = &connection->side[direction];
	side->wire += packet.wire;
	if (!side->timestamps || packet.timestamps) {
		packet.timestamps = side->timestamps;
		passes(side, &connection->data[direction], &packet, now);
		answered(&connection->side[!direction], &connection->data[!direction].rtt, side, &packet);
	}
	field = advertise(side, &packet, live);
	if (field == packet.field)
		return NEXT;
	/* The helper knows what the bytes do not tell: an unfinished checksum has no part of the
	 * window and stays; a sum that the device made stays right, since both changes cancel out. */
	old = bpf_htons(packet.field);
	new = bpf_htons(field);
	if (bpf_l4_csum_replace(skb, packet.at + 16, old, new, 2))
		return NEXT;
	bpf_skb_store_bytes(skb, packet.at + 14, &new, 2, 0);
	return NEXT;
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

/*
 * Changes windows in place, when user space runs it (BPF_PROG_TEST_RUN) with a frame of settings.
 * Writing values from user space instead would undo what packets counted in the meantime.
 */
#define SETTINGS 64

struct setting {
	struct key key;
	__u32 value;
	__u8 direction;
	__u8 quic;
	__u8 pad[2];
};

SEC("classifier")
int sheaf_set(struct __sk_buff *skb)
{
	int known = 0;

	for (__u32 i = 0; i < SETTINGS; i++) {
		struct setting setting;

		if (bpf_skb_load_bytes(skb, ETH_LEN + i * sizeof(setting), &setting, sizeof(setting)))
			break;
		if (setting.quic) {
			struct quic_pair *both = bpf_map_lookup_elem(&quic, &setting.key);

			if (both) {
				both->direction[setting.direction & 1].every = setting.value;
				known++;
			}
		} else {
			struct connection *connection = bpf_map_lookup_elem(&flows, &setting.key);

			if (connection) {
				connection->side[~setting.direction & 1].window = setting.value;
				known++;
			}
		}
	}
	return known;
}

char LICENSE[] SEC("license") = "GPL";
