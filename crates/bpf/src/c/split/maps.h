/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the splitting program keeps: its settings, senders, counters, and the streams of format 2.
 */
#ifndef SPLIT_MAPS_H
#define SPLIT_MAPS_H

#include "../frames.h"

#define CPUS 256 /* a power of two */

/* Order and meaning as enum Refusal of the wire crate, then what only this program counts, then as
 * enum aggfrag::Refusal, and then as struct Received of the aggregate crate. */
enum count {
	NOT_META,
	TRUNCATED,
	TRAILING,
	NESTED,
	BAD_VERSION,
	BAD_CHECKSUM,
	UNKNOWN_PEER,
	OPTIONS,
	FRAGMENT,
	OVERSIZED,
	NOT_FROM_THE_LINK,
	META_PACKETS,
	PACKETS,
	ECN_NOT_CAPABLE,
	ONLY_NEIGHBOURS_SAY,
	NOT_OURS,
	REINJECT_FAILED,
	FRAME_SUB_TYPE,
	FRAME_TRUNCATED,
	FRAME_OVERSIZED,
	FRAME_EMPTY,
	FRAME_TOO_MANY,
	FRAME_UNKNOWN_BLOCK,
	FRAME_BAD_PACKET,
	FRAME_NESTED,
	FRAME_PADDING,
	FRAME_BAD_CUT,
	FRAME_BAD_DEFINITION,
	FRAME_BAD_FEEDBACK,
	FRAME_DUPLICATE,
	FRAME_TOO_MANY_STREAMS,
	FRAME_GROUP,
	FRAMES,
	MISSING,
	LATE,
	UNJOINED,
	UNRESTORED,
	NO_CONTEXT, /* definitions for which there was no room */
	COUNTS,
};

/* What a sender may be. Bits, as an address may be both. */
#define NEIGHBOUR 1
#define FAR_END 2

struct split_config {
	/* Every address may be a neighbour. */
	__u32 any;
	/* Families of which `own` has all addresses: 4 and 6 as bits 0 and 1. */
	__u32 own_known;
	/* Order of the generations of contexts. */
	__u64 secret;
	/* Format 2 is taken. */
	__u32 frames;
	/* Streams and contexts of senders without a name that user space has removed so far. */
	__u32 streams_swept, contexts_swept;
	/* And without a header of IP, too. */
	__u32 link;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct split_config);
} split_config SEC(".maps");

/* IPv6, or IPv4 mapped into it. */
struct address {
	__u8 bytes[16];
};

/* Who may send meta packets: NEIGHBOUR, FAR_END or both. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} peers SEC(".maps");

/* This host's addresses, for destinations of which the routing tables do not say whose they are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} own SEC(".maps");

/* When the last frame came from each host that user space has named; in ns, 0 before the first. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u64);
} heard SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* What a CPU has put into its backlog, and what has come out. */
struct line {
	__u32 in, out;
	__u64 last; /* ns: when something was put in */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS);
	__type(key, __u32);
	__type(value, struct line);
} lines SEC(".maps");

/*
 * Streams of format 2, of all senders together: 16 neighbours with all their tags. Memory is taken
 * when a stream comes. A sender that the configuration does not name cannot have the last places,
 * so one that invents others leaves room for the named ones. User space removes what is silent.
 */
#define STREAMS 256
#define STREAMS_UNNAMED 192
/* Contexts of all streams, and those that senders without a name can have. */
#define CONTEXTS 4096
#define CONTEXTS_UNNAMED 3072

/* The lowest bit of a stream's number: the configuration names the sender. */
#define NAMED 1

struct stream_name {
	struct address source, destination;
	__u32 tag;
};

struct stream {
	__u8 bytes[MAX_FRAME]; /* of a block that goes on in the next frame */
	__u64 last; /* ns: when the last frame came */
	__u32 id;
	__u32 check; /* CRC-32 of that block */
	__u16 len, have; /* its bytes, or 0 without one, and those that are here */
	__u8 ecn; /* under which it travelled */
	__u8 started; /* a frame has come */
	__u8 newest;
	__u8 defined; /* a context was defined */
	__u32 seen[256]; /* fingerprint of the frame that had each number last; 0: none */
	__u16 lens[256]; /* 1 more than the payload's length that a context stands for; 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, STREAMS);
	__type(key, struct stream_name);
	__type(value, struct stream);
} streams SEC(".maps");

/* A stream as it begins; never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream);
} blank SEC(".maps");

struct context_name {
	__u32 stream; /* its number */
	__u32 number;
};

/* What the packets of a flow have in common, and where the flow is. */
struct context {
	__u64 template[8]; /* headers, with zeros where a field is not constant */
	struct base lines[2]; /* since the last jump of the time stamp, and before it */
	__u32 sum; /* of what UDP's checksum covers and is constant */
	__u32 ip_sum; /* of what IPv4's covers and is constant */
	__u16 newest;
	__u16 generation;
	__u16 payload_len;
	__u16 id; /* identification, less the counter where it follows that */
	__u16 stride;
	__u8 start, end; /* of the headers in the template */
	__u8 rule;
	__u8 rtp;
	__u8 pad[2];
	__u32 check; /* CRC-32 of the constants */
	__u32 pad2;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CONTEXTS);
	__type(key, struct context_name);
	__type(value, struct context);
} contexts SEC(".maps");

