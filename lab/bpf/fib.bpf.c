/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Lookups in the kernel's own IPv4 routes (`fib_trie`), in the network namespace of the process that runs the
 * program. A route's metric is its value: of all that bpf_fib_lookup() tells of the route it is the only
 * number that is the caller's.
 *
 * kernel4: lookups in a loop, timed.
 */
#include "addresses.bpf.h"

struct lab_lookups lookups SEC(".bss.lookups");

/* struct bpf_fib_lookup of the kernel's uapi, as it is for IPv4. */
struct lab_fib_lookup {
	__u8 family;
	__u8 protocol;
	__be16 sport, dport;
	__u16 length;
	__u32 ifindex;
	__u32 metric; /* in: type of service */
	__be32 source, source_rest[3];
	__be32 destination, destination_rest[3];
	__u8 out[16]; /* VLAN, Ethernet addresses */
};
_Static_assert(sizeof(struct lab_fib_lookup) == 64, "struct bpf_fib_lookup");

/* The helper's number is the kernel's; its declaration wants the kernel's struct. */
static long (*const fib_lookup)(void *ctx, void *params, int size, __u32 flags) = (void *)69;

enum {
	DIRECT = 1,	    /* no policy rules: table main */
	SKIP_NEIGHBOUR = 4, /* the route is the answer */
};
#define AF_INET 2

struct lab_loop {
	struct xdp_md *ctx;
	__u64 sum;
};

static long step(__u64 i, struct lab_loop *loop)
{
	struct lab_fib_lookup fib = {.family = AF_INET, .ifindex = lookups.value};

	fib.destination = address4(i);
	if (!fib_lookup(loop->ctx, &fib, sizeof(fib), DIRECT | SKIP_NEIGHBOUR))
		loop->sum += fib.metric;
	return 0;
}

/* The first `limit` addresses; `value` is the interface that packets are thought to come in by. */
SEC("xdp")
int kernel4(struct xdp_md *ctx)
{
	struct lab_loop loop = {.ctx = ctx};
	long done;

	lookups.first_ns = bpf_ktime_get_ns();
	done = bpf_loop(lookups.limit, step, &loop, 0);
	lookups.last_ns = bpf_ktime_get_ns();
	lookups.done += done > 0 ? done : 0;
	lookups.sum += loop.sum;
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
