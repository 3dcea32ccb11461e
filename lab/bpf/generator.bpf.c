/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Makes the frames of a run. BPF_PROG_TEST_RUN with live frames calls a program once a frame, on the page of
 * a frame that came back from an earlier lap. So the program writes every header each time. XDP_TX sends it
 * out of the device that the caller names as the ingress. The `_drop` twins do the same work and send
 * nothing: the generator's own cost.
 */
#include "addresses.bpf.h"
#include "heads.bpf.h"

struct lab_run run SEC(".bss.run");

static __always_inline __u64 begin(void)
{
	__u64 n = run.sent++;

	if (n == 0)
		run.first_ns = bpf_ktime_get_ns();
	if (n + 1 == run.limit)
		run.last_ns = bpf_ktime_get_ns();
	return n;
}

static __always_inline int frame4(struct xdp_md *ctx, __u32 bytes, __u32 ip, int verdict)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = begin();

	if (frame + bytes > end)
		return XDP_ABORTED;
	put_head(frame, run.head, bytes);
	put_destination4(frame + ip, address4(n), run.sum);
	return verdict;
}

static __always_inline int frame6(struct xdp_md *ctx, __u32 bytes, __u32 ip, int verdict)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = begin(), hi, lo;

	if (frame + bytes > end)
		return XDP_ABORTED;
	put_head(frame, run.head, bytes);
	address6(n, &hi, &lo);
	*(__u64 *)(frame + ip + 24) = hi;
	*(__u64 *)(frame + ip + 32) = lo;
	return verdict;
}

SEC("xdp")
int ipv4(struct xdp_md *ctx) { return frame4(ctx, HEAD4, ETH, XDP_TX); }

SEC("xdp")
int ipv4_drop(struct xdp_md *ctx) { return frame4(ctx, HEAD4, ETH, XDP_DROP); }

/* With an 802.1Q tag, which `head` has. */
SEC("xdp")
int tagged(struct xdp_md *ctx) { return frame4(ctx, HEAD4, ETH + TAG, XDP_TX); }

SEC("xdp")
int tagged_drop(struct xdp_md *ctx) { return frame4(ctx, HEAD4, ETH + TAG, XDP_DROP); }

SEC("xdp")
int ipv6(struct xdp_md *ctx) { return frame6(ctx, HEAD6, ETH, XDP_TX); }

SEC("xdp")
int ipv6_drop(struct xdp_md *ctx) { return frame6(ctx, HEAD6, ETH, XDP_DROP); }

/* The SID is in `head`; the inner IPv4 destination varies. */
SEC("xdp")
int srv6(struct xdp_md *ctx) { return frame4(ctx, HEADS, INNER, XDP_TX); }

SEC("xdp")
int srv6_drop(struct xdp_md *ctx) { return frame4(ctx, HEADS, INNER, XDP_DROP); }

/* Likewise, of the inner IPv6. */
SEC("xdp")
int srv6_ipv6(struct xdp_md *ctx) { return frame6(ctx, HEADS6, INNER, XDP_TX); }

SEC("xdp")
int srv6_ipv6_drop(struct xdp_md *ctx) { return frame6(ctx, HEADS6, INNER, XDP_DROP); }

/* On its way to the second of two segments. */
SEC("xdp")
int transit(struct xdp_md *ctx) { return frame4(ctx, HEADS2, INNER2, XDP_TX); }

SEC("xdp")
int transit_drop(struct xdp_md *ctx) { return frame4(ctx, HEADS2, INNER2, XDP_DROP); }

char _license[] SEC("license") = "Dual BSD/GPL";