/* What was made so far, modulo 2^32. */
struct made {
	__u32 ids;
	__u32 generations;
	/* Of senders without a name. */
	__u32 streams, contexts;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct made);
} made_so_far SEC(".maps");

enum item_kind { KNOWN = 1, UNKNOWN = 2, LOST = 3 };

/* A statement for the sender of a stream. */
struct item {
	__u8 kind;
	__u8 number;
	__u16 generation;
	__u32 check;
};

/* Definitions of one frame that count: as many as voice packets in the largest. What others define
 * is delivered as the packets that they are, and defined again as long as nothing is said of it. */
#define DEFINITIONS 32

struct definition {
	__u16 at, len; /* of its packet */
	__u8 implied; /* whether a block before it had the length of its context */
	__u8 blocks, items; /* that were found before it */
	__u8 pad;
};

/* Every block may have one, so may a block in parts, and the end of the frame. */
#define ITEMS (MAX_BLOCKS + 2)

/* To say are items, as they come and maybe several times; heard was a message, as it came. */
enum event_kind { TO_SAY, HEARD };

struct event {
	struct stream_name stream;
	__u32 kind;
	__u32 count; /* of items, or of bytes */
	union {
		struct item items[ITEMS];
		__u8 message[MAX_FEEDBACK];
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

/* Place of a frame in `bytes`. Before it, from 0 on, is a block that was joined. */
#define START MAX_FRAME
/* Room in front of that: headers are read from V4_AT bytes before a packet. */
#define MARGIN 64

/*
 * The meta packet or frame that a CPU takes apart.
 *
 * What changes from packet to packet is kept here, and volatile: of a number in memory the verifier
 * knows nothing, so it takes all ways through a turn of a loop for one. It would know numbers on
 * the stack, keys of maps among them.
 */
struct work {
	__u8 bytes[2 * MARGIN + 4 * MAX_FRAME];
	volatile __u32 cursor, limit; /* the block that is looked at begins there; the last ends */
	volatile __u32 count; /* blocks that were found */
	volatile __u32 joined; /* bytes of the first block, which is joined from two frames */
	volatile __u32 unjoined, unknown_joined;
	volatile __u32 implied; /* the length of a block was that of its context */
	volatile __u32 unknown; /* 1 more than the number of a context that is not known */
	volatile __u32 ended; /* 1 more than the kind of block that ended the frame */
	volatile __u32 doubt, doubt_from; /* behind a packet that was not restored; its item */
	volatile __u32 doubtful; /* the frame, for a fault behind a packet of implied length */
	volatile __u32 payload, payload_len; /* of the packet in hand, behind its headers */
	volatile __u32 ethernet; /* it is not of IP */
	volatile __u32 start, header_len; /* of its restored headers */
	volatile __u32 group; /* of the frame to one: 4 or 6, as IP's version; else 0 */
	volatile __u32 far, named, ecn, ecn_joined;
	volatile __u32 len, offset, sequence, print; /* of the frame */
	volatile __u32 follows; /* it continues the block of which a part is in the stream */
	volatile __u32 late;
	volatile __u32 cut_len, cut_check, cut_have; /* of the block that goes on in the next one */
	volatile __u32 unrestored;
	volatile __u32 packets, not_capable, not_believed, failed; /* what became of inner ones */
	/* The block in hand. */
	volatile __u32 block, block_end;
	/* Of its compressed header. */
	volatile __u32 number, flags, low_bits, mask, before, check, header;
	/* Of the packet that it stands for. */
	volatile __u32 counter, timestamp, expected, udp_sum, crc;
	volatile __u32 sum, sum_at, sum_left; /* being computed */
	volatile __u32 result, outer_ecn, before_ecn, new_ecn;
	volatile __u32 first; /* of the blocks that is delivered */
	volatile __u16 at[256], ends[256]; /* of the blocks */
	__u8 head[24]; /* of the packet in hand, V4_LEN bytes */
	__u8 peek[4];
	__u8 to[16]; /* the group */
	struct address from; /* source of the outer header */
	__u16 type;
	__u32 zero; /* the key of maps with one value; never written */
	__u64 secret; /* as in the settings, and so is the next */
	__u32 contexts_swept;
	volatile __u32 no_context;
	volatile __u32 definitions, next_definition, bad;
	volatile __u32 why; /* the frame is refused */
	struct definition defined[DEFINITIONS];
	struct context contexts[DEFINITIONS];
	struct context_name name;
	struct event event;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} work SEC(".maps");

/* Headers of one packet. Writing the map copies as many bytes from where the packet lies. */
struct headers {
	__u8 bytes[128];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headers);
} headers_of_one SEC(".maps");

static __always_inline void count(__u32 what, __u64 times)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &what);

	if (value)
		*value += times;
}

static __always_inline int refuse(__u32 why)
{
	count(why, 1);
	return TC_ACT_SHOT;
}

/*
 * Returns `value`, of which the verifier then knows nothing. It follows a loop turn by turn, and
 * takes two ways through a turn for one only where they leave the same behind; a length that it
 * knows to be 20 or more on one way and 40 or more on the other doubles its work with each turn.
 */
static __always_inline __s32 forget(struct __sk_buff *skb, __s32 value)
{
	volatile __u32 *cell = &skb->cb[0];

	*cell = value;
	return *cell;
}

#endif
