/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The few kernel types and numbers the lab's programs need: system headers are older than the kernels we
 * measure.
 */
#ifndef LAB_KERNEL_H
#define LAB_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_CPUMAP = 16,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_ARENA = 33,
};

enum {
	BPF_EXIST = 2,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
};

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };
enum { TC_ACT_OK = 0, TC_ACT_SHOT = 2 };

/* A context: the kernel writes to no byte of it that we read, and knows the fields by their offsets. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
} __attribute__((preserve_access_index));

struct __sk_buff {
	__u32 len;
	__u32 ifindex;
	__u32 data;
	__u32 data_end;
} __attribute__((preserve_access_index));

/* The kernel finds it by its name. */
struct bpf_spin_lock {
	__u32 val;
};

struct bpf_lpm_trie_key4 {
	__u32 prefixlen;
	__u8 address[4];
};

struct bpf_lpm_trie_key6 {
	__u32 prefixlen;
	__u8 address[16];
};

struct bpf_lpm_trie_key48 {
	__u32 prefixlen;
	__u8 bytes[6];
} __attribute__((packed)); /* without bytes behind the key: they would count as key */

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#endif
