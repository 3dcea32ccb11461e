/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Second step: the longest match of the destination decides. Its value is the number of an action, one 64-bit
 * word.
 */
#ifndef TRIELINE_LOOKUP_BPF_H
#define TRIELINE_LOOKUP_BPF_H

#include "parse.bpf.h"

/*
 * The value that decides for a packet from `source` to `destination`, 0 where nothing does. `view` is what a
 * port or an action names: a table's id.
 */
TL_INLINE __u32 tl_route4(__u32 view, __be32 source, __be32 destination)
{
	(void)source;
	return tl_lookup4(TL_IMAGE, view, TL_BE32(destination));
}

TL_INLINE __u32 tl_route6(__u32 view, const struct in6_addr *source, const struct in6_addr *destination)
{
	(void)source;
	return tl_lookup6(TL_IMAGE, view, TL_BE64(destination->hi), TL_BE64(destination->lo));
}

/* An action, read by one load, so that kind and adjacency belong together. */
TL_INLINE __u64 tl_action_word(__u32 value)
{
	volatile __u64 *word = bpf_map_lookup_elem(&actions, &value);

	return word ? *word : TL_ACTION_NONE;
}

TL_INLINE __u32 tl_action_kind(__u64 word) { return word & 0xff; }

/* The verdict of a TL_ACTION_VERDICT; a damaged one may not forward. */
TL_INLINE __u32 tl_action_verdict(__u64 word)
{
	__u32 verdict = word >> 8 & 0xff;

	return verdict >= TL_PASS_FIRST && verdict < TL_VERDICTS ? verdict : TL_PASS_NO_ACTION;
}

TL_INLINE struct tl_adjacency *tl_action_adjacency(__u64 word)
{
	__u32 index = word >> 32;

	return bpf_map_lookup_elem(&adjacencies, &index);
}

/*
 * Reverse path of IPv4 (RFC 3704; Linux has no such setting for IPv6): whether packets to the source would
 * leave by the port this one came in by (strict), or by any (loose). A function of its own, verified and
 * called apart: only ports that ask for it pay.
 */
__attribute__((noinline)) int tl_reverse_path4(__u32 table, __u32 source, __u32 strict, __u32 ifindex,
					       __u32 tag)
{
	struct tl_adjacency *adj;
	__u32 value;
	__u64 word;

	value = tl_lookup4(TL_IMAGE, table, source);
	word = value ? tl_action_word(value) : TL_ACTION_NONE;
	if (tl_action_kind(word) != TL_ACTION_FORWARD)
		return 0;
	if (!strict)
		return 1;
	adj = tl_action_adjacency(word);
	return adj && adj->ifindex == ifindex && adj->tag == tag;
}

/* The action of an inner IPv4 destination, after decapsulation into a table. */
__attribute__((noinline)) __u64 tl_inner_action(__u32 view, __be32 destination)
{
	__u32 value;

	value = tl_route4(view, 0, destination);
	return value ? tl_action_word(value) : TL_ACTION_NONE;
}

#endif
