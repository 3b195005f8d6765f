/* SPDX-License-Identifier: GPL-2.0 */
/* Time to a tick, for what needs no better. */
#ifndef CLOCK_H
#define CLOCK_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* What one CPU read last, and in which tick. All zero before. */
struct coarse {
	__u64 tick;
	__u64 ns;
};

/* CLOCK_MONOTONIC in ns, late by two ticks at most. The kernel's coarse clock changes once a tick,
 * but to read it is a call and takes 17 ns, half of what a packet costs that needs nothing else;
 * the number of the tick is a load, which the verifier writes in place. */
static __always_inline __u64 coarse_ns(struct coarse *clock)
{
	__u64 tick = bpf_jiffies64();

	if (clock->tick != tick) {
		/* In this order: what interrupts in between reads again. */
		*(volatile __u64 *)&clock->ns = bpf_ktime_get_coarse_ns();
		*(volatile __u64 *)&clock->tick = tick;
	}
	return clock->ns;
}

#endif
