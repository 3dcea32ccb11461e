/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Filters: sets of prefixes that a packet's source or destination is looked up in before it is routed.
 *
 * A list of filters is read in order; the first that matches and drops, passes or allows decides. Sets are
 * tables in the image: a reload swings the directory's word of one, another list the word of the list. All of
 * it is a function of its own, which only ports with filters call.
 *
 * Where a list asks for them, protocol and ports are read as headers.bpf.h says, and a packet that has them
 * beyond reach is dropped. A filter with ports matches no later fragment: what is left of a datagram whose
 * first fragment was dropped is never put together.
 */
#ifndef TRIELINE_FILTER_BPF_H
#define TRIELINE_FILTER_BPF_H

#include "filter/link.bpf.h"

#define TL_NO_PORT 0x10000

/* The fields of a packet that filters compare. */
struct tl_packet {
	__u64 destination[2]; /* host order, high half first; IPv4 in the second */
	__u64 source[2];
	__u32 ipv6;
	__u32 protocol; /* or TL_ANY_PROTOCOL, which no filter asks for */
	__u32 ports[2]; /* destination and source port, or TL_NO_PORT */
};

/* The ports, which stand at the same place in all protocols that have them; false where they should be before
 * `end`, and are not. */
TL_INLINE int tl_ports_of(struct xdp_md *ctx, __u32 at, __u32 end, struct tl_packet *p)
{
	__be16 ports[2];

	switch (p->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_DCCP:
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
		if (at + sizeof(ports) > end || bpf_xdp_load_bytes(ctx, at, ports, sizeof(ports)))
			return 0;
		p->ports[0] = TL_BE16(ports[1]);
		p->ports[1] = TL_BE16(ports[0]);
	}
	return 1;
}

/* Protocol and ports of the IPv6 packet at `at`; false where they cannot be read. */
TL_INLINE int tl_upper6(struct xdp_md *ctx, __u32 at, __u32 end, struct tl_packet *p)
{
	__u64 headers = tl_headers6(ctx, at, end);

	if (headers & TL_HEADERS_CUT)
		return 0;
	p->protocol = headers & 0xff;
	return headers & TL_HEADERS_LATER ||
	       tl_ports_of(ctx, TL_HEADERS_AT(headers), TL_HEADERS_END(headers), p);
}

/* The same of IPv4. */
TL_INLINE int tl_upper4(struct xdp_md *ctx, __u32 at, __u32 end, const struct iphdr *ip, struct tl_packet *p)
{
	__u32 bytes = TL_BE16(ip->tot_len);

	p->protocol = ip->protocol;
	if (bytes && at + bytes < end) /* 0: longer than it can say */
		end = at + bytes;
	return ip->frag_off & TL_BE16(0x1fff) || tl_ports_of(ctx, at + (ip->version_ihl & 15) * 4, end, p);
}

/*
 * Whether the IPv6 packet that begins at `at` is one of neighbour discovery (RFC 4861 4), or hides what it
 * is. Asked where the kernel answers for others (proxy_ndp).
 */
__attribute__((noinline)) int tl_is_ndp(struct xdp_md *ctx, __u32 at)
{
	__u64 headers = tl_headers6(ctx, at, TL_NO_END);
	__u8 type;

	if (headers & TL_HEADERS_CUT)
		return 1;
	if (headers & TL_HEADERS_LATER || (headers & 0xff) != IPPROTO_ICMPV6)
		return 0;
	return !bpf_xdp_load_bytes(ctx, TL_HEADERS_AT(headers), &type, sizeof(type)) && type >= TL_ND_FIRST &&
	       type <= TL_ND_LAST;
}

/* Whether a port is in one of the filter's ranges for it; `which` as in `ports`. A function of its own: a
 * verifier looks at it once, not for each filter. */
__attribute__((noinline)) int tl_in_ranges(const struct tl_filter *filter, __u32 which, __u32 port)
{
	__u32 i, in = 0;

	if (!filter)
		return 0;
	which &= 1;
	for (i = 0; i < TL_FILTER_PORTS; i++)
		in |= i < filter->ranges[which] && port >= filter->ports[which][i].first &&
		      port <= filter->ports[which][i].last;
	return in;
}

