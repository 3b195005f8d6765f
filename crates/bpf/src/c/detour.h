/* SPDX-License-Identifier: GPL-2.0 */
/* Packets that `sheaf emulate dev` put back on the interface that it took them from. */
#ifndef DETOUR_H
#define DETOUR_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

/* The mark of such packets, but for the number of their emulator (redirect.rs). */
#define DETOUR_MARK 0x5aeaf000
#define DETOUR_MASK 0xfffff000

/* They pass the egress hook for the second time: every other program of ours has seen them. */
static __always_inline bool is_back_from_detour(struct __sk_buff *skb)
{
	return (skb->mark & DETOUR_MASK) == DETOUR_MARK;
}

#endif
