/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Cyclic redundancy checks, four bytes at a time. User space fills the tables, because they would
 * be a tenth of the object.
 */
#ifndef MERGE_CRC_H
#define MERGE_CRC_H

#include "maps.h"

/* Both checks have the first bit of the data on top of a register of 32 bits: CRC-16 in its upper
 * half, CRC-32 with its bytes swapped. */
enum { CRC_16, CRC_32, CRCS };
#define CRC_16_START 0xffff0000
#define CRC_32_START 0xffffffff

/* What a byte becomes in the register with `after` zeros behind it. */
struct crc_table {
	__u32 of[4][256];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CRCS);
	__type(key, __u32);
	__type(value, struct crc_table);
} crc_tables SEC(".maps");

/* The register after `*len` bytes at `words`; `most` is a constant. The length is in memory, where
 * the verifier does not know it: what comes behind the loop is then the same wherever that ends. */
static __always_inline __u32 crc_of(const struct crc_table *table, __u32 crc, const __u32 *words,
				    const volatile __u32 *len, const __u32 most)
{
	__u32 count = *len / 4, left, at, word;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < most / 4; i++) {
		if (i >= count)
			break;
		word = bpf_ntohl(words[i]) ^ crc;
		crc = table->of[3][word >> 24] ^ table->of[2][word >> 16 & 255] ^
		      table->of[1][word >> 8 & 255] ^ table->of[0][word & 255];
	}
	left = *len & 3;
	at = *len / 4;
	if (!left || at >= most / 4)
		return crc;
	word = bpf_ntohl(words[at]) ^ crc;
	if (left == 1)
		return crc << 8 ^ table->of[0][word >> 24];
	crc <<= 16;
	if (left == 2)
		return crc ^ table->of[1][word >> 24] ^ table->of[0][word >> 16 & 255];
	return crc << 8 ^ table->of[2][word >> 24] ^ table->of[1][word >> 16 & 255] ^
	       table->of[0][word >> 8 & 255];
}

#endif
