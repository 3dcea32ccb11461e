/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Longest-prefix-match lookups in a trieline image (image.h), for BPF programs and native C. See mem.h for
 * the homes.
 *
 * Keys are integers in host order: an IPv4 address as __u32 (192.0.2.1 = 0xc0000201), an IPv6 address as two
 * __u64, the first eight bytes of the address in `hi`. Each lookup returns a value 1 .. 2^31-1, or 0: no
 * prefix matches or no such table. Steps are bounded (TL_V4_STEPS_MAX, TL_V6_STEPS_MAX), also in a damaged
 * image.
 */
#ifndef TRIELINE_LPM_H
#define TRIELINE_LPM_H

#include "mem.h"

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

/* The directory word of table `id`, 0 when there is none. */
static inline __attribute__((always_inline)) __u32 tl_table_word(tl_base_t base, __u32 id)
{
	if (id >= tl_load32(base, __builtin_offsetof(struct tl_image, tables)))
		return TL_NO_TABLE;
	return tl_load32(base, TL_DIRECTORY + 4 * id);
}

/* How many of the starts in `pair` (two of tl_ranges' words, 16 bits each) lie above key bits whose
 * complement to 0xffff is `rest`, in both halves: bits 16 and 48 of the sum. */
static inline __attribute__((always_inline)) __u64 tl_above(__u64 pair, __u64 rest)
{
	const __u64 low = 0x0000ffff0000ffffull, carry = 0x0001000000010000ull;

	return (((pair & low) + rest) & carry) + (((pair >> 16 & low) + rest) & carry);
}

/* The value that the node6-sized end of a walk gives for the 16 key bits `bits`: tl_ranges or tl_host[16]. */
static inline __attribute__((always_inline)) __u32 tl_tail4(tl_base_t base, __u32 ref, __u32 bits)
{
	__u32 node = (ref & TL_REF_OFFSET) << 3;

	if ((ref & TL_REF_KIND) >> TL_REF_KIND_SHIFT == TL_RANGES) {
		__u64 rest = 0x0000ffff0000ffffull - (bits | (__u64)bits << 32);
		__u64 sum =
		    (tl_above(tl_load64(base, node), rest) + tl_above(tl_load64(base, node + 8), rest)) >> 16;

		return tl_load32(base, node + sizeof(struct tl_ranges) + 4 * ((sum + (sum >> 32)) & 15));
	} else {
		__u32 window = 2 * (ref & TL_HOSTS_WINDOW), hosts = node & ~(8 * TL_HOSTS_WINDOW);
		__u64 host =
		    tl_load64(base, hosts + sizeof(struct tl_host) * ((bits << window & 0xffff) >> 12));

		if ((host >> 32 & 0xffff) == bits)
			return (__u32)host;
		return tl_load64(base, hosts) >> 48 | (tl_load64(base, hosts + 8) >> 48) << 16;
	}
}

