/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Before the last step: what may be passed to the kernel, which knows of no tenants, filters and functions.
 *
 * There is one way to the kernel from a port that has any of them, and it leads through here, whatever the
 * reason. A packet is let by that was looked at to its end: the port's filters have been asked for it, and
 * what is bound to its destination and to all that the kernel could find behind it; of a tenant, what the
 * kernel keeps to itself. So is what belongs to the link. All else is a counted drop.
 */
#ifndef TRIELINE_GUARD_BPF_H
#define TRIELINE_GUARD_BPF_H

#include "function.bpf.h"
#include "endpoint.bpf.h"

#define TL_PORT_GUARDED (TL_PORT_TENANT | TL_PORT_FILTER | TL_PORT_FUNCTION)

/* Protocols between the stations of a link, by EtherType; also a length, with LLC or SNAP behind it (spanning
 * tree, IS-IS, CDP): Linux gives none of these to IP, nor finds IP in them. */
TL_INLINE int tl_of_link(__be16 proto)
{
	switch (TL_BE16(proto)) {
	case ETH_P_ARP:
	case ETH_P_SLOW: /* LACP, OAM */
	case ETH_P_PAE:	 /* 802.1X, MKA */
	case ETH_P_LLDP:
	case ETH_P_MVRP:
	case ETH_P_MMRP:
	case ETH_P_1588:
	case ETH_P_CFM:
		return 1;
	}
	return TL_BE16(proto) < ETH_P_802_3_MIN;
}

/* Whether a packet is to a group of this link or to all on it: no router forwards it. */
TL_INLINE int tl_group_of_link4(const struct iphdr *ip)
{
	return TL_BE32(ip->daddr) >> 8 == 0xe00000 || ip->daddr == 0xffffffff;
}

TL_INLINE int tl_group_of_link6(const struct ipv6hdr *ip6)
{
	return (TL_BE64(ip6->daddr.hi) & 0xff0f000000000000) == 0xff02000000000000;
}

/* The same of the packet at `at`, which lists of addresses that do not belong into the Internet may name. */
__attribute__((noinline)) int tl_to_link(struct xdp_md *ctx, __u32 at)
{
	void *end = (void *)(long)ctx->data_end, *l3 = (void *)(long)ctx->data + (at & 31);
	const struct ipv6hdr *ip6 = l3;
	const struct iphdr *ip = l3;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->version_ihl >> 4 == 4)
		return tl_group_of_link4(ip);
	return (void *)(ip6 + 1) <= end && tl_group_of_link6(ip6);
}

/* What the kernel could take a packet to: one address after another, behind its header and those inside. Not
 * on the stack, which the lookups need. */
struct tl_trail {
	struct ipv6hdr header; /* of the packet that is looked into */
	struct in6_addr to;    /* the address that was reached */
	__u32 at;	       /* where the header is */
	__u32 around;	       /* where the packet around it ends */
	__u32 end;	       /* where the packet itself ends */
	__u32 list;	       /* the segments of its SRH */
	__u8 left;	       /* those of them that are not reached yet */
	__u32 inner;	       /* the IPv6 header behind it; 0: none */
};

_Static_assert(sizeof(struct tl_trail) <= sizeof(struct tl_scratch), "a trail fits");

#define TL_BEHIND_MOST 40
#define TL_BEHIND_END (TL_GO_ON + 1)
#define TL_BEHIND_ASK (TL_GO_ON + 2)

/* Goes on to the IPv6 header at `trail->inner`. Of one inside, Linux does not look at the version. */
TL_INLINE __u32 tl_behind_in(struct xdp_md *ctx, struct tl_trail *trail)
{
	__u32 at = trail->inner, srh;
	__u64 headers;

	if (at > TL_FILTER_REACH || at + sizeof(trail->header) > trail->end ||
	    bpf_xdp_load_bytes(ctx, at, &trail->header, sizeof(trail->header)))
		return TL_DROP_HIDDEN;
	headers = tl_headers6(ctx, at, trail->end);
	if (headers & (TL_HEADERS_CUT | TL_HEADERS_STRANGE))
		return TL_DROP_HIDDEN;
	trail->to = trail->header.daddr;
	trail->at = at;
	trail->around = trail->end;
	trail->end = TL_HEADERS_END(headers);
	trail->left = 0;
	trail->inner = 0;
	srh = TL_HEADERS_SRH(headers);
	trail->list = srh + sizeof(struct ipv6_sr_hdr);
	if (srh && bpf_xdp_load_bytes(ctx, srh + __builtin_offsetof(struct ipv6_sr_hdr, segments_left),
				      &trail->left, sizeof(trail->left)))
		return TL_DROP_HIDDEN;
	if (!(headers & TL_HEADERS_LATER) && (headers & 0xff) == IPPROTO_IPV6)
		trail->inner = TL_HEADERS_AT(headers);
	return TL_GO_ON;
}

