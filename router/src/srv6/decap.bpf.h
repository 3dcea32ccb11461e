/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SRv6 decapsulation (RFC 8986 4.4 to 4.9), byte for byte as Linux does it (net/ipv6/seg6_local.c).
 */
#ifndef TRIELINE_DECAP_BPF_H
#define TRIELINE_DECAP_BPF_H

#include "srv6/encap.bpf.h"

/*
 * Bytes of the outer headers, with or without an SRH, and the next header after them. 0: a verdict in
 * *verdict.
 *
 * Linux ignores an SRH it finds invalid and decapsulates all the same, checks an HMAC, walks other extension
 * headers: all that is left to it.
 */
TL_INLINE __u32 tl_outer_bytes(const struct tl_frame *f, __u8 *next, __u32 *verdict)
{
	const struct ipv6hdr *ip6 = f->l3;
	const struct ipv6_sr_hdr *srh = (const void *)(ip6 + 1);

	*next = ip6->nexthdr;
	if (TL_LIKELY(ip6->nexthdr != IPPROTO_ROUTING))
		return sizeof(*ip6);
	*verdict = TL_PASS_SEG6_HEADERS;
	if ((void *)(srh + 1) > f->end)
		return 0;
	if (srh->type != IPV6_SRCRT_TYPE_4 || srh->flags & SR6_FLAG1_HMAC)
		return 0;
	if (srh->segments_left) {
		if (srh->hdrlen == 2 * (srh->first_segment + 1) &&
		    srh->segments_left <= srh->first_segment + 1)
			*verdict = TL_DROP_SEGMENTS_LEFT;
		return 0;
	}
	*next = srh->nexthdr;
	return sizeof(*ip6) + (srh->hdrlen + 1) * 8;
}

/* The word of a packet that is decapsulated by a lookup id. */
TL_INLINE __u64 tl_inner_word(struct xdp_md *ctx, __u32 offset, __u64 word)
{
	word = tl_ecmp_select(ctx, offset, word);
	return tl_action_kind(word) == TL_ACTION_FORWARD ? word : TL_ACTION_NONE;
}

/* End.DX4, End.DT4: removes `outer` bytes and forwards the IPv4 packet. The outer hop limit does not matter,
 * as in Linux. */
TL_INLINE __u32 tl_decap4(struct xdp_md *ctx, struct tl_frame *f, __u64 word, __u32 outer)
{
	const struct tl_port *port = f->port;
	__u32 kind = tl_action_kind(word), verdict, lookup = port->table4;
	int cross =
	    kind == TL_ACTION_END_DX4 || kind == TL_ACTION_END_DX4_TABLE || kind == TL_ACTION_END_DX4_VRF;
	struct tl_adjacency *adj;
	struct iphdr *ip;

	if (!(port->flags & TL_PORT_FORWARD4))
		return TL_PASS_FORWARDING_OFF;
	ip = f->l3 + outer;
	if ((void *)(ip + 1) > f->end || outer + sizeof(*ip) > f->l3_len)
		return TL_PASS_SEG6_INNER;
	f->l3_len -= outer;
	/* Linux does not look at the inner checksum here, and sends what follows the inner packet along. */
	if (ip->version_ihl != 0x45 || ip->ttl <= 1 || TL_BE16(ip->tot_len) < sizeof(*ip) ||
	    TL_BE16(ip->tot_len) > f->l3_len || tl_ipv4_special_purpose(&ip->saddr) ||
	    tl_ipv4_special_purpose(&ip->daddr))
		return TL_PASS_SEG6_INNER;
	/* The source of what End.DT4 forwards is the VRF's: user space sees to its reverse path filter. */
	if (cross && tl_reverse_path(f, ip->saddr, ip->daddr) != TL_GO_ON)
		return TL_PASS_REVERSE_PATH;
	if (kind != TL_ACTION_END_DX4) {
		if (kind == TL_ACTION_END_DT4 || kind == TL_ACTION_END_DX4_VRF) {
			lookup = tl_action_index(word);
		} else if (kind == TL_ACTION_END_DT46) {
			adj = tl_action_adjacency(word);
			if (!adj)
				return TL_PASS_NO_ACTION;
			lookup = ((struct tl_dt46 *)adj)->lookup4;
		}
		if (!cross && tl_local_source(lookup, ip->saddr, ip->daddr))
			return TL_PASS_REVERSE_PATH;
		word = tl_inner_word(ctx, f->l2 + outer, tl_inner_action4(lookup, ip->saddr, ip->daddr));
		if (!word)
			return TL_PASS_SEG6_INNER_NO_ROUTE;
	}
	adj = tl_action_adjacency(word);
	if (!adj)
		return TL_PASS_NO_ACTION;
	verdict = tl_send4(ctx, f, adj, lookup, ip, outer);
	if (verdict != TL_GO_ON)
		return verdict;
	return cross ? TL_FORWARD_END_DX4 : TL_FORWARD_END_DT4;
}

