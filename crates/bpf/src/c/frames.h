/* SPDX-License-Identifier: GPL-2.0 */
/* Format 2 as both programs need it: layouts of frames, blocks and contexts (`aggfrag` and
 * `compress` of the wire crate), and the checks. */
#ifndef FRAMES_H
#define FRAMES_H

#include "sheaf.h"

/* The largest payload behind an outer header; a block is no longer either. */
#define MAX_FRAME MAX_META
#define MAX_BLOCKS 64
/* First byte of a payload. */
#define SUB_TYPE_FRAME 0
#define SUB_TYPE_FEEDBACK 2
/* Bytes before the blocks, before the part of a cut block, and before a packet that defines. */
#define FRAME_HEADER 4
#define CUT_HEADER 6
#define DEFINITION_HEADER 4
/* Bytes before an Ethernet payload: the length, and its EtherType. */
#define ETHERNET_HEADER 4
/* Below it a type field is a length (IEEE 802.3, clause 3.2.6). */
#define LEAST_TYPE 0x600
/* Bytes of compressed headers, without the fields that the flags of the long form announce. */
#define COMPACT_HEADER 4
#define LONG_HEADER 5

/* First nibbles of blocks; 4 and 6 are packets, and from COMPACT on all are compact. */
enum block_kind { PAD = 0, ETHERNET = 2, CUT = 8, DEFINITION = 9, LONG = 10, COMPACT = 12 };

/* Kinds as a set of bits, asked for by one branch. */
#define IS_PACKET(kind) (0x0050 >> (kind) & 1)
/* Those of frames to groups: packets and pads. */
#define IS_OF_GROUPS(kind) (0x0051 >> (kind) & 1)
#define IS_COMPRESSED(kind) (0xf400 >> (kind) & 1)

/* Flags of the long form. */
#define FLAG_MARKER 8
#define FLAG_LENGTH 4
#define FLAG_TIMESTAMP 2
#define FLAG_ID 1

/* Rules by which the identification of IPv4 is restored; one of them is odd. */
enum id_rule { ID_CONSTANT, ID_FOLLOWS, ID_EXPLICIT };

/* A counter, and the time stamp of the packet that had it. */
struct base {
	__u32 timestamp;
	__u16 counter, pad;
};

/* Messages of contexts. */
#define MAX_ITEMS 32
#define MAX_FEEDBACK (2 + 8 * MAX_ITEMS)

/* Headers of a packet in memory: IPv4 begins at V4_AT, IPv6 at 0, so that UDP and RTP are always
 * at the same place. */
#define V4_AT 20
#define UDP_AT 40
#define RTP_AT 48
#define RTP_END 60
/* Version 2 without padding, extension and contributing sources (RFC 3550). */
#define RTP_FIRST 0x80
#define RTP_MARKER 0x80

/*
 * Choices without branches. The verifier follows one way to the end, over all turns of a loop,
 * before it tries another, and may not have 8192 branches behind it then; and of two ways it has
 * to see that they lead to the same. Compilers make branches of such choices if they are not kept
 * from understanding them (FORGET).
 */

/* All ones if the number is below 0, else 0. */
static __always_inline __u32 if_negative(__s32 number)
{
	FORGET(number);
	number >>= 31;
	FORGET(number);
	return number;
}

/* All ones if the lowest bit is set, else 0. */
static __always_inline __u32 if_odd(__u32 bits)
{
	bits = -(bits & 1);
	FORGET(bits);
	return bits;
}

/* A length of 1 up to `most`, a power of two, which an older verifier sees to be so, too: it learns
 * nothing from a comparison with 0. */
#define LENGTH(len, most)                                                                          \
	({                                                                                         \
		__u32 but_one = (len) - 1;                                                         \
		FORGET(but_one);                                                                   \
		(but_one & ((most) - 1)) + 1;                                                      \
	})

/*
 * CRC-16, four bytes at a time and without a table, which would take 64 lines of cache and more
 * time. The register is the remainder of what was read by the square of the generator
 * x^16 + x^12 + x^5 + 1. That has as few terms, since over GF(2) a square is the sum of the terms'
 * squares: x^32 + x^24 + x^10 + 1.
 *
 * The start is the number that inverts the first two bytes, as a start with ones does.
 */
#define CRC16_START 0x03fcff0f

/* The register after four bytes, as they are in memory. What is shifted out of 32 bits comes in
 * again by the lower terms, up to three times. */
static __always_inline __u32 crc16_word(__u32 rest, __u32 word)
{
	__u32 second = rest >> 8 ^ rest >> 22, third = second >> 8 ^ second >> 22;
	__u32 quotient = rest ^ second ^ third ^ third >> 8;

	return bpf_ntohl(word) ^ quotient ^ quotient << 10 ^ quotient << 24;
}

/* CRC-16 by its register at the end: times x^16, and then the remainder by the generator itself. */
static __always_inline __u16 crc16_of(__u32 rest)
{
	__u32 first = rest >> 16, quotient = first ^ first >> 8, second, third;

	rest = rest << 16 ^ quotient ^ quotient << 10 ^ quotient << 24;
	first = rest >> 16;
	second = first >> 4 ^ first >> 11;
	third = second >> 4 ^ second >> 11;
	quotient = first ^ second ^ third ^ third >> 4;
	return rest ^ quotient ^ quotient << 5 ^ quotient << 12;
}

/*
 * CRC-32, four bytes at a time. The first bit of the data is on top of the register, which has the
 * bytes of the check swapped. User space writes the table: in the object it would not be packed.
 */
#define CRC32_START 0xffffffff

struct crc_table {
	/* What a byte becomes in the register with up to three zeros behind it. */
	__u32 of[4][256];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct crc_table);
} crc_table SEC(".maps");

/* The register after four bytes, as they are in memory. */
static __always_inline __u32 crc32_word(const struct crc_table *crc, __u32 sum, __u32 word)
{
	word = bpf_ntohl(word) ^ sum;
	sum = word >> 24;
	FORGET(sum);
	/* Masked last: an older verifier forgets the bounds of what is combined by XOR. */
	return crc->of[3][sum & 255] ^ crc->of[2][word >> 16 & 255] ^
	       crc->of[1][word >> 8 & 255] ^ crc->of[0][word & 255];
}

/* The register after one byte. */
static __always_inline __u32 crc32_byte(const struct crc_table *crc, __u32 sum, __u8 byte)
{
	__u32 index = sum >> 24 ^ byte;

	FORGET(index);
	return sum << 8 ^ crc->of[0][index & 255];
}

/* CRC-32 by its register at the end. */
static __always_inline __u32 crc32_of(__u32 sum)
{
	return __builtin_bswap32(~sum);
}

/* Folds a sum of words of 32 bits. */
static __always_inline __u16 fold64(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return fold((sum & 0xffff) + (sum >> 16));
}

/* The check of a packet: its headers' CRC, which each generation of a context shuffles one to one.
 * Both factors are odd: the golden ratio's and that of MurmurHash 3. */
static __always_inline __u16 shuffle(__u16 crc, __u16 generation)
{
	__u16 mixed = (crc ^ generation) * 0x9e37U;

	mixed ^= mixed >> 8;
	mixed += generation << 5 | generation >> 11;
	mixed *= 0x85ebU;
	return mixed ^ mixed >> 7;
}

/* The finalizer of SplitMix64. */
static __always_inline __u64 mix(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

#endif
