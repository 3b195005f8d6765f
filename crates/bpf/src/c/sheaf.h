/* SPDX-License-Identifier: GPL-2.0 */
/* What the two programs share: helpers for IP bytes, and the layouts that user space mirrors. */
#ifndef SHEAF_H
#define SHEAF_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_LEN 14
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define ETH_P_MESH 0x4305 /* batman-adv */
/* Format 2 right behind the Ethernet header (IEEE 802, local experimental 1). */
#define ETH_P_FRAMES 0x88B5
#define ETH_P_VLAN 0x8100
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_SCTP 132
#define PROTO_META 253
#define V4_LEN 20
#define V6_LEN 40

/* The largest meta packet, outer header included. */
#define MAX_META 2048
/* The most inner packets: as many bare IPv4 headers as fit. */
#define MAX_PACKETS ((MAX_META - V4_LEN) / V4_LEN)

/* Makes the compiler forget what it has concluded about a number. The verifier of an older kernel
 * has not concluded it, or lost it in a call between, and needs the check that would be left out.
 * */
#define FORGET(number) asm volatile("" : "+r"(number))

/* The same number, which is from 1 to `most`, a power of two: so that every verifier sees that it
 * is. */
static __always_inline __u32 within(__u32 number, const __u32 most)
{
	number--;
	FORGET(number);
	number &= most - 1;
	FORGET(number);
	return number + 1;
}

static __always_inline __u16 be16(const __u8 *p)
{
	return (__u16)p[0] << 8 | p[1];
}

static __always_inline void put16(__u8 *p, __u16 value)
{
	p[0] = value >> 8;
	p[1] = value;
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/*
 * Makes `type` the protocol of the packet, for the kernel and in the Ethernet header. Returns 0
 * when it is.
 *
 * No call writes skb->protocol, but who takes a VLAN tag off reads it anew behind the tag. A tag is
 * in the bytes only once a second one follows it, so two are put on, the type behind the first is
 * written, and both are taken off.
 */
static __always_inline long set_protocol(struct __sk_buff *skb, __u16 type)
{
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_VLAN), 0) ?:
	       bpf_skb_vlan_push(skb, bpf_htons(ETH_P_VLAN), 0) ?:
	       bpf_skb_store_bytes(skb, ETH_LEN + sizeof(__u16), &type, sizeof(type), 0) ?:
	       bpf_skb_vlan_pop(skb) ?:
	       bpf_skb_vlan_pop(skb);
}

/* Sum of the ten words of an IPv4 header without options. */
static __always_inline __u32 sum_v4(const __u8 *header)
{
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < V4_LEN; i += 2)
		sum += be16(header + i);
	return sum;
}

#endif
