/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Packets whose sender left a checksum to a device. On the other side of a veth or tun is a sender that no
 * device stands before. In generic mode any sender may be: XDP sends packets past the kernel's own code for
 * checksums (generic_xdp_tx). The kernel knows by a mark beside the packet (CHECKSUM_PARTIAL), which XDP does
 * not see. A redirected frame loses it, or, in generic mode, meets a driver that is not asked whether it can
 * obey it.
 *
 * But the field tells. TCP and UDP (net/ipv4/tcp_ipv4.c, udp.c and their IPv6 twins) leave the sum of the
 * pseudo header in it. They also do if the kernel is to cut the packet into several. SCTP leaves 0. One
 * finished checksum in 65,535 looks the same; its packet is the kernel's too, which does it no harm.
 */
#ifndef TRIELINE_CHECKSUM_BPF_H
#define TRIELINE_CHECKSUM_BPF_H

#include "xdp/parse.bpf.h"

/* Headers of one packet that are looked behind: IP, its extensions, and the packets inside. */
#define TL_CHECKSUM_HEADERS 10

/* Whether a datagram to this port carries a frame whose own checksum may be unfinished: VXLAN (Linux's older
 * port, too) and Geneve. */
TL_INLINE int tl_is_overlay(__be16 port)
{
	return port == TL_BE16(4789) || port == TL_BE16(8472) || port == TL_BE16(6081);
}

/* Whether the checksum of TCP or UDP at `l4` is the sum of the pseudo header, or that of SCTP is not there.
 * `sum` is that of its addresses and length, as they lie there. */
TL_INLINE int tl_is_pseudo_sum(struct xdp_md *ctx, const void *l4, __u64 sum, __u8 proto)
{
	const void *end = (void *)(long)ctx->data_end;
	const __u16 *check = l4 + (proto == IPPROTO_TCP ? 16 : 6);

	if (proto == IPPROTO_SCTP)
		return l4 + 12 <= end && !((const __u32 *)l4)[2];
	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) || (void *)(check + 1) > end)
		return 0;
	if (proto == IPPROTO_UDP && tl_is_overlay(((const __be16 *)l4)[1]))
		return 1;
	sum += TL_BE16((__u16)proto);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return *check == sum;
}

/* The sum of an IPv6 address as it lies there. */
TL_INLINE __u64 tl_sum6(const __u32 *word) { return (__u64)word[0] + word[1] + word[2] + word[3]; }

/* The protocol of a packet in a frame or a tunnel, by its EtherType; 0: one that is not looked at. */
TL_INLINE __u32 tl_kind_of(__be16 proto)
{
	switch (TL_BE16(proto)) {
	case ETH_P_IP:
		return IPPROTO_IPIP;
	case ETH_P_IPV6:
		return IPPROTO_IPV6;
	case ETH_P_TEB:
		return IPPROTO_ETHERNET;
	}
	return 0;
}

/*
 * Whether a checksum behind the header at `at` is unfinished, be it in a packet inside. A tunnel or a SRv6
 * headend of the sender's leaves that of its payload. `kind` is IPPROTO_IPIP or IPPROTO_IPV6. No fragment
 * has one, and none is behind an AH or ESP header (ip_fragment, ip6_fragment, xfrm_output). A function of its
 * own, as few packets of the common ways come here.
 */
__attribute__((noinline)) int tl_is_unfinished(struct xdp_md *ctx, __u32 at, __u32 kind)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 from = 0, to = 0;
	__u32 rest = 0, bytes, i;

	for (i = 0; i < TL_CHECKSUM_HEADERS; i++) {
		const __u8 *head;
		const __u32 *word;

		if (at > TL_FILTER_REACH)
			return 1;
		head = data + at;
		word = (const void *)head;
		switch (kind) {
		case IPPROTO_IPIP:
			if ((void *)head + sizeof(struct iphdr) > end || (head[6] & 0x3f) || head[7])
				return 0;
			bytes = (head[0] & 15) * 4;
			rest = (head[2] << 8 | head[3]) - bytes;
			from = word[3];
			to = word[4];
			kind = head[9];
			break;
		case IPPROTO_IPV6:
			if ((void *)head + sizeof(struct ipv6hdr) > end)
				return 0;
			bytes = sizeof(struct ipv6hdr);
			rest = head[4] << 8 | head[5];
			from = tl_sum6(word + 2);
			to = tl_sum6(word + 6);
			kind = head[6];
			break;
		case IPPROTO_ROUTING:
			if ((void *)head + 8 > end)
				return 0;
			/* The sum is over where the packet ends, the first of the segments. RPL's are not
			 * whole. */
			if (head[3]) {
				if ((void *)head + 24 > end)
					return 0;
				if (head[2] == IPV6_SRCRT_TYPE_3)
					return 1;
				to = tl_sum6(word + 2);
			}
			bytes = (head[1] + 1) * 8;
			rest -= bytes;
			kind = head[0];
			break;
		case IPPROTO_HOPOPTS:
		case IPPROTO_DSTOPTS:
			if ((void *)head + 8 > end)
				return 0;
			bytes = (head[1] + 1) * 8;
			rest -= bytes;
			kind = head[0];
			break;
		case IPPROTO_ETHERNET:
			if ((void *)head + sizeof(struct ethhdr) + sizeof(struct vlan_hdr) > end)
				return 0;
			bytes = sizeof(struct ethhdr);
			kind = tl_kind_of(((const struct ethhdr *)head)->h_proto);
			if (tl_is_tag(((const struct ethhdr *)head)->h_proto)) {
				kind = tl_kind_of(*(const __be16 *)(head + 16));
				bytes += sizeof(struct vlan_hdr);
			}
			break;
		case IPPROTO_GRE:
			if ((void *)head + 4 > end || head[0] & 0x40 || head[1] & 7)
				return 0;
			bytes = 4 + (!!(head[0] & 0x80) + !!(head[0] & 0x20) + !!(head[0] & 0x10)) * 4;
			kind = tl_kind_of(*(const __be16 *)(head + 2));
			break;
		default:
			return tl_is_pseudo_sum(ctx, head, from + to + TL_BE16((__u16)rest), kind);
		}
		at += bytes;
	}
	return 1;
}

/* Whether the IPv4 packet at l3 has an unfinished checksum. */
TL_INLINE int tl_is_csum_partial4(struct xdp_md *ctx, const struct tl_frame *f, const struct iphdr *ip)
{
	const __u32 *word = (const void *)ip;

	if (ip->protocol == IPPROTO_ICMP)
		return 0;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return tl_is_unfinished(ctx, f->l2, IPPROTO_IPIP);
	if (ip->frag_off & TL_BE16(0x3fff))
		return 0;
	return tl_is_pseudo_sum(
	    ctx, ip + 1, (__u64)word[3] + word[4] + TL_BE16((__u16)(TL_BE16(ip->tot_len) - sizeof(*ip))),
	    ip->protocol);
}

/* The same of IPv6. */
TL_INLINE int tl_is_csum_partial6(struct xdp_md *ctx, const struct tl_frame *f, const struct ipv6hdr *ip6)
{
	return ip6->nexthdr != IPPROTO_ICMPV6 && tl_is_unfinished(ctx, f->l2, IPPROTO_IPV6);
}

#endif
