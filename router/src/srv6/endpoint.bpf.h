/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SRv6 endpoints that go on to the next segment (RFC 8986 4.1 to 4.3, 4.13, 4.16.1; RFC 9800 4.1). They
 * work byte for byte as Linux does them (net/ipv6/seg6_local.c).
 */
#ifndef TRIELINE_ENDPOINT_BPF_H
#define TRIELINE_ENDPOINT_BPF_H

#include "srv6/encap.bpf.h"

#define TL_TLVS_MOST 16

/* Where a packet goes next. */
struct tl_next {
	struct in6_addr destination;
	__u32 srh_len; /* 0: the SRH is not looked at */
	__u8 left;     /* segments, after this step */
	__u8 next_header;
};

/* Whether what follows the segment list is made of whole TLVs (1) or not (0), or of more than are walked
 * (-1). Padding counts as any TLV, as in Linux. */
__attribute__((noinline)) int tl_whole_tlvs(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	__u8 tlv[2];
	__u32 i, len;

	for (i = 0; i < TL_TLVS_MOST; i++) {
		if (!bytes)
			return 1;
		if (bytes < sizeof(tlv) || bpf_xdp_load_bytes(ctx, offset, tlv, sizeof(tlv)))
			return 0;
		len = sizeof(tlv) + tlv[1];
		if (len > bytes)
			return 0;
		offset += len;
		bytes -= len;
	}
	return bytes ? -1 : 1;
}

/* Whether Linux would look behind such a header for another. */
TL_INLINE int tl_is_extension(__u8 header)
{
	return header == IPPROTO_HOPOPTS || header == IPPROTO_ROUTING || header == IPPROTO_FRAGMENT ||
	       header == IPPROTO_AH || header == IPPROTO_NONE || header == IPPROTO_DSTOPTS;
}

/* The segment that the SRH names next; the SRH as Linux wants it for that. */
TL_INLINE __u32 tl_next_segment(struct xdp_md *ctx, const struct tl_frame *f, struct tl_next *next)
{
	const struct ipv6hdr *ip6 = f->l3;
	const struct ipv6_sr_hdr *srh = (const void *)(ip6 + 1);
	const struct in6_addr *segment;
	__u32 bytes, list, last;
	int whole;

	if (ip6->nexthdr != IPPROTO_ROUTING)
		return tl_is_extension(ip6->nexthdr) ? TL_PASS_SEG6_HEADERS : TL_DROP_NO_SEGMENT;
	if (f->l3_len < sizeof(*ip6) + sizeof(*srh))
		return TL_DROP_SRH;
	if ((void *)(srh + 1) > f->end)
		return TL_PASS_SEG6_HEADERS;
	if (!srh->segments_left)
		return tl_is_extension(srh->nexthdr) ? TL_PASS_SEG6_HEADERS : TL_DROP_NO_SEGMENT;
	bytes = (srh->hdrlen + 1) * 8;
	last = srh->first_segment;
	list = sizeof(*srh) + (last + 1) * sizeof(*segment);
	if (srh->type != IPV6_SRCRT_TYPE_4 || sizeof(*ip6) + bytes > f->l3_len || list > bytes ||
	    srh->segments_left > last + 1)
		return TL_DROP_SRH;
	if (TL_UNLIKELY(srh->flags & SR6_FLAG1_HMAC))
		return TL_PASS_SEG6_HEADERS;
	if (TL_UNLIKELY(list < bytes)) {
		whole = tl_whole_tlvs(ctx, f->l2 + sizeof(*ip6) + list, bytes - list);
		if (whole <= 0)
			return whole ? TL_PASS_SEG6_HEADERS : TL_DROP_SRH;
	}
	next->left = srh->segments_left - 1;
	next->srh_len = bytes;
	next->next_header = srh->nexthdr;
	segment = (const void *)(srh + 1) + next->left * sizeof(*segment);
	if ((void *)(segment + 1) > f->end)
		return TL_PASS_SEG6_HEADERS;
	next->destination = *segment;
	return TL_GO_ON;
}

/* The high `bits` of 64, none to all. */
TL_INLINE __u64 tl_high(__u32 bits) { return bits ? ~0ull << (64 - bits) : 0; }

/*
 * NEXT-C-SID: behind the locator block of `block` bytes the argument moves up by the `node_function` bytes of
 * this node's own identifier. False when it has no further one.
 */
TL_INLINE int tl_next_csid(const struct in6_addr *destination, __u32 block, __u32 node_function,
			   struct in6_addr *next)
{
	__u64 hi = TL_BE64(destination->hi), lo = TL_BE64(destination->lo), keep_hi, keep_lo, arg_hi, arg_lo;
	__u32 own = 8 * (block + node_function), shift = 8 * node_function;

	block *= 8;
	if (own > 128 || !shift || !block)
		return 0;
	arg_hi = own < 64 ? hi & ~tl_high(own) : 0;
	arg_lo = own < 64 ? lo : own < 128 ? lo & ~tl_high(own - 64) : 0;
	if (!(arg_hi | arg_lo))
		return 0;
	if (shift < 64) {
		arg_hi = arg_hi << shift | arg_lo >> (64 - shift);
		arg_lo <<= shift;
	} else {
		arg_hi = arg_lo << (shift - 64);
		arg_lo = 0;
	}
	keep_hi = block < 64 ? tl_high(block) : ~0ull;
	keep_lo = block < 64 ? 0 : tl_high(block - 64);
	next->hi = TL_BE64((hi & keep_hi) | arg_hi);
	next->lo = TL_BE64((lo & keep_lo) | arg_lo);
	return 1;
}

