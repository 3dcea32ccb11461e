/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The kernel's routes as XDP programs ask for them: bpf_fib_lookup(), with numbers and struct of the kernel's
 * uapi.
 */
#ifndef LAB_FIB_BPF_H
#define LAB_FIB_BPF_H

#include "kernel.h"

/* struct bpf_fib_lookup; an IPv4 address is the first word of four. */
struct lab_fib_lookup {
	__u8 family;
	__u8 protocol;
	__be16 sport, dport;
	__u16 length;  /* of the packet, compared with the MTU */
	__u32 ifindex; /* in: of the ingress; out: of the egress */
	__u32 class;   /* in: IPv4's type of service, or IPv6's flow information; out: the route's metric */
	__be32 source[4];
	__be32 destination[4]; /* out: the next hop */
	__be32 vlan;
	__u8 smac[6]; /* out */
	__u8 dmac[6]; /* out */
};
_Static_assert(sizeof(struct lab_fib_lookup) == 64, "struct bpf_fib_lookup");

/* The helper's number is the kernel's; its declaration wants the kernel's struct. */
static long (*const fib_lookup)(void *ctx, void *params, int size, __u32 flags) = (void *)69;

enum {
	DIRECT = 1,	    /* no policy rules: table main */
	SKIP_NEIGHBOUR = 4, /* the route is the answer */
};

#define AF_INET 2
#define AF_INET6 10

#endif
