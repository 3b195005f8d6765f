/* SPDX-License-Identifier: GPL-2.0 */
/* Reads TCP and UDP headers in place. */
#ifndef WINDOW_PACKET_H
#define WINDOW_PACKET_H

#include "maps.h"

#define TCP_LEN 20
#define OPTIONS_LEN 40

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

/* Two words of the packet, or two ports, as they stand in memory one after the other. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define JOIN(first, second) ((__u64)(second) << 32 | (first))
#define PORTS(outside, inside) ((__u64)(inside) << 16 | (outside))
#else
#define JOIN(first, second) ((__u64)(first) << 32 | (second))
#define PORTS(outside, inside) ((__u64)(outside) << 48 | (__u64)(inside) << 32)
#endif

static __always_inline __u32 be32(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

static __always_inline __u16 word16(const void *p)
{
	return bpf_ntohs(*(const __u16 *)p);
}

static __always_inline __u32 word32(const void *p)
{
	return bpf_ntohl(*(const __u32 *)p);
}

static __always_inline __u64 address_word(const __u32 *p)
{
	return JOIN(p[0], p[1]);
}

/* Reads the option at `options->at`; false behind the last one. The area has room behind it:
 * nothing that is read with a masked index lies outside. */
static __always_inline bool read_option(struct options *options)
{
	__u32 at = options->at, len = options->len, left = len - at;
	__u8 *option = options->bytes + (at & 63), kind = option[0], size;

	if (at >= len || kind == 0)
		return false;
	if (kind == 1) {
		options->at = at + 1;
		return true;
	}
	size = option[1];
	if (left < 2 || size < 2 || size > left)
		return false;
	if (kind == 2 && size == 4) {
		options->mss = be16(option + 2);
		/* Of none at all no window could be made; Linux passes over it, too
		 * (tcp_parse_options). */
		options->has_mss = options->mss != 0;
	} else if (kind == 3 && size == 3) {
		options->scale = option[2] > 14 ? 14 : option[2];
	} else if (kind == 8 && size == 10) {
		options->tsval = be32(option + 2);
		options->tsecr = be32(option + 6);
		options->timestamps = 1;
	}
	options->at = at + size;
	return true;
}

/* Reads the options behind the header. */
static __always_inline void read_options(struct __sk_buff *skb, struct scratch *room)
{
	struct packet *packet = &room->packet;
	struct options *options = &room->options;
	__u64 len = packet->doff - TCP_LEN;

	__builtin_memset(options, 0, sizeof(*options));
	options->scale = NO_SCALE;
	/* Or clang would compare another register than it passes on. */
	asm("" : "+r"(len));
	if (len < 1 || len > OPTIONS_LEN ||
	    bpf_skb_load_bytes(skb, packet->at + TCP_LEN, options->bytes, len))
		return;
	options->len = len;
#pragma clang loop unroll(disable)
	for (int i = 0; i < OPTIONS_LEN; i++) {
		if (!read_option(options))
			break;
		/* Or clang would keep in registers, where the verifier sees it, what is in the map.
		 * */
		asm volatile("" ::: "memory");
	}
	packet->mss = options->mss;
	packet->has_mss = options->has_mss;
	packet->scale = options->scale;
	packet->tsval = options->tsval;
	packet->tsecr = options->tsecr;
	packet->timestamps = options->timestamps;
}

/* Reads a whole TCP or UDP packet that is no fragment; false for everything else. The headers are
 * read in place: helper calls would cost more than all the rest. */
static __always_inline bool read_packet(struct __sk_buff *skb, struct packet *packet, __u32 link,
					__u32 direction)
{
	const __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end, *head, *tcp;
	__u32 at = link & 15, header, room, ports;
	/* Where the words of source and destination are. */
	__u32 source = direction == IN ? 0 : 2, destination = 2 - source;
	__u16 type = skb->protocol;

	/* Both headers without options, in the part of the packet that is not in pages. */
	if (data + 15 + 8 + V6_LEN + TCP_LEN > end) {
		__u32 want = 15 + 8 + V4_LEN + V6_LEN + TCP_LEN;

		if (end - data < (long)skb->len)
			bpf_skb_pull_data(skb, skb->len < want ? skb->len : want);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		if (data + at + 4 > end)
			return false;
		type = *(__u16 *)(data + at + 2);
		at += 4;
	}
	head = data + at;
	room = skb->len - at;
	if (type == bpf_htons(ETH_P_IP)) {
		if (head + V4_LEN > end)
			return false;
		header = (head[0] & 0xf) * 4;
		if (head[0] >> 4 != 4 || header < V4_LEN)
			return false;
		packet->len = word16(head + 2);
		packet->protocol = head[9];
		packet->class = head[1];
		if (*(__u16 *)(head + 6) & bpf_htons(0x3fff))
			packet->protocol = 0;
		packet->words[source + 1] = JOIN(bpf_htonl(0xffff), *(__u32 *)(head + 12));
		packet->words[destination + 1] = JOIN(bpf_htonl(0xffff), *(__u32 *)(head + 16));
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (head + V6_LEN > end || head[0] >> 4 != 6)
			return false;
		header = V6_LEN;
		packet->v6 = 1;
		packet->len = V6_LEN + word16(head + 4);
		packet->protocol = head[6];
		packet->class = head[0] << 4 | head[1] >> 4;
		packet->words[source] = address_word((void *)(head + 8));
		packet->words[source + 1] = address_word((void *)(head + 16));
		packet->words[destination] = address_word((void *)(head + 24));
		packet->words[destination + 1] = address_word((void *)(head + 32));
	} else {
		return false;
	}
	/* The length field of a super-packet may be too small for its length. */
	if (skb->gso_size)
		packet->len = room;
	if (packet->len < header || packet->len > room)
		return false;
	packet->wire = at + packet->len;
	packet->ip = at;
	packet->at = at + header;
	room = packet->len - header;
	tcp = head + header;
	if (packet->protocol == PROTO_TCP) {
		if (room < TCP_LEN || tcp + TCP_LEN > end)
			return false;
		packet->doff = (tcp[12] >> 4) * 4;
		if (packet->doff < TCP_LEN || packet->doff > room)
			return false;
		packet->seq = word32(tcp + 4);
		packet->ack = word32(tcp + 8);
		packet->lead = word16(tcp + 12);
		packet->flags = packet->lead;
		packet->field = word16(tcp + 14);
		packet->payload = room - packet->doff;
		/* Time stamps alone, in their usual place (RFC 7323, appendix A). */
		if (packet->doff == TCP_LEN + 12 && tcp + TCP_LEN + 12 <= end &&
		    *(__u32 *)(tcp + TCP_LEN) == bpf_htonl(0x0101080a)) {
			packet->tsval = word32(tcp + TCP_LEN + 4);
			packet->tsecr = word32(tcp + TCP_LEN + 8);
			packet->timestamps = 1;
		}
		if (skb->gso_segs > 1)
			packet->wire += (skb->gso_segs - 1) * (packet->wire - packet->payload);
	} else if (packet->protocol != PROTO_UDP || room < 8 || tcp + 8 > end) {
		return false;
	}
	ports = word32(tcp);
	packet->words[4] = direction == IN ? PORTS(ports >> 16, ports & 0xffff)
					   : PORTS(ports & 0xffff, ports >> 16);
	return true;
}

#endif
