/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SRv6 headends (RFC 8986 5), byte for byte as Linux does them (net/ipv6/seg6_iptunnel.c). A ready-made
 * header is pushed and what depends on the packet filled in.
 */
#ifndef TRIELINE_ENCAP_BPF_H
#define TRIELINE_ENCAP_BPF_H

#include "xdp/rewrite.bpf.h"
#include "xdp/group.bpf.h"

/* A header of more than TL_OUTER_MAX bytes, written over the frame's from `offset` on: rare, so a function of
 * its own. 0 on success. */
__attribute__((noinline)) int tl_write_long(struct xdp_md *ctx, __u32 offset, __u32 index, __u32 len)
{
	struct tl_long_outer *outer = bpf_map_lookup_elem(&long_outers, &index);

	if (!outer || len > TL_OUTER_LONG)
		return -1;
	TL_BOUND(len);
	if (len < sizeof(struct ipv6hdr))
		return -1;
	return bpf_xdp_store_bytes(ctx, offset, outer->bytes, len);
}

/*
 * Writes the adjacency's header of `len` bytes at l3, where room was made for it: an IPv6 header and none to
 * any number of segments. No byte beyond it may change.
 */
TL_INLINE int tl_write_outer(struct xdp_md *ctx, const struct tl_frame *f, const struct tl_adjacency *adj,
			     __u32 len)
{
	const __u64 *from = (const void *)adj->outer;
	__u64 *to = f->l3;

	if (TL_UNLIKELY(len > TL_OUTER_MAX))
		return tl_write_long(ctx, f->l2, adj->long_outer, len);
	if ((void *)(to + 5) > f->end)
		return -1;
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
	to[4] = from[4];
	if (len < 64)
		return 0;
	if ((void *)(to + 8) > f->end)
		return -1;
	to[5] = from[5];
	to[6] = from[6];
	to[7] = from[7];
	if (len < 80)
		return 0;
	if ((void *)(to + 10) > f->end)
		return -1;
	to[8] = from[8];
	to[9] = from[9];
	if (len < 96)
		return 0;
	if ((void *)(to + 12) > f->end)
		return -1;
	to[10] = from[10];
	to[11] = from[11];
	return 0;
}

/* TTL or hop limit of the packet at `offset` down by one; it is above that. */
__attribute__((noinline)) int tl_dec_hop_limit(struct xdp_md *ctx, __u32 offset)
{
	void *l3 = (void *)(long)ctx->data + (offset & 0xfff);
	struct iphdr *ip = l3;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return -1;
	if (ip->version_ihl == 0x45)
		tl_decrease_ttl(ip);
	else
		((struct ipv6hdr *)l3)->hop_limit--;
	return 0;
}

/*
 * H.Encaps, H.Encaps.Red, and both of L2: pushes the adjacency's ready-made outer header and fills in what
 * depends on the packet.
 *
 * As Linux: the inner packet stays as it came, TTL included. Over IPv4 the outer class and flow label are the
 * template's (0) and so is the hop limit. Over IPv6 they are the inner ones, the hop limit less the hop to
 * here. Sysctl seg6_flowlabel may say otherwise of the label.
 *
 * With TL_OUTER_RFC: the outer hop limit is always the template's, the class the inner one (RFC 6040 4.1,
 * normal mode; RFC 2983). The inner packet is a hop older (RFC 8986 5.1). A frame inside stays as it
 * came, and has no ECN: no node would put a mark back into it.
 *
 * With `sent_on`, a VRF device sent the packet on. The kernel has forwarded the inner packet by then, so that
 * is a hop older. The outer one is the kernel's own, and loses no hop.
 */
