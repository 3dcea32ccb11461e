// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* A program that may look tables up, and with -DSLEEPABLE one that may not. */
#include <linux/bpf.h>
#include <trieline/bpf.h>

SEC("xdp")
int look(struct xdp_md *ctx) { return tl_lookup4(TL_IMAGE, ctx->rx_queue_index, 0xc0000281); }

#ifdef SLEEPABLE
SEC("syscall")
int sleeps(void *ctx) { return tl_lookup4(TL_IMAGE, 0, 0xc0000281); }
#else
/* Sleepable, but without tables. */
SEC("syscall")
int sleeps(void *ctx) { return 0; }
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
