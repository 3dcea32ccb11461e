/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How long a hook itself runs inside T2: only in calibrations, as it takes further readings of the clock. */
#ifndef TRACE_INSIDE_H
#define TRACE_INSIDE_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"
#include "ring.bpf.h"

static __always_inline __u64 tr_begins(void) { return config.inside ? bpf_ktime_get_ns() : 0; }

/* The record is noted: the hook's last act. */
static __always_inline void tr_ends(__u64 began_ns, const struct tr_event *record)
{
	__u64 ended_ns, again_ns;
	struct tr_cpu *own;
	__u32 cpu;

	if (!config.inside)
		return;
	ended_ns = bpf_ktime_get_ns();
	again_ns = bpf_ktime_get_ns();
	cpu = bpf_get_smp_processor_id();
	own = bpf_map_lookup_elem(&cpus, &cpu);
	if (!own)
		return;
	if (record->point == TR_RECEIVED) {
		__sync_fetch_and_add(&own->inside[TR_INSIDE_TAIL], ended_ns - record->time_ns);
		__sync_fetch_and_add(&own->inside[TR_INSIDE_CLOCK], again_ns - ended_ns);
	} else if (record->point == TR_QUEUED || record->transport != TR_TCP || config.sent_udp) {
		/* Not the end of a send over TCP that was noted at the queue: it lies behind T2. */
		__sync_fetch_and_add(&own->inside[TR_INSIDE_HEAD], record->time_ns - began_ns);
	}
}

#endif
