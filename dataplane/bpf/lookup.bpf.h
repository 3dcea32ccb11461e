/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Second step: the longest match of the destination decides. Its value is the number of an action, one 64-bit
 * word.
 */
#ifndef TRIELINE_LOOKUP_BPF_H
#define TRIELINE_LOOKUP_BPF_H

#include "parse.bpf.h"

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
 * Reverse path (RFC 3704): whether packets to the source would leave by the port this one came in by
 * (strict), or by any (loose). Functions of their own, verified and called apart: only ports that ask for it
 * pay.
 */
TL_INLINE int tl_reverse_path(__u32 value, __u32 strict, __u32 ifindex, __u32 tag)
{
	__u64 word = value ? tl_action_word(value) : TL_ACTION_NONE;
	struct tl_adjacency *adj;

	if (tl_action_kind(word) != TL_ACTION_FORWARD)
		return 0;
	if (!strict)
		return 1;
	adj = tl_action_adjacency(word);
	return adj && adj->ifindex == ifindex && adj->tag == tag;
}

__attribute__((noinline)) int tl_reverse_path4(__u32 table, __u32 source, __u32 strict, __u32 ifindex,
					       __u32 tag)
{
	TL_ENTER();
	return tl_reverse_path(tl_lookup4(0, table, source), strict, ifindex, tag);
}

__attribute__((noinline)) int tl_reverse_path6(struct xdp_md *ctx, __u32 table, __u32 l2, __u32 strict,
					       __u32 tag)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv6hdr *ip6 = data + (l2 == 18 ? 18 : 14);

	TL_ENTER();
	if ((void *)(ip6 + 1) > end)
		return 0;
	return tl_reverse_path(tl_lookup6(0, table, TL_BE64(ip6->saddr.hi), TL_BE64(ip6->saddr.lo)), strict,
			       ctx->ingress_ifindex, tag);
}

/* The action of an inner IPv4 destination, after decapsulation into a table. */
__attribute__((noinline)) __u64 tl_inner_action(__u32 table, __u32 destination)
{
	__u32 value;

	TL_ENTER();
	value = tl_lookup4(0, table, destination);
	return value ? tl_action_word(value) : TL_ACTION_NONE;
}

#endif
