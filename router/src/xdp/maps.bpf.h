/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The maps beside the image, all pinned but those with `scratch` in their names. User space has the names
 * from here (build.rs), and sizes `actions`, `adjacencies` and `rules` before the load.
 */
#ifndef TRIELINE_MAPS_BPF_H
#define TRIELINE_MAPS_BPF_H

#include <trieline/bpf.h>
#include "xdp/intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_action);
} actions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_adjacency);
} adjacencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TL_LONG_OUTERS);
	__type(key, __u32);
	__type(value, struct tl_long_outer);
} long_outers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TL_GROUPS);
	__type(key, __u32);
	__type(value, struct tl_group);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TL_SIDS);
	__type(key, __u32);
	__type(value, struct tl_sid_count);
} sids SEC(".maps");

/*
 * One map has all ports: the verifier follows the rest of the program once for each map that a port may come
 * from. It is not a hash, for tagged ports neither. An element that is replaced or removed there may be
 * another key's at once, and a packet looks at its port to the end.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TL_PORT_PLACES);
	__type(key, __u32);
	__type(value, struct tl_port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TL_TAGGED);
	__type(key, struct tl_tagged);
	__type(value, __u32); /* place in `ports`, from TL_PORTS on */
} tagged SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, TL_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

/* Those of them that take frames of several buffers. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, TL_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} jumbo_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TL_COUNTER_SLOTS);
	__type(key, __u32);
	__type(value, struct tl_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * TL_FILTERS);
	__type(key, __u32);
	__type(value, struct tl_filter);
} filters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TL_FILTER_LISTS);
	__type(key, __u32);
	__type(value, __u64);
} filter_lists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * TL_FILTERS);
	__type(key, __u32);
	__type(value, struct tl_filter_count);
} filter_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TL_CAPTURES);
	__type(key, __u32);
	__type(value, struct tl_capture);
} captures SEC(".maps");

/* The ring of each slot: any size, made by its reader. */
struct tl_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TL_CAPTURES);
	__type(key, __u32);
	__array(values, struct tl_ring);
} capture_rings SEC(".maps");

/* A record is put together here, as one whose length is known only now cannot be in the ring. */
struct tl_capture_scratch {
	struct tl_capture_record head;
	__u8 frame[TL_SNAP_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_capture_scratch);
} capture_scratch SEC(".maps");

/* By the SID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TL_SID_HOOKS);
	__type(key, struct in6_addr);
	__type(value, struct tl_sid_hook);
} sid_hooks SEC(".maps");

/* The destinations that NEXT-C-SID changes, from all tables of the kernel, whatever the XDP program does with
 * the SID's route. The kernel's own kind of map: few packets ask. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TL_CSIDS);
	__type(key, struct tl_csid_key);
	__type(value, __u32); /* bytes of the locator block << 8 | of node and function */
} csids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TL_SID_HOOKS);
	__type(key, __u32);
	__type(value, __u32);
} sid_hook_programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_local_addrs);
} local_addrs SEC(".maps");

/* Global data, so that a packet pays a load for it and no lookup. */
volatile struct tl_heartbeat tl_heartbeat SEC(".data.heartbeat") = {.deadline = ~0ull};

/* A frame on its way from one place to another. */
struct tl_scratch {
	__u8 frame[TL_SCRATCH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_scratch);
} scratch_frames SEC(".maps");

#endif
