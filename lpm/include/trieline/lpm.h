/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Longest-prefix-match lookups in a trieline image (image.h), for BPF programs and native C. Where the image
 * is: mem.h; BPF programs include bpf.h, which includes this, and pass TL_IMAGE as `base`.
 *
 *   tl_lookup4(base, id, addr)             IPv4: addr in host order (192.0.2.1 = 0xc0000201)
 *   tl_lookup6(base, id, hi, lo)           IPv6: two numbers in host order, the first eight bytes in `hi`
 *   tl_lookup(base, id, bits, hi, lo)      keys of 1 to 128 bits, from the highest bit of `hi` on
 *   tl_lookup_wide(base, id, bits, key)    keys of 1 to 2048 bits in memory, in network order
 *   tl_lookup4_n, tl_lookup6_n             several at once
 *
 * Each returns a value 1 .. 2^31-1, or 0: no prefix matches, or table `id` does not exist or has other keys.
 * `bits` is a constant. tl_match4 and tl_match6 tell the prefix's length too, for tables whose values carry
 * it.
 *
 * For the verifier: no helper is called, and nothing but the image and `key` is read. Every loop has a
 * constant bound, also in a damaged image. The common ways are inlined. A lookup during a change of the
 * default route goes on in functions of their own, verified once.
 */
#ifndef TRIELINE_LPM_H
#define TRIELINE_LPM_H

#include "walk.h"

#define TL_INLINE static inline __attribute__((always_inline))

/* Functions of their own. In BPF they are global and have no parameter `base`, which has no meaning there.
 * So a verifier looks at each once and not wherever it is called. */
#ifdef __bpf__
#define TL_APART(name, ...) __attribute__((noinline, weak)) __u32 name(__VA_ARGS__)
#define TL_APART_BASE const tl_base_t base = 0
#define TL_CALL(name, base, ...) name(__VA_ARGS__)
#else
#define TL_APART(name, ...) static inline __u32 name(tl_base_t base, __VA_ARGS__)
#define TL_APART_BASE
#define TL_CALL(name, base, ...) name(base, __VA_ARGS__)
#endif

#ifdef __clang__
#define TL_UNROLL _Pragma("unroll")
#else
#define TL_UNROLL _Pragma("GCC unroll 8")
#endif

/* The directory entry of table `id`; 0 in its low half = no such table. */
TL_INLINE __u64 tl_table_entry(tl_base_t base, __u32 id)
{
	if (id >= tl_load32(base, __builtin_offsetof(struct tl_image, tables)))
		return TL_NO_TABLE;
	return tl_load64(base, TL_DIRECTORY + TL_DIR_ENTRY * id);
}

/* A field of the header of the table of root word `word`. */
#define TL_TABLE_FIELD(base, word, field)                                                                    \
	tl_load32(base, ((word) & ~TL_DIR_BITS) - (__u32)sizeof(struct tl_table) +                           \
			    (__u32) __builtin_offsetof(struct tl_table, field))

/* A table's keys: their family and width, with TL_EXACT. (key_family and key_bits, root_bits between them.)
 */
#define TL_KEYS(base, word) (TL_TABLE_FIELD(base, word, key_family) & 0xffff00ff)

#include "exact.h"

/*
 * A change of the fallback counts in the directory before it is stored. The walk's result (nothing) and the
 * fallback belong together unless the directory entry has changed by then. A walk's result and a key that the
 * hash table does not have belong together unless the key's word has changed by then. Else the lookup is done
 * again, so often. If a default route changes in each of these tries, the last one counts. Its answer may be
 * a value that the default route had meanwhile, where a prefix went and came.
 */
#define TL_TRIES 3

/* Set in an answer that may belong to no state. */
#define TL_UNSETTLED 0x80000000u

/* Nothing, unless a test marks the place in the assembly to look what has become of it. */
#ifndef TL_AFTER_NOTE
#define TL_AFTER_NOTE ""
#endif
#ifndef TL_THEN_NOTE
#define TL_THEN_NOTE ""
#endif

/* The answer for table `id` of directory entry `entry`; with TL_UNSETTLED if it may belong to no state.
 * `exact` is what its hash table says, in which the key has `tl_place`, and `walk` what its nodes say; both
 * take the table's `tl_word`.
 */