/* Goes on to the next address: one more step of NEXT-C-SID, the next segment, or the packet inside. */
__attribute__((noinline)) __u32 tl_behind_next(struct xdp_md *ctx)
{
	struct tl_csid_key key = {.len = 128};
	struct tl_trail *trail;
	struct in6_addr next;
	__u32 zero = 0, at;
	__u32 *csid;

	trail = bpf_map_lookup_elem(&scratch_frames, &zero);
	if (!trail)
		return TL_DROP_HIDDEN;
	__builtin_memcpy(key.to, &trail->to, sizeof(key.to));
	csid = bpf_map_lookup_elem(&csids, &key);
	if (csid && *csid == TL_CSID_UNKNOWN)
		return TL_DROP_HIDDEN;
	if (csid && tl_next_csid(&trail->to, *csid >> 8 & 0xff, *csid & 0xff, &next)) {
		trail->to = next;
		return TL_GO_ON;
	}
	if (trail->left) {
		trail->left--;
		at = trail->list + trail->left * sizeof(trail->to);
		if (at + sizeof(trail->to) > trail->end ||
		    bpf_xdp_load_bytes(ctx, at, &trail->to, sizeof(trail->to)))
			return TL_DROP_HIDDEN;
		return TL_GO_ON;
	}
	return trail->inner ? tl_behind_in(ctx, trail) : TL_BEHIND_END;
}

/* What is bound to the address. A program cannot be called for it, which wants the packet as the kernel makes
 * it on the way. */
TL_INLINE __u32 tl_behind_bound(struct xdp_md *ctx, const struct tl_trail *trail)
{
	struct in6_addr to = trail->to;
	struct tl_function *function = bpf_map_lookup_elem(&functions, &to);

	if (!function)
		return TL_GO_ON;
	if (function->kind == TL_FUNCTION_PCAP)
		tl_capture_in(ctx, function->index);
	if (function->kind == TL_FUNCTION_FILTER)
		return TL_BEHIND_ASK | function->index << 8;
	return function->kind == TL_FUNCTION_PROGRAM ? TL_DROP_HIDDEN : TL_GO_ON;
}

/*
 * What is bound to the addresses that the kernel could take the IPv6 packet at `at` to, beyond its
 * destination: TL_GO_ON, a verdict, or TL_BEHIND_ASK with a list of filters (from bit 8 on) that are to be
 * asked, and for which header (its place from bit 16 on, where the packet around it ends from bit 32).
 * Several such lists are one too many.
 */
__attribute__((noinline)) __u64 tl_behind(struct xdp_md *ctx, __u32 at)
{
	__u32 zero = 0, i, said;
	struct tl_trail *trail = bpf_map_lookup_elem(&scratch_frames, &zero);
	__u64 ask = TL_GO_ON;

	if (!trail)
		return TL_DROP_HIDDEN;
	trail->inner = at;
	trail->end = TL_NO_END;
	said = tl_behind_in(ctx, trail);
	for (i = 0; i < TL_BEHIND_MOST && said == TL_GO_ON; i++) {
		said = tl_behind_next(ctx);
		if (said == TL_GO_ON)
			said = tl_behind_bound(ctx, trail);
		if ((said & 0xff) == TL_BEHIND_ASK) {
			if (ask != TL_GO_ON)
				return TL_DROP_HIDDEN;
			ask = said | (__u64)trail->at << 16 | (__u64)trail->around << 32;
			said = TL_GO_ON;
		}
	}
	if (said == TL_BEHIND_END)
		return ask;
	return said == TL_GO_ON ? TL_DROP_HIDDEN : said;
}

/* The filters' answer, called apart. */
__attribute__((noinline)) __u32 tl_behind_filter(struct xdp_md *ctx, __u32 at, __u32 end, __u32 list)
{
	return tl_function_filter(ctx, at, end, list);
}

/* What becomes of the packet for what is behind its destination. */
TL_INLINE __u32 tl_looked_into(struct xdp_md *ctx, __u32 at)
{
	__u64 said = tl_behind(ctx, at);

	if ((said & 0xff) == TL_BEHIND_ASK)
		return tl_behind_filter(ctx, said >> 16 & 0xffff, said >> 32, said >> 8 & 0xff);
	return said;
}

/* Whether the kernel's own tables and the tenant's say that an address is this node's, or a broadcast
 * address.
 */
