/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Fourth step: the bytes that change on the way: link header, TTL or hop limit, checksum.
 */
#ifndef TRIELINE_REWRITE_BPF_H
#define TRIELINE_REWRITE_BPF_H

#include "xdp/ecn.bpf.h"
#include "xdp/egress.bpf.h"

/* As ip_decrease_ttl() of Linux, whose result differs from RFC 1624's in the representation of zero. */
TL_INLINE void tl_decrease_ttl(struct iphdr *ip)
{
	__u32 check = ip->check + (__u32)TL_BE16(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

/* Link header at `data`, which has room for a tagged one. Both are even addresses: whole words are stored. */
TL_INLINE void tl_write_link(void *data, const struct tl_adjacency *adj, __be16 proto)
{
	*(__u64 *)data = *(const __u64 *)adj->macs;
	*(__u32 *)(data + 8) = *(const __u32 *)(adj->macs + 8);
	if (adj->tag) {
		*(__u32 *)(data + 12) = adj->tag;
		*(__be16 *)(data + 16) = proto;
	} else {
		*(__be16 *)(data + 12) = proto;
	}
}

/*
 * Room of `bytes` in front of a frame whose headroom does not suffice (some 216 bytes; an SRH of eleven
 * segments needs more). The frame grows at its end and moves down. Slow, and a function of its own. 0 on
 * success, else nothing has changed.
 */
__attribute__((noinline)) int tl_grow_headroom(struct xdp_md *ctx, __u32 bytes)
{
	__u64 len = bpf_xdp_get_buff_len(ctx);
	__u32 zero = 0;
	struct tl_scratch *scratch = bpf_map_lookup_elem(&scratch_frames, &zero);

	if (!scratch || len > sizeof(scratch->frame) || bytes > TL_OUTER_LONG + 32)
		return -1;
	TL_BOUND(len);
	if (len < sizeof(struct ethhdr))
		return -1;
	if (bpf_xdp_load_bytes(ctx, 0, scratch->frame, len) || bpf_xdp_adjust_tail(ctx, bytes))
		return -1;
	return bpf_xdp_store_bytes(ctx, bytes, scratch->frame, len);
}

/*
 * Removes `removed` bytes after the link header (adds, if negative), writes the link header, with or without
 * tag, and finds l3 again. Fails only if bytes are to be added and the frame has no headroom for them. Then
 * nothing has changed, and the packet can be passed. A caller that fails after it drops the packet, as the
 * kernel must not get a changed one.
 */
TL_INLINE __u32 tl_set_l2(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj, int removed,
			  __be16 proto)
{
	__u32 l2 = ETH_HLEN + (adj->tag ? VLAN_HLEN : 0);
	int delta = (int)f->l2 + removed - (int)l2;
	void *data;

	if (delta && bpf_xdp_adjust_head(ctx, delta) &&
	    (delta > 0 || f->frags || tl_grow_headroom(ctx, -delta)))
		return TL_PASS_NO_HEADROOM;
	data = (void *)(long)ctx->data;
	f->end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + sizeof(struct iphdr) >
	    f->end) /* for the verifier: what remains was checked to be an IP packet */
		return TL_DROP_REWRITE_FAILED;
	tl_write_link(data, adj, proto);
	f->l3 = data + l2;
	f->l2 = l2;
	return TL_GO_ON;
}

/*
 * The tail of every way out, after tl_egress_check(). `removed` bytes go behind the link header (negative:
 * so many come), and `len` bytes from there on leave. TL_GO_ON, and then l3 is found again.
 */
TL_INLINE __u32 tl_emit(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj, int removed,
			__u32 len, __be16 proto)
{
	__u32 verdict = tl_set_l2(ctx, f, adj, removed, proto);

	if (verdict == TL_GO_ON)
		tl_trim(ctx, f, len);
	return verdict;
}

/* The same of an IPv4 packet, which gets a hop older. */
TL_INLINE __u32 tl_emit4(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj, int removed)
{
	__u32 verdict = tl_emit(ctx, f, adj, removed, f->l3_len, TL_BE16(ETH_P_IP));
	struct iphdr *ip = f->l3;

	if (verdict != TL_GO_ON)
		return verdict;
	if ((void *)(ip + 1) > f->end)
		return TL_DROP_REWRITE_FAILED;
	tl_decrease_ttl(ip);
	return TL_GO_ON;
}

/* The same of an IPv6 packet of `len` bytes. */
TL_INLINE __u32 tl_emit6(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj, int removed,
			 __u32 len)
{
	__u32 verdict = tl_emit(ctx, f, adj, removed, len, TL_BE16(ETH_P_IPV6));
	struct ipv6hdr *ip6 = f->l3;

	if (verdict != TL_GO_ON)
		return verdict;
	if ((void *)(ip6 + 1) > f->end)
		return TL_DROP_REWRITE_FAILED;
	ip6->hop_limit--;
	return TL_GO_ON;
}

/* The IPv6 header moves up over the SRH behind it, of `bytes`; both lie within the frame. */
__attribute__((noinline)) int tl_move_ipv6(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	struct ipv6hdr header;

	if (bpf_xdp_load_bytes(ctx, offset, &header, sizeof(header)))
		return -1;
	return bpf_xdp_store_bytes(ctx, offset + bytes, &header, sizeof(header));
}

/*
 * The way out of every packet that is forwarded as it came, once an adjacency is chosen. First the checks,
 * which may leave it to the kernel, then the changes. An outer header of `outer` bytes in front of it goes
 * (0: none). TL_GO_ON: it is ready to leave.
 */
TL_INLINE __u32 tl_send4(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj, __u32 lookup,
			 const struct iphdr *ip, __u32 outer)
{
	__u32 verdict;

	if (tl_redirects4(f, adj, lookup, ip))
		return TL_PASS_REDIRECT;
	verdict = tl_egress_check(f, adj, f->l3_len);
	if (outer && TL_UNLIKELY(f->port->flags & TL_PORT_ECN) && verdict == TL_GO_ON)
		verdict = tl_combine_ecn(ctx, f->l2, outer);
	if (verdict != TL_GO_ON)
		return verdict;
	return tl_emit4(ctx, f, adj, outer);
}

/* The same of an IPv6 packet. An SRH of `popped` bytes behind its header goes, too (0: none). */
TL_INLINE __u32 tl_send6(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj, __u32 lookup,
			 const struct ipv6hdr *ip6, __u32 outer, __u32 popped)
{
	__u32 len = f->l3_len - popped, verdict;

	if (tl_redirects6(f, adj, lookup, ip6))
		return TL_PASS_REDIRECT;
	verdict = tl_egress_check(f, adj, len);
	if (outer && TL_UNLIKELY(f->port->flags & TL_PORT_ECN) && verdict == TL_GO_ON)
		verdict = tl_combine_ecn(ctx, f->l2, outer);
	if (verdict != TL_GO_ON)
		return verdict;
	/* Nothing may fail once the header has moved. */
	if (popped && f->l3 + sizeof(*ip6) + popped > f->end)
		return TL_PASS_SEG6_HEADERS;
	if (popped)
		tl_move_ipv6(ctx, f->l2, popped);
	verdict = tl_emit6(ctx, f, adj, outer + popped, len);
	if (popped && verdict == TL_GO_ON)
		((struct ipv6hdr *)f->l3)->payload_len = TL_BE16(len - sizeof(*ip6));
	return verdict;
}

TL_INLINE __u32 tl_forward_ipv4(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj)
{
	const struct iphdr *ip = f->l3;
	__u32 verdict;

	if (TL_UNLIKELY(ip->ttl <= 1))
		return TL_PASS_IPV4_TTL;
	verdict = tl_send4(ctx, f, adj, f->port->table4, ip, 0);
	return verdict == TL_GO_ON ? TL_FORWARD_IPV4 : verdict;
}

TL_INLINE __u32 tl_forward_ipv6(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj)
{
	const struct ipv6hdr *ip6 = f->l3;
	__u32 verdict;

	if (TL_UNLIKELY(ip6->hop_limit <= 1))
		return TL_PASS_IPV6_HOP_LIMIT;
	verdict = tl_send6(ctx, f, adj, f->port->table6, ip6, 0, 0);
	return verdict == TL_GO_ON ? TL_FORWARD_IPV6 : verdict;
}

#endif
