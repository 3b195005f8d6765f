/* SPDX-License-Identifier: GPL-2.0 */
/* Checks over as many bytes as a packet has. */
#ifndef MERGE_CRC_H
#define MERGE_CRC_H

#include "../frames.h"

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
		crc = crc_word(table, crc, words[i]);
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
