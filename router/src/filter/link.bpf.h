/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Packets between the stations of one link: neighbour discovery, DHCP, OSPF, BGP over link-local addresses.
 * Lists of addresses that do not belong into the Internet name them, too. Filters leave them alone unless
 * they say otherwise.
 *
 * No router forwards such a packet. Or it is for this node itself, and the kernel gets it. None has another
 * packet inside, which a tunnel of the kernel's would take out and route.
 */
#ifndef TRIELINE_LINK_BPF_H
#define TRIELINE_LINK_BPF_H

#include "xdp/headers.bpf.h"
#include "xdp/lookup.bpf.h"

/* Neighbour and router discovery, redirects (RFC 4861 4). */
#define TL_ND_FIRST 133
#define TL_ND_LAST 137
#define TL_DHCP_SERVER 67
#define TL_DHCP_CLIENT 68

/* Whether a packet is to a group of this link or to all on it: no router forwards it. */
TL_INLINE int tl_is_link_group4(const struct iphdr *ip)
{
	return TL_BE32(ip->daddr) >> 8 == 0xe00000 || ip->daddr == 0xffffffff;
}

TL_INLINE int tl_is_link_group6(const struct ipv6hdr *ip6)
{
	return (TL_BE64(ip6->daddr.hi) & 0xff0f000000000000) == 0xff02000000000000;
}

TL_INLINE int tl_is_link_local4(__be32 address) { return TL_BE32(address) >> 16 == 0xa9fe; }

TL_INLINE int tl_is_link_local6(__u64 hi) { return hi >> 54 == 0xfe80 >> 6; }

/* Whether the kernel could find another packet in one of this protocol, and route that. */
TL_INLINE int tl_carries(__u32 protocol)
{
	switch (protocol) {
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
	case IPPROTO_ROUTING:
	case IPPROTO_GRE:
	case IPPROTO_COMP:
	case IPPROTO_L2TP:
	case IPPROTO_MPLS:
	case IPPROTO_ETHERNET:
		return 1;
	}
	return 0;
}

/* The same of the headers behind the IPv6 header at `at`; of those that cannot be read, too. A routing header
 * may lead to another address. `also` is one more protocol. */
TL_INLINE int tl_carries6(struct xdp_md *ctx, __u32 at, __u32 also)
{
	__u64 headers = tl_headers6(ctx, at, TL_NO_END);

	return headers & (TL_HEADERS_CUT | TL_HEADERS_ROUTED) ||
	       (!(headers & TL_HEADERS_LATER) && (tl_carries(headers & 0xff) || (headers & 0xff) == also));
}

/* Whether the packet may be one of the link, asked of each that meets filters. */
TL_INLINE int tl_may_be_of_link4(struct xdp_md *ctx, __u32 at)
{
	void *end = (void *)(long)ctx->data_end, *l3 = (void *)(long)ctx->data + (at & 31);
	const struct iphdr *ip = l3;
	const __be16 *ports = l3 + sizeof(*ip);

	if ((void *)(ip + 1) > end)
		return 0;
	switch (ip->protocol) {
	case IPPROTO_IGMP:
	case IPPROTO_OSPF:
		return 1;
	case IPPROTO_UDP:
		if ((void *)(ports + 2) <= end &&
		    (ports[1] == TL_BE16(TL_DHCP_SERVER) || ports[1] == TL_BE16(TL_DHCP_CLIENT)))
			return 1;
	}
	return tl_is_link_group4(ip) || tl_is_link_local4(ip->saddr);
}

TL_INLINE int tl_may_be_of_link6(struct xdp_md *ctx, __u32 at)
{
	void *end = (void *)(long)ctx->data_end;
	const struct ipv6hdr *ip6 = (void *)(long)ctx->data + (at & 31);

	if ((void *)(ip6 + 1) > end)
		return 0;
	return tl_is_link_local6(TL_BE64(ip6->saddr.hi)) || tl_is_link_group6(ip6) ||
	       (ip6->nexthdr == IPPROTO_ICMPV6 && ip6->hop_limit == 255);
}

