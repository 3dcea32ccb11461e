/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How a lookup walks the nodes of an image (image.h): what lpm.h is made of, and no interface of its own.
 *
 * Steps are bounded also in a damaged image. No branch depends on more than the node's own kind, so that
 * a verifier has few ways to follow.
 */
#ifndef TRIELINE_WALK_H
#define TRIELINE_WALK_H

#include "mem.h"

/*
 * A bit of every root word that is always 0, but no verifier knows. Of what is shifted by it a verifier
 * knows nothing any more. Where many ways through a program meet, it then follows one of them, as none knows
 * more than another.
 */
static inline __attribute__((always_inline)) __u32 tl_never(__u32 word) { return word >> 5 & 1; }

/* Number of set bits. BPF has no instruction for it. */
static inline __attribute__((always_inline)) __u32 tl_popcount(__u64 x)
{
#ifdef __bpf__
	x -= x >> 1 & 0x5555555555555555ull;
	x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return x * 0x0101010101010101ull >> 56;
#else
	return __builtin_popcountll(x);
#endif
}

/* How many of the starts in `pair` (two of tl_ranges' words, 16 bits each) lie above key bits whose
 * complement to 0xffff is `rest`. For both halves: bits 16 and 48 of the sum. */
static inline __attribute__((always_inline)) __u64 tl_above(__u64 pair, __u64 rest)
{
	const __u64 low = 0x0000ffff0000ffffull, carry = 0x0001000000010000ull;

	return (((pair & low) + rest) & carry) + (((pair >> 16 & low) + rest) & carry);
}

/* The value of a tl_ranges for the 16 key bits `bits`. */
static inline __attribute__((always_inline)) __u32 tl_tail4(tl_base_t base, __u32 ref, __u32 bits)
{
	__u32 node = (ref & TL_REF_OFFSET) << 3;
	__u64 rest = 0x0000ffff0000ffffull - (bits | (__u64)bits << 32);
	__u64 sum = (tl_above(tl_load64(base, node), rest) + tl_above(tl_load64(base, node + 8), rest)) >> 16;

	return tl_load32(base, node + sizeof(struct tl_ranges) + 4 * ((sum + (sum >> 32)) & 15));
}

/* The root's ref for an IPv4 address under root word `word`, which is not 0. */
static inline __attribute__((always_inline)) __u32 tl_root4(tl_base_t base, __u32 word, __u32 addr)
{
	__u32 root = word & ~TL_DIR_BITS, bits = word & TL_DIR_BITS;

	return tl_load32(base, root + (((__u64)addr << bits) >> 32) * 4);
}

/* From there: the longest match among the prefixes of 1 bit and more. */
static inline __attribute__((always_inline)) __u32 tl_walk4(tl_base_t base, __u32 word, __u32 ref, __u32 addr)
{
	__u32 root = word & ~TL_DIR_BITS, bits = word & TL_DIR_BITS, i;
	__u32 six = 6 + tl_never(word);
	__u64 key = (__u64)addr << 32 << bits;

	/* Above all else node6: a verifier that follows every way through the loop has one to follow. */
	for (i = 0; i < TL_V4_STEPS_MAX && (ref & (TL_REF_NODE | TL_REF_KIND)) == TL_REF_NODE; i++) {
		__u32 node = (ref & TL_REF_OFFSET) << 3;
		__u64 starts = tl_load64(base, node) << (63 - (key >> 58));

		ref = tl_load32(base, node + sizeof(struct tl_node6) - 4 + 4 * tl_popcount(starts));
		key <<= six;
	}
	if (!(ref & TL_REF_NODE))
		return ref;
	if ((ref & TL_REF_KIND) >> TL_REF_KIND_SHIFT == TL_LEAF6) {
		__u32 node = (ref & TL_REF_OFFSET) << 3;
		__u64 starts = tl_load64(base, node) << (63 - (key >> 58));
		__u32 code = tl_load8(base, node + sizeof(struct tl_leaf6) - 1 + tl_popcount(starts));

		ref = tl_load32(base, root + (__u32)(4ull << bits) + 4 * code);
	} else {
		ref = tl_tail4(base, ref, key >> 48);
	}
	if (ref & TL_REF_NODE)
		return 0;
	return ref;
}

/* How many of the starts in `pair` (two of tl_ranges32's) lie above key bits `bits`: from those `bits`
 * borrows. */
static inline __attribute__((always_inline)) __u32 tl_above32(__u64 pair, __u64 bits)
{
	__u64 low = bits - (__u32)pair, high = bits - (pair >> 32);

	/* A compiler would branch instead, and a verifier follow each way. */
	asm volatile("" : "+r"(low), "+r"(high));
	return (low >> 63) + (high >> 63);
}

