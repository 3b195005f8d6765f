/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers of a packet at the merging program.
 *
 * Read in place, without a helper call for each header: calls took a fifth of the program's time.
 */
#ifndef PACKET_H
#define PACKET_H

#include "sheaf.h"
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stddef.h>

struct mac {
	__u8 bytes[6];
	__u8 pad[2];
};

struct prefix {
	__u32 len;
	__u32 address[4]; /* as on the cable */
};

/* Unicast frames of batman-adv (linux/batadv_packet.h): their type and version, bytes with the
 * Ethernet header inside, and what the mesh adds to priorities of 802.1D. */
#define MESH_UNICAST 0x40
#define MESH_VERSION 15
#define MESH_LEN (10 + ETH_LEN)
#define MESH_PRIORITIES 256

/* What may happen to a packet. */
enum kind {
	OPAQUE,   /* Neither IP to a host or a group that we care for, nor a mesh frame: never
		   * ours. */
	PORTLESS, /* A fragment, a meta packet, IPv4 options, IPv6 extension headers, a mesh frame
		   * without UDP or TCP in it: compared by its addresses. */
	LARGE,    /* A super-packet (GSO): never gathered, but it has ports. */
	WHOLE,    /* May be gathered. */
};

/* The packet in hand. */
struct packet {
	__u32 len; /* bytes behind the Ethernet header */
	__u32 size; /* of the IP packet */
	__u32 transport;
	__u16 sport, dport;
	__u8 v6, protocol, dscp, ecn;
	__u8 class; /* of its queue: its DSCP, or that of a mesh frame's priority */
	bool mesh;  /* a frame of batman-adv, with an IP packet in it or without */
	bool group; /* to a group */
	bool unfinished; /* its checksum is left to the device */
	bool pure_ack;
	__u64 flow; /* hash of addresses, protocol and ports */
	__u64 pair; /* hash of the addresses */
	struct mac mac;
	struct mac via; /* of its next hop: all groups of a family have one */
	struct prefix to;
};

/* Multiplier of the flow hash: 2^64 divided by the golden ratio (Knuth, TAOCP 3, section 6.4). */
#define GOLDEN 0x9e3779b97f4a7c15ULL

/* The bit that stands for a hash in a set of 64. */
static __always_inline __u64 bit_of(__u64 hash)
{
	return 1ULL << (hash >> 58);
}

/* A pointer of the context. In assembler: the compiler would keep it as the 32 bits that the
 * context shows, and the verifier would no longer know it for a pointer. */
#define POINTER(skb, field)                                                                        \
	({                                                                                         \
		void *pointer;                                                                     \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                              \
			     : "=r"(pointer)                                                       \
			     : "r"(skb), "i"(offsetof(struct __sk_buff, field)));                  \
		pointer;                                                                           \
	})

/* The `size` bytes from `at` on, read in place; NULL when there are not so many. */
static __always_inline void *bytes_at(struct __sk_buff *skb, __u32 at, __u32 size)
{
	void *data = POINTER(skb, data);

	if (data + at + size > POINTER(skb, data_end)) {
		/* They lie beyond the linear part; rare, and dear. */
		if (bpf_skb_pull_data(skb, at + size))
			return NULL;
		data = POINTER(skb, data);
		if (data + at + size > POINTER(skb, data_end))
			return NULL;
	}
	return data + at;
}

/* IPv6 next headers behind which a transport header may stand (RFC 8200, section 4; RFC 6275). */
static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == 0 || protocol == 43 || protocol == 44 || protocol == 60 ||
	       protocol == 135 || protocol == 139 || protocol == 140;
}

/* Hashes a flow and its pair of addresses, of which there are so many words. */
static __always_inline void hash_flow(struct packet *packet, const __u32 *words, __u32 addresses)
{
	packet->flow = (__u64)packet->protocol << 32 | (__u32)packet->sport << 16 | packet->dport;
#pragma unroll
	for (__u32 i = 0; i < 8; i++) {
		if (i < addresses) {
			packet->flow = (packet->flow ^ bpf_ntohl(words[i])) * GOLDEN;
			packet->pair = (packet->pair ^ bpf_ntohl(words[i])) * GOLDEN;
		}
	}
}

/*
 * Reads the headers of a frame of batman-adv: those of the mesh, and of a packet of UDP or TCP in
 * it, whose flow and class it has.
 *
 * All frames to one neighbour count as one pair of addresses, because parts of packets are among
 * them that do not show their flow.
 */