TL_INLINE int tl_own4(__u32 view, __be32 source, __be32 address)
{
	return tl_action_word(tl_table4(TL_MAIN4, TL_BE32(address))) == TL_VERDICT_WORD(TL_PASS_LOCAL) &&
	       tl_action_word(tl_view_value4(view, source, address)) == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

TL_INLINE int tl_own6(__u32 view, __u64 hi, __u64 lo)
{
	return tl_action_word(tl_table6(TL_MAIN6, hi, lo)) == TL_VERDICT_WORD(TL_PASS_LOCAL) &&
	       tl_action_word(tl_view_value6(view, 0, 0, hi, lo)) == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

/* Whether the kernel could find another packet in one of this protocol, and route that. */
TL_INLINE int tl_carries(__u32 protocol)
{
	switch (protocol) {
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
	case IPPROTO_ROUTING:
	case IPPROTO_GRE:
	case IPPROTO_PIM: /* a register carries a packet to a group */
	case IPPROTO_COMP:
	case IPPROTO_L2TP:
	case IPPROTO_MPLS:
	case IPPROTO_ETHERNET:
		return 1;
	}
	return 0;
}

/* The same of the headers behind the IPv6 header at `at`; of those that cannot be read, too. A routing header
 * may lead to another address. */
TL_INLINE int tl_carries6(struct xdp_md *ctx, __u32 at)
{
	__u64 headers = tl_headers6(ctx, at, TL_NO_END);

	return headers & (TL_HEADERS_CUT | TL_HEADERS_ROUTED) ||
	       (!(headers & TL_HEADERS_LATER) && tl_carries(headers & 0xff));
}

/*
 * Whether the kernel keeps a tenant's packet at `at` to itself: one to a group of the link (others it may
 * forward, as a multicast router does), to all on the link, to a link-local address, or to one that both its
 * own tables and the tenant's have; with nothing inside that it would route.
 */
__attribute__((noinline)) int tl_kept(struct xdp_md *ctx, __u32 at, __u32 view4, __u32 view6)
{
	void *end = (void *)(long)ctx->data_end;
	void *l3 = (void *)(long)ctx->data + (at & 31);
	const struct ipv6hdr *ip6 = l3;
	const struct iphdr *ip = l3;
	__u64 hi, lo;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->version_ihl >> 4 == 4) {
		if (tl_carries(ip->protocol))
			return 0;
		return tl_group_of_link4(ip) ||
		       (ip->version_ihl == 0x45 && tl_own4(view4, ip->saddr, ip->daddr));
	}
	if ((void *)(ip6 + 1) > end)
		return 0;
	hi = TL_BE64(ip6->daddr.hi);
	lo = TL_BE64(ip6->daddr.lo);
	if (tl_carries6(ctx, at & 31))
		return 0;
	return tl_group_of_link6(ip6) || hi >> 54 == 0xfe80 >> 6 || tl_own6(view6, hi, lo);
}

/* What the kernel may get though it does not know the tenant; anything else it would route by tables that are
 * not the tenant's. */
TL_INLINE int tl_of_tenant(struct xdp_md *ctx, const struct tl_frame *f, __u32 verdict)
{
	switch (verdict) {
	case TL_PASS_OTHER_DESTINATION:
	case TL_PASS_IPV4_SPECIAL:
	case TL_PASS_IPV6_SPECIAL:
	case TL_PASS_LOCAL:
		return tl_kept(ctx, f->l2, f->port->table4, f->port->table6);
	}
	return 0;
}

/* What becomes of a packet that is `verdict` so far. */
TL_INLINE __u32 tl_guard(struct xdp_md *ctx, struct tl_frame *f, __u32 verdict)
{
	__u32 flags, said = TL_GO_ON, six;

	if (TL_LIKELY(verdict < TL_PASS_FIRST) || verdict >= TL_DROP_FIRST || !f->port ||
	    TL_LIKELY(!(f->port->flags & TL_PORT_GUARDED)))
		return verdict;
	flags = f->port->flags;
	six = f->proto == TL_BE16(ETH_P_IPV6);
	if (!six && f->proto != TL_BE16(ETH_P_IP)) {
		if (tl_of_link(f->proto))
			return verdict;
		return flags & TL_PORT_TENANT ? TL_DROP_TENANT : TL_DROP_HIDDEN;
	}
	if (flags & TL_PORT_FILTER && !f->filtered &&
	    !(verdict == TL_PASS_OTHER_DESTINATION && tl_to_link(ctx, f->l2)))
		said = tl_filter_at(ctx, f->l2, TL_NO_END, six, TL_LIST_PORTS);
	if (said == TL_GO_ON && flags & TL_PORT_FUNCTION && six && verdict != TL_PASS_FUNCTION_PASS) {
		if (!f->called)
			said = tl_function_called(ctx, f->l2);
		if (said == TL_GO_ON)
			said = tl_looked_into(ctx, f->l2);
	}
	if (said != TL_GO_ON)
		verdict = said;
	if (verdict >= TL_PASS_FIRST && verdict < TL_DROP_FIRST && flags & TL_PORT_TENANT &&
	    !tl_of_tenant(ctx, f, verdict))
		return TL_DROP_TENANT;
	return verdict;
}

#endif
