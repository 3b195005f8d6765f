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
 * from `watch_since`, where a lost update costs one RTT sample. A place in the table is claimed by
 * exchanging its tag; who loses such a race tries again with its next packet.
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
#define WAYS 8
#define BUCKETS 2048
#define FLOWS (BUCKETS * WAYS)
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
	__u64 seed;        /* of the table's hash, so that nobody can choose who shares a bucket */
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

/* What packets of one direction touch, one cache line: their own data, and the windows that they
 * carry, which govern the data of the other direction. */
struct side {
	/* Of the data of this direction. */
	__u64 wire;
	__u64 bytes;
	__u64 last;
	/* Of the data of the other direction. */
	__u64 acked;
	__u32 ack;
	__u32 window;
	__u32 edge;
	__u32 asked;
	__u32 written;
	__u32 clamped;
	/* Of the data of this direction: newest time stamp or highest sequence number. */
	__u32 seen;
	/* Of the data of the other direction. */
	__u16 mss;
	__u8 scale;
	__u8 timestamps;
};

/*
 * With many flows the memory is what costs. So a packet touches three cache lines: its bucket, the
 * first one here, which says whose flow it is and what is timed, and the side of its direction.
 */
struct flow {
	struct key key;
	__u32 watch[2];        /* by direction of the data */
	__u32 pad;
	__u64 watch_since[2];
	struct side side[2];
	struct rtt rtt[2];     /* by direction of the data */
	__u8 room[48];
};

struct syn {
	__u64 since;
	__u32 first;
	__u32 data;
	__u32 timestamp;
	__u16 window;      /* as it was written */
	__u16 asked;
	__u16 mss;
	__u8 scale;
	__u8 timestamps;
	__u8 pad[4];
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

/*
 * The table of flows: each has eight places in each of two buckets, by its hash, and the one that was
 * used the longest ago makes room. A hash map of the kernel would hash with more than twice the
 * instructions, by a call, and go through a list whose links are cold; here a tag that fits says
 * where the flow is. User space reads both maps as memory.
 */
struct bucket {
	__u32 tag[WAYS];       /* part of the hash, or one of the two below */
	__u32 used[WAYS];      /* stamp of the last packet */
};

#define FREE 0
#define CLAIMED 1
/* A bucket with so many flows shares with the other; below that all are found at once. */
#define ENOUGH 6

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct flow);
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
	struct key key __attribute__((aligned(8)));
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

