/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Lookups in the kernel's own IPv4 routes (`fib_trie`), in the network namespace of the process that runs the
 * program. A route's metric is its value: of all that bpf_fib_lookup() tells of the route it is the only
 * number that is the caller's.
 *
 * kernel4: lookups in a loop, timed.
 */
#include "addresses.bpf.h"
#include "fib.bpf.h"

struct lab_lookups lookups SEC(".bss.lookups");

struct lab_loop {
	struct xdp_md *ctx;
	__u64 sum;
};

static long step(__u64 i, struct lab_loop *loop)
{
	struct lab_fib_lookup fib = {.family = AF_INET, .ifindex = lookups.value};

	fib.destination[0] = address4(i);
	if (!fib_lookup(loop->ctx, &fib, sizeof(fib), DIRECT | SKIP_NEIGHBOUR))
		loop->sum += fib.class;
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
