/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which packets may be gathered, and how large their frames may be.
 */
#ifndef MERGE_CLASSIFY_H
#define MERGE_CLASSIFY_H

#include "maps.h"

enum verdict { PASS, GATHER, ALONE };

static __always_inline enum verdict classify(struct __sk_buff *skb, struct merge_config *config,
					     struct packet *packet, bool large)
{
	enum verdict verdict = PASS;

	if (config->acks && packet->pure_ack && !large)
		return GATHER;
	for (__u32 i = 0; i < RULES; i++) {
		struct rule *rule = &config->rule[i];
		bool any;

		if (i >= config->rules)
			break;
		any = rule->sport_min == 0 && rule->sport_max == 0xffff && rule->dport_min == 0 &&
		      rule->dport_max == 0xffff;
		if (rule->protocol && rule->protocol != packet->protocol)
			continue;
		if (rule->dscp != 255 && rule->dscp != packet->dscp)
			continue;
		if ((skb->mark & rule->mask) != rule->mark)
			continue;
		if (!any && (packet->protocol != PROTO_UDP && packet->protocol != PROTO_TCP))
			continue;
		if (!any && (packet->sport < rule->sport_min || packet->sport > rule->sport_max ||
			     packet->dport < rule->dport_min || packet->dport > rule->dport_max))
			continue;
		if (!large && packet->size <= rule->max_len)
			return GATHER;
		verdict = ALONE;
	}
	return verdict;
}

/* The lowest bit of the size in a mark, and its bits from there on. */
#define SIZE_SHIFT 2
#define SIZE_MASK 0xffff

/* Bytes of the largest frame to `hop` that the packet in hand may be in: under `by_mark` its mark
 * may say less than the next hop takes, as Karlstad's `max 0` had it. Then fewer bytes let its
 * queue leave early, too. */
static __always_inline __u32 largest(struct __sk_buff *skb, const struct merge_config *config,
				     struct hop *hop)
{
	__u32 max = hop->max, size, min;

	if (!config->by_mark)
		return max;
	size = skb->mark >> SIZE_SHIFT & SIZE_MASK;
	if (!size || size >= max)
		return max;
	min = config->share == WHOLE_BYTES ? hop->min : size * config->share / 100;
	hop->min = min < size ? min : size;
	return size;
}

#endif
