/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Last step: one counter, and the verdict becomes an XDP action.
 */
#ifndef TRIELINE_STATS_BPF_H
#define TRIELINE_STATS_BPF_H

#include "lookup.bpf.h"

/* Whether the kernel's own tables say that an address is this node's, or a broadcast address. */
__attribute__((noinline)) int tl_own4(__be32 address)
{
	__u64 word = tl_action_word(tl_table4(TL_MAIN4, TL_BE32(address)));

	return word == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

__attribute__((noinline)) int tl_own6(__u64 hi, __u64 lo)
{
	__u64 word = tl_action_word(tl_table6(TL_MAIN6, hi, lo));

	return word == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

/*
 * Whether the kernel keeps the packet at `at` to itself: one to a group, to all on the link, to a link-local
 * address, or to one that its own tables have.
 */
__attribute__((noinline)) int tl_kept(struct xdp_md *ctx, __u32 at)
{
	void *end = (void *)(long)ctx->data_end;
	void *l3 = (void *)(long)ctx->data + (at & 31);
	const struct ipv6hdr *ip6 = l3;
	const struct iphdr *ip = l3;
	__u64 hi, lo;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->version_ihl >> 4 == 4) {
		__u32 to = TL_BE32(ip->daddr);

		return to >> 28 == 0xe || to == 0xffffffff || tl_own4(ip->daddr);
	}
	if ((void *)(ip6 + 1) > end)
		return 0;
	hi = TL_BE64(ip6->daddr.hi);
	lo = TL_BE64(ip6->daddr.lo);
	return hi >> 56 == 0xff || hi >> 54 == 0xfe80 >> 6 || tl_own6(hi, lo);
}

/*
 * What the kernel may get though it does not know the tenant: what belongs to the link or is for this very
 * host. Anything else it would route by tables that are not the tenant's; also what the tenant's table calls
 * local and the kernel's do not.
 */
__attribute__((noinline)) __u32 tl_of_tenant(struct xdp_md *ctx, __u32 verdict, __u32 at)
{
	switch (verdict) {
	case TL_PASS_NOT_IP:
	case TL_PASS_OTHER_DESTINATION:
		return verdict;
	case TL_PASS_IPV4_SPECIAL:
	case TL_PASS_IPV6_SPECIAL:
	case TL_PASS_LOCAL:
		if (tl_kept(ctx, at))
			return verdict;
	}
	return verdict >= TL_PASS_FIRST && verdict < TL_DROP_FIRST ? TL_DROP_TENANT : verdict;
}

/* What becomes of a packet of a port in the end. */
TL_INLINE __u32 tl_final(struct xdp_md *ctx, const struct tl_port *port, __u32 l2, __u32 verdict)
{
	if (verdict >= TL_PASS_FIRST && port && TL_UNLIKELY(port->flags & TL_PORT_TENANT))
		return tl_of_tenant(ctx, verdict, l2);
	return verdict;
}

TL_INLINE int tl_finish(const struct tl_port *port, __u32 verdict)
{
	__u32 slot = port ? port->counters : 0;
	struct tl_counters *c = bpf_map_lookup_elem(&counters, &slot);

	if (c)
		c->packets[verdict & (TL_COUNTERS - 1)]++;
	if (TL_LIKELY(verdict < TL_PASS_FIRST))
		return XDP_REDIRECT;
	return verdict < TL_DROP_FIRST ? XDP_PASS : XDP_DROP;
}

#endif
