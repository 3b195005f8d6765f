/* SPDX-License-Identifier: GPL-2.0 */
/* Reads TCP and UDP headers in place. */
#ifndef WINDOW_PACKET_H
#define WINDOW_PACKET_H

#include "maps.h"

#define TCP_LEN 20
#define OPTIONS_LEN 40
#define NO_SCALE 255

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

struct packet {
	/* The key is written in whole words: what is stored in parts and read as a whole has to wait. */
	union {
		struct key key;
		__u64 words[5];
	};
	__u32 ip;      /* where the IP header begins */
	__u32 at;      /* where the TCP or UDP header does */
	__u32 len;     /* of the IP packet */
	__u32 wire;
	__u32 payload;
	__u32 seq, ack;
	__u32 tsval, tsecr;
	__u16 field;   /* the window's, host order */
	__u16 lead;    /* the word with the flags, host order */
	__u16 mss;
	__u8 doff;     /* TCP header, bytes */
	__u8 flags;
	__u8 scale;    /* NO_SCALE: none */
	__u8 timestamps;
	__u8 protocol;
	__u8 has_mss;
	__u8 v6;
	__u8 ecn;
};

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

/* The options area, and where reading it stands. The area has room behind it: nothing that is read
 * with a masked index lies outside. */
struct options {
	__u8 bytes[64 + 12];
	__u32 at, len;
	struct packet *packet;
};

static long read_option(__u32 index, void *context)
{
	struct options *options = context;
	struct packet *packet = options->packet;
	__u32 left = options->len - options->at;
	__u8 *option = options->bytes + (options->at & 63), size;

	if (options->at >= options->len || option[0] == 0)
		return 1;
	if (option[0] == 1) {
		options->at++;
		return 0;
	}
	size = option[1];
	if (left < 2 || size < 2 || size > left)
		return 1;
	if (option[0] == 2 && size == 4) {
		packet->mss = be16(option + 2);
		packet->has_mss = 1;
	} else if (option[0] == 3 && size == 3) {
		packet->scale = option[2] > 14 ? 14 : option[2];
	} else if (option[0] == 8 && size == 10) {
		packet->tsval = be32(option + 2);
		packet->tsecr = be32(option + 6);
		packet->timestamps = 1;
	}
	options->at += size;
	return 0;
}

/* Reads the options behind the header. */
static __noinline int read_options(struct __sk_buff *skb, struct packet *packet)
{
	struct options options = {};
	__u32 len;

	if (!packet)
		return -1;
	len = packet->doff - TCP_LEN;
	if (len - 1 >= OPTIONS_LEN ||
	    bpf_skb_load_bytes(skb, packet->at + TCP_LEN, options.bytes, len))
		return -1;
	options.len = len;
	options.packet = packet;
	bpf_loop(OPTIONS_LEN, read_option, &options, 0);
	return 0;
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
		packet->ecn = head[1] & 3;
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
		packet->ecn = head[1] >> 4 & 3;
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
