/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How a lookup finds a key in a table's hash table (image.h): what lpm.h is made of, and no interface of its
 * own.
 */
#ifndef TRIELINE_EXACT_H
#define TRIELINE_EXACT_H

#include "walk.h"

/* The value of `tl_entry` number `at` of a bucket if it is the key's, else what `other` gives. */
#define TL_ENTRY(base, node, at, rest, other)                                                                \
	({                                                                                                   \
		__u64 tl_entry = tl_load64(base, (node) + 8 * (at));                                         \
                                                                                                             \
		(__u32) tl_entry == (rest) ? (__u32)(tl_entry >> 32) : (other);                              \
	})

/* The value that the bucket of `word` has for keys of up to TL_EXACT_SHORT bits; 0 = none. */
static inline __attribute__((always_inline)) __u32 tl_bucket_short(tl_base_t base, __u32 word, __u32 rest)
{
	__u32 node = (word & TL_REF_OFFSET) << 3, log = (word & TL_REF_KIND) >> TL_REF_KIND_SHIFT, value;

	value = TL_ENTRY(base, node, 0, rest, 0);
	if (value || !log)
		return value;
	value = TL_ENTRY(base, node, 1, rest, 0);
	if (value || log == 1)
		return value;
	value = TL_ENTRY(base, node, 2, rest, TL_ENTRY(base, node, 3, rest, 0));
	if (value || log == 2)
		return value;
	return TL_ENTRY(
	    base, node, 4, rest,
	    TL_ENTRY(base, node, 5, rest, TL_ENTRY(base, node, 6, rest, TL_ENTRY(base, node, 7, rest, 0))));
}

/* The same for longer keys. */
static inline __attribute__((always_inline)) __u32 tl_bucket_long(tl_base_t base, __u32 word, __u64 hi,
								  __u64 lo)
{
	__u32 node = (word & TL_REF_OFFSET) << 3, log = (word & TL_REF_KIND) >> TL_REF_KIND_SHIFT, i;

	for (i = 0; i < TL_BUCKET; i++) {
		if (i >> log)
			break;
		if (!((tl_load64(base, node + 16 * i) ^ hi) | (tl_load64(base, node + 16 * i + 8) ^ lo)))
			return tl_load32(base, node + (16u << log) + 4 * i);
	}
	return 0;
}

/*
 * The value of a key of `bits` bits, a constant, in the hash table of the table of root word `word`; 0 =
 * none. Bits behind them are 0. *place: the offset of the key's word, and in the low half what it was; or 0,
 * if the hash table cannot have the key. (One number takes less of a BPF program's stack.)
 */
static inline __attribute__((always_inline)) __u32 tl_exact(tl_base_t base, __u32 word, __u32 bits, __u64 hi,
							    __u64 lo, __u64 *place)
{
	__u32 table = (word & ~TL_DIR_BITS) - (__u32)sizeof(struct tl_table), exact, at, bucket;
	__u64 hash;

	if ((hi & tl_load64(base, table + __builtin_offsetof(struct tl_table, mask))) !=
	    tl_load64(base, table + __builtin_offsetof(struct tl_table, first)))
		return 0;
	hash = hi * tl_load64(base, table + __builtin_offsetof(struct tl_table, multiplier[0]));
	if (bits > TL_EXACT_SHORT)
		hash += lo * tl_load64(base, table + __builtin_offsetof(struct tl_table, multiplier[1]));
	exact = tl_load32(base, table + __builtin_offsetof(struct tl_table, exact));
	/* At least one bit; in two steps nevertheless, as a damaged image may have none. */
	at = (exact & ~TL_DIR_BITS) + 4 * (hash >> 1 >> (63 - (exact & TL_DIR_BITS)));
	bucket = tl_load32(base, at);
	*place = (__u64)at << 32 | bucket;
	if (!(bucket & TL_REF_NODE))
		return 0;
	if (bits > TL_EXACT_SHORT)
		return tl_bucket_long(base, bucket, hi, lo) & TL_VALUE_MAX;
	return tl_bucket_short(base, bucket, hash >> (64 - bits)) & TL_VALUE_MAX;
}

#endif