/* The ref of a tl_ranges32 for the 32 key bits `bits`. *len: how many of them are done with. */
static inline __attribute__((always_inline)) __u32 tl_ranges32(tl_base_t base, __u32 node, __u64 bits,
							       __u32 *len)
{
	__u64 first = tl_load64(base, node), last = tl_load32(base, node + 24);
	__u32 above = tl_above32(first, bits) + tl_above32(tl_load64(base, node + 8), bits) +
		      tl_above32(tl_load64(base, node + 16), bits) + tl_above32(last, bits);

	*len = tl_above32((__u32)first, last) << 5;
	return tl_load32(base, node + sizeof(struct tl_ranges32) + 4 * above);
}

/* The root's ref for another key, whose first 64 bits are `hi`. */
static inline __attribute__((always_inline)) __u32 tl_root(tl_base_t base, __u32 word, __u64 hi)
{
	__u32 root = word & ~TL_DIR_BITS, bits = word & TL_DIR_BITS;

	/* bits <= 24, so that the two shifts stay under 64 also for bits = 0 */
	return tl_load32(base, root + (hi >> 1 >> (63 - bits)) * 4);
}

/* Asks for the line that a ref leads to, without a branch; for a value, for the image's first. */
static inline __attribute__((always_inline)) void tl_touch(tl_base_t base, __u32 ref)
{
	(void)tl_load32(base, ((ref & TL_REF_OFFSET) << 3) & -(ref >> 31));
}

/* The number, from 1 on, of the run that a tl_node8 or tl_leaf8 has for a slot. */
static inline __attribute__((always_inline)) __u32 tl_run8(tl_base_t base, __u32 node, __u32 slot)
{
	__u32 word64 = slot >> 6;
	__u64 starts = tl_load64(base, node + 8 * word64) << (~slot & 63);

	return tl_load8(base, node + __builtin_offsetof(struct tl_node8, before) + word64) +
	       tl_popcount(starts);
}

/* The ref that a tl_node8 has for a slot. */
static inline __attribute__((always_inline)) __u32 tl_node8(tl_base_t base, __u32 node, __u32 slot)
{
	return tl_load32(base, node + sizeof(struct tl_node8) - 4 + 4 * tl_run8(base, node, slot));
}

/* The value that a tl_leaf8 of the table of root word `word` has for a slot. */
static inline __attribute__((always_inline)) __u32 tl_leaf8(tl_base_t base, __u32 word, __u32 node,
							    __u32 slot)
{
	__u32 root = word & ~TL_DIR_BITS, bits = word & TL_DIR_BITS;
	__u32 code = tl_load8(base, node + sizeof(struct tl_leaf8) - 1 + tl_run8(base, node, slot));

	return tl_load32(base, root + (__u32)(4ull << bits) + 4 * code) & TL_VALUE_MAX;
}

/* The next node's ref for the key bits from here on; `hi` and `lo` hold the first 128 of them. *len: how
 * many of them it is done with; TL_STOP: the ref is the answer. `has_ranges`, a constant: there may be a
 * tl_ranges32. */
#define TL_STOP 128u
static inline __attribute__((always_inline)) __u32 tl_step(tl_base_t base, __u32 ref, __u64 hi, __u64 lo,
							   __u32 has_ranges, __u32 *len)
{
	__u32 node = (ref & TL_REF_OFFSET) << 3, kind = (ref & TL_REF_KIND) >> TL_REF_KIND_SHIFT;
	__u64 differ, more;

	*len = 8;
	if (__builtin_expect(kind == TL_NODE8, 1))
		return tl_node8(base, node, hi >> 56);
	if (has_ranges && kind == TL_RANGES32)
		return tl_ranges32(base, node, hi >> 32, len);
	*len = tl_load32(base, node + __builtin_offsetof(struct tl_skip, len)) & TL_SKIP_LEN;
	/* The bits behind the struct. Of a short one it is the struct itself, which does not count. A
	 * branch here would triple what a verifier follows. */
	more = tl_load64(base, node + ((TL_SKIP_SHORT - 1 + *len) >> 2 & sizeof(struct tl_skip)));
	differ =
	    hi ^ ((__u64)tl_load32(base, node + __builtin_offsetof(struct tl_skip, bits)) << 32 | more >> 32);
	if (*len < 64)
		differ = differ >> 1 >> (63 - *len);
	else
		differ |= (lo ^ more << 32) >> 1 >> (127 - *len);
	if (differ) {
		*len = TL_STOP;
		return tl_load32(base, node + __builtin_offsetof(struct tl_skip, otherwise));
	}
	return tl_load32(base, node + __builtin_offsetof(struct tl_skip, next));
}

