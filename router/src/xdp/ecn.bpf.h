/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ECN field of a packet that loses an outer header.
 */
#ifndef TRIELINE_ECN_BPF_H
#define TRIELINE_ECN_BPF_H

#include "xdp/maps.bpf.h"

enum { TL_NOT_ECT, TL_ECT1, TL_ECT0, TL_CE };

/*
 * RFC 6040 4.2: combines the outer header's ECN field into the inner packet, behind the link header and
 * `outer` bytes more. TL_GO_ON, or the verdict if it cannot. Called when nothing else can fail any more.
 */
__attribute__((noinline)) int tl_combine_ecn(struct xdp_md *ctx, __u32 l2, __u32 outer)
{
	void *end = (void *)(long)ctx->data_end;
	const struct ipv6hdr *around = (void *)(long)ctx->data + (l2 & 31);
	void *inner = (void *)(long)ctx->data + ((l2 + outer) & 0xfff);
	struct ipv6hdr *ip6 = inner;
	struct iphdr *ip = inner;
	__u32 met, own, change, sum;
	int four;

	if ((void *)(around + 1) > end || (void *)(ip + 1) > end)
		return TL_GO_ON;
	four = ip->version_ihl == 0x45;
	met = TL_BE32(around->flow) >> 20 & 3;
	own = four ? ip->tos & 3 : TL_BE32(ip6->flow) >> 20 & 3;
	if (own == TL_NOT_ECT)
		return met == TL_CE ? TL_DROP_ECN : TL_GO_ON;
	change = own ^ (met == TL_CE || own == TL_CE ? TL_CE : met == TL_ECT1 ? TL_ECT1 : own);
	if (!four) {
		ip6->flow ^= TL_BE32(change << 20);
		return TL_GO_ON;
	}
	/* RFC 1624: of the first two bytes the second changes. */
	sum = (__u16)~ip->check + (__u16)~TL_BE16(ip->tos) + (__u32)TL_BE16(ip->tos ^ change);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~((sum & 0xffff) + (sum >> 16));
	ip->tos ^= change;
	return TL_GO_ON;
}

#endif
