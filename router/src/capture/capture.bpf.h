/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Captures: packets copied into a ring buffer as they come in and as they leave, since tcpdump sees no frame
 * that XDP sends on.
 *
 * Each capture has a slot: its settings, written by the process that reads its ring, and the ring. Slot 0 is
 * that of `trieline capture`; off, it costs a packet one load and one branch. A capture whose reader has gone
 * ends by itself: `until` then stays where it is.
 */
#ifndef TRIELINE_CAPTURE_BPF_H
#define TRIELINE_CAPTURE_BPF_H

#include "xdp/parse.bpf.h"

TL_INLINE struct tl_capture *tl_capture_of(__u32 slot) { return bpf_map_lookup_elem(&captures, &slot); }

/* Whether the packet that is just coming in may have to be captured. */
TL_INLINE int tl_capture_on(void)
{
	volatile struct tl_capture *capture = tl_capture_of(TL_CAPTURE_ALL);

	return capture && capture->until;
}

/* Copies the frame, as it is now, into the slot's ring. Whether there was room. */
TL_INLINE int tl_capture_write(struct xdp_md *ctx, struct tl_capture *capture, __u32 slot,
			       const struct tl_capture_record *head, __u32 with_frame)
{
	__u32 zero = 0, kept = with_frame ? capture->snap : 0, bytes = bpf_xdp_get_buff_len(ctx);
	struct tl_capture_scratch *scratch = bpf_map_lookup_elem(&capture_scratch, &zero);
	void *ring = bpf_map_lookup_elem(&capture_rings, &slot);
	__u8 filter;

	if (!scratch || !ring)
		return 0;
	if (kept > bytes)
		kept = bytes;
	if (kept > TL_SNAP_MAX)
		kept = TL_SNAP_MAX;
	filter = head->out ? scratch->head.filter : 0; /* noted since the packet came in */
	scratch->head = *head;
	scratch->head.filter = filter;
	scratch->head.bytes = bytes;
	TL_BOUND(kept);
	scratch->head.kept = kept > 1 ? kept : 0;
	if (kept > 1 && bpf_xdp_load_bytes(ctx, 0, scratch->frame, kept))
		return 0;
	return !bpf_ringbuf_output(ring, scratch, sizeof(scratch->head) + kept, 0);
}

/* Whether the capture's rate allows one packet more at `now`: a leaky bucket of one packet. */
TL_INLINE int tl_capture_due(struct tl_capture *capture, __u64 now)
{
	__u64 due = *(volatile __u64 *)&capture->due;

	if (!capture->interval)
		return 1;
	return now >= due && __sync_val_compare_and_swap(&capture->due, due, now + capture->interval) == due;
}

/* Whether the frame's outer destination is the IPv6 address of the capture. */
TL_INLINE int tl_capture_to(struct xdp_md *ctx, const struct tl_capture *capture)
{
	__be16 proto[3] = {};
	struct in6_addr to;
	__u32 at = ETH_HLEN;

	if (!(capture->sid.hi | capture->sid.lo))
		return 1;
	if (bpf_xdp_load_bytes(ctx, ETH_HLEN - sizeof(proto[0]), proto, sizeof(proto)))
		return 0;
	if (proto[0] == TL_BE16(ETH_P_8021Q)) {
		proto[0] = proto[2];
		at += VLAN_HLEN;
	}
	return proto[0] == TL_BE16(ETH_P_IPV6) &&
	       !bpf_xdp_load_bytes(ctx, at + __builtin_offsetof(struct ipv6hdr, daddr), &to, sizeof(to)) &&
	       to.hi == capture->sid.hi && to.lo == capture->sid.lo;
}

/* A packet comes in: it is written if the slot's capture wants it. Its number in the capture, 0 when it is
 * not in it. */
__attribute__((noinline)) __u64 tl_capture_in(struct xdp_md *ctx, __u32 slot)
{
	struct tl_capture *capture = tl_capture_of(slot);
	struct tl_capture_record head = {.verdict = TL_VERDICTS, .ifindex = ctx->ingress_ifindex};
	__u64 until;

	if (!capture)
		return 0;
	head.time = bpf_ktime_get_ns();
	until = *(volatile __u64 *)&capture->until;
	if (head.time > until) {
		/* Unless the reader is there again just now. */
		__sync_val_compare_and_swap(&capture->until, until, 0);
		return 0;
	}
	if ((capture->ifindex && capture->ifindex != head.ifindex) || !tl_capture_to(ctx, capture))
		return 0;
	if (!tl_capture_due(capture, head.time)) {
		__sync_fetch_and_add(&capture->limited, 1);
		return 0;
	}
	head.number = __sync_fetch_and_add(&capture->number, 1) + 1;
	if (!tl_capture_write(ctx, capture, slot, &head, 1)) {
		__sync_fetch_and_add(&capture->lost, 1);
		return 0;
	}
	return head.number;
}

/* The packet's verdict (above 16 bits: the first decision), with the frame if it is sent, which `ifindex`
 * tells. */
__attribute__((noinline)) int tl_capture_out(struct xdp_md *ctx, __u32 slot, __u64 number, __u32 verdicts,
					     __u32 ifindex)
{
	struct tl_capture *capture = tl_capture_of(slot);
	__u16 verdict = verdicts;
	struct tl_capture_record head = {
	    .number = number, .verdict = verdict, .ifindex = ifindex, .out = 1, .first = verdicts >> 16};

	if (!capture)
		return 0;
	head.time = bpf_ktime_get_ns();
	if (!tl_capture_write(ctx, capture, slot, &head, verdict < TL_PASS_FIRST))
		__sync_fetch_and_add(&capture->lost, 1);
	return 0;
}

#endif
