/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Frames of a run end here, or pass through without a product. There is an XDP sink behind the egress, and
 * a tc sink on it (the kernel path without its transmit cost). The third is the bare redirect, the least that
 * an XDP forwarder can do.
 */
#include "kernel.h"
#include "intf.h"

struct lab_sink xdp_seen SEC(".bss.xdp");
struct lab_sink tc_seen SEC(".bss.tc");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

/* Only unicast counts: the kernel's own neighbour and group chatter leaves by the same device. */
#define UNICAST(frame) (!(*(__u8 *)(frame) & 1))

/* One CPU sends, forwards and sinks (run to completion), so plain counters do. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (frame + 14 > end || !UNICAST(frame))
		return XDP_DROP;
	if (xdp_seen.frames++ == 0) {
		__u32 i;

		xdp_seen.first_ns = bpf_ktime_get_ns();
		for (i = 0; i < LAB_FRAME_MAX && frame + i + 1 <= end; i++)
			xdp_seen.frame[i] = *(__u8 *)(frame + i);
		xdp_seen.kept = i;
	}
	xdp_seen.bytes += end - frame;
	return XDP_DROP;
}

SEC("tc")
int tc_sink(struct __sk_buff *skb)
{
	void *frame = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (frame + 14 > end || !UNICAST(frame))
		return TC_ACT_SHOT;
	if (tc_seen.frames++ == 0)
		tc_seen.first_ns = bpf_ktime_get_ns();
	tc_seen.bytes += skb->len;
	return TC_ACT_SHOT;
}

/* MAC addresses are rewritten, as any router must. */
SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (frame + 14 > end)
		return XDP_ABORTED;
	*(__u64 *)frame = 0x0002000002000002ull;
	*(__u32 *)(frame + 8) = 0x01000002u;
	return bpf_redirect_map(&egress, 0, XDP_DROP);
}

char _license[] SEC("license") = "Dual BSD/GPL";
