/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SRv6 behaviours (RFC 8986): which step does which, and what they are counted by.
 */
#ifndef TRIELINE_SRV6_BPF_H
#define TRIELINE_SRV6_BPF_H

#include "sid_hook/sid_hook.bpf.h"
#include "srv6/decap.bpf.h"
#include "srv6/endpoint.bpf.h"

/* Encapsulated packets, and packets that go on to a segment, are forwarded as IPv6. */
TL_INLINE int tl_seg6_on(const struct tl_frame *f)
{
	const __u32 both = TL_PORT_SEG6 | TL_PORT_FORWARD6;

	return (f->port->flags & both) == both;
}

/*
 * The behaviours that are met less often, verified and called apart: all that go by an adjacency alone. `l2`
 * and `l3_len` as in the frame.
 */
__attribute__((noinline)) int tl_seg6_noinline(struct xdp_md *ctx, __u64 word, __u32 l2, __u32 l3_len)
{
	struct tl_adjacency *adj = tl_action_adjacency(word);
	struct tl_frame f = {.l2 = l2 & 31, .l3_len = l3_len};

	f.l3 = (void *)(long)ctx->data + f.l2;
	f.end = (void *)(long)ctx->data_end;
	f.frags = bpf_xdp_get_buff_len(ctx) > (__u64)(f.end - (void *)(long)ctx->data);
	if (!adj || f.l3 + sizeof(struct ipv6hdr) > f.end)
		return TL_PASS_NO_ACTION;
	switch (tl_action_kind(word)) {
	case TL_ACTION_INSERT:
		return tl_h_insert(ctx, &f, adj);
	case TL_ACTION_END_DX2:
		return tl_end_dx2(ctx, &f, adj);
	case TL_ACTION_END_B6:
		return tl_end_b6(ctx, &f, adj);
	case TL_ACTION_END_B6_ENCAPS:
		return tl_end_b6_encaps(ctx, &f, adj);
	}
	return TL_PASS_NO_ACTION;
}

/* As the kernel's `count`: the length is the IPv6 packet's as it came. The kernel counts passed packets. */
TL_INLINE void tl_count_sid(__u64 word, __u32 verdict, __u32 len)
{
	__u32 slot = tl_action_counter(word);
	struct tl_sid_count *count;

	if (!slot || (verdict >= TL_PASS_FIRST && verdict < TL_DROP_FIRST))
		return;
	count = bpf_map_lookup_elem(&sids, &slot);
	if (!count)
		return;
	if (verdict < TL_PASS_FIRST) {
		count->packets++;
		count->bytes += len;
	} else {
		count->errors++;
	}
}

/* Whatever an IPv6 route asks for beside forwarding and H.Encaps. */
TL_INLINE __u32 tl_seg6(struct xdp_md *ctx, struct tl_frame *f, __u64 word)
{
	__u32 len = f->l3_len, verdict;
	struct tl_adjacency *adj;

	if (!tl_seg6_on(f))
		return TL_PASS_SEG6_OFF;
	if (tl_action_kind(word) != TL_ACTION_INSERT) {
		verdict = tl_sid_hook_port(ctx, f);
		if (verdict != TL_GO_ON) {
			tl_count_sid(word, verdict, len);
			return verdict;
		}
	}
	switch (tl_action_kind(word)) {
	case TL_ACTION_END_DX4:
	case TL_ACTION_END_DX4_TABLE:
	case TL_ACTION_END_DX4_VRF:
	case TL_ACTION_END_DX6:
	case TL_ACTION_END_DX6_TABLE:
	case TL_ACTION_END_DX6_VRF:
	case TL_ACTION_END_DT4:
	case TL_ACTION_END_DT6:
	case TL_ACTION_END_DT46:
		verdict = tl_decap(ctx, f, word);
		break;
	case TL_ACTION_END:
	case TL_ACTION_END_X:
	case TL_ACTION_END_T:
		verdict = tl_end(ctx, f, word);
		break;
	case TL_ACTION_INSERT:
	case TL_ACTION_END_B6:
		adj = tl_action_adjacency(word);
		if (adj && tl_redirects6(f, adj, f->port->table6, f->l3)) {
			verdict = TL_PASS_REDIRECT;
			break;
		}
		/* fallthrough */
	default:
		verdict = tl_seg6_noinline(ctx, word, f->l2, f->l3_len);
	}
	tl_count_sid(word, verdict, len);
	return verdict;
}

#endif
