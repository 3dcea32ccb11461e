/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Of experiment `queues`: the sink of frames that several CPUs forward, which counts by CPU or in one word
 * that all share. Also the program that hands every frame to another CPU.
 */
#include "kernel.h"
#include "intf.h"
#include "cpumap.h"

struct lab_count by_cpu[LAB_RSS_CPUS] SEC(".bss.by_cpu");
struct lab_count shared SEC(".bss.shared");
__u32 is_shared SEC(".bss.is_shared");
__u32 to SEC(".bss.to");

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	/* Only unicast: the kernel's own chatter leaves by the same device. */
	if (frame + 14 > end || frame[0] & 1)
		return XDP_DROP;
	if (is_shared) {
		__sync_fetch_and_add(&shared.frames, 1);
		__sync_fetch_and_add(&shared.bytes, end - frame);
	} else {
		__u32 cpu = bpf_get_smp_processor_id() & (LAB_RSS_CPUS - 1);

		by_cpu[cpu].frames++;
		by_cpu[cpu].bytes += end - frame;
	}
	return XDP_DROP;
}

SEC("xdp")
int hand_over(struct xdp_md *ctx) { return bpf_redirect_map(&cpus, to, XDP_ABORTED); }

char _license[] SEC("license") = "Dual BSD/GPL";
