/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Last step: one counter, and the verdict becomes an XDP action.
 */
#ifndef TRIELINE_STATS_BPF_H
#define TRIELINE_STATS_BPF_H

#include "parse.bpf.h"

/*
 * What the kernel may get though it does not know the tenant: what belongs to the link or is for this very
 * host. Anything else it would route by tables that are not the tenant's.
 */
TL_INLINE __u32 tl_of_tenant(__u32 verdict)
{
	switch (verdict) {
	case TL_PASS_NOT_IP:
	case TL_PASS_OTHER_DESTINATION:
	case TL_PASS_IPV4_SPECIAL:
	case TL_PASS_IPV6_SPECIAL:
	case TL_PASS_LOCAL:
		return verdict;
	}
	return verdict >= TL_PASS_FIRST && verdict < TL_DROP_FIRST ? TL_DROP_TENANT : verdict;
}

/* What becomes of a packet of a port in the end. */
TL_INLINE __u32 tl_final(const struct tl_port *port, __u32 verdict)
{
	if (verdict >= TL_PASS_FIRST && port && TL_UNLIKELY(port->flags & TL_PORT_TENANT))
		return tl_of_tenant(verdict);
	return verdict;
}

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
