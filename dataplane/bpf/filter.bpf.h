/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Filters: sets of prefixes that a packet's source or destination is looked up in before it is routed.
 *
 * A list of filters is read in order; the first that matches and drops, passes or allows decides. Sets are
 * tables in the image: a reload swings the directory's word of one, another list the word of the list. All of
 * it is a function of its own, which only ports with filters call.
 *
 * Protocol and port are read behind at most TL_EXTENSIONS IPv6 extension headers. A filter with ports matches
 * no packet whose ports cannot be read: a later fragment, or a first one that is too short. What is left of a
 * datagram whose first fragment was dropped is never put together.
 */
#ifndef TRIELINE_FILTER_BPF_H
#define TRIELINE_FILTER_BPF_H

#include "parse.bpf.h"

#define TL_EXTENSIONS 6
#define TL_NO_PORT 0x10000

/* What filters see of a packet. */
struct tl_packet {
	__u64 destination[2]; /* host order, high half first; IPv4 in the second */
	__u64 source[2];
	__u32 ipv6;
	__u32 protocol; /* or TL_ANY_PROTOCOL, which no filter asks for */
	__u32 port;	/* destination port, or TL_NO_PORT */
};

/* Bytes of an IPv6 extension header after which another header follows; 0 for all else. */
TL_INLINE __u32 tl_extension_bytes(__u8 kind, __u8 length)
{
	switch (kind) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		return (length + 1) * 8;
	case IPPROTO_AH: /* RFC 4302, 2.2 */
		return (length + 2) * 4;
	case IPPROTO_FRAGMENT:
		return 8;
	default:
		return 0;
	}
}

/* Whether a fragment header is that of another fragment than the first. */
TL_INLINE int tl_later_fragment(const __u8 *head) { return head[2] || head[3] & 0xf8; }

/* The port that stands at the same place in all protocols that have one. */
TL_INLINE void tl_port_of(struct xdp_md *ctx, __u32 at, struct tl_packet *p)
{
	__be16 ports[2];

	switch (p->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_DCCP:
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
		if (!bpf_xdp_load_bytes(ctx, at, ports, sizeof(ports)))
			p->port = TL_BE16(ports[1]);
	}
}

/* Protocol and port of an IPv6 packet whose header says that `kind` begins at `at`; where the protocol
 * begins. */
