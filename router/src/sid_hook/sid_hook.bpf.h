/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SID hooks: what is done to a packet that comes to a SRv6 endpoint before the endpoint does
 * its part. Filters check the packet inside, the packet is sampled, or a program of the user's own gets it
 * (trieline/sid_hook.h).
 *
 * Only ports that know SID hooks look for one, and only for packets whose route is a SID's. They also do
 * for those that are passed to the kernel, which may have a SID for them whatever the reason (guard.bpf.h).
 */
#ifndef TRIELINE_SID_HOOK_BPF_H
#define TRIELINE_SID_HOOK_BPF_H

#include <trieline/sid_hook.h>
#include "capture/capture.bpf.h"
#include "filter/filter.bpf.h"

/* The user's program in the place of this call. A tail call out of a SID hook comes back to the caller with
 * what the program returns. Comes here itself only when there is none. */
__attribute__((noinline)) int tl_sid_hook_program(struct xdp_md *ctx, __u32 index)
{
	int returned = TL_SID_HOOK_MISSING;

	bpf_tail_call(ctx, &sid_hook_programs, index);
	asm volatile("" : "+r"(returned)); /* else clang takes it for what every call returns */
	return returned;
}

/*
 * The filters' answer for the packet inside the one at `at`, around which is what ends at `end`. That of an
 * endpoint without one is to go on. Where the headers
 * lead further than is looked, nothing goes on: the kernel would find the packet inside and ask no filter.
 */
TL_INLINE __u32 tl_sid_hook_filter(struct xdp_md *ctx, __u32 at, __u32 end, __u32 list)
{
	__u64 headers = tl_headers6(ctx, at, end);
	__u8 kind = headers;

	if (headers & (TL_HEADERS_CUT | TL_HEADERS_LATER))
		return TL_DROP_SID_HOOK_HEADERS;
	if (kind != IPPROTO_IPIP && kind != IPPROTO_IPV6)
		return TL_GO_ON;
	return tl_filter_at(ctx, TL_HEADERS_AT(headers), TL_HEADERS_END(headers), kind == IPPROTO_IPV6, list);
}

/* The meaning of a program's return value. */
TL_INLINE __u32 tl_sid_hook_verdict(int returned)
{
	switch (returned) {
	case TL_SID_HOOK_GO_ON:
		return TL_GO_ON;
	case XDP_PASS:
		return TL_PASS_SID_HOOK_PASS;
	case XDP_DROP:
		return TL_DROP_SID_HOOK_DROP;
	case XDP_REDIRECT:
		return TL_FORWARD_SID_HOOK_REDIRECT;
	case TL_SID_HOOK_MISSING:
		return TL_DROP_SID_HOOK_MISSING;
	default:
		return TL_DROP_SID_HOOK_BAD_RETURN;
	}
}

/* With the index of a program: it is to run. */
#define TL_SID_HOOK_RUN 0x80000000u

/* Does what is bound to `sid`, for the IPv6 packet that begins at `at`: a verdict, or TL_GO_ON. A program is
 * called by the caller: no tail call is allowed from below 256 bytes of stack. */
TL_INLINE __u32 tl_sid_hook_of(struct xdp_md *ctx, __u32 at, const struct in6_addr *sid)
{
	struct tl_sid_hook *sid_hook = bpf_map_lookup_elem(&sid_hooks, sid);

	if (!sid_hook)
		return TL_GO_ON;
	switch (sid_hook->kind) {
	case TL_SID_HOOK_FILTER:
		return tl_sid_hook_filter(ctx, at, TL_NO_END, sid_hook->index);
	case TL_SID_HOOK_PCAP:
		tl_capture_in(ctx, sid_hook->index);
		return TL_GO_ON;
	case TL_SID_HOOK_PROGRAM:
		return TL_SID_HOOK_RUN | sid_hook->index;
	default:
		return TL_GO_ON;
	}
}

/* Likewise by the destination of the packet. */
__attribute__((noinline)) __u32 tl_sid_hook(struct xdp_md *ctx, __u32 at)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct ipv6hdr *ip6 = data + at;
	struct in6_addr sid;

	if (at > TL_FILTER_REACH || (void *)(ip6 + 1) > end || *(__u8 *)ip6 >> 4 != 6)
		return TL_GO_ON;
	sid = ip6->daddr;
	return tl_sid_hook_of(ctx, at, &sid);
}

/* Likewise, and a program is called. */
TL_INLINE __u32 tl_sid_hook_called(struct xdp_md *ctx, __u32 at)
{
	__u32 verdict = tl_sid_hook(ctx, at);

	if (verdict & TL_SID_HOOK_RUN)
		verdict = tl_sid_hook_verdict(tl_sid_hook_program(ctx, verdict & ~TL_SID_HOOK_RUN));
	return verdict;
}

/* The SID hook of the packet's SID, if its port knows any. A program may have changed the packet then: its
 * headers are read again. */
TL_INLINE __u32 tl_sid_hook_port(struct xdp_md *ctx, struct tl_frame *f)
{
	__u32 verdict, l2;

	if (TL_LIKELY(!(f->port->flags & TL_PORT_SID_HOOK)))
		return TL_GO_ON;
	f->called = 1;
	verdict = tl_sid_hook_called(ctx, f->l2);
	if (verdict != TL_GO_ON)
		return verdict;
	l2 = f->l2;
	asm volatile("" : "+r"(l2)); /* clang knows its bound, the verifier does not */
	f->l3 = (void *)(long)ctx->data + (l2 & 31);
	f->end = (void *)(long)ctx->data_end;
	return tl_parse_ipv6(ctx, f);
}

#endif
