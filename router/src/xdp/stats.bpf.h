/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Last step: one counter, and the verdict becomes an XDP action.
 */
#ifndef TRIELINE_STATS_BPF_H
#define TRIELINE_STATS_BPF_H

#include "xdp/lookup.bpf.h"

TL_INLINE int tl_finish(const struct tl_port *port, __u32 verdict)
{
	__u32 slot = port ? port->counters : 0;
	struct tl_counters *c = bpf_map_lookup_elem(&counters, &slot);

	if (c)
		c->packets[verdict & (TL_COUNTERS - 1)]++;
	if (TL_LIKELY(verdict < TL_PASS_FIRST))
		return XDP_REDIRECT;
	return verdict < TL_DROP_FIRST ? XDP_PASS : XDP_DROP;
}

#endif