static __always_inline enum kind read_mesh(struct __sk_buff *skb, struct packet *packet)
{
	__u32 words[8] = {}, addresses, priority = skb->priority - MESH_PRIORITIES, ports;
	const __u8 *head = bytes_at(skb, ETH_LEN, MESH_LEN + V4_LEN + 4), *transport;
	__u8 class;

	packet->mesh = true;
	packet->len = skb->len - ETH_LEN;
	packet->class = priority < 8 ? priority << 3 : 0;
	if (!head || head[0] != MESH_UNICAST || head[1] != MESH_VERSION)
		return PORTLESS;
	if (be16(head + MESH_LEN - 2) == ETH_P_IP) {
		const struct iphdr *ip = (void *)(head + MESH_LEN);

		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff))
			return PORTLESS;
		packet->protocol = ip->protocol;
		class = ip->tos;
		packet->size = bpf_ntohs(ip->tot_len);
		packet->transport = MESH_LEN + V4_LEN;
		words[0] = ip->saddr;
		words[1] = ip->daddr;
		addresses = 2;
		transport = head + MESH_LEN + V4_LEN;
	} else if (be16(head + MESH_LEN - 2) == ETH_P_IPV6) {
		const __u32 *ip;

		head = bytes_at(skb, ETH_LEN, MESH_LEN + V6_LEN + 4);
		if (!head || head[MESH_LEN] >> 4 != 6)
			return PORTLESS;
		ip = (void *)(head + MESH_LEN);
		packet->protocol = ((struct ipv6hdr *)ip)->nexthdr;
		class = bpf_ntohl(ip[0]) >> 20;
		packet->size = V6_LEN + bpf_ntohs(((struct ipv6hdr *)ip)->payload_len);
		packet->transport = MESH_LEN + V6_LEN;
#pragma unroll
		for (int i = 0; i < 8; i++)
			words[i] = ip[2 + i];
		addresses = 8;
		transport = head + MESH_LEN + V6_LEN;
	} else {
		return PORTLESS;
	}
	if (packet->protocol != PROTO_UDP && packet->protocol != PROTO_TCP)
		return PORTLESS;
	if (MESH_LEN + packet->size > packet->len ||
	    MESH_LEN + packet->size < packet->transport + sizeof(struct udphdr))
		return PORTLESS;
	ports = *(__u32 *)transport;
	packet->sport = bpf_ntohs(ports);
	packet->dport = bpf_ntohs(ports >> 16);
	packet->dscp = class >> 2;
	hash_flow(packet, words, addresses);
	packet->pair = 0;
	if (packet->protocol == PROTO_TCP) {
		const struct tcphdr *tcp = addresses == 2 ?
			bytes_at(skb, ETH_LEN + MESH_LEN + V4_LEN, 20) :
			bytes_at(skb, ETH_LEN + MESH_LEN + V6_LEN, 20);

		packet->pure_ack = tcp && ((__u8 *)tcp)[13] == 0x10 &&
				   packet->transport + tcp->doff * 4 == MESH_LEN + packet->size;
	}
	return WHOLE;
}

/* First octets of link addresses of groups, by family, and the widest scope of IPv6 that is no more
 * than a link. */
#define V4_GROUP_LINK 0x01
#define V6_GROUP_LINK 0x33
#define V6_LINK_SCOPE 2

/* The packet goes to a group. The next hop of all groups of a family has the link address that only
 * begins as theirs do. */
static __always_inline void go_via_groups(struct packet *packet, __u8 a, __u8 b, __u8 c)
{
	__u8 *via = packet->via.bytes;

	via[0] = a;
	via[1] = b;
	via[2] = c;
	via[3] = 0;
	via[4] = 0;
	via[5] = 0;
}

/* Reads the headers into `packet`. */
static __always_inline enum kind read_packet(struct __sk_buff *skb, struct packet *packet)
{
	__u32 words[8] = {}, addresses;
	enum kind kind = skb->gso_size ? LARGE : WHOLE;
	__u16 *mac, stored = 0;
	__u64 sum = 0;
	bool ports = false;
	__u8 class, link;

	if (skb->vlan_present)
		return OPAQUE;
	mac = bytes_at(skb, 0, ETH_LEN);
	if (!mac)
		return OPAQUE;
	link = *(__u8 *)mac;
	packet->group = link & 1;
	*(__u16 *)packet->mac.bytes = mac[0];
	*(__u16 *)(packet->mac.bytes + 2) = mac[1];
	*(__u16 *)(packet->mac.bytes + 4) = mac[2];
	packet->via = packet->mac;
	packet->to.len = 128;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = bytes_at(skb, ETH_LEN, V4_LEN);

		if (!ip || *(__u8 *)ip >> 4 != 4)
			return OPAQUE;
		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff))
			kind = PORTLESS;
		packet->len = bpf_ntohs(ip->tot_len);
		packet->transport = V4_LEN;
		packet->protocol = ip->protocol;
		class = ip->tos;
		words[0] = ip->saddr;
		words[1] = ip->daddr;
		packet->to.address[2] = bpf_htonl(0xffff);
		packet->to.address[3] = ip->daddr;
		addresses = 2;
		if (packet->group) {
			__u32 to = bpf_ntohl(ip->daddr);

			/* Broadcast, or 224.0.0.0/24. */
			if (link != V4_GROUP_LINK || to >> 28 != 0xe || to >> 8 == 0xe00000)
				return OPAQUE;
			go_via_groups(packet, V4_GROUP_LINK, 0, 0x5e);
		}
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		__u32 *ip = bytes_at(skb, ETH_LEN, V6_LEN);

		if (!ip || *(__u8 *)ip >> 4 != 6)
			return OPAQUE;
		packet->v6 = 1;
		packet->len = V6_LEN + bpf_ntohs(((struct ipv6hdr *)ip)->payload_len);
		packet->transport = V6_LEN;
		packet->protocol = ((struct ipv6hdr *)ip)->nexthdr;
		/* An unfinished checksum behind them would be completed in the wrong place. */
		if (is_extension(packet->protocol))
			kind = PORTLESS;
		class = bpf_ntohl(ip[0]) >> 20;