/* Longest match of an IPv4 address among the prefixes of 1 bit and more under directory word `word`. */
static inline __attribute__((always_inline)) __u32 tl_walk4(tl_base_t base, __u32 word, __u32 addr)
{
	__u32 root = word & ~TL_DIR_BITS, bits = word & TL_DIR_BITS, ref, i;
	__u64 key = (__u64)addr << 32;

	if (!root)
		return 0;
	ref = tl_load32(base, root + (((__u64)addr << bits) >> 32) * 4);
	key <<= bits;
	/* Above all else node6: a verifier that follows every way through the loop has one to follow. */
	for (i = 0; i < TL_V4_STEPS_MAX && (ref & (TL_REF_NODE | TL_REF_KIND)) == TL_REF_NODE; i++) {
		__u32 node = (ref & TL_REF_OFFSET) << 3;
		__u64 starts = tl_load64(base, node) << (63 - (key >> 58));

		ref = tl_load32(base, node + sizeof(struct tl_node6) - 4 + 4 * tl_popcount(starts));
		key <<= 6;
	}
	if (!(ref & TL_REF_NODE))
		return ref;
	if ((ref & TL_REF_KIND) >> TL_REF_KIND_SHIFT == TL_LEAF6) {
		__u32 node = (ref & TL_REF_OFFSET) << 3;
		__u64 starts = tl_load64(base, node) << (63 - (key >> 58));
		__u32 code = tl_load8(base, node + sizeof(struct tl_leaf6) - 1 + tl_popcount(starts));

		__u32 value = root + (__u32)(4ull << bits) + 4 * code;

		/* A verifier does not see, as a compiler does, that this is aligned. */
		asm volatile("" : "+r"(value));
		ref = tl_load32(base, value);
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

/* Longest match of an IPv6 address among the prefixes of 1 bit and more under directory word `word`. */
static inline __attribute__((always_inline)) __u32 tl_walk6(tl_base_t base, __u32 word, __u64 hi, __u64 lo)
{
	__u32 root = word & ~TL_DIR_BITS, bits = word & TL_DIR_BITS, ref, i;

	if (!root)
		return 0;
	/* bits <= 24, so that the two shifts below stay under 64 also for bits = 0 */
	ref = tl_load32(base, root + (hi >> 1 >> (63 - bits)) * 4);
	hi = hi << bits | lo >> 1 >> (63 - bits);
	lo <<= bits;
	for (i = 0; i < TL_V6_STEPS_MAX && ref & TL_REF_NODE; i++) {
		__u32 node = (ref & TL_REF_OFFSET) << 3;

		__u32 kind = (ref & TL_REF_KIND) >> TL_REF_KIND_SHIFT, len = 8;

		if (__builtin_expect(kind == TL_NODE8, 1)) {
			/* Of 0..255 that is the quotient by TL_NODE8_SLOTS. BPF divides slowly. */
			__u32 slot = hi >> 56, word64 = slot * 1171 >> 16;
			__u64 starts = tl_load64(base, node + 8 * word64);
			__u32 run = (starts >> TL_NODE8_SLOTS) +
				    tl_popcount(starts << (63 - (slot - TL_NODE8_SLOTS * word64)));

			ref = tl_load32(base, node + sizeof(struct tl_node8) - 4 + 4 * run);
		} else if (kind == TL_RANGES32) {
			ref = tl_ranges32(base, node, hi >> 32, &len);
		} else if (kind == TL_RAW8) {
			ref = tl_load32(base, node + (hi >> 56) * 4);
		} else {
			__u64 differ = hi ^ tl_load64(base, node);

			len = tl_load32(base, node + __builtin_offsetof(struct tl_skip, len)) & TL_SKIP_MAX;
			if (len < 64)
				differ = differ >> 1 >> (63 - len);
			else
				differ |= (lo ^ tl_load64(base, node + 8)) >> 1 >> (127 - len);
			if (differ) {
				ref = tl_load32(base, node + __builtin_offsetof(struct tl_skip, otherwise));
				break;
			}
			ref = tl_load32(base, node + __builtin_offsetof(struct tl_skip, next));
			if (len >= 64) {
				hi = lo;
				lo = 0;
				len -= 64;
			}
		}
		hi = hi << len | lo >> 1 >> (63 - len);
		lo <<= len;
	}
	if (ref & TL_REF_NODE)
		return 0;
	return ref;
}

/*
 * A changed fallback comes with a root of its own: what a walk found (nothing) and the fallback belong
 * together unless the root is marked as replaced by then. No lookup is so slow that it meets four changes.
 */
#define TL_TRIES 3
#define TL_COLD static __attribute__((noinline, unused))

static inline __attribute__((always_inline)) __u32 tl_fallback(tl_base_t base, __u32 word)
{
	return tl_load32(base, (word & ~TL_DIR_BITS) - sizeof(struct tl_table) +
				   __builtin_offsetof(struct tl_table, fallback));
}

/* Looks up once more, and more often while the default route changes. Apart, so that the common case stays
 * short. */
TL_COLD __u32 tl_again4(tl_base_t base, __u32 id, __u32 addr)
{
	__u32 word, value, i;

	for (i = 0; i < TL_TRIES; i++) {
		word = tl_table_word(base, id);
		value = tl_walk4(base, word, addr);
		if (value || !word)
			break;
		value = tl_fallback(base, word);
		if (!(value & TL_REPLACED))
			break;
	}
	return value & TL_VALUE_MAX;
}

TL_COLD __u32 tl_again6(tl_base_t base, __u32 id, __u64 hi, __u64 lo)
{
	__u32 word, value, i;

	for (i = 0; i < TL_TRIES; i++) {
		word = tl_table_word(base, id);
		value = tl_walk6(base, word, hi, lo);
		if (value || !word)
			break;
		value = tl_fallback(base, word);
		if (!(value & TL_REPLACED))
			break;
	}
	return value & TL_VALUE_MAX;
}

/* Longest match of an IPv4 address in table `id`. */
static inline __attribute__((always_inline)) __u32 tl_lookup4(tl_base_t base, __u32 id, __u32 addr)
{
	__u32 word = tl_table_word(base, id), value = tl_walk4(base, word, addr);

	if (value || !word)
		return value;
	value = tl_fallback(base, word);
	return value & TL_REPLACED ? tl_again4(base, id, addr) : value;
}

/* Longest match of an IPv6 address in table `id`. */
static inline __attribute__((always_inline)) __u32 tl_lookup6(tl_base_t base, __u32 id, __u64 hi, __u64 lo)
{
	__u32 word = tl_table_word(base, id), value = tl_walk6(base, word, hi, lo);

	if (value || !word)
		return value;
	value = tl_fallback(base, word);
	return value & TL_REPLACED ? tl_again6(base, id, hi, lo) : value;
}

#endif
