/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The few kernel types that hooks read; the loader moves every access to where this kernel has the field
 * (CO-RE). */
#ifndef TRACE_KERNEL_H
#define TRACE_KERNEL_H

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
typedef _Bool bool;
enum { false, true };
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_TASK_STORAGE = 29
};
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10 };
enum { SOCK_STREAM = 1 };
enum { IPPROTO_TCP = 6, IPPROTO_UDP = 17 };
enum { MSG_PEEK = 0x2, MSG_ERRQUEUE = 0x2000 };
enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86dd };
enum { TCX_NEXT = -1 };
#define TR_UDP_HEADER 8
enum { BPF_F_MARK_MANGLED_0 = 1 << 5 };

#define RELOCATED __attribute__((preserve_access_index))

struct in6_addr {
	__u8 bytes[16];
};

struct file;
struct socket;

typedef struct {
	__s64 counter;
} RELOCATED atomic64_t;

struct sock_common {
	__u16 skc_family;
	__be16 skc_dport;
	__u16 skc_num;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
	struct socket *sk_socket;
} RELOCATED;

struct tcp_sock {
	__u32 copied_seq;
	__u32 write_seq;
} RELOCATED;

struct unix_sock {
	struct sock *peer;
} RELOCATED;

struct socket {
	struct file *file;
	struct sock *sk;
} RELOCATED;

struct ns_common {
	unsigned int inum;
} RELOCATED;

struct net {
	struct ns_common ns;
} RELOCATED;

struct list_head {
	struct list_head *next;
} RELOCATED;

struct net_device {
	struct {
		struct net *net;
	} nd_net;
	struct {
		struct list_head upper;
		struct list_head lower;
	} adj_list; /* devices next to it */
	__u16 needed_headroom;
} RELOCATED;

struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	unsigned int len;
	unsigned int data_len;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
	__u16 transport_header;
	__u16 network_header;
	__be16 protocol;
	__u16 inner_network_header; /* 0: it has none */
} RELOCATED;

struct skb_shared_info {
	__u16 gso_segs;
} RELOCATED;

/* A packet as programs of traffic control have it. */
struct __sk_buff {
	__u32 gso_size;
} RELOCATED;

struct inode {
	__u16 i_mode;
	unsigned long i_ino;
} RELOCATED;

struct file {
	struct inode *f_inode;
	void *private_data;
} RELOCATED;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} RELOCATED;

struct files_struct {
	struct fdtable *fdt;
} RELOCATED;

struct kernfs_node {
	__u64 id;
} RELOCATED;

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[]; /* Linux 6.1 */
} RELOCATED;

struct css_set {
	struct cgroup *dfl_cgrp;
} RELOCATED;

struct bpf_net_context;
struct task_struct {
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct files_struct *files;
	struct css_set *cgroups;
	void *stack;
	struct bpf_net_context *bpf_net_context; /* Linux 6.11 */
	char comm[16];
} RELOCATED;

/* x86-64 */
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long r10;
	unsigned long ax;
	unsigned long orig_ax;
} RELOCATED;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

/* Lets a program read through an address as if it were of that type, without a call (Linux 6.2). */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* The kernel's own form of a program's packet (Linux 6.2). */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;

/* Stands for any eight bytes. */
struct timespec64 {
	__s64 tv_sec;
} RELOCATED;

/* Eight bytes of the kernel's memory; 0 where there is none. By a load, where to probe is a call. */
static __always_inline __u64 tr_load(const void *address)
{
	const struct timespec64 *word;
	__u64 value = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		word = bpf_rdonly_cast(address, bpf_core_type_id_kernel(struct timespec64));
		return word->tv_sec;
	}
	bpf_probe_read_kernel(&value, sizeof(value), address);
	return value;
}

#endif
