/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Before the last step: what may be passed to the kernel, which knows of no tenants, filters and SID hooks.
 *
 * There is one way to the kernel from a port that has any of them, and it leads through here, whatever the
 * reason. A packet passes only if it was checked to its end. It is checked by the port's filters, and by the
 * hooks bound to its destination and to all that the kernel could find behind it. A tenant's packet passes
 * only if the kernel keeps it to itself. So do packets that belong to the link. XDP drops and counts all
 * else.
 */
#ifndef TRIELINE_GUARD_BPF_H
#define TRIELINE_GUARD_BPF_H

#include "sid_hook/sid_hook.bpf.h"
#include "srv6/endpoint.bpf.h"

/* Protocols between the stations of a link, by EtherType; also a length, with LLC or SNAP behind it (spanning
 * tree, IS-IS, CDP). Linux gives none of these to IP, nor finds IP in them. */
TL_INLINE int tl_is_link_protocol(__be16 proto)
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

/* The addresses that the kernel could take a packet to, one after another: behind its header and those
 * inside. Not on the stack, which the lookups need. */
struct tl_nested_walk {
	struct ipv6hdr header; /* of the packet that is looked into */
	struct in6_addr to;    /* the address that was reached */
	__u32 at;	       /* where the header is */
	__u32 around;	       /* where the packet around it ends */
	__u32 end;	       /* where the packet itself ends */
	__u32 list;	       /* the segments of its SRH */
	__u32 inner;	       /* the packet inside, or the tunnel's header; 0: none */
	__u8 left;	       /* segments that are not reached yet */
	__u8 kind;	       /* the protocol of what is inside */
	__u8 at_address;       /* whether `to` was reached, not a tunnel's header behind it */
	__u64 ask;	       /* what tl_nested() answers at the end */
};

_Static_assert(sizeof(struct tl_nested_walk) <= sizeof(struct tl_scratch), "a trail fits");

/* Of a GRE header, the first two bytes. */
#define TL_GRE_CHECKSUM 0x8000
#define TL_GRE_ROUTING 0x4000
#define TL_GRE_KEY 0x2000
#define TL_GRE_SEQUENCE 0x1000
#define TL_GRE_VERSION 0x0007

#define TL_NESTED_MOST 40
#define TL_TUNNELS_MOST 6 /* headers of IPv4 and GRE one in another */
#define TL_NESTED_END (TL_GO_ON + 1)
#define TL_NESTED_FILTER (TL_GO_ON + 2)
#define TL_NESTED_TUNNEL (TL_GO_ON + 3)

/* Goes on to the IPv6 header at `trail->inner`. Of one inside, Linux does not look at the version. */
TL_INLINE __u32 tl_nested_in(struct xdp_md *ctx, struct tl_nested_walk *trail)
{
	__u32 at = trail->inner, srh;
	__u64 headers;

	if (at > TL_FILTER_REACH || at + sizeof(trail->header) > trail->end ||
	    bpf_xdp_load_bytes(ctx, at, &trail->header, sizeof(trail->header)))
		return TL_DROP_UNINSPECTABLE;
	headers = tl_headers6(ctx, at, trail->end);
	if (headers & (TL_HEADERS_CUT | TL_HEADERS_STRANGE))
		return TL_DROP_UNINSPECTABLE;
	trail->to = trail->header.daddr;
	trail->at_address = 1;
	trail->at = at;
	trail->around = trail->end;
	trail->end = TL_HEADERS_END(headers);
	trail->left = 0;
	srh = TL_HEADERS_SRH(headers);
	trail->list = srh + sizeof(struct ipv6_sr_hdr);
	if (srh && bpf_xdp_load_bytes(ctx, srh + __builtin_offsetof(struct ipv6_sr_hdr, segments_left),
				      &trail->left, sizeof(trail->left)))
		return TL_DROP_UNINSPECTABLE;
	trail->kind = headers;
	trail->inner = headers & TL_HEADERS_LATER || !tl_carries(trail->kind) ? 0 : TL_HEADERS_AT(headers);
	return TL_GO_ON;
}

