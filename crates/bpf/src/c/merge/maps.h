/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the merging program keeps: its settings, next hops, queues with their frames, and what it
 * shares with user space.
 */
#ifndef MERGE_MAPS_H
#define MERGE_MAPS_H

#include "../clock.h"
#include "../packet.h"

/* A tick bears the EtherType of what it may become; its cookie tells it from what that is. */
#define ETH_P_TICK ETH_P_FRAMES
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
/* Owners of a queue's last frame that are not the CPU of a packet that left in place. */
#define NOBODY 0xfffffffe /* it left within a call: it is over when `emitting` is 0 */
/* Packets of one gate that follow each other within this time may serve as a probe, after so many
 * others as user space says. In ns. */
#define NEAR 64000000
/* Bytes of a frame that is small: most of what it takes a radio is the same for all. */
#define SMALL 256
/* Words of the set of flows that use a gate's hash: 512 bits, so that 10 flows meet a stranger in
 * one of fifty, who then shares their queue. */
#define SEEN 8

/* Streams of format 2 that are known, and contexts of their flows: of more flows the packets travel
 * as they are. Each costs memory only once it is used. */
#define STREAMS 1024
#define CONTEXTS 4096

enum { FORCED, BUSY };
/* Not a percentage: `min` is a number of bytes. */
#define WHOLE_BYTES 255
enum { META, FRAMES, SHORT_HEADERS };
enum cause { BY_SIZE, BY_READY, BY_TIMEOUT, RECLAIM };
enum { NONEMPTY, CARRIER, NO_SLOT, FULL, FILLED };

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
	__u32 by_mark; /* a packet's mark says how large its frame may be */
	__u32 share;   /* percent of that which make a queue leave early; WHOLE_BYTES: see hop */
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
	__u64 sent;       /* frames it was given while it told */
	__u64 handed;     /* ns: since when it works, if it was idle before */
	__u64 rest_until; /* ns: until when only full frames leave */
	__u64 look_at;    /* ns: when user space will read its events anyway */
	__u64 asked_at;   /* ns: since when a question to user space is open; 0: none is */
	__u64 holding;    /* slots of queues that hold something, as bits */
	__u64 last;       /* the last frame: its packets above 32 bits of its bytes of IP */
	__u32 limit;
	__u32 told;
	__u32 held;   /* frames that wait in all queues */
	__u32 passed; /* frames that were not ours and may be ahead of ours */
	__u32 fifo;   /* what strangers send stays ahead of what comes later */
	__u32 passed_bytes;
	/* ns: the time by which contexts and tags are kept, 0 for the kernel's; a test's clock. */
	__u64 clock;
	/* ns: until then the device is done at once with all that it gets; by user space. */
	__u64 unseen_until;
	/* Gathered frames that its queue refused, of those that leave as copies: only they tell. */
	__u64 refused;
	/* ns: until when what left in place, at whichever gate, keeps it busy, at least. */
	__u64 busy_until;
	__u64 filled; /* slots of queues whose first frame is full, as bits */
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
	__u64 service;    /* ns: what a frame takes the device; written by user space */
	__u64 reaction;   /* ns: what user space takes to look at a question; by user space */
	__u64 probe_at;   /* ns: from then on a packet near the last is a probe; by user space */
	__u32 closed;   /* frames are under way; by user space */
	__u32 hurried;  /* many strangers' frames are in fair queues, too; by user space */
	__u32 credit;   /* full frames that may leave without a tick; by user space */
	__u32 strangers; /* strangers' frames before the last tick that is done; by user space */
	__u32 untracked; /* frames that left with the gate's hash and without a tick */
	__u32 ticks;      /* ticks of this slot that left */
	__u32 ticks_done; /* and whose transmission is over; by user space */
	__u32 left;       /* and the last one that the device has finished with; by user space */
	__u32 gone;       /* `untracked` when that was sent; by user space */
	__u32 hash;       /* flow hash of what is gathered; 0: none yet */
	__u32 turned;     /* the tick with which `seen` began */
	__u32 between;    /* packets between two probes, at least; by user space */
	__u32 in_place;   /* packets that left in place since one was gathered */
	__u32 dense;      /* ns: packets closer than this need none between; by user space */
	__u32 own_at; /* when a packet last left in place with its own hash, as in a flowlet */
	__u32 rests;  /* a full frame is all that may leave; by user space */
	__u64 seen[SEEN]; /* flows that use the gate's hash since then, as bits of their hashes */
	__u64 before[SEEN]; /* and those that used it before: until that tick has left */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct gate);
} gates SEC(".maps");

/* Sets of a gate's flows, as bits of their hashes, and the flows that each has room for: a set is a
 * cache line. Of a hundred and fifty flows five meet in one of a hundred cases; two of them are
 * taken for one then, and go as a dense flow does. */
#define FLOWLET_BITS 9
#define FLOWLET_WAYS 4

