/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Blocks of format 2: how a packet is packed, cut, and written into frames. The model is
 * crates/aggregate/src/queue.rs.
 *
 * The head of a block is written into the packet, over bytes that are not needed, so that the block
 * is in one piece there and each of its parts is copied by one call. All that may fail comes
 * before: a packet that is changed is also consumed.
 */
#ifndef MERGE_BLOCK_H
#define MERGE_BLOCK_H

#include "compress.h"
#include "crc.h"
#include "frame.h"
#include "streams.h"

/* The tag of frames to groups. */
#define GROUP_TAG 0

/* A frame takes at least so many bytes of a block: fewer do not pay for the header of the cut. */
#define MIN_PART (CUT_HEADER + 2)

/* Bytes that a frame to this hop may need besides the packet and the outer header. */
static __always_inline __u32 format_len(const struct hop *hop, const struct packet *packet)
{
	if (hop->format == META)
		return 0;
	if (packet->mesh)
		return FRAME_HEADER + ETHERNET_HEADER;
	return hop->format == FRAMES ? FRAME_HEADER : FRAME_HEADER + DEFINITION_HEADER;
}

/* Packs the packet in hand, of which `copy` and `summed` are known where they are needed, for its
 * queue's stream. Where that has no tag it goes into a meta packet, if it is of IP. */
static __always_inline void pack(struct packing *mine, struct queue *queue,
				 const struct hop *hop, const struct queue_key *key,
				 const struct packet *packet, struct frame *copy, __s64 summed,
				 __u64 now, __u64 wait)
{
	struct block *block = &mine->block;
	struct stream *stream;

	block->tag = 0;
	block->len = packet->len;
	block->start = ETH_LEN;
	block->head = 0;
	block->plain = PLAIN_IP;
	block->cut = 0;
	if (packet->unfinished)
		block->checksum = finished(summed);
	if (packet->group) {
		/* Of no stream: nobody counts its frames. */
		block->tag = GROUP_TAG + 1;
		return;
	}
	stream = stream_of(&mine->name, &mine->stream, key, queue->tag, now, wait);
	if (!stream)
		return;
	/* Of two CPUs both write the same. */
	queue->tag = mine->name.tag + 1;
	block->tag = mine->name.tag + 1;
	if (packet->mesh) {
		/* Its length goes over the link addresses, right before its EtherType. */
		block->len = packet->len + ETHERNET_HEADER;
		block->start = ETH_LEN - ETHERNET_HEADER;
		block->head = sizeof(__u16);
		put16(block->bytes, ETHERNET << 12 | packet->len);
		block->plain = PLAIN_MESH;
	} else if (hop->format == SHORT_HEADERS) {
		compress(mine, stream, packet, copy, summed, queue->begun, now);
	}
}

/* Cuts, under the queue's lock, a block that does not fit: its first bytes fill the last frame, of
 * which `max` bytes are behind the outer header, where that is worth it. */
static __always_inline void cut_block(struct queue *queue, struct block *block, __u32 ring,
				      __u32 max)
{
	struct pending *last = &queue->pending[ring & (RING - 1)];
	__s32 room = max - last->len;

	if (last->tag != block->tag || last->count >= MAX_BLOCKS - 1 ||
	    room < CUT_HEADER + MIN_PART)
		return;
	block->cut = room - CUT_HEADER;
	block->ring = ring;
	block->at = last->len;
	last->len += room;
	last->plain = NOT_PLAIN;
	queue->bytes += room;
	__sync_fetch_and_add(&last->writers, 1);
}

/* Writes the first part of the block, which is whole in the packet, behind the header of its cut.
 */
static __always_inline void write_cut(struct __sk_buff *skb, struct packing *mine,
				      struct frame *copy, struct queue *queue, __u32 slot)
{
	struct block *block = &mine->block;
	__u32 ring = block->ring & (RING - 1), index = slot * RING + ring, zero = 0;
	__u32 at = block->at, crc;
	struct crc_table *table = bpf_map_lookup_elem(&crc_table, &zero);
	struct frame *frame = bpf_map_lookup_elem(&frames, &index);

	if (frame && table) {
		bpf_skb_load_bytes(skb, block->start, copy->bytes, within(block->len, MAX_META));
		crc = crc32_of(crc32_sum(table, (__u32 *)copy->bytes, &block->len, MAX_META));
		FORGET(at);
		at &= MAX_META - 1;
		put16(frame->bytes + HEADROOM + at, CUT << 12 | block->len);
		put16(frame->bytes + HEADROOM + at + 2, crc >> 16);
		put16(frame->bytes + HEADROOM + at + 4, crc);
		bpf_skb_load_bytes(skb, block->start, frame->bytes + HEADROOM + at + CUT_HEADER,
				   within(block->cut, MAX_META));
	}
	__sync_fetch_and_sub(&queue->pending[ring].writers, 1);
}

/* Makes the block of the packet in hand, which is consumed, and copies it into its frames: the last
 * part of it, or all, to `at` in `frame`. */
static __always_inline void write_block(struct __sk_buff *skb, struct packing *mine,
					struct packet *packet, struct frame *copy,
					struct queue *queue, __u32 slot, struct frame *frame,
					__u32 at)
{
	struct block *block = &mine->block;
	__u32 start = block->start;

	if (packet->unfinished)
		bpf_skb_store_bytes(skb, ETH_LEN + field_of(packet), &block->checksum, 2, 0);
	if (start < ETH_LEN)
		bpf_skb_load_bytes(skb, start, block->under, sizeof(block->under));
	if (block->head)
		bpf_skb_store_bytes(skb, start, block->bytes,
				    within(block->head, sizeof(block->bytes)), 0);
	if (block->cut)
		write_cut(skb, mine, copy, queue, slot);
	bpf_skb_load_bytes(skb, block->start + block->cut, frame->bytes + HEADROOM + at,
			   within(block->len - block->cut, MAX_META));
	/* The packet may become the carrier of a frame. */
	if (block->start < ETH_LEN)
		bpf_skb_store_bytes(skb, block->start, block->under, sizeof(block->under), 0);
}

/* Writes the header of format 2 in front of the blocks of `frame`, with the number of the frame in
 * its stream. in_order() lets nobody take the queue's next one before. */
static __always_inline void write_frame_header(struct frame *frame, __u32 hop, __u32 tag,
					       __u32 offset)
{
	struct stream_key name = { .hop = hop, .tag = tag };
	/* User space forgets the streams of a next hop that is gone: then the number does not
	 * matter. Frames to groups have none. */
	struct stream *stream = bpf_map_lookup_elem(&streams, &name);
	__u8 *header = frame->bytes + HEADROOM;

	header[0] = 0;
	header[1] = stream ? __sync_fetch_and_add(&stream->sequence, 1) : 0;
	put16(header + 2, tag << 12 | offset);
}

#endif
