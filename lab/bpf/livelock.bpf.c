/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Both ends of experiment `livelock`. `offer` sends frames at a given rate for a given time.
 * BPF_PROG_TEST_RUN with live frames calls it again and again, and a call sends the next frame, or waits a
 * moment and drops. `to_socket` hands every frame of a device to the AF_XDP socket of its queue.
 */
#include "kernel.h"
#include "intf.h"

struct lab_offer offer_run SEC(".bss.offer");

struct lab_pause {
	__u64 now;
	__u64 until;
};

static long pause_step(__u64 i, struct lab_pause *pause)
{
	pause->now = bpf_ktime_get_ns();
	return pause->now >= pause->until;
}

SEC("xdp")
int offer(struct xdp_md *ctx)
{
	__u64 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct lab_offer *run = &offer_run;
	struct lab_pause pause = {.now = bpf_ktime_get_ns()};
	__u64 due;

	if (run->over)
		return XDP_DROP;
	if (!run->first_ns)
		run->first_ns = pause.now;
	due = run->first_ns + (run->sent * run->gap_ps) / 1000;
	if (pause.now < due) {
		pause.until = pause.now + run->slice_ns;
		if (due < pause.until)
			pause.until = due;
		bpf_loop(1 << 12, pause_step, &pause, 0);
	}
	if (pause.now >= run->first_ns + run->length_ns) {
		run->over = 1;
		run->last_ns = pause.now;
		return XDP_DROP;
	}
	if (pause.now < due)
		return XDP_DROP;
	if ((void *)(frame + 7) > (void *)end)
		return XDP_ABORTED;
	/* Pages come back with what the receiver left in them. */
#pragma unroll
	for (int i = 0; i < 7; i++)
		frame[i] = run->head[i];
	run->sent++;
	return XDP_TX;
}

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Without a socket frames end here: the kernel's stack would only spend time on them. */
SEC("xdp")
int to_socket(struct xdp_md *ctx) { return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP); }

char _license[] SEC("license") = "Dual BSD/GPL";
