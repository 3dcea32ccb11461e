/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Receive side scaling done by programs, since a veth has no hash of its own. `steer` does what a NIC does.
 * It hashes chosen fields (Toeplitz), asks an indirection table of 128 entries, and hands the frame to that
 * queue's CPU. `arrive` runs there and counts by flow. flows.bpf.c makes the frames.
 */
#include "kernel.h"
#include "intf.h"
#include "cpumap.h"

struct lab_rss_run run SEC(".bss.run");
/* The hash of an input is the XOR of a word for each of its bytes. */
__u32 toeplitz[LAB_RSS_INPUT * 256] SEC(".bss.toeplitz");
__u32 indirection[LAB_INDIRECTION] SEC(".bss.spread");
struct lab_rss_flow flows[LAB_FLOWS] SEC(".bss.flows");
__u64 arrived[LAB_RSS_CPUS] SEC(".bss.arrived");

#define ETH 14
#define IPV6 40
#define FLOW_AT 28 /* of the IPv4 header's start: behind it and the UDP header */
#define FLOW_END 36

struct packet {
	__u8 *outer; /* the IPv6 header around it; null without one */
	__u8 *ip;    /* the IPv4 header; 36 bytes of it are there */
};

/* Finds the IPv4 packet, also behind IPv6 and one SRH. 0 for a frame that is not of the run. */
static __always_inline int find(struct packet *packet, __u8 *frame, __u8 *end)
{
	__u32 at = ETH;

	if (frame + ETH > end)
		return 0;
	packet->outer = 0;
	if (frame[12] == 0x86 && frame[13] == 0xdd) {
		if (frame + ETH + IPV6 + 8 > end)
			return 0;
		packet->outer = frame + ETH;
		if (frame[ETH + 6] == 43 && frame[ETH + IPV6] == 4)
			at += IPV6 + 8 + frame[ETH + IPV6 + 1] * 8;
		else if (frame[ETH + 6] == 4)
			at += IPV6;
		else
			return 0;
	} else if (frame[12] != 8 || frame[13] != 0) {
		return 0;
	}
	packet->ip = frame + at;
	return packet->ip + FLOW_END <= end && packet->ip[0] == 0x45 && packet->ip[9] == 17;
}

static __always_inline __u32 hash(const __u8 *input, __u32 bytes)
{
	__u32 sum = 0;

#pragma unroll
	for (__u32 i = 0; i < bytes; i++)
		sum ^= toeplitz[i * 256 + input[i]];
	return sum;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet packet;
	__u32 key = 0, label;

	if (!find(&packet, frame, end)) {
		run.other++;
		return XDP_DROP;
	}
	switch (run.fields) {
	case LAB_RSS_PACKET:
		key = run.steered;
		break;
	case LAB_RSS_IP:
		key = hash(packet.ip + 12, 8);
		break;
	case LAB_RSS_IP_PORTS:
	case LAB_RSS_INNER:
		key = hash(packet.ip + 12, 12);
		break;
	case LAB_RSS_OUTER:
	case LAB_RSS_OUTER_LABEL:
		if (!packet.outer)
			break;
		key = hash(packet.outer + 8, 32);
		if (run.fields == LAB_RSS_OUTER)
			break;
		label = *(__u32 *)packet.outer & bpf_htonl(0xfffff);
#pragma unroll
		for (__u32 i = 0; i < 4; i++)
			key ^= toeplitz[(32 + i) * 256 + (label >> 8 * i & 0xff)];
		break;
	}
	run.steered++;
	return bpf_redirect_map(&cpus, indirection[key & (LAB_INDIRECTION - 1)], XDP_ABORTED);
}

/*
 * On the queue's CPU. A flow that always comes to one CPU has one writer. Where packets of a flow come to
 * several, the additions stay exact. `next` may lag by a packet, so `reordered` is at most a little too low.
 */
SEC("xdp/cpumap")
int arrive(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 cpu = bpf_get_smp_processor_id() & (LAB_RSS_CPUS - 1);
	struct lab_rss_flow *flow;
	struct packet packet;
	__u64 number;

	if (!find(&packet, frame, end))
		return XDP_DROP;
	flow = &flows[*(__u32 *)(packet.ip + FLOW_AT) & (LAB_FLOWS - 1)];
	number = *(__u32 *)(packet.ip + FLOW_AT + 4);
	if (number < flow->next)
		__sync_fetch_and_add(&flow->reordered, 1);
	else
		flow->next = number + 1;
	__sync_fetch_and_add(&flow->received, 1);
	if (packet.outer)
		flow->label = *(__u32 *)packet.outer & bpf_htonl(0xfffff);
	arrived[cpu]++;
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
