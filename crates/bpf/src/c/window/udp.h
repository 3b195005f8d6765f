/* SPDX-License-Identifier: GPL-2.0 */
/* QUIC: counted, and marked where user space asks for it. */
#ifndef WINDOW_UDP_H
#define WINDOW_UDP_H

#include "packet.h"

#define QUIC_PORT 443

/* Both bits of the ECN field. (The helper for it does not look behind VLAN tags.) */
static __always_inline void set_ce(struct __sk_buff *skb, struct packet *packet)
{
	__u8 head[2] __attribute__((aligned(2)));
	__u16 old, new;

	if (bpf_skb_load_bytes(skb, packet->ip, head, 2))
		return;
	old = *(__u16 *)head;
	head[1] |= packet->v6 ? 0x30 : 3;
	new = *(__u16 *)head;
	if (packet->v6) {
		/* No checksum in the header: a sum that the device made must follow. */
		bpf_skb_store_bytes(skb, packet->ip, head, 2, BPF_F_RECOMPUTE_CSUM);
	} else if (!bpf_l3_csum_replace(skb, packet->ip + 10, old, new, 2)) {
		bpf_skb_store_bytes(skb, packet->ip, head, 2, 0);
	}
}

/* Counts a QUIC packet, and marks it when its turn has come: congestion experienced (RFC 3168 5).
 * */
static __always_inline void count_quic(struct __sk_buff *skb, struct scratch *room,
				       __u32 direction, bool live)
{
	struct packet *packet = &room->packet;
	struct quic_pair *both;
	struct quic *flow;

	both = bpf_map_lookup_elem(&quic, &packet->key);
	if (!both) {
		__builtin_memset(&room->quic, 0, sizeof(room->quic));
		bpf_map_update_elem(&quic, &packet->key, &room->quic, BPF_NOEXIST);
		both = bpf_map_lookup_elem(&quic, &packet->key);
		if (!both)
			return;
	}
	flow = &both->direction[direction & 1];
	flow->wire += packet->wire;
	if (!packet->ecn)
		return;
	flow->capable++;
	flow->since++;
	if (!live || !flow->every || flow->since < flow->every || packet->ecn == 3)
		return;
	flow->since = 0;
	flow->marked++;
	set_ce(skb, packet);
}

#endif