#define TL_ANSWER(base, id, entry, family, bits, exact, walk)                                                \
	({                                                                                                   \
		__u32 tl_word = (__u32)(entry), tl_value = 0,                                                \
		      tl_keys = tl_word ? TL_KEYS(base, tl_word) : 0;                                        \
		__u64 tl_place = 0, tl_differ;                                                               \
                                                                                                             \
		if ((bits) <= TL_EXACT_WIDEST && tl_keys == ((bits) << 16 | (family) | TL_EXACT)) {          \
			__u32 tl_seen, tl_same;                                                              \
                                                                                                             \
			tl_value = (exact);                                                                  \
			tl_keys = (bits) << 16 | (family);                                                   \
			/* Nothing, but no compiler knows: no CPU begins the walk before the key's word is   \
			 * loaded. */                                                                        \
			tl_seen = tl_same = (__u32)tl_place;                                                 \
			asm volatile("" : "+r"(tl_seen), "+r"(tl_same));                                     \
			tl_word += tl_seen & ~tl_same;                                                       \
		}                                                                                            \
		if (!tl_value && tl_keys == ((bits) << 16 | (family))) {                                     \
			__u32 tl_after = tl_value = (walk);                                                  \
                                                                                                             \
			/* Added to the address, so that no CPU loads what follows before the walk. Here and \
			 * not in the branch: there the compiler knows that it is 0, and adds a constant. */ \
			asm volatile(TL_AFTER_NOTE : "+r"(tl_after));                                        \
			if (!tl_value) {                                                                     \
				__u32 tl_then = tl_value =                                                   \
				    TL_TABLE_FIELD(base, tl_word + tl_after, fallback);                      \
                                                                                                             \
				/* In the same way, no CPU loads the entry before the fallback. */           \
				asm volatile(TL_THEN_NOTE : "+r"(tl_then));                                  \
				/* Without a branch, whose ways a verifier would follow. */                  \
				tl_differ = tl_load64(base, TL_DIRECTORY + TL_DIR_ENTRY * (id) +             \
								(tl_then & TL_UNSETTLED)) ^                  \
					    (entry);                                                         \
				tl_then = (__u32)tl_differ | (__u32)(tl_differ >> 32);                       \
				asm volatile("" : "+r"(tl_then));                                            \
				tl_value |= (tl_then | -tl_then) & TL_UNSETTLED;                             \
			}                                                                                    \
			if (tl_place &&                                                                      \
			    tl_load32(base, (__u32)(tl_place >> 32) + (tl_after >> 31)) != (__u32)tl_place)  \
				tl_value |= TL_UNSETTLED;                                                    \
		}                                                                                            \
		tl_value;                                                                                    \
	})

/* The same with the table looked up, and again while it is being replaced. */
#define TL_AGAIN(base, id, entry, answer)                                                                    \
	({                                                                                                   \
		__u32 tl_found = 0, tl_try;                                                                  \
                                                                                                             \
		for (tl_try = 0; tl_try < TL_TRIES; tl_try++) {                                              \
			entry = tl_table_entry(base, id);                                                    \
			tl_found = (answer);                                                                 \
			if (!(tl_found & TL_UNSETTLED))                                                      \
				break;                                                                       \
		}                                                                                            \
		tl_found & TL_VALUE_MAX;                                                                     \
	})

TL_INLINE __u32 tl_answer4(tl_base_t base, __u32 id, __u64 entry, __u32 addr)
{
	return TL_ANSWER(base, id, entry, 4, 32u,
			 tl_exact(base, tl_word, 32, (__u64)addr << 32, 0, &tl_place),
			 tl_walk4(base, tl_word, tl_root4(base, tl_word, addr), addr));
}

/* One try of the three, so that a verifier looks at one. */
TL_APART(tl_try4, __u32 id, __u64 entry, __u32 addr)
{
	TL_APART_BASE;

	return tl_answer4(base, id, entry, addr);
}