/* Whether a filter is about this packet: cheap questions first. */
TL_INLINE int tl_matches(const struct tl_filter *filter, const struct tl_packet *p)
{
	const __u64 *address = filter->source ? p->source : p->destination;

	if (filter->protocol != TL_ANY_PROTOCOL && filter->protocol != p->protocol)
		return 0;
	if (filter->ranges[0] && !tl_in_ranges(filter, 0, p->ports[0]))
		return 0;
	if (filter->ranges[1] && !tl_in_ranges(filter, 1, p->ports[1]))
		return 0;
	return p->ipv6 ? tl_table6(filter->table6, address[0], address[1])
		       : tl_table4(filter->table4, address[1]);
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

/* With the number of a list: only those of its filters that ask for packets of the link. */
#define TL_LIST_OF_LINK (1 << 8)

/* The verdict, or TL_GO_ON, of the filters of list `list` on the packet whose IP header begins at `at`. The
 * packet around it ends at `end`. A packet without a whole header is dropped. */
__attribute__((noinline)) __u32 tl_filter_at(struct xdp_md *ctx, __u32 at, __u32 end, __u32 ipv6, __u32 list)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct tl_packet p = {.protocol = TL_ANY_PROTOCOL, .ports = {TL_NO_PORT, TL_NO_PORT}, .ipv6 = ipv6};
	__u32 key = list & 0xff, of_link = list & TL_LIST_OF_LINK, left, ports;
	const __u32 unread = key == TL_LIST_PORTS ? TL_DROP_UNINSPECTABLE : TL_DROP_SID_HOOK_HEADERS;
	volatile __u64 *word = bpf_map_lookup_elem(&filter_lists, &key);

	if (!word || at > TL_FILTER_REACH)
		return unread;
	key = *word; /* one load: first and number belong together */
	left = key >> 16 & 0xff;
	ports = key & TL_LIST_UPPER;
	key &= 0xffff;
	if (ipv6) {
		const struct ipv6hdr *ip6 = data + at;

		if ((void *)(ip6 + 1) > data_end || at + sizeof(*ip6) > end)
			return unread;
		p.destination[0] = TL_BE64(ip6->daddr.hi);
		p.destination[1] = TL_BE64(ip6->daddr.lo);
		p.source[0] = TL_BE64(ip6->saddr.hi);
		p.source[1] = TL_BE64(ip6->saddr.lo);
		if (ports && !tl_upper6(ctx, at, end, &p))
			return unread;
	} else {
		const struct iphdr *ip = data + at;

		if ((void *)(ip + 1) > data_end || at + sizeof(*ip) > end)
			return unread;
		p.destination[1] = TL_BE32(ip->daddr);
		p.source[1] = TL_BE32(ip->saddr);
		if (ports && !tl_upper4(ctx, at, end, ip, &p))
			return unread;
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
		if ((of_link && !filter->link) || !tl_matches(filter, &p))
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

/* The list for the packets of ports, as this one meets it. */
TL_INLINE __u32 tl_port_list(struct xdp_md *ctx, const struct tl_frame *f, __u32 ipv6)
{
	return tl_is_of_link(ctx, f, ipv6) ? TL_LIST_PORTS | TL_LIST_OF_LINK : TL_LIST_PORTS;
}

/*
 * The verdict, or TL_GO_ON, of the port's filters on a packet that is `verdict` so far. They also
 * hold for packets passed for their headers: the kernel has no filters. The guard calls them for packets
 * that do not come here, before they are passed (guard.bpf.h). A packet of the link that they left alone
 * is the kernel's: it is not looked up again, and so not forwarded.
 */
TL_INLINE __u32 tl_filter_port(struct xdp_md *ctx, struct tl_frame *f, __u32 ipv6, __u32 verdict)
{
	__u32 list, answer;

	if (TL_LIKELY(!(f->port->flags & TL_PORT_FILTER)) ||
	    (verdict >= TL_DROP_FIRST && verdict != TL_GO_ON))
		return TL_GO_ON;
	f->filtered = 1;
	list = tl_port_list(ctx, f, ipv6);
	answer = tl_filter_at(ctx, f->l2, TL_NO_END, ipv6, list);
	return answer == TL_GO_ON && verdict == TL_GO_ON && list != TL_LIST_PORTS ? TL_PASS_LOCAL : answer;
}

#endif
