/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What user space sets of single flows. It runs this (BPF_PROG_TEST_RUN) with a frame of settings,
 * and they are changed in place: writing values from user space would undo what packets counted in
 * the meantime.
 */
#ifndef WINDOW_SETTINGS_H
#define WINDOW_SETTINGS_H

#include "table.h"

#define SETTINGS 64

struct setting {
	struct key key;
	__u32 value;
	__u8 direction;
	__u8 pad[3];
};

/* No map has this structure, so its type is not in the object, where a test of user space would
 * find it (window_layout.rs). */
_Static_assert(sizeof(struct setting) == 44, "as in window_layout.rs");
_Static_assert(__builtin_offsetof(struct setting, value) == 36, "as in window_layout.rs");
_Static_assert(__builtin_offsetof(struct setting, direction) == 40, "as in window_layout.rs");

/* Whether the flow is known. */
static __always_inline bool set_window(const struct setting *setting,
				       const struct control *settings)
{
	__u64 words[5] = {};
	struct place place;
	struct side *own, *other;

	__builtin_memcpy(words, &setting->key, sizeof(setting->key));
	if (!find(hash_of(words, settings), &place) || !is_flow_of(&setting->key, &place))
		return false;
	/* The windows of data that goes one way are in the packets that go the other. */
	own = side_at(place.flow, setting->direction & 1);
	other = side_at(place.flow, ~setting->direction & 1);
	if (!own || !other)
		return false;
	other->window = setting->value;
	own->governed = setting->value != 0;
	return true;
}

SEC("classifier")
int sheaf_set(struct __sk_buff *skb)
{
	__u32 zero = 0, index = SET;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct scratch *room = bpf_map_lookup_elem(&scratch, &index);

	if (!settings || !room)
		return 0;
	room->known = 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < SETTINGS; i++) {
		struct setting setting __attribute__((aligned(8)));

		if (bpf_skb_load_bytes(skb, ETH_LEN + i * sizeof(setting), &setting,
				       sizeof(setting)))
			break;
		if (set_window(&setting, settings))
			room->known++;
	}
	return room->known;
}

#endif