/* How packets of a flow follow each other. Times are in units of `FLOWLET_UNIT`. */
struct flowlet {
	__u32 last;  /* when the last one came; the lowest four bits say how sparse they are */
	__u32 own;   /* when one last left with the hash that it has by itself */
	__u32 large; /* when one last was too large to gather */
	__u32 name;  /* other bits of the flow's hash */
};

/* Those of a gate. */
struct flowlets {
	struct flowlet of[(1 << FLOWLET_BITS) * FLOWLET_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct flowlets);
} flowlets SEC(".maps");

/* From here on ids are those of groups. */
#define GROUP_ID 0x80000000U

struct hop {
	__u32 id;
	__u32 min;
	__u16 max; /* 0: this hop cannot split */
	__u8 family; /* 4 or 6; 0: frames of format 2 without a header of IP */
	__u8 ttl; /* 255 towards a neighbour (RFC 5082) */
	__u8 src[16];
	__u8 dst[16];
	__u8 format; /* META, FRAMES or SHORT_HEADERS */
	__u8 mesh;   /* its frames may have Ethernet payloads */
	__u8 pad[2];
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

/* A single packet that is as it was: of IP, or a mesh frame in its block. */
enum plain { NOT_PLAIN = 0, PLAIN_IP = 1, PLAIN_MESH = 2, ANY_PLAIN = PLAIN_IP | PLAIN_MESH };

/* One frame under construction, but for its bytes. */
struct pending {
	__u64 oldest;
	__u64 hash; /* flow hash of its first packet, as are mark and priority */
	__u32 mark, priority;
	__u32 len; /* inner bytes, with the header of format 2 */
	__u32 count; /* packets that end in it */
	__u32 payload; /* and their bytes */
	__u16 offset; /* bytes that continue the last packet of the frame before */
	__u8 tag;	/* of the stream, plus 1; 0: a meta packet */
	__u8 plain;	/* it has nothing but packets as they are: enum plain */
	__u32 writers; /* packets whose bytes are still being copied */
	__u32 taken;   /* its bytes are being read */
};

struct queue {
	struct bpf_spin_lock lock;
	__u32 head, tail; /* frames head..tail wait */
	__u32 bytes, packets;
	__u32 owner_cpu; /* whose tick carries its last frame; else NOBODY */
	__u64 owner_gen, owner_time;
	__u64 flows; /* bits of the flows that are held, and of their pairs of addresses */
	__u64 pairs;
	struct queue_key key;
	struct hop hop;
	__u32 asked; /* user space knows that it wants a tick */
	__u32 emitting; /* a CPU is handing its last frame to the device */
	__u32 dense;	/* a packet of a dense flow waits */
	__u16 tag;	/* of its stream, plus 1; 0: it has none yet */
	__u16 begun;	/* frames of that */
	struct stats stats;
	struct pending pending[RING];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

/* Twice the largest frame: an offset and a length are each below it, which the verifier can see;
 * and between them the header of a cut block. */
struct frame {
	__u8 bytes[HEADROOM + 2 * MAX_META + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS * RING);
	__type(key, __u32);
	__type(value, struct frame);
} frames SEC(".maps");

/* The place of a packet in its queue. */
struct joint {
	__u64 oldest; /* of its frame */
	__u32 ring, at;
	__u32 max;   /* bytes of the largest frame that the packet may be in */
	bool empty;  /* nothing waited before it */
	bool full;   /* its frame takes no other like it */
	bool over;   /* more waits than may */
	bool enough; /* under `forced`: as much as may leave */
};

/* What one CPU is doing. */
struct work {
	__u32 pass;  /* the frame that comes next is finished */
	__u32 carry; /* the next packet is a copy to carry the queue of slot `carry` - 1 */
	__u32 carried; /* and it did */
	__u32 step;  /* what the first program is called for by the second; else 0 */
	__u32 cause;
	__u32 slot;    /* of the queue that the last packet joined */
	/* In memory and not on the stack: the verifier follows each value on the stack, so that
	 * every kind of packet would be another way through all that comes later. */
	struct packet packet;
	struct queue_key key;
	/* For the second program. */
	struct hop hop;
	struct joint joint;
	__u32 waiting;
	bool ready, dense;
	__u64 now;
	struct frame copy;
};

/* The second program takes packets on to format 2: one program would be too much for a verifier,
 * which follows each way through the first half with each one through the second. Steps of the
 * first. */
enum { FROM_START, LEAVE, PASS_ON };
enum { FIRST_PROGRAM, SECOND_PROGRAM, PROGRAMS };

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} work SEC(".maps");

/* How often a CPU has entered the program; alone in its cache line, as every packet writes it. */
struct entry {
	__u64 count;
	__u64 unseen; /* frames that passed unseen, or are gone soon */
	struct coarse clock;
	__u64 asked;	   /* the kernel's tick in which it last asked whether a FIFO is full */
	__u64 asked_count; /* and its count then */
	__u64 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS);
	__type(key, __u32);
	__type(value, struct entry);
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

#endif
