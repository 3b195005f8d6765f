/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Leads the packets of an interface aside, to another interface whose other end is the emulator's.
 *
 * Principle: one program, which user space gives its part before it loads it. Where the part is
 * known, the verifier removes the rest, so a packet passes some ten instructions.
 *
 * What comes back from the emulator bears a mark; it loses that and passes. However the process
 * ends, packets go their old way: on a tcx link the program goes with its process. As a filter of
 * clsact it stays, so it sends a copy and looks whether that went: the other interface vanishes
 * with the process, the copy is refused, and the packet itself passes. (A plain redirection to an
 * interface that is not there drops.) No clock and no heartbeat take part.
 *
 * For kernels from Linux 6.1 on, with and without type information and JIT: no loops, no calls
 * between functions.
 */
#include <linux/pkt_cls.h>
#include "detour.h"
#include "line.h"

/* On to the next program; of clsact, TC_ACT_UNSPEC. */
#define TCX_NEXT -1

/* The part that a program has; the same numbers are in redirect.rs. */
enum part {
	/* Packets that leave: by a redirection, or by a copy. */
	EGRESS,
	EGRESS_COPY,
	/* Packets that arrive. */
	INGRESS,
	INGRESS_COPY,
	/* Packets that come back from the emulator, and are to arrive. */
	ARRIVE,
};

const volatile __u32 part;
/* The interface that packets go to. */
const volatile __u32 to;
/* The mark of packets that come back, and the traffic control index that they get as they arrive:
 * the splitter makes several packets of one behind this program, and these arrive anew. They keep
 * the index of the packet that they came in. */
const volatile __u32 back_mark;
const volatile __u32 back_index;

SEC("classifier")
int sheaf_detour(struct __sk_buff *skb)
{
	bool arrives = part == INGRESS || part == INGRESS_COPY;

	if (part == ARRIVE) {
		skb->mark = back_mark;
		return bpf_redirect(to, BPF_F_INGRESS);
	}
	if (skb->mark == back_mark) {
		skb->mark = 0;
		if (arrives)
			skb->tc_index = back_index;
		return TCX_NEXT;
	}
	/* What the splitter has put into the backlog was here, or the packet that carried it. */
	if (arrives && ((skb->tc_index & OUT_OF_LINE) || skb->tc_index == back_index))
		return TCX_NEXT;
	if (part == EGRESS || part == INGRESS)
		return bpf_redirect(to, 0);
	/* A full queue is a positive number: what is at the detour is not sent twice. */
	return bpf_clone_redirect(skb, to, 0) < 0 ? TCX_NEXT : TC_ACT_STOLEN;
}

char LICENSE[] SEC("license") = "GPL";