/* About seconds, never 0. */
static __always_inline __u32 stamp_of(__u64 now)
{
	return now >> 30 | 1;
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
static __always_inline void passes(struct flow *flow, __u32 direction, struct packet *packet,
				   __u64 now)
{
	struct side *side = &flow->side[direction];
	__u32 mark = packet->timestamps ? packet->tsval : packet->seq + packet->payload;

	if (packet->payload) {
		side->bytes += packet->payload;
		side->last = now;
	}
	if (!packet->timestamps && !packet->payload)
		return;
	if (after(mark, side->seen)) {
		__u64 since = flow->watch_since[direction];

		side->seen = mark;
		if (!since || (__s64)(now - since) >= (__s64)WATCH_TIMEOUT) {
			flow->watch[direction] = mark;
			flow->watch_since[direction] = bpf_ktime_get_ns();
		}
	} else if (!packet->timestamps) {
		flow->watch_since[direction] = 0;
	}
}

/* Takes what a packet of `direction` proves about the data of the other. */
static __always_inline void answered(struct flow *flow, __u32 direction, struct packet *packet)
{
	struct side *side = &flow->side[direction];
	__u32 proof = packet->timestamps ? packet->tsecr : packet->ack, step;
	__u32 watch = flow->watch[!direction];
	__u64 since = flow->watch_since[!direction];

	if (since && !after(watch, proof)) {
		if (!packet->timestamps || proof == watch)
			sample_since(&flow->rtt[!direction], since);
		flow->watch_since[!direction] = 0;
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

static __always_inline __u64 hash_of(const struct key *key, __u64 seed)
{
	const __u64 *words = (const __u64 *)key;
	__u64 hash = seed;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	hash = (hash ^ *(const __u32 *)&key->outside_port) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

static __always_inline __u32 tag_of(__u64 hash)
{
	return hash >> 32 | 2;
}

/* The two buckets that it can be in. */
static __always_inline __u32 place_of(__u64 hash, int which)
{
	return (which ? hash >> 16 : hash) & (BUCKETS - 1);
}

static __always_inline bool is_same(const struct key *a, const struct key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return x[1] == y[1] && x[3] == y[3] && x[0] == y[0] && x[2] == y[2] &&
	       *(const __u32 *)&a->outside_port == *(const __u32 *)&b->outside_port;
}

/* The flow of `key`. With a `stamp` this counts as use; `forget` takes it out. */
static __always_inline struct flow *find(const struct key *key, __u64 seed, __u32 stamp,
					 bool forget)
{
	__u64 hash = hash_of(key, seed);
	__u32 tag = tag_of(hash);

#pragma unroll
	for (int which = 0; which < 2; which++) {
		__u32 place = place_of(hash, which);
		struct bucket *bucket = bpf_map_lookup_elem(&buckets, &place);

		if (!bucket)
			return 0;
#pragma unroll
		for (int way = 0; way < WAYS; way++) {
			__u32 index = place * WAYS + way;
			struct flow *flow;

			if (bucket->tag[way] != tag)
				continue;
			flow = bpf_map_lookup_elem(&flows, &index);
			if (!flow || !is_same(key, &flow->key))
				continue;
			if (stamp && bucket->used[way] != stamp)
				bucket->used[way] = stamp;
			if (forget)
				__sync_val_compare_and_swap(&bucket->tag[way], tag, FREE);
			return flow;
		}
	}
	return 0;
}

/* The places of a new flow, one after the other: those of the first bucket, then the second's. */
struct search {
	__u32 place[2];
	__u32 stamp;
	__u32 count[2];        /* flows in each */
	__u32 age[2];          /* since the last packet of the oldest; all ones where one is free */
	__u32 way[2];
};

static long look_at(__u32 index, void *context)
{
	struct search *search = context;
	__u32 which = index / WAYS & 1, way = index & (WAYS - 1), tag, age;
	__u32 place = search->place[which];
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &place);

	if (!bucket)
		return 1;
	tag = bucket->tag[way];
	if (tag == CLAIMED)
		return 0;
	age = tag == FREE ? ~0u : search->stamp - bucket->used[way];
	if (tag != FREE)
		search->count[which]++;
	if (age >= search->age[which]) {
		search->age[which] = age;
		search->way[which] = way;
	}
	return 0;
}

/* Room for a new flow, zeroed: in its first bucket, or in the second where there is more. A `tag` makes
 * it known later. Without room (another CPU was faster) 0. */
static __always_inline struct flow *claim(__u64 hash, __u32 stamp, __u32 **tag)
{
	struct search search = { .stamp = stamp };
	struct bucket *bucket;
	struct flow *flow;
	__u32 index, way, place, known;

	search.place[0] = place_of(hash, 0);
	search.place[1] = place_of(hash, 1);
	bpf_loop(2 * WAYS, look_at, &search, 0);
	place = search.place[0];
	way = search.way[0];
	if (search.count[0] >= ENOUGH && search.age[1] >= search.age[0] &&
	    (search.age[0] != ~0u || search.count[1] < search.count[0])) {
		place = search.place[1];
		way = search.way[1];
	}
	bucket = bpf_map_lookup_elem(&buckets, &place);
	if (!bucket)
		return 0;
	way &= WAYS - 1;
	known = bucket->tag[way];
	if (known == CLAIMED ||
	    __sync_val_compare_and_swap(&bucket->tag[way], known, CLAIMED) != known)
		return 0;
	bucket->used[way] = stamp;
	*tag = &bucket->tag[way];
	index = place * WAYS + way;
	flow = bpf_map_lookup_elem(&flows, &index);
	if (flow)
		__builtin_memset(flow, 0, sizeof(*flow));
	return flow;
}

/* A SYN or the answer to one; the window field that it shall have. Its window is the first that the
 * other end hears of, so that nothing is taken back; sent again, it is not smaller than before. */
static __noinline int handshake(struct packet *packet, __u32 direction, __u32 live)
{
	__u32 zero = 0;
	struct scratch *room = bpf_map_lookup_elem(&scratch, &zero);
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct embryo *old;
	struct syn syn = {}, *before = 0;
	__u32 limit;

	if (!room || !settings || !packet)
		return 65535;
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
	limit = settings->initial[~direction & 1];
	if (!live || !limit)
		limit = 65535;
	if (limit < syn.mss)
		limit = syn.mss;
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
	old->answer = syn;
	old->answered = 1;
	/* Both ends begin anew: what was known under this key was another connection. */
	find(&packet->key, settings->seed, 0, true);
	return syn.window;
}

/* The data of one direction: `own` carries it, `other` its windows. */
static __always_inline void grow(struct side *own, struct side *other, struct syn *sender,
				 struct syn *receiver, bool scaled, bool timestamps, __u32 window)
{
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

/* Makes a flow of a handshake of which this is the third packet. */
static __noinline int establish(struct packet *packet, __u32 direction)
{
	__u32 zero = 0, *tag;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct embryo *embryo;
	struct flow *flow;
	bool scaled, timestamps;
	__u64 now, hash;

	if (!settings || !packet)
		return -1;
	embryo = bpf_map_lookup_elem(&embryos, &packet->key);
	if (!embryo || !embryo->answered || embryo->initiator != direction ||
	    packet->ack - embryo->answer.first > THIRD_ACK)
		return -1;
	now = bpf_ktime_get_ns();
	hash = hash_of(&packet->key, settings->seed);
	flow = claim(hash, stamp_of(now), &tag);
	if (!flow)
		return -1;
	flow->key = packet->key;
	scaled = embryo->syn.scale != NO_SCALE && embryo->answer.scale != NO_SCALE;
	timestamps = embryo->syn.timestamps && embryo->answer.timestamps;
	if (direction == IN) {
		grow(&flow->side[IN], &flow->side[OUT], &embryo->syn, &embryo->answer, scaled,
		     timestamps, settings->initial[IN]);
		grow(&flow->side[OUT], &flow->side[IN], &embryo->answer, &embryo->syn, scaled,
		     timestamps, settings->initial[OUT]);
	} else {
		grow(&flow->side[OUT], &flow->side[IN], &embryo->syn, &embryo->answer, scaled,
		     timestamps, settings->initial[OUT]);
		grow(&flow->side[IN], &flow->side[OUT], &embryo->answer, &embryo->syn, scaled,
		     timestamps, settings->initial[IN]);
	}
	if (embryo->answer.since) {
		if (embryo->syn.since)
			sample(&flow->rtt[direction & 1], embryo->answer.since - embryo->syn.since,
			       now);
		sample(&flow->rtt[~direction & 1], now - embryo->answer.since, now);
	}
	/* With a barrier: who sees the tag sees the flow. */
	__sync_lock_test_and_set(tag, tag_of(hash));
	bpf_map_delete_elem(&embryos, &packet->key);
	return 0;
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

/* Writes the window. The helper knows what the bytes do not tell: an unfinished checksum has no part
 * of the window and stays; a sum that the device made stays right, since both changes cancel out. */
static __always_inline void write_window(struct __sk_buff *skb, struct packet *packet, __u16 field)
{
	__u16 old = bpf_htons(packet->field), new = bpf_htons(field);

	if (!bpf_l4_csum_replace(skb, packet->at + 16, old, new, 2))
		bpf_skb_store_bytes(skb, packet->at + 14, &new, 2, 0);
}

static __always_inline int pass(struct __sk_buff *skb, __u32 direction)
{
	__u32 zero = 0, index = direction;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct totals *total = bpf_map_lookup_elem(&totals, &index);
	struct packet packet = { .scale = NO_SCALE };
	struct flow *flow;
	struct side *side;
	__u16 field;
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
		if (packet.flags & FIN)
			return NEXT;
		field = handshake(&packet, direction, live);
		if (field < packet.field)
			write_window(skb, &packet, field);
		return NEXT;
	}
	if (!(packet.flags & ACK))
		return NEXT;
	flow = find(&packet.key, settings->seed, stamp_of(now), false);
	if (!flow) {
		if (establish(&packet, direction))
			return NEXT;
		flow = find(&packet.key, settings->seed, 0, false);
		if (!flow)
			return NEXT;
	}
	side = &flow->side[direction];
	side->wire += packet.wire;
	if (!side->timestamps || packet.timestamps) {
		packet.timestamps = side->timestamps;
		passes(flow, direction, &packet, now);
		answered(flow, direction, &packet);
	}
	field = advertise(side, &packet, live);
	if (field != packet.field)
		write_window(skb, &packet, field);
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
	__u32 zero = 0;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	int known = 0;

	if (!settings)
		return 0;
	for (__u32 i = 0; i < SETTINGS; i++) {
		struct setting setting __attribute__((aligned(8)));

		if (bpf_skb_load_bytes(skb, ETH_LEN + i * sizeof(setting), &setting, sizeof(setting)))
			break;
		if (setting.quic) {
			struct quic_pair *both = bpf_map_lookup_elem(&quic, &setting.key);

			if (both) {
				both->direction[setting.direction & 1].every = setting.value;
				known++;
			}
		} else {
			struct flow *flow = find(&setting.key, settings->seed, 0, false);

			if (flow) {
				flow->side[~setting.direction & 1].window = setting.value;
				known++;
			}
		}
	}
	return known;
}

char LICENSE[] SEC("license") = "GPL";
