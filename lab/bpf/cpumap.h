/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The CPUs that programs hand frames to. */
#ifndef TRIELINE_LAB_CPUMAP_H
#define TRIELINE_LAB_CPUMAP_H

#include "kernel.h"
#include "intf.h"

struct cpumap_value {
	__u32 qsize;
	__u32 program;
};

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, LAB_RSS_CPUS);
	__type(key, __u32);
	__type(value, struct cpumap_value);
} cpus SEC(".maps");

#endif
