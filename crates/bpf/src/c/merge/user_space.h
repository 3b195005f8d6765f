/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Words to the controller in user space: events, which wake it where they must, and the heartbeat.
 */
#ifndef MERGE_USER_SPACE_H
#define MERGE_USER_SPACE_H

#include "maps.h"

/* After so long without a look at a question, user space hangs: longer than a busy machine keeps a
 * real-time thread from running, and shorter than a listener notices (ITU-T G.114). In ns. */
#define PATIENCE 20000000

/* Waking user space costs more than gathering a dozen packets: it is done only for what cannot wait
 * until user space looks by itself, and while it has been woken for nothing else. */
static __always_inline void tell(struct device *device, __u32 kind, __u32 slot, __u64 oldest,
				 bool wake)
{
	struct event event = { .kind = kind, .slot = slot, .oldest = oldest };
	bool first = wake && !device->asked_at;

	/* Racing CPUs write nearly the same time. Before the event: user space takes the question
	 * back first and reads the events then. */
	if (first)
		device->asked_at = bpf_ktime_get_ns();
	bpf_ringbuf_output(&events, &event, sizeof(event),
			   first ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	/* It took the other question back meanwhile, and may have read the events before this
	 * one. */
	if (wake && !first && !device->asked_at) {
		device->asked_at = bpf_ktime_get_ns();
		bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_FORCE_WAKEUP);
	}
}

/* The queue in `slot` may leave, but nothing in hand can carry it. */
static __always_inline void tell_carrier(struct device *device, struct queue *queue, __u32 slot)
{
	if (__sync_lock_test_and_set(&queue->asked, 1) == 0)
		tell(device, CARRIER, slot, 0, true);
}

/* Whether user space has left a question open for too long. */
static __always_inline bool hangs(struct device *device, __u64 now)
{
	__u64 asked = device->asked_at, look = device->look_at;

	/* Signed: clocks of two CPUs may differ a little. */
	return (asked && (__s64)(now - asked) > PATIENCE) ||
	       (look != ~0ULL && (__s64)(now - look) > PATIENCE);
}

#endif
