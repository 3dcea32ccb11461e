// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A SID hook for trieline, to be copied. The last byte of the SID, its argument, becomes the DSCP of the IPv4
 * packet inside. SID fd00:a::2e marks it EF (46); an argument above 63 drops the packet.
 *
 * The contract is trieline/sid_hook.h.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <trieline/sid_hook.h>

#define DSCP_MAX 63
#define ECN 3
#define VLAN_BYTES 4

SEC("xdp.frags")
int dscp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct ipv6_rt_hdr *srh;
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__u8 next, argument;
	__u32 sum;

	/* trieline has seen these headers, but this program's verifier has not. */
	if ((void *)(eth + 1) > end)
		return TL_SID_HOOK_GO_ON;
	ip6 = (void *)(eth + 1);
	if (eth->h_proto == bpf_htons(ETH_P_8021Q))
		ip6 = (void *)ip6 + VLAN_BYTES;
	if ((void *)(ip6 + 1) > end)
		return TL_SID_HOOK_GO_ON;

	argument = ip6->daddr.in6_u.u6_addr8[15];
	if (argument > DSCP_MAX)
		return XDP_DROP;

	next = ip6->nexthdr;
	srh = (void *)(ip6 + 1);
	ip = (void *)srh;
	if (next == IPPROTO_ROUTING) {
		if ((void *)(srh + 1) > end)
			return TL_SID_HOOK_GO_ON;
		next = srh->nexthdr;
		ip = (void *)srh + (srh->hdrlen + 1) * 8;
	}
	if (next != IPPROTO_IPIP || (void *)(ip + 1) > end)
		return TL_SID_HOOK_GO_ON;

	/* RFC 1624, equation 3: the word with the DSCP is the header's first. */
	sum = (__u16)~ip->check + (__u16) ~*(__u16 *)ip;
	ip->tos = argument << 2 | (ip->tos & ECN);
	sum += *(__u16 *)ip;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	return TL_SID_HOOK_GO_ON;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