/* End.DX6, End.DT6: likewise an IPv6 packet. */
TL_INLINE __u32 tl_decap6(struct xdp_md *ctx, struct tl_frame *f, __u64 word, __u32 outer)
{
	__u32 kind = tl_action_kind(word), verdict, lookup = f->port->table6;
	struct tl_adjacency *adj;
	struct ipv6hdr *ip6;

	ip6 = f->l3 + outer;
	if ((void *)(ip6 + 1) > f->end || outer + sizeof(*ip6) > f->l3_len)
		return TL_PASS_SEG6_INNER;
	f->l3_len -= outer;
	if (TL_UNLIKELY(f->port->flags & TL_PORT_PROXY_NDP) && tl_is_ndp(ctx, f->l2 + outer))
		return TL_PASS_PROXY_NDP;
	if (*(__u8 *)ip6 >> 4 != 6 || ip6->hop_limit <= 1 || ip6->nexthdr == IPPROTO_HOPOPTS ||
	    TL_BE16(ip6->payload_len) + sizeof(*ip6) > f->l3_len || tl_ipv6_special_purpose(&ip6->saddr) ||
	    tl_ipv6_special_purpose(&ip6->daddr))
		return TL_PASS_SEG6_INNER;
	if (kind != TL_ACTION_END_DX6) {
		if (kind == TL_ACTION_END_DT6 || kind == TL_ACTION_END_DX6_VRF) {
			lookup = tl_action_index(word);
		} else if (kind == TL_ACTION_END_DT46) {
			adj = tl_action_adjacency(word);
			if (!adj)
				return TL_PASS_NO_ACTION;
			lookup = ((struct tl_dt46 *)adj)->lookup6;
		}
		word = tl_inner_word(ctx, f->l2 + outer, tl_inner_action6(lookup, &ip6->saddr, &ip6->daddr));
		if (!word)
			return TL_PASS_SEG6_INNER_NO_ROUTE;
	}
	adj = tl_action_adjacency(word);
	if (!adj)
		return TL_PASS_NO_ACTION;
	verdict = tl_send6(ctx, f, adj, lookup, ip6, outer, 0);
	if (verdict != TL_GO_ON)
		return verdict;
	return kind == TL_ACTION_END_DT6 || kind == TL_ACTION_END_DT46 ? TL_FORWARD_END_DT6
								       : TL_FORWARD_END_DX6;
}

/* The packet inside decides for End.DT46, and must be of the family that every other behaviour expects: Linux
 * drops the rest, unless more headers follow. */
TL_INLINE __u32 tl_decap(struct xdp_md *ctx, struct tl_frame *f, __u64 word)
{
	__u32 kind = tl_action_kind(word), verdict, outer;
	int four, six;
	__u8 next;

	outer = tl_outer_bytes(f, &next, &verdict);
	if (!outer)
		return verdict;
	six = kind == TL_ACTION_END_DX6 || kind == TL_ACTION_END_DX6_TABLE || kind == TL_ACTION_END_DX6_VRF ||
	      kind == TL_ACTION_END_DT6;
	four = !six;
	if (kind == TL_ACTION_END_DT46)
		six = 1;
	if (next == IPPROTO_IPIP && four)
		return tl_decap4(ctx, f, word, outer);
	if (next == IPPROTO_IPV6 && six)
		return tl_decap6(ctx, f, word, outer);
	return TL_PASS_SEG6_HEADERS;
}

/*
 * End.DX2: the inner frame leaves as it is. Linux drops a frame that is too long for the device, or whose
 * EtherType is a length.
 */
TL_INLINE __u32 tl_end_dx2(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj)
{
	const struct ethhdr *eth;
	__u32 verdict, outer;
	__u8 next;

	outer = tl_outer_bytes(f, &next, &verdict);
	if (!outer)
		return verdict;
	eth = f->l3 + outer;
	if (next != IPPROTO_ETHERNET)
		return TL_PASS_SEG6_HEADERS;
	if ((void *)(eth + 1) > f->end || outer + sizeof(*eth) > f->l3_len ||
	    TL_BE16(eth->h_proto) < ETH_P_802_3_MIN)
		return TL_PASS_SEG6_LINK;
	verdict = tl_egress_check(f, adj, f->l3_len - outer - sizeof(*eth));
	if (verdict != TL_GO_ON)
		return verdict;
	tl_trim(ctx, f, f->l3_len);
	if (bpf_xdp_adjust_head(ctx, (int)(f->l2 + outer)))
		return TL_DROP_REWRITE_FAILED;
	return TL_FORWARD_END_DX2;
}

#endif