/* Whether this is an address of this node, a broadcast or a multicast address: a tunnel of the kernel's takes
 * only packets to these. A bit says so that few others have. */
TL_INLINE int tl_may_end4(__be32 address)
{
	__u32 zero = 0, bit = TL_LOCAL_BIT(address);
	struct tl_local_addrs *own = bpf_map_lookup_elem(&local_addrs, &zero);

	return !own || own->bits[bit / 64] >> bit % 64 & 1 || TL_BE32(address) >> 28 >= 0xe ||
	       tl_action_word(tl_table4(TL_MAIN4, TL_BE32(address))) == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

/* Goes into the IPv4 packet at `at`, if this node may be where it ends. Of later fragments there is nothing
 * inside, and a first one must hold all headers. */
TL_INLINE __u32 tl_nested_in4(struct xdp_md *ctx, struct tl_nested_walk *trail, __u32 at)
{
	struct iphdr ip;
	__u32 bytes;

	if (at > TL_FILTER_REACH || at + sizeof(ip) > trail->end ||
	    bpf_xdp_load_bytes(ctx, at, &ip, sizeof(ip)))
		return TL_DROP_UNINSPECTABLE;
	bytes = (ip.version_ihl & 0xf) * 4;
	if (ip.version_ihl >> 4 != 4 || bytes < sizeof(ip) || ip.frag_off & TL_BE16(0x1fff) ||
	    !tl_carries(ip.protocol) || !tl_may_end4(ip.daddr))
		return TL_GO_ON;
	if (at + TL_BE16(ip.tot_len) < trail->end)
		trail->end = at + TL_BE16(ip.tot_len);
	trail->inner = at + bytes;
	trail->kind = ip.protocol;
	return TL_GO_ON;
}

/* Goes into the GRE header at `at` (RFC 2784, RFC 2890), behind which IPv4 and IPv6 can be looked at. */
TL_INLINE __u32 tl_nested_in_gre(struct xdp_md *ctx, struct tl_nested_walk *trail, __u32 at)
{
	__be16 head[2];
	__u32 flags;

	if (at > TL_FILTER_REACH || at + sizeof(head) > trail->end ||
	    bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
		return TL_DROP_UNINSPECTABLE;
	flags = TL_BE16(head[0]);
	if (flags & (TL_GRE_ROUTING | TL_GRE_VERSION))
		return TL_DROP_UNINSPECTABLE;
	if (TL_BE16(head[1]) == ETH_P_IP)
		trail->kind = IPPROTO_IPIP;
	else if (TL_BE16(head[1]) == ETH_P_IPV6)
		trail->kind = IPPROTO_IPV6;
	else
		return TL_DROP_UNINSPECTABLE;
	trail->inner =
	    at + sizeof(head) +
	    (!!(flags & TL_GRE_CHECKSUM) + !!(flags & TL_GRE_KEY) + !!(flags & TL_GRE_SEQUENCE)) * 4;
	return TL_GO_ON;
}

/* Goes on to the next address: one more step of NEXT-C-SID, the next segment, or the packet inside. */
__attribute__((noinline)) __u32 tl_nested_next(struct xdp_md *ctx)
{
	struct tl_csid_key key = {.len = 128};
	struct tl_nested_walk *trail;
	struct in6_addr next;
	__u32 zero = 0, at;
	__u32 *csid;

	trail = bpf_map_lookup_elem(&scratch_frames, &zero);
	if (!trail)
		return TL_DROP_UNINSPECTABLE;
	__builtin_memcpy(key.to, &trail->to, sizeof(key.to));
	csid = trail->at_address ? bpf_map_lookup_elem(&csids, &key) : NULL;
	if (csid && *csid == TL_CSID_UNKNOWN)
		return TL_DROP_UNINSPECTABLE;
	if (csid && tl_next_csid(&trail->to, *csid >> 8 & 0xff, *csid & 0xff, &next)) {
		trail->to = next;
		return TL_GO_ON;
	}
	if (trail->left) {
		trail->left--;
		at = trail->list + trail->left * sizeof(trail->to);
		if (at + sizeof(trail->to) > trail->end ||
		    bpf_xdp_load_bytes(ctx, at, &trail->to, sizeof(trail->to)))
			return TL_DROP_UNINSPECTABLE;
		return TL_GO_ON;
	}
	if (!trail->inner)
		return TL_NESTED_END;
	return trail->kind == IPPROTO_IPV6 ? tl_nested_in(ctx, trail) : TL_NESTED_TUNNEL;
}

/* The hook bound to the address. A program cannot be called for it, which wants the packet as the kernel
 * makes it on the way. */
TL_INLINE __u32 tl_nested_bound(struct xdp_md *ctx, const struct tl_nested_walk *trail)
{
	struct in6_addr to = trail->to;
	struct tl_sid_hook *sid_hook = bpf_map_lookup_elem(&sid_hooks, &to);

	if (!sid_hook)
		return TL_GO_ON;
	if (sid_hook->kind == TL_SID_HOOK_PCAP)
		tl_capture_in(ctx, sid_hook->index);
	if (sid_hook->kind == TL_SID_HOOK_FILTER)
		return TL_NESTED_FILTER | sid_hook->index << 8;
	return sid_hook->kind == TL_SID_HOOK_PROGRAM ? TL_DROP_UNINSPECTABLE : TL_GO_ON;
}

/*
 * The answer for the addresses that the kernel could take the IPv6 packet at `at` to, beyond its destination:
 * TL_GO_ON, a verdict, TL_NESTED_FILTER or TL_NESTED_TUNNEL. `kind` is the protocol by which another packet
 * would carry the one at `at`: IPPROTO_IPV6 or IPPROTO_IPIP.
 *
 * TL_NESTED_FILTER names a list of filters to ask (from bit 8 on) and their header's place (from bit 16
 * on). It also names where the packet around it ends (from bit 32 on). Several such lists are one too many.
 *
 * After TL_NESTED_TUNNEL the caller calls tl_nested_tunnel(), then this again, without `kind`: from here the
 * stack is too short for lookups.
 */
__attribute__((noinline)) __u64 tl_nested(struct xdp_md *ctx, __u32 at, __u32 kind)
{
	__u32 zero = 0, i, answer = TL_GO_ON;
	struct tl_nested_walk *trail = bpf_map_lookup_elem(&scratch_frames, &zero);

	if (!trail)
		return TL_DROP_UNINSPECTABLE;
	if (kind) {
		trail->ask = TL_GO_ON;
		trail->inner = at;
		trail->end = TL_NO_END;
		trail->kind = kind;
		answer = kind == IPPROTO_IPV6 ? tl_nested_in(ctx, trail) : TL_NESTED_TUNNEL;
	}
	for (i = 0; i < TL_NESTED_MOST && answer == TL_GO_ON; i++) {
		answer = tl_nested_next(ctx);
		if (answer == TL_GO_ON)
			answer = tl_nested_bound(ctx, trail);
		if ((answer & 0xff) == TL_NESTED_FILTER) {
			if (trail->ask != TL_GO_ON)
				return TL_DROP_UNINSPECTABLE;
			trail->ask = answer | (__u64)trail->at << 16 | (__u64)trail->around << 32;
			answer = TL_GO_ON;
		}
	}
	if (answer == TL_NESTED_END)
		return trail->ask;
	return answer == TL_GO_ON ? TL_DROP_UNINSPECTABLE : answer;
}

/* Whether a tunnel over IPv6 that was found may end at this node, by main and the port's lookup id; of others
 * tl_nested_tunnel() knows. A function of its own, as the lookup of rules needs the stack. */
__attribute__((noinline)) int tl_nested_ends(__u32 lookup)
{
	__u32 zero = 0;
	struct tl_nested_walk *trail = bpf_map_lookup_elem(&scratch_frames, &zero);
	__u64 hi, lo;

	if (!trail || !trail->at_address || trail->kind == IPPROTO_IPIP)
		return 1;
	hi = TL_BE64(trail->to.hi);
	lo = TL_BE64(trail->to.lo);
	return hi >> 56 == 0xff ||
	       tl_action_word(tl_table6(TL_MAIN6, hi, lo)) == TL_VERDICT_WORD(TL_PASS_LOCAL) ||
	       tl_action_word(tl_lookup_value6(lookup, 0, 0, hi, lo)) == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

/* Goes into what is not IPv6: an IPv4 packet, or a tunnel that may end at this node (`ends`). */
__attribute__((noinline)) __u32 tl_nested_tunnel(struct xdp_md *ctx, int ends)
{
	__u32 zero = 0, at;
	struct tl_nested_walk *trail = bpf_map_lookup_elem(&scratch_frames, &zero);

	if (!trail)
		return TL_DROP_UNINSPECTABLE;
	at = trail->inner;
	trail->inner = 0;
	trail->at_address = 0;
	if (!ends)
		return TL_GO_ON;
	if (trail->kind == IPPROTO_IPIP)
		return tl_nested_in4(ctx, trail, at);
	return trail->kind == IPPROTO_GRE ? tl_nested_in_gre(ctx, trail, at) : TL_DROP_UNINSPECTABLE;
}

/* The filters' answer, called apart. */
__attribute__((noinline)) __u32 tl_nested_filter(struct xdp_md *ctx, __u32 at, __u32 end, __u32 list)
{
	return tl_sid_hook_filter(ctx, at, end, list);
}

/* The verdict on the packet by the addresses behind its destination. */
TL_INLINE __u32 tl_nested_check(struct xdp_md *ctx, const struct tl_frame *f, __u32 kind)
{
	__u64 answer = tl_nested(ctx, f->l2, kind);
	__u32 i;

	for (i = 0; i < TL_TUNNELS_MOST && answer == TL_NESTED_TUNNEL; i++) {
		answer = tl_nested_tunnel(ctx, tl_nested_ends(f->port->table6));
		if (answer == TL_GO_ON)
			answer = tl_nested(ctx, 0, 0);
	}
	if (answer == TL_NESTED_TUNNEL)
		return TL_DROP_UNINSPECTABLE;
	if ((answer & 0xff) == TL_NESTED_FILTER)
		return tl_nested_filter(ctx, answer >> 16 & 0xffff, answer >> 32, answer >> 8 & 0xff);
	return answer;
}

/* Whether the kernel's own tables and the tenant's say that an address is this node's, or a broadcast
 * address.
 */
TL_INLINE int tl_is_local4(__u32 lookup, __be32 source, __be32 address)
{
	return tl_action_word(tl_table4(TL_MAIN4, TL_BE32(address))) == TL_VERDICT_WORD(TL_PASS_LOCAL) &&
	       tl_action_word(tl_lookup_value4(lookup, source, address)) == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

TL_INLINE int tl_is_local6(__u32 lookup, __u64 hi, __u64 lo)
{
	return tl_action_word(tl_table6(TL_MAIN6, hi, lo)) == TL_VERDICT_WORD(TL_PASS_LOCAL) &&
	       tl_action_word(tl_lookup_value6(lookup, 0, 0, hi, lo)) == TL_VERDICT_WORD(TL_PASS_LOCAL);
}

/*
 * Whether the kernel keeps a tenant's packet at `at` to itself, with nothing inside that it would route. It
 * keeps packets to a group of the link (others it may forward, as a multicast router does), and to all on
 * the link. It keeps packets to a link-local address, or to an address that both its own tables and the
 * tenant's have.
 */
__attribute__((noinline)) int tl_is_tenant_local(struct xdp_md *ctx, __u32 at, __u32 lookup4, __u32 lookup6)
{
	void *end = (void *)(long)ctx->data_end;
	void *l3 = (void *)(long)ctx->data + (at & 31);
	const struct ipv6hdr *ip6 = l3;
	const struct iphdr *ip = l3;
	__u64 hi, lo;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->version_ihl >> 4 == 4) {
		/* PIM: a register carries a packet to a group. */
		if (tl_carries(ip->protocol) || ip->protocol == IPPROTO_PIM)
			return 0;
		return tl_is_link_group4(ip) ||
		       (ip->version_ihl == 0x45 && tl_is_local4(lookup4, ip->saddr, ip->daddr));
	}
	if ((void *)(ip6 + 1) > end)
		return 0;
	hi = TL_BE64(ip6->daddr.hi);
	lo = TL_BE64(ip6->daddr.lo);
	if (tl_carries6(ctx, at & 31, IPPROTO_PIM))
		return 0;
	return tl_is_link_group6(ip6) || hi >> 54 == 0xfe80 >> 6 || tl_is_local6(lookup6, hi, lo);
}

/* Packets that the kernel may get though it does not know the tenant; others it would route by tables that
 * are not the tenant's. */
TL_INLINE int tl_tenant_may_pass(struct xdp_md *ctx, const struct tl_frame *f, __u32 verdict)
{
	switch (verdict) {
	case TL_PASS_MAC_MISMATCH:
	case TL_PASS_IPV4_SPECIAL_PURPOSE:
	case TL_PASS_IPV6_SPECIAL_PURPOSE:
	case TL_PASS_LOCAL:
		return tl_is_tenant_local(ctx, f->l2, f->port->table4, f->port->table6);
	}
	return 0;
}

/* The final verdict on a packet that is `verdict` so far. */
TL_INLINE __u32 tl_guard(struct xdp_md *ctx, struct tl_frame *f, __u32 verdict)
{
	__u32 flags, answer = TL_GO_ON, inside = TL_GO_ON, six;

	if (TL_LIKELY(verdict < TL_PASS_FIRST) || verdict >= TL_DROP_FIRST || !f->port ||
	    TL_LIKELY(!(f->port->flags & TL_PORT_GUARDED)))
		return verdict;
	flags = f->port->flags;
	six = f->proto == TL_BE16(ETH_P_IPV6);
	if (!six && f->proto != TL_BE16(ETH_P_IP)) {
		if (tl_is_link_protocol(f->proto))
			return verdict;
		return flags & TL_PORT_TENANT ? TL_DROP_TENANT : TL_DROP_UNINSPECTABLE;
	}
	if (flags & TL_PORT_FILTER && !f->filtered)
		answer = tl_filter_at(ctx, f->l2, TL_NO_END, six, tl_port_list(ctx, f, six));
	/* A filter that passes a packet says nothing of its SID's function. */
	if ((answer == TL_GO_ON || answer == TL_PASS_FILTER) && flags & TL_PORT_SID_HOOK &&
	    verdict != TL_PASS_SID_HOOK_PASS) {
		if (six && !f->called)
			inside = tl_sid_hook_called(ctx, f->l2);
		if (inside == TL_GO_ON)
			inside = tl_nested_check(ctx, f, six ? IPPROTO_IPV6 : IPPROTO_IPIP);
		if (inside != TL_GO_ON)
			answer = inside;
	}
	if (answer != TL_GO_ON)
		verdict = answer;
	if (verdict >= TL_PASS_FIRST && verdict < TL_DROP_FIRST && flags & TL_PORT_TENANT &&
	    !tl_tenant_may_pass(ctx, f, verdict))
		return TL_DROP_TENANT;
	return verdict;
}

#endif
