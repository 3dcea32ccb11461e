/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Readers beside a writer: each answer must be one of those that the key may have. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <trieline/bpf.h>

#define KEYS 4096

struct question {
	__u64 hi, lo;	 /* in host order; IPv4: the address in `lo` */
	__u32 table;	 /* below TL_LOAD_IPV6 IPv4 */
	__u32 answer[3]; /* allowed */
} questions[KEYS] SEC(".bss.questions");
#define TL_LOAD_IPV6 2

/* Written by all CPUs. */
struct counts {
	__u64 asked;
	__u64 wrong;
	__u64 found[3];	   /* how often each of the allowed ones */
	__u64 first_wrong; /* question and answer of one of them */
} counts SEC(".bss.counts");

static long ask(__u64 i, void *unused)
{
	struct question *question = &questions[i & (KEYS - 1)];
	__u32 table = question->table, value;

	if (table < TL_LOAD_IPV6)
		value = tl_lookup4(TL_IMAGE, table, question->lo);
	else
		value = tl_lookup6(TL_IMAGE, table, question->hi, question->lo);
	__sync_fetch_and_add(&counts.asked, 1);
	if (value == question->answer[0]) {
		__sync_fetch_and_add(&counts.found[0], 1);
	} else if (value == question->answer[1]) {
		__sync_fetch_and_add(&counts.found[1], 1);
	} else if (value == question->answer[2]) {
		__sync_fetch_and_add(&counts.found[2], 1);
	} else {
		__sync_fetch_and_add(&counts.wrong, 1);
		counts.first_wrong = (i & (KEYS - 1)) << 32 | value;
	}
	return 0;
}

SEC("xdp")
int load(struct xdp_md *ctx) { return bpf_loop(KEYS, ask, 0, 0) == KEYS; }

char _license[] SEC("license") = "Dual BSD/GPL";
