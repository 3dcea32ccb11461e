/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Every lookup of lpm.h inside a program, over many keys a run. Its answer is compared with the oracle, and
 * what the kernel makes of it is recorded. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <trieline/bpf.h>

#define KEYS 1024

/* In network order, from the first bit on. */
struct key {
	__u64 word[TL_WIDE_WORDS(2048)];
} keys[KEYS] SEC(".bss.keys");
struct tl_match answers[KEYS] SEC(".bss.answers");
/* The table asked. */
volatile __u32 table SEC(".bss.table");

#define KEY(i) (keys[(i) & (KEYS - 1)].word)
#define HOST(word) __builtin_bswap64(word)

/* Program `name` works through all keys; in the rest, `i` is the number of one and `answer` where its answer
 * goes. */
#define PROGRAM(name, ...)                                                                                   \
	static long name##_step(__u64 i, void *unused)                                                       \
	{                                                                                                    \
		struct tl_match *answer = &answers[i & (KEYS - 1)];                                          \
                                                                                                             \
		__VA_ARGS__;                                                                                 \
		return 0;                                                                                    \
	}                                                                                                    \
	SEC("xdp") int name(struct xdp_md *ctx) { return bpf_loop(KEYS, name##_step, 0, 0) == KEYS; }

PROGRAM(lookup4, answer->value = tl_lookup4(TL_IMAGE, table, HOST(KEY(i)[0]) >> 32))
PROGRAM(lookup6, answer->value = tl_lookup6(TL_IMAGE, table, HOST(KEY(i)[0]), HOST(KEY(i)[1])))
PROGRAM(lookup1, answer->value = tl_lookup(TL_IMAGE, table, 1, HOST(KEY(i)[0]), 0))
PROGRAM(lookup47, answer->value = tl_lookup(TL_IMAGE, table, 47, HOST(KEY(i)[0]), 0))
PROGRAM(lookup48, answer->value = tl_lookup(TL_IMAGE, table, 48, HOST(KEY(i)[0]), 0))
PROGRAM(lookup144, answer->value = tl_lookup_wide(TL_IMAGE, table, 144, KEY(i)))
PROGRAM(lookup331, answer->value = tl_lookup_wide(TL_IMAGE, table, 331, KEY(i)))
PROGRAM(lookup2048, answer->value = tl_lookup_wide(TL_IMAGE, table, 2048, KEY(i)))
PROGRAM(match4, *answer = tl_match4(TL_IMAGE, table, HOST(KEY(i)[0]) >> 32))
PROGRAM(match6, *answer = tl_match6(TL_IMAGE, table, HOST(KEY(i)[0]), HOST(KEY(i)[1])))

/* A key that many programs have: it lies on the stack. */
PROGRAM(stack144, {
	__u64 key[TL_WIDE_WORDS(144)] = {KEY(i)[0], KEY(i)[1], KEY(i)[2]};

	answer->value = tl_lookup_wide(TL_IMAGE, table, 144, key);
})

/* Looks n keys up at once, and returns the answer of the wanted one. */
#define SEVERAL4(n)                                                                                          \
	PROGRAM(several4_##n, {                                                                              \
		__u32 id[n], addr[n], value[n], k;                                                           \
                                                                                                             \
		for (k = 0; k < n; k++) {                                                                    \
			id[k] = table;                                                                       \
			addr[k] = HOST(KEY((i & ~(n - 1ull)) + k)[0]) >> 32;                                 \
		}                                                                                            \
		tl_lookup4_n(TL_IMAGE, id, addr, value, n);                                                  \
		for (k = 0; k < n; k++)                                                                      \
			if (k == (i & (n - 1)))                                                              \
				answer->value = value[k];                                                    \
	})
SEVERAL4(2)
SEVERAL4(4)
SEVERAL4(8)

/* The keys do not fit on the stack eight at a time. */
struct tl_key6 together[8] SEC(".bss.together");

#define SEVERAL6(n)                                                                                          \
	PROGRAM(several6_##n, {                                                                              \
		__u32 id[n], value[n], k;                                                                    \
                                                                                                             \
		for (k = 0; k < n; k++) {                                                                    \
			id[k] = table;                                                                       \
			together[k].hi = HOST(KEY((i & ~(n - 1ull)) + k)[0]);                                \
			together[k].lo = HOST(KEY((i & ~(n - 1ull)) + k)[1]);                                \
		}                                                                                            \
		tl_lookup6_n(TL_IMAGE, id, together, value, n);                                              \
		for (k = 0; k < n; k++)                                                                      \
			if (k == (i & (n - 1)))                                                              \
				answer->value = value[k];                                                    \
	})
SEVERAL6(2)
SEVERAL6(4)
SEVERAL6(8)

char _license[] SEC("license") = "Dual BSD/GPL";
