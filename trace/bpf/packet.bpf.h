/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Packets at a device's queue: whether one leaves now, for the first time, on the time of the thread that
 * sends it. Also whether it is a message, a part of one, or several. */
#ifndef TRACE_PACKET_H
#define TRACE_PACKET_H

#include "kernel.h"
#include "intf.h"
#include "ring.bpf.h"

static __always_inline struct tr_cpu *tr_own_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* Whether the packet was noted at another device, which has handed it on to this one. Below a VLAN, a bond, a
 * bridge or a tunnel it is queued once more. */
static __always_inline bool tr_is_noted(const struct sk_buff *skb)
{
	const struct net_device *device = skb->dev;
	const struct tr_cpu *own;

	if (device->adj_list.upper.next == &device->adj_list.upper && !skb->inner_network_header)
		return false;
	own = tr_own_cpu();
	return own && own->packet == (__u64)skb && own->device != (__u64)device;
}

/* The same; and remembers it, where its device will hand it on: one that has others below it, or puts headers
 * before packets. A packet's address alone is not enough: the next message may well have the same. */
static __always_inline bool tr_is_noted_again(const struct sk_buff *skb)
{
	const struct net_device *device = skb->dev;
	bool is_last = device->adj_list.lower.next == &device->adj_list.lower && !device->needed_headroom;
	bool is_again = tr_is_noted(skb);
	struct tr_cpu *own;

	if (is_last && !is_again)
		return false;
	own = tr_own_cpu();
	if (own) {
		own->packet = is_last ? 0 : (__u64)skb;
		own->device = (__u64)device;
	}
	return is_again;
}

#define TR_THREAD_STACK 32768 /* bytes, at most */

/* Whether a softirq sends it, on the time of whichever thread runs. It has waited for its neighbour's
 * address, or an acknowledgement lets a segment of TCP go. Since Linux 6.11 a thread knows the state of a
 * softirq that receives. That state is not on the thread's stack, as the state of a device's egress is. */
static __always_inline bool tr_is_late(struct task_struct *task)
{
	__u64 context = 0;

	if (!bpf_core_field_exists(struct task_struct, bpf_net_context))
		return false;
	if (!task->bpf_net_context)
		return false;
	/* As a number: with pointers Linux 6.12 does no such sums. */
	bpf_probe_read_kernel(&context, sizeof(context), &task->bpf_net_context);
	return context - (__u64)task->stack >= TR_THREAD_STACK;
}

#define NEXTHDR_FRAGMENT 44
#define IPV6_HEADER 40

enum tr_part {
	TR_WHOLE,
	TR_FIRST_PART, /* a fragment, with the transport's header */
	TR_LATER_PART,
};

static __always_inline enum tr_part tr_part(const struct sk_buff *skb)
{
	const unsigned char *header = skb->head + skb->network_header;
	__u64 head = tr_load(header);
	__u16 offset, more;

	if ((head >> 4 & 15) == 4) {
		offset = bpf_ntohs(head >> 48);
		more = offset & 0x2000;
		offset &= 0x1fff;
	} else if ((head >> 48 & 0xff) == NEXTHDR_FRAGMENT) {
		offset = bpf_ntohs(tr_load(header + IPV6_HEADER) >> 16);
		more = 1;
		offset &= 0xfff8;
	} else {
		return TR_WHOLE;
	}
	return offset ? TR_LATER_PART : more ? TR_FIRST_PART : TR_WHOLE;
}

/* Messages in the packet (UDP_SEGMENT), if they are several. */
static __always_inline __u32 tr_segments(const struct sk_buff *skb)
{
	__u32 at = bpf_core_field_offset(struct skb_shared_info, gso_segs);

	return tr_load(skb->head + skb->end + at) & 0xffff;
}

/* By its header. */
static __always_inline __u32 tr_datagram_bytes(const unsigned char *header)
{
	return bpf_ntohs(tr_load(header) >> 32) - TR_UDP_HEADER;
}

#endif
