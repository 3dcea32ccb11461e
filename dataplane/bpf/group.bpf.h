/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Equal-cost paths: one flow, one bucket of its group.
 */
#ifndef TRIELINE_GROUP_BPF_H
#define TRIELINE_GROUP_BPF_H

#include "lookup.bpf.h"

/* struct tl_instance's, known when the program is loaded: a number in its instructions. */
const volatile __u64 tl_hash_key SEC(".rodata.flow") = 0;

TL_INLINE __u64 tl_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

/*
 * A hash of the flow of the packet at `offset`: addresses, protocol and ports of IPv4; addresses and flow
 * label of IPv6, and the ports of a flow without a label. Fragments of IPv4 go by addresses, so that all of a
 * packet goes one way.
 *
 * It has a secret key, so that nobody outside can choose flows that all go one way, and two nodes one after
 * another choose apart. The kernel's own has another: the same flows may go other ways there.
 */
__attribute__((noinline)) __u32 tl_flow_hash(struct xdp_md *ctx, __u32 offset)
{
	void *end = (void *)(long)ctx->data_end;
	void *l3 = (void *)(long)ctx->data + (offset & 0xfff);
	const struct ipv6hdr *ip6 = l3;
	const struct iphdr *ip = l3;
	const __u32 *ports = 0;
	__u64 hash = 0;

	if (l3 + sizeof(*ip) > end)
		return 0;
	if (ip->version_ihl == 0x45) {
		hash = tl_mix(tl_hash_key ^ ip->protocol, (__u64)ip->saddr << 32 | ip->daddr);
		if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) &&
		    !(ip->frag_off & TL_BE16(0x3fff)))
			ports = (const void *)(ip + 1);
	} else if (l3 + sizeof(*ip6) <= end) {
		hash = tl_mix(tl_hash_key ^ (ip6->flow & TL_BE32(0xfffff)), ip6->saddr.hi);
		hash = tl_mix(hash, ip6->saddr.lo);
		hash = tl_mix(hash, ip6->daddr.hi);
		hash = tl_mix(hash, ip6->daddr.lo);
		if (!(ip6->flow & TL_BE32(0xfffff)) &&
		    (ip6->nexthdr == IPPROTO_TCP || ip6->nexthdr == IPPROTO_UDP))
			ports = (const void *)(ip6 + 1);
	}
	if (ports && (void *)(ports + 1) <= end)
		hash = tl_mix(hash, *ports);
	return tl_mix(hash, tl_hash_key);
}

/* The action that a group's flow takes. */
__attribute__((noinline)) __u64 tl_bucket(struct xdp_md *ctx, __u32 offset, __u32 index)
{
	struct tl_group *group = bpf_map_lookup_elem(&groups, &index);
	volatile __u64 *words = (volatile void *)group;

	if (!group)
		return TL_ACTION_NONE;
	return words[tl_flow_hash(ctx, offset) & (TL_BUCKETS - 1)];
}

/* A word that is no group: what it was, or the flow's bucket. */
TL_INLINE __u64 tl_ungrouped(struct xdp_md *ctx, __u32 offset, __u64 word)
{
	if (TL_UNLIKELY(tl_action_kind(word) == TL_ACTION_GROUP))
		return tl_bucket(ctx, offset, word >> 32);
	return word;
}

#endif
