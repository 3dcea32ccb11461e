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

/* Whether the checksum of TCP or UDP at `l4` is the sum of the pseudo header. `sum` is that of its addresses
 * and length, as they lie there. */
TL_INLINE int tl_is_pseudo_sum(struct xdp_md *ctx, const void *l4, __u64 sum, __u8 proto)
{
	const __u16 *check = l4 + (proto == IPPROTO_TCP ? 16 : 6);

	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) ||
	    (void *)(check + 1) > (void *)(long)ctx->data_end)
		return 0;
	sum += TL_BE16((__u16)proto);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return *check == sum;
}

/* Whether TCP or UDP right behind an IPv4 header has an unfinished checksum. */
TL_INLINE int tl_is_csum_partial4(struct xdp_md *ctx, const struct iphdr *ip)
{
	const __u32 *word = (const void *)ip;

	if (ip->frag_off & TL_BE16(0x3fff))
		return 0;
	return tl_is_pseudo_sum(
	    ctx, ip + 1, (__u64)word[3] + word[4] + TL_BE16((__u16)(TL_BE16(ip->tot_len) - sizeof(*ip))),
	    ip->protocol);
}

/* The same behind an IPv6 header, `l2` bytes into the frame. Apart, as few packets of the common ways come
 * here. */
__attribute__((noinline)) int tl_is_csum_partial6(struct xdp_md *ctx, __u32 l2)
{
	const struct ipv6hdr *ip6 = (void *)(long)ctx->data + (l2 & 31);
	const __u32 *word = (const void *)ip6;
	__u64 sum;

	if ((void *)(ip6 + 1) > (void *)(long)ctx->data_end)
		return 0;
	sum = (__u64)word[2] + word[3] + word[4] + word[5] + word[6] + word[7] + word[8] + word[9];
	return tl_is_pseudo_sum(ctx, ip6 + 1, sum + ip6->payload_len, ip6->nexthdr);
}

#endif