TL_APART(tl_again4, __u32 id, __u32 addr)
{
	TL_APART_BASE;
	__u64 entry;

	return TL_AGAIN(base, id, entry, TL_CALL(tl_try4, base, id, entry, addr));
}

/* Longest match of an IPv4 address in table `id`. */
TL_INLINE __u32 tl_lookup4(tl_base_t base, __u32 id, __u32 addr)
{
	__u32 value = tl_answer4(base, id, tl_table_entry(base, id), addr);

	return value & TL_UNSETTLED ? TL_CALL(tl_again4, base, id, addr) : value;
}

TL_INLINE __u32 tl_answer6(tl_base_t base, __u32 id, __u64 entry, __u64 hi, __u64 lo)
{
	return TL_ANSWER(base, id, entry, 6, 128u, tl_exact(base, tl_word, 128, hi, lo, &tl_place),
			 tl_walk6(base, tl_word, tl_root(base, tl_word, hi), hi, lo));
}

/* As tl_try4. */
TL_APART(tl_try6, __u32 id, __u64 entry, __u64 hi, __u64 lo)
{
	TL_APART_BASE;

	return tl_answer6(base, id, entry, hi, lo);
}

TL_APART(tl_again6, __u32 id, __u64 hi, __u64 lo)
{
	TL_APART_BASE;
	__u64 entry;

	return TL_AGAIN(base, id, entry, TL_CALL(tl_try6, base, id, entry, hi, lo));
}

/* Longest match of an IPv6 address in table `id`. */
TL_INLINE __u32 tl_lookup6(tl_base_t base, __u32 id, __u64 hi, __u64 lo)
{
	__u32 value = tl_answer6(base, id, tl_table_entry(base, id), hi, lo);

	return value & TL_UNSETTLED ? TL_CALL(tl_again6, base, id, hi, lo) : value;
}

/* Longest match of a key of `bits` bits, 1 to 128, in table `id` of such keys (IPv4 and IPv6 have their own
 * functions). Bits behind them in `hi` and `lo` do not count. */
TL_INLINE __u32 tl_lookup(tl_base_t base, __u32 id, __u32 bits, __u64 hi, __u64 lo)
{
	__u64 entry;

	hi &= bits < 64 ? ~(~0ull >> bits) : ~0ull;
	lo &= bits <= 64 ? 0 : ~(~0ull >> 1 >> (bits - 65));
	return TL_AGAIN(base, id, entry,
			TL_ANSWER(base, id, entry, 0, bits, tl_exact(base, tl_word, bits, hi, lo, &tl_place),
				  tl_walk(base, tl_word, tl_word & TL_DIR_BITS, tl_root(base, tl_word, hi),
					  hi, lo, 1, TL_KEY_STEPS_MAX(bits))));
}

/* A key in memory: `__u64 key[TL_WIDE_WORDS(bits)] = {}`, then its bytes in network order from the first on.
 */
#define TL_WIDE_WORDS(bits) (((bits) + 63) / 64 + 2)

/* Longest match of a key of `bits` bits, 1 to 2048, in table `id` of such keys. Bits behind them are 0. For
 * 2048 bits a verifier looks at a third of the million instructions that it looks at in a program. */
TL_INLINE __u32 tl_lookup_wide(tl_base_t base, __u32 id, __u32 bits, const __u64 *key)
{
	__u64 entry;

	return TL_AGAIN(
	    base, id, entry,
	    TL_ANSWER(base, id, entry, 0, bits,
		      tl_exact(base, tl_word, bits, __builtin_bswap64(key[0]), __builtin_bswap64(key[1]),
			       &tl_place),
		      tl_walk_wide(base, tl_word, tl_root(base, tl_word, __builtin_bswap64(key[0])), key,
				   TL_WIDE_WORDS(bits) - 2, TL_KEY_STEPS_MAX(bits))));
}

/*
 * Several lookups, of source and destination, of outer and inner header: `n` is a constant, 2 to 8. The first
 * loads of all are made before the first is waited for. The rest of each is one function for all, so that
 * the program stays small. A key's word comes before the root's, so a root that was loaded before is not used
 * if there is a hash table. `value` may be what `id` was.
 */