/* From there, in at most `steps`: the longest match of a key of up to 128 bits, 0 behind its end. `len` of
 * them led to `ref`. */
static inline __attribute__((always_inline)) __u32 tl_walk(tl_base_t base, __u32 word, __u32 len, __u32 ref,
							   __u64 hi, __u64 lo, __u32 has_ranges, __u32 steps)
{
	const __u32 leaf = TL_REF_NODE | (has_ranges ? ~0u : TL_LEAF8 << TL_REF_KIND_SHIFT);
	__u32 never = tl_never(word), i;

	for (i = 0;; i++) {
		if (!(ref & TL_REF_NODE))
			return ref;
		if (i == steps)
			return 0;
		if (len >= 64) {
			hi = lo;
			lo = 0;
			len -= 64;
		}
		len = len << never & 63;
		hi = hi << len | lo >> 1 >> (63 - len);
		lo <<= len;
		if ((ref & (TL_REF_NODE | TL_REF_KIND)) == leaf)
			return tl_leaf8(base, word, (ref & TL_REF_OFFSET) << 3, hi >> 56);
		ref = tl_step(base, ref, hi, lo, has_ranges, &len);
		if (len == TL_STOP)
			return ref & TL_REF_NODE ? 0 : ref;
	}
}

/* Whether a ref of a root leads to a tl_direct12. */
static inline __attribute__((always_inline)) __u32 tl_is_direct(__u32 ref)
{
	return (ref & (TL_REF_NODE | TL_REF_KIND)) == (TL_REF_NODE | TL_DIRECT12 << TL_REF_KIND_SHIFT);
}

/* The ref that a tl_direct12 has for the key bits from here on. */
static inline __attribute__((always_inline)) __u32 tl_direct12(tl_base_t base, __u32 ref, __u64 key)
{
	return tl_load32(base, ((ref & TL_REF_OFFSET) << 3) + 4 * (key >> (64 - TL_DIRECT_BITS)));
}

/* The same for an IPv6 address. First come nodes that look at its first 64 bits, nearly all of them tl_node8.
 */
static inline __attribute__((always_inline)) __u32 tl_walk6(tl_base_t base, __u32 word, __u32 ref, __u64 hi,
							    __u64 lo)
{
	const __u32 usual = TL_REF_NODE | TL_NODE8 << TL_REF_KIND_SHIFT;
	__u32 never = tl_never(word), bits = word & TL_DIR_BITS, i;

	if (tl_is_direct(ref)) {
		ref = tl_direct12(base, ref, hi << bits);
		bits += TL_DIRECT_BITS;
	}
	bits <<= never;
	/* No key is kept beside `hi`: the stack is short. */
	for (i = 0; i < 5 && (ref & (TL_REF_NODE | TL_REF_KIND)) == usual; i++) {
		ref = tl_node8(base, (ref & TL_REF_OFFSET) << 3, hi << (bits & 63) >> 56);
		bits += 8 << never;
	}
	return tl_walk(base, word, bits, ref, hi, lo, 0, TL_V6_STEPS_MAX);
}

/*
 * The same for a key of `words` 64-bit words in network order, with two more words of zeros behind them.
 * Loads are aligned, so that the key may lie on a BPF program's stack.
 */
static inline __attribute__((always_inline)) __u32 tl_walk_wide(tl_base_t base, __u32 word, __u32 ref,
								const __u64 *key, __u32 words, __u32 steps)
{
	/* 0. A verifier takes it for any number up to `most`, and so `depth`, whichever way led here. */
	const __u32 most = 4095;
	__u32 depth = word & TL_DIR_BITS, any = tl_never(word), len, i;

	asm volatile("" : "+r"(any));
	any *= most;

	for (i = 0; i < steps && ref & TL_REF_NODE; i++) {
		__u32 at = depth >> 6, shift = depth & 63;
		__u64 first, second, third;

		if (at >= words)
			return 0;
		first = __builtin_bswap64(key[at]);
		second = __builtin_bswap64(key[at + 1]);
		third = __builtin_bswap64(key[at + 2]);
		ref = tl_step(base, ref, first << shift | second >> 1 >> (63 - shift),
			      second << shift | third >> 1 >> (63 - shift), 1, &len);
		if (len == TL_STOP)
			break;
		depth = (depth + len + any) & most;
	}
	return ref & TL_REF_NODE ? 0 : ref;
}

#endif
