/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A program that may sleep while it looks up: no grace period waits for it, so that it has to be refused. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <trieline/bpf.h>

SEC("syscall")
int asleep(void *ctx) { return tl_lookup4(TL_IMAGE, 0, 1) != 0; }

char _license[] SEC("license") = "Dual BSD/GPL";