TL_INLINE __u32 tl_h_encaps(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj,
			    __u8 inner, __u32 sent_on)
{
	__u32 outer = adj->outer_len, flow = 0, verdict, carried = f->l3_len;
	const struct ipv6hdr *ip6 = f->l3;
	__u8 hop_limit = 0, next = inner;
	struct ipv6hdr *pushed;

	if (inner == IPPROTO_IPV6) {
		flow = ip6->flow;
		hop_limit = ip6->hop_limit;
		if (hop_limit <= 1)
			return TL_PASS_IPV6_HOP_LIMIT;
	}
	if (TL_UNLIKELY(sent_on)) {
		if (adj->flags & TL_OUTER_L2)
			return TL_PASS_SEG6_LINK;
		if (inner != IPPROTO_IPV6 && ((const struct iphdr *)f->l3)->ttl <= 1)
			return TL_PASS_IPV4_TTL;
	}
	if (TL_UNLIKELY(adj->flags)) {
		if (adj->flags & (TL_OUTER_LABEL_NONE | TL_OUTER_LABEL_HASH))
			flow &= TL_BE32(0xfff00000);
		if (adj->flags & TL_OUTER_LABEL_HASH)
			flow |=
			    tl_flow_hash(ctx, f->l2, TL_FLOW_FIELDS_POLICY, TL_FLOW_OUTER) & TL_BE32(0xfffff);
		if (inner != IPPROTO_IPV6)
			flow |= TL_BE32(0x60000000);
		if (adj->flags & TL_OUTER_L2) {
			/* The kernel's treatment of a tag depends on the layer that took it off. */
			if (f->l2 != sizeof(struct ethhdr))
				return TL_PASS_SEG6_LINK;
			next = IPPROTO_ETHERNET;
			carried += sizeof(struct ethhdr);
		}
		if (adj->flags & TL_OUTER_RFC) {
			const struct iphdr *ip = f->l3;

			if (inner != IPPROTO_IPV6) {
				if (ip->ttl <= 1 && next != IPPROTO_ETHERNET)
					return TL_PASS_IPV4_TTL;
				flow |= TL_BE32((__u32)ip->tos << 20);
			}
			if (next == IPPROTO_ETHERNET)
				flow &= ~TL_BE32(3 << 20);
		}
	}
	verdict = tl_egress_check(f, adj, outer + carried);
	if (verdict != TL_GO_ON)
		return verdict;
	verdict =
	    tl_emit(ctx, f, adj, -(int)(outer + carried - f->l3_len), outer + carried, TL_BE16(ETH_P_IPV6));
	if (verdict != TL_GO_ON)
		return verdict;
	if (tl_write_outer(ctx, f, adj, outer))
		return TL_DROP_REWRITE_FAILED;
	pushed = f->l3;
	if ((void *)(pushed + 1) > f->end)
		return TL_DROP_REWRITE_FAILED;
	pushed->payload_len = TL_BE16(carried + outer - sizeof(*pushed));
	if (outer == sizeof(*pushed)) {
		pushed->nexthdr = next;
	} else {
		struct ipv6_sr_hdr *srh = (void *)(pushed + 1);

		if ((void *)(srh + 1) > f->end)
			return TL_DROP_REWRITE_FAILED;
		srh->nexthdr = next;
	}
	if (flow)
		pushed->flow = flow;
	if (TL_UNLIKELY(adj->flags & TL_OUTER_RFC)) {
		if (next != IPPROTO_ETHERNET)
			tl_dec_hop_limit(ctx, f->l2 + outer);
	} else {
		if (inner == IPPROTO_IPV6)
			pushed->hop_limit = hop_limit - 1;
		else if (TL_UNLIKELY(sent_on))
			pushed->hop_limit++;
		if (TL_UNLIKELY(sent_on))
			tl_dec_hop_limit(ctx, f->l2 + outer);
	}
	if (TL_UNLIKELY(next == IPPROTO_ETHERNET))
		return TL_FORWARD_H_ENCAPS_L2;
	return inner == IPPROTO_IPV6 ? TL_FORWARD_H_ENCAPS_IPV6 : TL_FORWARD_H_ENCAPS_IPV4;
}

/*
 * H.Insert: the adjacency's header takes the place of the packet's, which lends it all but the SRH and the
 * destination. The SRH's last segment is the destination that the packet had.
 */
TL_INLINE __u32 tl_h_insert(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj)
{
	__u32 outer = adj->outer_len, verdict, len = f->l3_len + outer - sizeof(struct ipv6hdr);
	struct ipv6hdr *ip6 = f->l3, before;
	struct ipv6_sr_hdr *srh;

	if ((void *)(ip6 + 1) > f->end)
		return TL_PASS_NO_ACTION;
	before = *ip6;
	if (before.hop_limit <= 1)
		return TL_PASS_IPV6_HOP_LIMIT;
	verdict = tl_egress_check(f, adj, len);
	if (verdict != TL_GO_ON)
		return verdict;
	verdict = tl_emit(ctx, f, adj, (int)sizeof(*ip6) - (int)outer, len, TL_BE16(ETH_P_IPV6));
	if (verdict != TL_GO_ON)
		return verdict;
	if (tl_write_outer(ctx, f, adj, outer))
		return TL_DROP_REWRITE_FAILED;
	ip6 = f->l3;
	srh = (void *)(ip6 + 1);
	if ((void *)(srh + 1) + sizeof(struct in6_addr) > f->end)
		return TL_DROP_REWRITE_FAILED;
	ip6->flow = before.flow;
	ip6->payload_len = TL_BE16(len - sizeof(*ip6));
	ip6->hop_limit = before.hop_limit - 1;
	ip6->saddr = before.saddr;
	srh->nexthdr = before.nexthdr;
	*(struct in6_addr *)(srh + 1) = before.daddr;
	return TL_FORWARD_H_INSERT;
}

#endif
