/* SPDX-License-Identifier: GPL-2.0 */
/* What the window program keeps, and user space reads (window_layout.rs mirrors it). */
#ifndef WINDOW_MAPS_H
#define WINDOW_MAPS_H

#include "../clock.h"
#include "../sheaf.h"

#define WAYS 8
/* build.rs gives another number to a build for size. */
#ifndef BUCKETS
#define BUCKETS 2048
#endif
#define FLOWS (BUCKETS * WAYS)
#define EMBRYOS 4096
#define REST_FLOWS 4096

enum { IN, OUT };

/* What user space says. */
struct control {
	__u64 heartbeat;   /* ns: its last sign of life; 0: none yet */
	__u32 initial[2];  /* bytes: window of new flows, by direction of the data; 0: hands off */
	__u32 spare[2];    /* bytes: of all that begin before the next sign of life together */
	__u32 growth[2];   /* bytes: growth of windows in a round trip, likewise; 0: any */
	__u32 wait[2];     /* us: wait after which they do not grow, likewise; 0: any */
	__u32 link;        /* bytes of link header: 14, or 0 where there is none */
	__u32 beats;       /* signs of life so far */
	__u32 cost[2];     /* 2^-16 ns: of a byte of the rest at its share; 0: hands off */
	__u8 push[2];      /* whether data is pushed, by its direction */
	__u8 drops[2];     /* whether the rest is dropped where it cannot be marked */
	__u8 voice[2];     /* whether voice among the rest is never touched */
	__u8 pad[2];
	__u32 pace;        /* 2^-16 ns: of a byte by which windows of uploads open; 0: any */
	__u32 back;        /* interface that sends copies of acknowledgements back; 0: none */
	__u32 dev;         /* interface that they arrive on */
	__u32 gap;
	__u64 clock;       /* ns: time for the rest and for pace; 0: now. Tests set it. */
	__u64 seed[4];     /* of the table's hash, so that nobody can choose who shares a place */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* Fraction of ns in the time of a byte, as a power of two. */
#define COST_SHIFT 16

/* Time of so many bytes, ns. */
static __always_inline __u64 time_of(__u64 bytes, __u32 cost)
{
	return bytes * cost >> COST_SHIFT;
}

/* The time that the rest and windows are paced by. */
static __always_inline __u64 exact_ns(const struct control *settings)
{
	return settings->clock ? settings->clock : bpf_ktime_get_ns();
}

/* Bytes that flows which begin were given, by direction of the data. */
struct begun {
	__u32 beats;       /* signs of life when this was counted */
	__u32 given;       /* since the last of them */
	__u32 before;      /* in the time before that */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct begun);
} beginnings SEC(".maps");

/* The clock of uploads. */
struct pace {
	__u64 due;         /* ns: when the link has carried everything that was let go */
	__u64 copies;      /* of acknowledgements, which give later what they must not give now */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pace);
} paces SEC(".maps");

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
	__u32 latest;      /* us: the latest sample */
};

/*
 * All that packets of one direction touch, one cache line: their own data, the windows that they
 * carry, which govern the data of the other direction, and what they are to prove of it.
 */
struct side {
	/* Of the data of this direction. */
	__u64 wire;
	__u64 bytes;
	/* Of the data of the other direction. The lower half is the highest acknowledgement; as a
	 * whole it counts what was acknowledged, from the first sequence number on. */
	__u64 ack;
	__u32 window;
	__u32 edge;
	__u32 watch;       /* time stamp, or sequence number, whose answer is awaited here */
	__u32 since;       /* when that passed, in ticks of 1024 ns; 0: nothing is awaited */
	/* Of the data of this direction: newest time stamp or highest sequence number, and when
	 * data passed last, in ticks of 2^22 ns (0: never). */
	__u32 seen;
	__u32 last;
	/* Of the data of the other direction: as fields, which `shift` makes bytes. */
	__u32 clamped;
	__u16 asked;
	__u16 written;
	__u16 mss;         /* of both directions */
	__u16 timed;       /* since when data of this direction is timed, 2^26 ns; 0: it is not */
	__u8 shift;        /* of the two fields above: none in SYNs */
	__u8 scale;
	__u8 timestamps;
	__u8 governed;     /* whether data of this direction has a window */
};

/* What is seldom touched. */
struct flow {
	struct key key;
	__u32 first[2];        /* by direction of the data: `ack` of the other side began with it */
	__u32 goal;            /* of the data that goes out: right edge without a clock */
	struct rtt rtt[2];     /* by direction of the data */
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

/* A flow of the rest: the key above is of TCP alone. */
struct rest_key {
	struct key key;
	__u8 protocol;
	__u8 pad[3];
};

/* One direction of it, as rest.rs has it. */
struct rest {
	__u64 wire;
	__u64 due;
	__u64 above;
	__u64 next;
	__u32 capable;
	__u32 count;
	__u32 first;
	__u16 inverse;
	__u8 signals;
	__u8 pad;
};

struct rest_pair {
	struct rest direction[2];
};

struct totals {
	__u64 wire;
	__u64 packets;
	__u64 voice;
	__u64 marked;
	__u64 dropped;
};

/* A cache line of the table of flows (table.h): of each place the tag, in the upper 48 bits, and
 * when it was used last. */
struct bucket {
	__u64 place[WAYS];
};

/* User space reads these three as memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

/* Of each flow two: of packets that come in, and of those that go out. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * FLOWS);
	__type(key, __u32);
	__type(value, struct side);
} sides SEC(".maps");

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
	__uint(max_entries, REST_FLOWS);
	__type(key, struct rest_key);
	__type(value, struct rest_pair);
} rest SEC(".maps");

/* By direction. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

/* The options of a TCP header, where reading them stands, and what was found. */
struct options {
	__u8 bytes[64 + 12];
	__u32 at, len;
	__u32 tsval, tsecr;
	__u16 mss;
	__u8 has_mss;
	__u8 scale;
	__u8 timestamps;
	__u8 pad[3];
};

#define NO_SCALE 255

/* What is read of a packet. */
struct packet {
	/* The key is written in whole words: what is stored in parts and read as a whole has to
	 * wait. */
	union {
		struct key key;
		struct rest_key rest;
		__u64 words[5];
	};
	__u32 ip;      /* where the IP header begins */
	__u32 at;      /* where the TCP or UDP header does */
	__u32 len;     /* of the IP packet */
	__u32 wire;
	__u32 payload;
	__u32 seq, ack;
	__u32 tsval, tsecr;
	__u16 field;   /* the window's, host order */
	__u16 lead;    /* the word with the flags, host order */
	__u16 mss;
	__u8 doff;     /* TCP header, bytes */
	__u8 flags;
	__u8 scale;    /* NO_SCALE: none */
	__u8 timestamps;
	__u8 protocol;
	__u8 has_mss;
	__u8 v6;
	__u8 class;    /* DSCP and ECN */
};

/*
 * Room for values that are too large for the stack, or that the verifier shall not follow: of what
 * a map holds it knows nothing, so it looks at the code behind a join once, not once for every way
 * there. By direction, and one each for settings and for copies that come back, since a packet that
 * comes in can interrupt one that goes out.
 */
struct scratch {
	struct coarse clock;
	struct packet packet;
	struct embryo embryo;
	struct rest_pair rest;
	struct options options;
	__u64 known;
};

enum { SET = OUT + 1, BACK, SCRATCHES };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct side *side_at(__u32 flow, __u32 direction)
{
	__u32 index = flow * 2 + (direction & 1);

	return bpf_map_lookup_elem(&sides, &index);
}

#endif