#pragma unroll
		for (int i = 0; i < 8; i++)
			words[i] = ip[2 + i];
#pragma unroll
		for (int i = 0; i < 4; i++)
			packet->to.address[i] = words[4 + i];
		addresses = 8;
		if (packet->group) {
			__u32 to = bpf_ntohl(words[4]);

			if (link != V6_GROUP_LINK || to >> 24 != 0xff ||
			    (to >> 16 & 0xf) <= V6_LINK_SCOPE)
				return OPAQUE;
			go_via_groups(packet, V6_GROUP_LINK, V6_GROUP_LINK, 0);
		}
	} else if (skb->protocol == bpf_htons(ETH_P_MESH) && kind == WHOLE && !packet->group) {
		return read_mesh(skb, packet);
	} else {
		return OPAQUE;
	}
	/* A meta packet that is forwarded: flows inside it are compared by the ends' addresses. */
	if (packet->protocol == PROTO_META)
		kind = PORTLESS;
	if (kind == WHOLE &&
	    (packet->len < packet->transport || packet->len > skb->len - ETH_LEN))
		return OPAQUE;
	packet->size = packet->len;
	packet->dscp = class >> 2;
	packet->class = packet->dscp;
	packet->ecn = class & 3;
	/* A marked packet travels under ECT(0): its own mark is kept inside. */
	if (packet->ecn == 3)
		packet->ecn = 2;

	if (kind == PORTLESS) {
		/* Its ports are not where they are looked for. */
	} else if (packet->protocol == PROTO_UDP &&
		   (kind == LARGE || packet->len >= packet->transport + 8)) {
		struct udphdr *udp = packet->v6 ? bytes_at(skb, ETH_LEN + V6_LEN, 8) :
						  bytes_at(skb, ETH_LEN + V4_LEN, 8);

		if (!udp)
			return OPAQUE;
		ports = true;
		packet->sport = bpf_ntohs(udp->source);
		packet->dport = bpf_ntohs(udp->dest);
		stored = udp->check;
		/* Over IPv4, zero stands for no checksum. */
		packet->unfinished = stored || packet->v6;
	} else if (packet->protocol == PROTO_TCP &&
		   (kind == LARGE || packet->len >= packet->transport + 20)) {
		struct tcphdr *tcp = packet->v6 ? bytes_at(skb, ETH_LEN + V6_LEN, 20) :
						  bytes_at(skb, ETH_LEN + V4_LEN, 20);

		if (!tcp)
			return OPAQUE;
		ports = true;
		packet->sport = bpf_ntohs(tcp->source);
		packet->dport = bpf_ntohs(tcp->dest);
		stored = tcp->check;
		packet->unfinished = true;
		packet->pure_ack = ((__u8 *)tcp)[13] == 0x10 &&
				   packet->transport + tcp->doff * 4 == packet->len;
	} else if (packet->protocol == PROTO_SCTP) {
		/* A checksum left to the device is zero until then; it is not of the kind that can
		 * be finished here (CRC-32C, RFC 9260, section 6.8). */
		__u32 *sctp = packet->v6 ? bytes_at(skb, ETH_LEN + V6_LEN, 12) :
					   bytes_at(skb, ETH_LEN + V4_LEN, 12);

		if (!sctp || !sctp[2])
			kind = PORTLESS;
	}
	hash_flow(packet, words, addresses);
	if (!ports || kind == LARGE)
		return kind;
	/* The folded sum of the pseudo header in the field: the device was to finish it. */
#pragma unroll
	for (__u32 i = 0; i < 8; i++)
		sum += words[i];
	sum += bpf_htonl(packet->len - packet->transport);
	sum += bpf_htonl(packet->protocol);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	packet->unfinished = packet->unfinished && stored == fold(sum);
	return kind;
}

/*
 * Whether a checksum is left to the device, wherever in the packet: also inside of a tunnel, where
 * it is not looked for (a virtual machine's tunnels come as plain packets). Nothing in the context
 * says so, but inet_proto_csum_replace4() leaves an unfinished checksum alone that does not cover
 * what has changed. Here it is to change the first bytes of the link address, which is undone.
 */
static __always_inline bool is_unfinished_anywhere(struct __sk_buff *skb, struct packet *packet)
{
	__u16 *mac;

	bpf_l4_csum_replace(skb, 0, 0, bpf_htons(1), sizeof(*mac));
	mac = bytes_at(skb, 0, ETH_LEN);
	if (!mac || *mac == *(__u16 *)packet->mac.bytes)
		return true;
	bpf_skb_store_bytes(skb, 0, packet->mac.bytes, sizeof(*mac), 0);
	return false;
}

#endif
