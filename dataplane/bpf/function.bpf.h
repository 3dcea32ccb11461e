/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Functions bound to SIDs: what is done to a packet that comes to a SRv6 endpoint before the endpoint does
 * its part. The packet inside is asked for by filters, the packet is sampled, or a program of the user's own
 * gets it (trieline/function.h).
 *
 * Only ports that know functions look for one, and only for packets whose route is a SID's, and for those
 * that are passed to the kernel, which may have a SID for them whatever the reason (guard.bpf.h).
 */
#ifndef TRIELINE_FUNCTION_BPF_H
#define TRIELINE_FUNCTION_BPF_H

#include <trieline/function.h>
#include "capture.bpf.h"
#include "filter.bpf.h"

/* The user's program in the place of this call: a tail call out of a function comes back to the caller with
 * what the program returns. Comes here itself only when there is none. */
__attribute__((noinline)) int tl_function_program(struct xdp_md *ctx, __u32 index)
{
	int returned = TL_FUNCTION_MISSING;

	bpf_tail_call(ctx, &function_programs, index);
	asm volatile("" : "+r"(returned)); /* else clang takes it for what every call returns */
	return returned;
}

/*
 * The filters' answer for the packet inside the one at `at`, around which is what ends at `end`; that of an
 * endpoint without one is to go on. Where the headers
 * lead further than is looked, nothing goes on: the kernel would find the packet inside and ask no filter.
 */
TL_INLINE __u32 tl_function_filter(struct xdp_md *ctx, __u32 at, __u32 end, __u32 list)
{
	__u64 headers = tl_headers6(ctx, at, end);
	__u8 kind = headers;

	if (headers & (TL_HEADERS_CUT | TL_HEADERS_LATER))
		return TL_DROP_FUNCTION_HEADERS;
	if (kind != IPPROTO_IPIP && kind != IPPROTO_IPV6)
		return TL_GO_ON;
	return tl_filter_at(ctx, TL_HEADERS_AT(headers), TL_HEADERS_END(headers), kind == IPPROTO_IPV6, list);
}

/* What a program's return value means. */
TL_INLINE __u32 tl_function_verdict(int returned)
{
	switch (returned) {
	case TL_FUNCTION_GO_ON:
		return TL_GO_ON;
	case XDP_PASS:
		return TL_PASS_FUNCTION_PASS;
	case XDP_DROP:
		return TL_DROP_FUNCTION_DROP;
	case XDP_REDIRECT:
		return TL_FORWARD_FUNCTION_REDIRECT;
	case TL_FUNCTION_MISSING:
		return TL_DROP_FUNCTION_MISSING;
	default:
		return TL_DROP_FUNCTION_RETURN;
	}
}

/* With the index of a program: it is to run. */
#define TL_FUNCTION_RUN 0x80000000u

/* Does what is bound to `sid`, for the IPv6 packet that begins at `at`: a verdict, or TL_GO_ON. A program is
 * called by the caller: no tail call is allowed from below 256 bytes of stack. */
TL_INLINE __u32 tl_function_of(struct xdp_md *ctx, __u32 at, const struct in6_addr *sid)
{
	struct tl_function *function = bpf_map_lookup_elem(&functions, sid);

	if (!function)
		return TL_GO_ON;
	switch (function->kind) {
	case TL_FUNCTION_FILTER:
		return tl_function_filter(ctx, at, TL_NO_END, function->index);
	case TL_FUNCTION_PCAP:
		tl_capture_in(ctx, function->index);
		return TL_GO_ON;
	case TL_FUNCTION_PROGRAM:
		return TL_FUNCTION_RUN | function->index;
	default:
		return TL_GO_ON;
	}
}

/* Likewise by the destination of the packet. */
__attribute__((noinline)) __u32 tl_function(struct xdp_md *ctx, __u32 at)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct ipv6hdr *ip6 = data + at;
	struct in6_addr sid;

	if (at > TL_FILTER_REACH || (void *)(ip6 + 1) > end || *(__u8 *)ip6 >> 4 != 6)
		return TL_GO_ON;
	sid = ip6->daddr;
	return tl_function_of(ctx, at, &sid);
}

/* Likewise, and a program is called. */
TL_INLINE __u32 tl_function_called(struct xdp_md *ctx, __u32 at)
{
	__u32 verdict = tl_function(ctx, at);

	if (verdict & TL_FUNCTION_RUN)
		verdict = tl_function_verdict(tl_function_program(ctx, verdict & ~TL_FUNCTION_RUN));
	return verdict;
}

/* The function of the packet's SID, if its port knows any. The packet is what a program made of it then: its
 * headers are read anew. */
TL_INLINE __u32 tl_function_port(struct xdp_md *ctx, struct tl_frame *f)
{
	__u32 verdict, l2;

	if (TL_LIKELY(!(f->port->flags & TL_PORT_FUNCTION)))
		return TL_GO_ON;
	f->called = 1;
	verdict = tl_function_called(ctx, f->l2);
	if (verdict != TL_GO_ON)
		return verdict;
	l2 = f->l2;
	asm volatile("" : "+r"(l2)); /* clang knows its bound, the verifier does not */
	f->l3 = (void *)(long)ctx->data + (l2 & 31);
	f->end = (void *)(long)ctx->data_end;
	return tl_parse_ipv6(ctx, f);
}

#endif
