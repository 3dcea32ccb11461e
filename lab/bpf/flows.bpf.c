/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Makes the frames of many flows in a given order, each with its flow's sequence number. BPF_PROG_TEST_RUN
 * with live frames calls `send` once a frame. Several senders, each of its own object, begin at one time.
 * Until then, and after its last frame, a sender drops what it is called for.
 */
#include "kernel.h"
#include "intf.h"

struct lab_flows_run run SEC(".bss.run");
/* The start of each flow's frames, with the flow's number behind the UDP header. */
__u64 frames[LAB_FLOWS * LAB_FLOW_WORDS] SEC(".bss.frames");
/* The flow of each frame, over and over. */
__u32 order[LAB_FLOW_ORDER] SEC(".bss.order");
__u32 sequence[LAB_FLOWS] SEC(".bss.sequence");

#define SEQUENCE_AT 46 /* Ethernet, IPv4, UDP, the flow's number */

SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = run.sent;
	__u32 flow;

	if (n >= run.limit)
		return XDP_DROP;
	if (n == 0) {
		run.first_ns = bpf_ktime_get_ns();
		if (run.first_ns < run.start_ns)
			return XDP_DROP;
	}
	if (frame + LAB_FLOW_WORDS * 8 > end)
		return XDP_ABORTED;
	if (n + 1 == run.limit)
		run.last_ns = bpf_ktime_get_ns();
	run.sent = n + 1;
	flow = order[(run.begin + n) & (LAB_FLOW_ORDER - 1)] & (LAB_FLOWS - 1);
#pragma unroll
	for (__u32 i = 0; i < LAB_FLOW_WORDS; i++)
		((__u64 *)frame)[i] = frames[flow * LAB_FLOW_WORDS + i];
	*(__u32 *)(frame + SEQUENCE_AT) = sequence[flow]++;
	return XDP_TX;
}

char _license[] SEC("license") = "Dual BSD/GPL";
