/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Gives pages of an arena back to the kernel, which user space cannot do by itself. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <trieline/bpf.h>

extern void bpf_arena_free_pages(void *map, void tl_arena *at, __u32 pages) __ksym __weak;

struct pages {
	__u32 offset; /* bytes from the arena's start, a multiple of the page size */
	__u32 count;
};

SEC("syscall")
int give_back(struct pages *pages)
{
	bpf_arena_free_pages(&tl_tables, (void tl_arena *)(__u64)pages->offset, pages->count);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
