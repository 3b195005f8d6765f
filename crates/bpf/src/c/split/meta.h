/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Format 1: complete packets, one behind the other.
 */
#ifndef SPLIT_META_H
#define SPLIT_META_H

#include "deliver.h"

/* Reads the first bytes of the inner packet at `at`, of which `left` bytes remain. Returns its
 * length, or below 0 why it is refused. */
static __always_inline __s32 read_inner(struct __sk_buff *skb, struct work *work, __u32 at,
					__u32 left, bool first)
{
	const __u8 *head = work->head;
	__u32 header, len;

	if (left < V4_LEN || bpf_skb_load_bytes(skb, at, work->head, V4_LEN))
		return first ? -TRUNCATED : -TRAILING;
	if (head[0] >> 4 == 4) {
		header = (head[0] & 0xf) * 4;
		len = be16(head + 2);
		if (header < V4_LEN)
			return -BAD_VERSION;
		if (header > left)
			return -TRUNCATED;
		if (len < header)
			return -BAD_VERSION;
		if (head[9] == PROTO_META && len <= left)
			return -NESTED;
	} else if (head[0] >> 4 == 6) {
		len = V6_LEN + be16(head + 4);
		if (head[6] == PROTO_META && len <= left)
			return -NESTED;
	} else {
		return -BAD_VERSION;
	}
	return len > left ? -TRUNCATED : (__s32)len;
}

/* First pass: checks that inner packets tile the `left` bytes before `end`. Returns 0 or why not.
 * */
static __always_inline int check_inner(struct __sk_buff *skb, struct work *work, __u32 left,
				       __u32 end)
{
	if (!left)
		return TRUNCATED;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_PACKETS; i++) {
		__s32 len = forget(skb, read_inner(skb, work, end - left, left, i == 0));

		if (len < 0)
			return -len;
		left = forget(skb, left - len);
		if (!left)
			return 0;
	}
	return TRAILING;
}

/*
 * Second pass: strips what is in front of the next inner packet and re-injects a copy of the rest,
 * which the IP layer trims.
 */
static __always_inline void deliver_inner(struct __sk_buff *skb, struct work *work, __u32 left)
{
	/* Of the outer header, an IPv6 one already cut to this length. */
	__u32 strip = V4_LEN;
	struct line *line = begin_line(skb);

	if (!line)
		return;
	work->outer_ecn = work->ecn;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_PACKETS; i++) {
		__s32 len = forget(skb, read_inner(skb, work, ETH_LEN + strip, left, false));

		if (len < 0 || bpf_skb_adjust_room(skb, -(__s32)strip, BPF_ADJ_ROOM_MAC, 0)) {
			work->failed++;
			break;
		}
		deliver(skb, work, line, len);
		strip = len;
		left = forget(skb, left - len);
		if (!left)
			break;
	}
}

#endif
