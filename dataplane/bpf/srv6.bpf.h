/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SRv6 behaviours (RFC 8986), byte for byte as Linux does them (net/ipv6/seg6_local.c, seg6_iptunnel.c).
 */
#ifndef TRIELINE_SRV6_BPF_H
#define TRIELINE_SRV6_BPF_H

#include "rewrite.bpf.h"

/*
 * Bytes of the outer headers of an IPv6 packet that carries IPv4, with or without an SRH. Else a verdict in
 * *verdict.
 *
 * Linux ignores an SRH it finds invalid and decapsulates all the same, checks an HMAC, walks other extension
 * headers: all that is left to it.
 */
TL_INLINE __u32 tl_outer_bytes(const struct tl_frame *f, __u32 *verdict)
{
	const struct ipv6hdr *ip6 = f->l3;
	const struct ipv6_sr_hdr *srh = (const void *)(ip6 + 1);

	if (TL_LIKELY(ip6->nexthdr == IPPROTO_IPIP))
		return sizeof(*ip6);
	*verdict = TL_PASS_SEG6_HEADERS;
	if (ip6->nexthdr != IPPROTO_ROUTING || (void *)(srh + 1) > f->end)
		return 0;
	if (srh->type != IPV6_SRCRT_TYPE_4 || srh->hdrlen != 2 * (srh->first_segment + 1) || srh->flags ||
	    srh->segments_left > srh->first_segment)
		return 0;
	if (srh->segments_left) {
		*verdict = TL_DROP_SEGMENTS_LEFT;
		return 0;
	}
	if (srh->nexthdr != IPPROTO_IPIP)
		return 0;
	return sizeof(*ip6) + (srh->hdrlen + 1) * 8;
}

/* End.DX4: removes the outer headers and forwards the IPv4 packet. The outer hop limit does not matter, as in
 * Linux. */
TL_INLINE __u32 tl_end_dx4(struct xdp_md *ctx, struct tl_frame *f, __u64 word)
{
	const struct tl_port *port = f->port;
	struct tl_adjacency *adj;
	__u32 verdict, outer;
	struct iphdr *ip;

	if (!(port->flags & TL_PORT_SEG6))
		return TL_PASS_SEG6_OFF;
	if (!(port->flags & TL_PORT_FORWARD4))
		return TL_PASS_FORWARDING_OFF;
	outer = tl_outer_bytes(f, &verdict);
	if (!outer)
		return verdict;
	ip = f->l3 + outer;
	if ((void *)(ip + 1) > f->end || outer + sizeof(*ip) > f->l3_len)
		return TL_PASS_SEG6_INNER;
	f->l3_len -= outer;
	/* Linux does not look at the inner checksum here, and sends what follows the inner packet along. */
	if (ip->version_ihl != 0x45 || ip->ttl <= 1 || TL_BE16(ip->tot_len) < sizeof(*ip) ||
	    TL_BE16(ip->tot_len) > f->l3_len || tl_ipv4_special(&ip->saddr) || tl_ipv4_special(&ip->daddr))
		return TL_PASS_SEG6_INNER;
	if (!tl_reverse_path_ok(f, ip->saddr, ip->daddr))
		return TL_PASS_REVERSE_PATH;
	if (tl_action_kind(word) == TL_ACTION_END_DX4_TABLE) {
		word = tl_inner_action(port->table4, ip->saddr, ip->daddr);
		if (tl_action_kind(word) != TL_ACTION_FORWARD)
			return TL_PASS_SEG6_INNER_NO_ROUTE;
	}
	adj = tl_action_adjacency(word);
	if (!adj)
		return TL_PASS_NO_ACTION;
	verdict = tl_steer(f, adj, f->l3_len);
	if (verdict != TL_GO_ON)
		return verdict;
	verdict = tl_reframe(ctx, f, adj, outer, TL_BE16(ETH_P_IP));
	if (verdict != TL_GO_ON)
		return verdict;
	ip = f->l3;
	if ((void *)(ip + 1) > f->end)
		return TL_PASS_NO_HEADROOM;
	tl_decrease_ttl(ip);
	return TL_FORWARD_END_DX4;
}

/* Leaves `len` bytes from l3 on, and finds l3 again. */
TL_INLINE void tl_trim(struct xdp_md *ctx, struct tl_frame *f, __u32 len)
{
	bpf_xdp_adjust_tail(ctx, (int)(f->l2 + len) - (int)bpf_xdp_get_buff_len(ctx));
	f->l3 = (void *)(long)ctx->data + f->l2;
	f->end = (void *)(long)ctx->data_end;
}

/*
 * H.Encaps: pushes the adjacency's ready-made outer header and fills in what depends on the packet.
 *
 * As Linux: the inner packet stays as it came, TTL included. Over IPv4 the outer class and flow label are the
 * template's (0) and so is the hop limit; over IPv6 they are the inner ones, the hop limit less the hop to
 * here.
 */
TL_INLINE __u32 tl_h_encaps(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj,
			    __u8 inner)
{
	__u32 outer = adj->outer_len, flow = 0, verdict, i;
	const struct ipv6hdr *ip6 = f->l3;
	__u8 hop_limit = 0;
	void *l3;

	if ((f->port->flags & (TL_PORT_SEG6 | TL_PORT_FORWARD6)) != (TL_PORT_SEG6 | TL_PORT_FORWARD6))
		return TL_PASS_SEG6_OFF;
	if (inner == IPPROTO_IPV6) {
		flow = ip6->flow;
		hop_limit = ip6->hop_limit;
		if (hop_limit <= 1)
			return TL_PASS_IPV6_HOP_LIMIT;
	}
	verdict = tl_steer(f, adj, outer + f->l3_len);
	if (verdict != TL_GO_ON)
		return verdict;
	verdict = tl_reframe(ctx, f, adj, -(int)outer, TL_BE16(ETH_P_IPV6));
	if (verdict != TL_GO_ON)
		return verdict;
	/* Bytes after the IP packet (a short frame's padding) would travel along. Cutting them cannot fail,
	 * making room can: it came first. */
	if (TL_UNLIKELY(f->several || f->l3 + outer + f->l3_len < f->end))
		tl_trim(ctx, f, outer + f->l3_len);
	l3 = f->l3;
	if (l3 + sizeof(struct ipv6hdr) + sizeof(struct ipv6_sr_hdr) + 16 > f->end)
		return TL_PASS_NO_HEADROOM;
#pragma unroll
	for (i = 0; i < 8; i++)
		((__u64 *)l3)[i] = ((const __u64 *)adj->outer)[i];
	((struct ipv6hdr *)l3)->payload_len = TL_BE16(f->l3_len + outer - sizeof(struct ipv6hdr));
	((struct ipv6_sr_hdr *)(l3 + sizeof(struct ipv6hdr)))->nexthdr = inner;
	if (inner == IPPROTO_IPV6) {
		((struct ipv6hdr *)l3)->flow = flow;
		((struct ipv6hdr *)l3)->hop_limit = hop_limit - 1;
		return TL_FORWARD_H_ENCAPS_IPV6;
	}
	return TL_FORWARD_H_ENCAPS_IPV4;
}

#endif
