/* SPDX-License-Identifier: GPL-2.0 */
/* Finds the trunk that a datagram is for, where several share a UDP port.
 *
 * Each trunk is a process with a socket of its own in the port's SO_REUSEPORT group, and has a slot
 * of `sockets`. A frame with an index names the slot in its first bits (sealed.rs in `wire`). An
 * initiation has a tag, SipHash-2-4 of the key behind it; the key of each trunk's tags is in its
 * slot of `keys`. What is nobody's goes to whichever socket the kernel chooses, whose trunk refuses
 * and counts it, as it would alone on the port.
 */
#include "sheaf.h"

/* As SLOTS in sealed.rs. */
#define SLOTS 64
/* Bits of the first byte of an index below the slot. */
#define SLOT_SHIFT 2
/* Bytes of the UDP header, with which the data begins. */
#define UDP_LEN 8
#define SEALED 0xf0
#define INITIATION 0xf1
#define RESPONSE 0xf3
/* Words of 64 bits of the key of X25519, and of SipHash: one more, for the length. */
#define KEY_WORDS 4
#define WORDS 5
/* Rounds of SipHash-2-4: two for each word, four at the end. */
#define ROUNDS (2 * WORDS + 4)

struct words {
	__u64 word[2];
};

struct header {
	__u8 udp[UDP_LEN];
	__u8 kind;
	__u8 index[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, SLOTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct words);
} keys SEC(".maps");

/* SipHash reads its words from the lowest byte up. */
static __always_inline __u64 little_endian(__u64 word)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	return __builtin_bswap64(word);
#else
	return word;
#endif
}

static __always_inline __u64 rotate(__u64 word, int by)
{
	return word << by | word >> (64 - by);
}

static __always_inline __u64 siphash(const struct words *key, const __u64 *words)
{
	__u64 a = key->word[0] ^ 0x736f6d6570736575, b = key->word[1] ^ 0x646f72616e646f6d;
	__u64 c = key->word[0] ^ 0x6c7967656e657261, d = key->word[1] ^ 0x7465646279746573;

#pragma clang loop unroll(disable)
	for (__u32 round = 0; round < ROUNDS; round++) {
		__u32 at = round / 2;

		if (at < WORDS && round % 2 == 0)
			d ^= words[at];
		a += b;
		b = rotate(b, 13) ^ a;
		a = rotate(a, 32);
		c += d;
		d = rotate(d, 16) ^ c;
		a += d;
		d = rotate(d, 21) ^ a;
		c += b;
		b = rotate(b, 17) ^ c;
		c = rotate(c, 32);
		if (at < WORDS && round % 2 == 1)
			a ^= words[at];
		if (round == 2 * WORDS - 1)
			c ^= 0xff;
	}
	return a ^ b ^ c ^ d;
}

SEC("sk_reuseport")
int sheaf_port(struct sk_reuseport_md *ctx)
{
	struct header header;
	__u64 words[WORDS];
	__u32 slot;

	if (bpf_skb_load_bytes(ctx, 0, &header, sizeof(header)))
		return SK_PASS;
	if (header.kind < SEALED || header.kind > RESPONSE)
		return SK_PASS;
	if (header.kind != INITIATION) {
		slot = header.index[0] >> SLOT_SHIFT;
		bpf_sk_select_reuseport(ctx, &sockets, &slot, 0);
		return SK_PASS;
	}
	if (bpf_skb_load_bytes(ctx, sizeof(header), words, 8 * KEY_WORDS))
		return SK_PASS;
	for (int at = 0; at < KEY_WORDS; at++)
		words[at] = little_endian(words[at]);
	words[KEY_WORDS] = 8ULL * KEY_WORDS << 56;
	for (__u32 at = 0; at < SLOTS; at++) {
		struct words *key;
		__u64 tag;

		slot = at;
		key = bpf_map_lookup_elem(&keys, &slot);
		/* A slot that was never used. */
		if (!key || !(key->word[0] | key->word[1]))
			continue;
		tag = siphash(key, words);
		if ((__u8)tag != header.index[0] || (__u8)(tag >> 8) != header.index[1] ||
		    (__u8)(tag >> 16) != header.index[2])
			continue;
		/* It fails where the trunk has ended: the kernel takes closed sockets out. */
		if (!bpf_sk_select_reuseport(ctx, &sockets, &slot, 0))
			break;
	}
	return SK_PASS;
}

char LICENSE[] SEC("license") = "GPL";
