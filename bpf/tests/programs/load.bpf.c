/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Readers beside a writer, which notes before each change a key's present and next answer, and after it the
 * present one. A reader's answer must be one that stood there between a look before the lookup and one after
 * it.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <trieline/bpf.h>

#define KEYS 4096
#define STATES (1 << 18)
#define WIDE 160

/* Tables by how they are looked up. */
enum { ONE, TWO, SIX, WHOLE, LONG };

struct question {
	__u64 hi, lo; /* in host order; IPv4: the address in `lo` */
	__u32 table;
	__u32 state; /* index of the answer's */
} questions[KEYS] SEC(".bss.questions");

/* Answers of the keys: before and after the change that is under way, 24 bits each, equal when none is.
 * Above them, how often that was written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STATES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} states SEC(".maps");
#define BEFORE(state) ((state) >> 24 & 0xffffff)
#define AFTER(state) ((state) & 0xffffff)

/* Written by one CPU. */
struct counts {
	__u64 asked;
	__u64 wrong;
	__u64 strict;	   /* right where one answer was allowed */
	__u64 moving;	   /* right while a change was under way */
	__u64 unsure;	   /* the state was written too often meanwhile */
	__u64 nothing;	   /* answers 0 */
	__u64 first_wrong; /* question and answer of one of them */
	__u64 allowed;	   /* and its state after it */
} counts SEC(".bss.counts");

static __u32 find(const struct question *question, __u32 *second)
{
	__u32 lo = question->lo;

	switch (question->table) {
	case TWO: {
		__u32 id[2] = {TWO, TWO}, addr[2] = {lo, lo}, value[2];

		tl_lookup4_n(TL_IMAGE, id, addr, value, 2);
		*second = value[1];
		return value[0];
	}
	case SIX:
		return *second = tl_lookup6(TL_IMAGE, SIX, question->hi, question->lo);
	case LONG: {
		__u64 key[TL_WIDE_WORDS(WIDE)] = {__builtin_bswap64(question->hi),
						  __builtin_bswap64(question->lo)};

		return *second = tl_lookup_wide(TL_IMAGE, LONG, WIDE, key);
	}
	default:
		return *second = tl_lookup4(TL_IMAGE, question->table, lo);
	}
}

static void check(__u64 old, __u64 new, __u32 value, __u64 i)
{
	counts.asked++;
	counts.nothing += value == 0;
	if (value < 1 << 24 && (__u16)((new >> 48) - (old >> 48)) > 2)
		counts.unsure++; /* but for what no key ever has */
	else if (value != BEFORE(old) && value != AFTER(old) && value != BEFORE(new) && value != AFTER(new)) {
		counts.wrong++;
		counts.first_wrong = (i & (KEYS - 1)) << 32 | value;
		counts.allowed = new;
	} else if (old == new && BEFORE(old) == AFTER(old))
		counts.strict++;
	else
		counts.moving++;
}

static long ask(__u64 i, void *unused)
{
	const struct question *question = &questions[i & (KEYS - 1)];
	__u32 index = question->state, first, second;
	volatile __u64 *state = bpf_map_lookup_elem(&states, &index);
	__u64 old, new;

	if (!state)
		return 1;
	old = *state;
	first = find(question, &second);
	new = *state;
	check(old, new, first, i);
	check(old, new, second, i);
	return 0;
}

SEC("xdp")
int load(struct xdp_md *ctx) { return bpf_loop(KEYS, ask, 0, 0) == KEYS; }

char _license[] SEC("license") = "Dual BSD/GPL";