TL_APART(tl_finish4, __u32 id, __u64 entry, __u32 ref, __u32 addr)
{
	TL_APART_BASE;
	__u32 value =
	    TL_ANSWER(base, id, entry, 4, 32u, tl_exact(base, tl_word, 32, (__u64)addr << 32, 0, &tl_place),
		      tl_walk4(base, tl_word, tl_place ? tl_root4(base, tl_word, addr) : ref, addr));

	return value & TL_UNSETTLED ? TL_CALL(tl_again4, base, id, addr) : value;
}

TL_INLINE void tl_lookup4_n(tl_base_t base, const __u32 *id, const __u32 *addr, __u32 *value, __u32 n)
{
	__u64 entry[8];
	__u32 ref[8], i;

	TL_UNROLL
	for (i = 0; i < n; i++)
		entry[i] = tl_table_entry(base, id[i]);
	TL_UNROLL
	for (i = 0; i < n; i++)
		ref[i] = tl_root4(base, (__u32)entry[i], addr[i]);
	TL_UNROLL
	for (i = 0; i < n; i++)
		tl_touch(base, ref[i]);
	TL_UNROLL
	for (i = 0; i < n; i++)
		value[i] = TL_CALL(tl_finish4, base, id[i], entry[i], ref[i], addr[i]);
}

/* An IPv6 address: two numbers in host order. */
struct tl_key6 {
	__u64 hi, lo;
};

TL_APART(tl_finish6, __u32 id, __u64 entry, __u32 ref, __u64 hi, __u64 lo)
{
	TL_APART_BASE;
	__u32 value = TL_ANSWER(base, id, entry, 6, 128u, tl_exact(base, tl_word, 128, hi, lo, &tl_place),
				tl_walk6(base, tl_word, tl_place ? tl_root(base, tl_word, hi) : ref, hi, lo));

	return value & TL_UNSETTLED ? TL_CALL(tl_again6, base, id, hi, lo) : value;
}

/* As tl_lookup4_n. */
TL_INLINE void tl_lookup6_n(tl_base_t base, const __u32 *id, const struct tl_key6 *addr, __u32 *value,
			    __u32 n)
{
	__u64 entry[8];
	__u32 ref[8], i;

	TL_UNROLL
	for (i = 0; i < n; i++)
		entry[i] = tl_table_entry(base, id[i]);
	TL_UNROLL
	for (i = 0; i < n; i++)
		ref[i] = tl_root(base, (__u32)entry[i], addr[i].hi);
	TL_UNROLL
	for (i = 0; i < n; i++)
		tl_touch(base, tl_is_direct(ref[i])
				   ? tl_direct12(base, ref[i], addr[i].hi << ((__u32)entry[i] & TL_DIR_BITS))
				   : ref[i]);
	TL_UNROLL
	for (i = 0; i < n; i++)
		value[i] = TL_CALL(tl_finish6, base, id[i], entry[i], ref[i], addr[i].hi, addr[i].lo);
}

/*
 * A value and the length of its prefix. For tables that were filled with values of `Prefix::with_length`
 * (Rust) or tl_with_length (C). They hold the length in the low bits, 6 for IPv4, 8 for IPv6, which leaves 25
 * or 23 for the value. In other tables they mean nothing.
 */
TL_INLINE __u32 tl_with_length(__u32 value, __u32 len, __u32 bits)
{
	return value << TL_LENGTH_BITS(bits) | len;
}

struct tl_match {
	__u32 value; /* 0: no prefix matches */
	__u32 len;
};

/* A value that a lookup of a key of `bits` bits gave, taken apart. */
TL_INLINE struct tl_match tl_match_of(__u32 value, __u32 bits)
{
	return (struct tl_match){value >> TL_LENGTH_BITS(bits), value & ((1u << TL_LENGTH_BITS(bits)) - 1)};
}

TL_INLINE struct tl_match tl_match4(tl_base_t base, __u32 id, __u32 addr)
{
	return tl_match_of(tl_lookup4(base, id, addr), 32);
}

TL_INLINE struct tl_match tl_match6(tl_base_t base, __u32 id, __u64 hi, __u64 lo)
{
	return tl_match_of(tl_lookup6(base, id, hi, lo), 128);
}

#endif
