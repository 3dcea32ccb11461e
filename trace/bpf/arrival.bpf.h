/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * When messages arrive at the host: as the device hands their packets to the kernel, long before any process
 * is known that they are for. So ports tell whose they are, and ids which.
 */
#ifndef TRACE_ARRIVAL_H
#define TRACE_ARRIVAL_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"
#include "message.bpf.h"
#include "ring.bpf.h"

#define TR_FRAGMENT_OFFSET 0xff1f /* of IPv4's flags and offset, as the packet has them */
#define TR_IPV6_HEADER 40

/* Bytes before the UDP header; 0 where there is none: other protocols, later fragments, extension headers. */
static __always_inline __u32 tr_udp_at(const unsigned char *packet)
{
	__u64 head = tr_load(packet);
	__u8 version = head >> 4 & 15, protocol;

	if (version == 6)
		return (head >> 48 & 0xff) == IPPROTO_UDP ? TR_IPV6_HEADER : 0;
	protocol = tr_load(packet + 8) >> 8;
	if (version != 4 || protocol != IPPROTO_UDP || head >> 48 & TR_FRAGMENT_OFFSET)
		return 0;
	return (head & 15) * 4;
}

SEC("tp_btf/netif_receive_skb")
int device_received(__u64 *arguments)
{
	const struct sk_buff *skb = (const void *)arguments[0];
	struct tr_source source = {.call = -1};
	struct tr_event record = {};
	__u32 at, before;
	__be16 port;
	__u64 head;

	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	at = tr_udp_at(skb->data);
	if (!at || BPF_CORE_READ(skb, dev, nd_net.net, ns.inum) != config.network)
		return 0;
	head = tr_load(skb->data + at);
	port = bpf_htons(who.port);
	if ((__be16)head != port && (__be16)(head >> 16) != port)
		return 0;
	record.time_ns = bpf_ktime_get_ns();
	record.bytes = bpf_ntohs(head >> 32) - TR_UDP_HEADER;
	record.point = TR_ARRIVED;
	record.transport = TR_UDP;
	record.flags = (__be16)(head >> 16) == port ? TR_CLIENT : 0;
	before = at + TR_UDP_HEADER;
	source.packet = skb->data + before;
	source.linear = skb->len - skb->data_len;
	source.linear = source.linear > before ? source.linear - before : 0;
	tr_read_packet_id(&record, &source);
	tr_note(&record, &source);
	return 0;
}

#endif
