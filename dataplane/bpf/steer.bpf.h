/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Third step: can the packet leave by this adjacency? Asked before a byte is changed, so that the kernel
 * still gets the packet as it came when the answer is no.
 */
#ifndef TRIELINE_STEER_BPF_H
#define TRIELINE_STEER_BPF_H

#include "lookup.bpf.h"

TL_INLINE __u32 tl_steer(struct tl_frame *f, const struct tl_adjacency *adj, __u32 len)
{
	if (TL_UNLIKELY(len > adj->mtu))
		return TL_PASS_TOO_BIG;
	/* Only notes the target; it counts once the program returns XDP_REDIRECT. XDP_PASS is the answer
	 * where there is none. */
	if (TL_UNLIKELY(bpf_redirect_map(&devices, adj->ifindex, XDP_PASS) != XDP_REDIRECT))
		return TL_PASS_NO_DEVICE;
	/* A device that does not take such a frame would lose it after it was counted as forwarded. */
	if (TL_UNLIKELY(f->several) &&
	    bpf_redirect_map(&jumbo_devices, adj->ifindex, XDP_PASS) != XDP_REDIRECT)
		return TL_PASS_SEVERAL_BUFFERS;
	f->out = adj->ifindex;
	return TL_GO_ON;
}

#endif
