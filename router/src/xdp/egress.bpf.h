/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Third step: can the packet leave by this adjacency? Asked before a byte is changed, so that the kernel
 * still gets the packet as it came when the answer is no.
 */
#ifndef TRIELINE_EGRESS_BPF_H
#define TRIELINE_EGRESS_BPF_H

#include "xdp/lookup.bpf.h"

/*
 * Whether the kernel would tell the sender of a packet that leaves by its incoming device of a shorter way
 * (ip_forward, ip6_forward). Only a sender on the link can take it. Asked of packets that Linux forwards with
 * the source they came with.
 */
TL_INLINE int tl_turns_back(const struct tl_frame *f, const struct tl_adjacency *adj)
{
	return TL_UNLIKELY(adj->ifindex == f->ifindex) && adj->tag == f->tag;
}

TL_INLINE int tl_is_on_link(__u64 word)
{
	return (word & 0xffff) == (TL_ACTION_FORWARD | 1 << 8) ||
	       word == TL_VERDICT_WORD(TL_PASS_UNRESOLVED) || word == TL_VERDICT_WORD(TL_PASS_RULE);
}

TL_INLINE int tl_redirects4(const struct tl_frame *f, const struct tl_adjacency *adj, __u32 lookup,
			    const struct iphdr *ip)
{
	return tl_turns_back(f, adj) && f->port->flags & TL_PORT_REDIRECTS4 &&
	       tl_is_on_link(tl_source_word4(lookup, ip->saddr, ip->daddr));
}

TL_INLINE int tl_redirects6(const struct tl_frame *f, const struct tl_adjacency *adj, __u32 lookup,
			    const struct ipv6hdr *ip6)
{
	return tl_turns_back(f, adj) && f->port->flags & TL_PORT_REDIRECTS6 &&
	       tl_is_on_link(tl_source_word6(lookup, TL_BE64(ip6->saddr.hi), TL_BE64(ip6->saddr.lo)));
}

TL_INLINE __u32 tl_egress_check(struct tl_frame *f, const struct tl_adjacency *adj, __u32 len)
{
	if (TL_UNLIKELY(len > adj->mtu))
		return TL_PASS_TOO_BIG;
	/* Only notes the target; it counts once the program returns XDP_REDIRECT. XDP_PASS is the answer
	 * where there is none. */
	if (TL_UNLIKELY(bpf_redirect_map(&devices, adj->ifindex, XDP_PASS) != XDP_REDIRECT))
		return TL_PASS_NO_DEVICE;
	/* A device that does not take such a frame would lose it after it was counted as forwarded. */
	if (TL_UNLIKELY(f->frags) && bpf_redirect_map(&jumbo_devices, adj->ifindex, XDP_PASS) != XDP_REDIRECT)
		return TL_PASS_XDP_FRAGS;
	f->oif = adj->ifindex;
	/* One store a second at most: user space looks as often. The load is of a line that was read. */
	if (TL_UNLIKELY(!adj->used))
		((struct tl_adjacency *)adj)->used = 1;
	return TL_GO_ON;
}

/* Cuts a frame after `len` bytes, if it is longer. Nothing refuses that of a frame that holds an IP header.
 */
__attribute__((noinline)) int tl_trim_to(struct xdp_md *ctx, __u32 len)
{
	__u64 frame = bpf_xdp_get_buff_len(ctx);

	return frame > len ? bpf_xdp_adjust_tail(ctx, (int)len - (int)frame) : 0;
}

/*
 * Cuts off what follows the packet, which is `len` long: Linux trims it when the packet comes in
 * (ip_rcv_core, ip6_rcv_core), be it padding or more. Finds l3 again. Comes after all that may leave the
 * packet to the kernel.
 */
TL_INLINE void tl_trim(struct xdp_md *ctx, struct tl_frame *f, __u32 len)
{
	if (TL_LIKELY(f->l3 + len >= f->end && !f->frags))
		return;
	tl_trim_to(ctx, f->l2 + len);
	f->l3 = (void *)(long)ctx->data + f->l2;
	f->end = (void *)(long)ctx->data_end;
}

#endif
