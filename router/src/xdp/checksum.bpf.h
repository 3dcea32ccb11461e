/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Packets whose sender left the checksum to a device: one on the other side of a veth or tun, which no device
 * stands between. The kernel knows by a mark beside the packet (CHECKSUM_PARTIAL), which XDP does not see and
 * a redirected frame loses. But the field tells: TCP and UDP (net/ipv4/tcp_ipv4.c, udp.c and their IPv6
 * twins) leave the sum of the pseudo header in it. One finished checksum in 65,535 looks the same; its packet
 * is the kernel's too, which does it no harm.
 */
#ifndef TRIELINE_CHECKSUM_BPF_H
#define TRIELINE_CHECKSUM_BPF_H

#include "xdp/parse.bpf.h"

/* Whether TCP or UDP right behind the IP header, `l2` bytes into the frame, has an unfinished checksum. */
__attribute__((noinline)) int tl_is_csum_partial(struct xdp_md *ctx, __u32 l2)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 *l3 = data + (l2 & 31);
	__u32 *l4 = l3 + 5;
	__u16 check;
	__u8 proto;
	__u64 sum;

	if ((void *)l4 > end)
		return 0;
	if (*(__u8 *)l3 >> 4 == 4) {
		const struct iphdr *ip = (void *)l3;

		if (ip->frag_off & TL_BE16(0x3fff))
			return 0;
		proto = ip->protocol;
		sum = (__u64)l3[3] + l3[4] + TL_BE16((__u16)(TL_BE16(ip->tot_len) - sizeof(*ip)));
	} else {
		const struct ipv6hdr *ip6 = (void *)l3;

		l4 = l3 + 10;
		if ((void *)l4 > end)
			return 0;
		proto = ip6->nexthdr;
		sum = (__u64)l3[2] + l3[3] + l3[4] + l3[5] + l3[6] + l3[7] + l3[8] + l3[9] + ip6->payload_len;
	}
	if (proto == IPPROTO_TCP) {
		if ((void *)(l4 + 5) > end)
			return 0;
		check = l4[4];
	} else if (proto == IPPROTO_UDP) {
		if ((void *)(l4 + 2) > end)
			return 0;
		check = l4[1] >> 16;
	} else {
		return 0;
	}
	sum += TL_BE16((__u16)proto);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return check == sum;
}

#endif
