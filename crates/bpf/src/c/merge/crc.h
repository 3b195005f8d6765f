/* SPDX-License-Identifier: GPL-2.0 */
/* Checks over as many bytes as a packet has. */
#ifndef MERGE_CRC_H
#define MERGE_CRC_H

#include "../frames.h"

/* CRC-16 of the `*len` bytes at `words`, whole words; `most` is a constant. The length is in
 * memory, where the verifier does not know it: what comes behind the loop is then the same wherever
 * that ends. */
static __always_inline __u16 crc16(const __u32 *words, const volatile __u32 *len, const __u32 most)
{
	__u32 count = *len / 4, rest = CRC16_START;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < most / 4; i++) {
		if (i >= count)
			break;
		rest = crc16_word(rest, words[i]);
	}
	return crc16_of(rest);
}

/* The register of CRC-32 after as many bytes, which need not be whole words. */
static __always_inline __u32 crc32_sum(const struct crc_table *table, const __u32 *words,
				       const volatile __u32 *len, const __u32 most)
{
	__u32 count = *len / 4, sum = CRC32_START, left, at, word;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < most / 4; i++) {
		if (i >= count)
			break;
		sum = crc32_word(table, sum, words[i]);
	}
	left = *len & 3;
	at = *len / 4;
	if (!left || at >= most / 4)
		return sum;
	word = bpf_ntohl(words[at]) ^ sum;
	if (left == 1)
		return sum << 8 ^ table->of[0][word >> 24];
	sum <<= 16;
	if (left == 2)
		return sum ^ table->of[1][word >> 24] ^ table->of[0][word >> 16 & 255];
	return sum << 8 ^ table->of[2][word >> 24] ^ table->of[1][word >> 16 & 255] ^
	       table->of[0][word >> 8 & 255];
}

#endif