/* Block and function bytes of a word with NEXT-C-SID, the block's in the high byte; 0: none. */
TL_INLINE __u32 tl_csid(__u64 word)
{
	struct tl_adjacency *adj;

	if (tl_action_kind(word) == TL_ACTION_END)
		return tl_action_index(word);
	adj = tl_action_adjacency(word);
	return adj ? adj->csid_block << 8 | adj->csid_function : 0;
}

/*
 * End, End.X, End.T, with PSP or NEXT-C-SID: the packet goes to its next segment. With NEXT-C-SID and an
 * argument left, Linux does not look at the SRH.
 */
TL_INLINE __u32 tl_end(struct xdp_md *ctx, struct tl_frame *f, __u64 word)
{
	__u32 kind = tl_action_kind(word), flavours = tl_action_detail(word), verdict, csid = 0, popped = 0;
	struct ipv6hdr *ip6 = f->l3;
	struct tl_adjacency *adj;
	struct tl_next next;

	if (ip6->hop_limit <= 1)
		return TL_PASS_IPV6_HOP_LIMIT;
	next.srh_len = 0;
	if (TL_UNLIKELY(flavours & TL_END_NEXT_CSID))
		csid = tl_csid(word);
	if (TL_LIKELY(!csid) ||
	    !tl_next_csid(&ip6->daddr, csid >> 8 & 0xff, csid & 0xff, &next.destination)) {
		verdict = tl_next_segment(ctx, f, &next);
		if (verdict != TL_GO_ON)
			return verdict;
		/* Linux pops no SRH of a SID that has NEXT-C-SID, too. */
		if (flavours & TL_END_PSP && !(flavours & TL_END_NEXT_CSID) && !next.left)
			popped = next.srh_len;
	}
	if (kind != TL_ACTION_END_X) {
		if (tl_ipv6_special_purpose(&next.destination))
			return TL_PASS_SEG6_NEXT;
		word = tl_inner_action6(kind == TL_ACTION_END_T ? tl_action_index(word) : f->port->table6,
					&ip6->saddr, &next.destination);
		word = tl_ecmp_select(ctx, f->l2, word);
		if (tl_action_kind(word) != TL_ACTION_FORWARD)
			return TL_PASS_SEG6_NEXT;
	}
	adj = tl_action_adjacency(word);
	if (!adj)
		return TL_PASS_NO_ACTION;
	verdict = tl_send6(ctx, f, adj, f->port->table6, ip6, 0, popped);
	if (verdict != TL_GO_ON)
		return verdict;
	ip6 = f->l3;
	if (popped) {
		ip6->nexthdr = next.next_header;
	} else if (next.srh_len) {
		struct ipv6_sr_hdr *srh = (void *)(ip6 + 1);

		if ((void *)(srh + 1) > f->end)
			return TL_DROP_REWRITE_FAILED;
		srh->segments_left = next.left;
	}
	ip6->daddr = next.destination;
	if (kind == TL_ACTION_END)
		return TL_FORWARD_END;
	return kind == TL_ACTION_END_X ? TL_FORWARD_END_X : TL_FORWARD_END_T;
}

/* End.B6: Linux asks for an SRH with a segment left, does not go on to it, and inserts another. */
TL_INLINE __u32 tl_end_b6(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj)
{
	struct tl_next next;
	__u32 verdict;

	verdict = tl_next_segment(ctx, f, &next);
	if (verdict != TL_GO_ON)
		return verdict;
	verdict = tl_h_insert(ctx, f, adj);
	return verdict == TL_FORWARD_H_INSERT ? TL_FORWARD_END_B6 : verdict;
}

/* End.B6.Encaps: goes on to the next segment, within an outer header. */
TL_INLINE __u32 tl_end_b6_encaps(struct xdp_md *ctx, struct tl_frame *f, const struct tl_adjacency *adj)
{
	__u32 verdict, inner;
	struct tl_next next;

	verdict = tl_next_segment(ctx, f, &next);
	if (verdict != TL_GO_ON)
		return verdict;
	verdict = tl_h_encaps(ctx, f, adj, IPPROTO_IPV6, 0);
	if (verdict != TL_FORWARD_H_ENCAPS_IPV6)
		return verdict;
	/* Both lie within the packet, as was seen. */
	inner = f->l2 + adj->outer_len;
	bpf_xdp_store_bytes(ctx, inner + __builtin_offsetof(struct ipv6hdr, daddr), &next.destination,
			    sizeof(next.destination));
	bpf_xdp_store_bytes(
	    ctx, inner + sizeof(struct ipv6hdr) + __builtin_offsetof(struct ipv6_sr_hdr, segments_left),
	    &next.left, sizeof(next.left));
	return TL_FORWARD_END_B6_ENCAPS;
}

#endif