TL_INLINE __u32 tl_upper6(struct xdp_md *ctx, __u32 at, __u8 kind, struct tl_packet *p)
{
	__u8 head[4], i;

	for (i = 0; i < TL_EXTENSIONS && tl_extension_bytes(kind, 0); i++) {
		if (bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
			return at;
		at += tl_extension_bytes(kind, head[1]);
		if (kind == IPPROTO_FRAGMENT && tl_later_fragment(head)) {
			p->protocol = head[0];
			return at;
		}
		kind = head[0];
	}
	p->protocol = kind;
	tl_port_of(ctx, at, p);
	return at;
}

/*
 * Whether the IPv6 packet that begins at `at` is one of neighbour discovery (RFC 4861 4), or hides what it is
 * behind more headers than are looked at. Asked where the kernel answers for others (proxy_ndp).
 */
__attribute__((noinline)) int tl_is_discovery(struct xdp_md *ctx, __u32 at)
{
	struct tl_packet p = {.protocol = TL_ANY_PROTOCOL};
	__u8 kind, type;

	if (bpf_xdp_load_bytes(ctx, at + __builtin_offsetof(struct ipv6hdr, nexthdr), &kind, sizeof(kind)))
		return 0;
	at = tl_upper6(ctx, at + sizeof(struct ipv6hdr), kind, &p);
	if (p.protocol != IPPROTO_ICMPV6)
		return tl_extension_bytes(p.protocol, 0);
	return !bpf_xdp_load_bytes(ctx, at, &type, sizeof(type)) && type >= 133 && type <= 137;
}

/* Whether a filter is about this packet: cheap questions first. */
TL_INLINE int tl_matches(const struct tl_filter *filter, const struct tl_packet *p)
{
	const __u64 *address = filter->source ? p->source : p->destination;
	__u32 i, in = 0;

	if (filter->protocol != TL_ANY_PROTOCOL && filter->protocol != p->protocol)
		return 0;
	if (filter->ranges) {
		for (i = 0; i < TL_FILTER_PORTS; i++)
			in |= i < filter->ranges && p->port >= filter->ports[i].first &&
			      p->port <= filter->ports[i].last;
		if (!in)
			return 0;
	}
	/* The lookups that are functions of their own: a verifier looks at each once, and one frame less is
	 * on the stack. */
	return p->ipv6 ? TL_CALL(tl_again6, TL_IMAGE, filter->table6, address[0], address[1])
		       : TL_CALL(tl_again4, TL_IMAGE, filter->table4, address[1]);
}

/* Notes for captures which filter drops or passes the packet. */
TL_INLINE void tl_filter_note(__u32 slot)
{
	struct tl_capture_scratch *scratch;
	__u32 zero = 0;

	scratch = bpf_map_lookup_elem(&capture_scratch, &zero);
	if (scratch)
		scratch->head.filter = slot + 1;
}

/* What the filters of list `list` say of the packet whose IP header begins at `at`: a verdict, or TL_GO_ON.
 * What has no whole header is not let by. */
__attribute__((noinline)) __u32 tl_filter_at(struct xdp_md *ctx, __u32 at, __u32 ipv6, __u32 list)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct tl_packet p = {.protocol = TL_ANY_PROTOCOL, .port = TL_NO_PORT, .ipv6 = ipv6};
	volatile __u64 *word = bpf_map_lookup_elem(&filter_lists, &list);
	const __u32 unread = list == TL_LIST_PORTS ? TL_DROP_HIDDEN : TL_DROP_FUNCTION_HEADERS;
	__u32 key, left, ports;

	if (!word || at > TL_FILTER_REACH)
		return unread;
	key = *word; /* one load: first and number belong together */
	left = key >> 16 & 0xff;
	ports = key & TL_LIST_UPPER;
	key &= 0xffff;
	if (ipv6) {
		const struct ipv6hdr *ip6 = data + at;

		if ((void *)(ip6 + 1) > end)
			return unread;
		p.destination[0] = TL_BE64(ip6->daddr.hi);
		p.destination[1] = TL_BE64(ip6->daddr.lo);
		p.source[0] = TL_BE64(ip6->saddr.hi);
		p.source[1] = TL_BE64(ip6->saddr.lo);
		if (ports)
			tl_upper6(ctx, at + sizeof(*ip6), ip6->nexthdr, &p);
	} else {
		const struct iphdr *ip = data + at;

		if ((void *)(ip + 1) > end)
			return unread;
		p.destination[1] = TL_BE32(ip->daddr);
		p.source[1] = TL_BE32(ip->saddr);
		p.protocol = ip->protocol;
		if (ports && !(ip->frag_off & TL_BE16(0x1fff)))
			tl_port_of(ctx, at + (ip->version_ihl & 15) * 4, &p);
	}
	for (__u32 i = 0; i < TL_FILTERS; i++) {
		struct tl_filter_count *count;
		struct tl_filter *filter;
		__u32 slot;

		if (i >= left)
			break;
		filter = bpf_map_lookup_elem(&filters, &key);
		if (!filter)
			break;
		key++;
		if (!tl_matches(filter, &p))
			continue;
		slot = filter->counter;
		count = bpf_map_lookup_elem(&filter_counters, &slot);
		if (count) {
			count->packets++;
			count->bytes += bpf_xdp_get_buff_len(ctx);
		}
		if (filter->action == TL_FILTER_ALLOW)
			break;
		if (filter->action == TL_FILTER_COUNT)
			continue;
		tl_filter_note(slot);
		return filter->action == TL_FILTER_DROP ? TL_DROP_FILTERED : TL_PASS_FILTER;
	}
	return TL_GO_ON;
}

/*
 * What the port's filters say of a packet that is `verdict` so far: another verdict, or TL_GO_ON. They also
 * hold for what is passed for its headers: the kernel does not ask them. Packets that do not come here are
 * asked for before they are passed (guard.bpf.h).
 */
TL_INLINE __u32 tl_filter_port(struct xdp_md *ctx, struct tl_frame *f, __u32 ipv6, __u32 verdict)
{
	if (TL_LIKELY(!(f->port->flags & TL_PORT_FILTER)) ||
	    (verdict >= TL_DROP_FIRST && verdict != TL_GO_ON))
		return TL_GO_ON;
	f->filtered = 1;
	return tl_filter_at(ctx, f->l2, ipv6, TL_LIST_PORTS);
}

#endif