/* Whether the packet at `at` is one of the link. `lookup` says which addresses are this node's. */
__attribute__((noinline)) int tl_is_of_link4(struct xdp_md *ctx, __u32 at, __u32 lookup)
{
	void *end = (void *)(long)ctx->data_end, *l3 = (void *)(long)ctx->data + (at & 31);
	const struct iphdr *ip = l3;
	const __be16 *ports = l3 + sizeof(*ip);
	__be16 from, to;

	if ((void *)(ip + 1) > end || ip->version_ihl >> 4 != 4 || tl_carries(ip->protocol))
		return 0;
	if (tl_is_link_group4(ip))
		return 1;
	/* Options may be a source route. */
	if (ip->version_ihl != 0x45 || ip->frag_off & TL_BE16(0x3fff))
		return 0;
	if (ip->protocol == IPPROTO_IGMP)
		return ip->ttl == 1 && TL_BE32(ip->daddr) >> 28 == 0xe;
	if (ip->protocol == IPPROTO_OSPF) {
		if (ip->ttl != 1 && ip->ttl != 255)
			return 0;
	} else if (!tl_is_link_local4(ip->saddr) || !tl_is_link_local4(ip->daddr)) {
		if (ip->protocol != IPPROTO_UDP || (void *)(ports + 2) > end)
			return 0;
		from = TL_BE16(ports[0]);
		to = TL_BE16(ports[1]);
		if ((from != TL_DHCP_SERVER && from != TL_DHCP_CLIENT) ||
		    (to != TL_DHCP_SERVER && to != TL_DHCP_CLIENT))
			return 0;
	}
	return tl_action_word(tl_lookup_value4(lookup, ip->saddr, ip->daddr)) ==
	       TL_VERDICT_WORD(TL_PASS_LOCAL);
}

__attribute__((noinline)) int tl_is_of_link6(struct xdp_md *ctx, __u32 at, __u32 lookup)
{
	void *end = (void *)(long)ctx->data_end, *l3 = (void *)(long)ctx->data + (at & 31);
	const struct ipv6hdr *ip6 = l3;
	const __u8 *type = l3 + sizeof(*ip6);
	__u64 hi, lo;

	if ((void *)(ip6 + 1) > end || *(__u8 *)l3 >> 4 != 6 || tl_carries6(ctx, at & 31, TL_NO_END))
		return 0;
	if (tl_is_link_group6(ip6))
		return 1;
	hi = TL_BE64(ip6->daddr.hi);
	lo = TL_BE64(ip6->daddr.lo);
	if (tl_is_link_local6(TL_BE64(ip6->saddr.hi))) {
		/* Linux forwards nothing from a link-local address, and no group with hop limit 1: reports
		 * of MLD. */
		if (tl_is_link_local6(hi) || (hi >> 56 == 0xff && ip6->hop_limit == 1))
			return 1;
	}
	/* No router has forwarded a packet with the highest hop limit. */
	if (ip6->nexthdr != IPPROTO_ICMPV6 || ip6->hop_limit != 255 || (void *)(type + 1) > end ||
	    *type < TL_ND_FIRST || *type > TL_ND_LAST)
		return 0;
	return tl_action_word(tl_lookup_value6(lookup, TL_BE64(ip6->saddr.hi), TL_BE64(ip6->saddr.lo), hi,
					       lo)) == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

/* Whether the packet of this frame is one of the link. The kernel, which gets it, knows no declared tenants:
 * its own addresses are meant. */
TL_INLINE int tl_is_of_link(struct xdp_md *ctx, const struct tl_frame *f, __u32 ipv6)
{
	__u32 tenant = f->port->flags & TL_PORT_TENANT;

	if (ipv6)
		return tl_may_be_of_link6(ctx, f->l2) &&
		       tl_is_of_link6(ctx, f->l2, tenant ? TL_MAIN6 : f->port->table6);
	return tl_may_be_of_link4(ctx, f->l2) &&
	       tl_is_of_link4(ctx, f->l2, tenant ? TL_MAIN4 : f->port->table4);
}

#endif
