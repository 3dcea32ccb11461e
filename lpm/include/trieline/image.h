/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The bytes of a trieline image: the one description of the layout that BPF programs, C and Rust share.
 *
 * An image is a run of little-endian bytes with no pointers in it: every reference is a 32-bit offset from
 * the image's start. So the same bytes are valid in a Rust slice, a BPF arena, a memory-mapped BPF array, a
 * shared file and a snapshot.
 *
 *   0        struct tl_image              header
 *   64       u64 [tables]                 directory: an entry a table
 *   ...      chunks of 64 KiB             tables (header + root) and nodes
 *
 * Directory entry: the low 32 bits are the root word: the byte offset of the table's root, a multiple of 64.
 * Its low six bits hold the number of address bits that index the root (0..24). 0 = no such table. Storing it
 * replaces the whole table for all addresses at once. The 64 bytes before the root are the table's header.
 * The high 32 bits count changes of the low ones and of the table's `fallback`; the count is odd while that
 * one changes. Load and store both halves at once.
 *
 * Ref (a root slot or a node's slot, u32):
 *   bit 31 = 0   a value, 1 .. 2^31-1; 0 = no prefix here (the table's `fallback`, the value of the prefix of
 *                length 0, applies)
 *   bit 31 = 1   a node: bits 30..29 kind, bits 28..0 offset in units of 8 bytes
 *
 * A table with a palette has it right behind the root: 256 values; [0] is 0.
 *
 * Prefixes of full length may stand in a hash table beside the root instead: tl_table's `exact` and what
 * follows it. A key that is found there has its longest match. All other keys take the root.
 *
 * No node begins in the last TL_GUARD bytes of an image, and only a direct12 is longer than that. So after a
 * check that a node's offset lies before them, a reader may read all of another node.
 *
 * A writer builds new nodes aside and publishes them by one release-store of the word that leads to them. The
 * nodes that the word led to before must stay untouched until no reader can hold them (a grace period). See
 * `Grace` in the Rust crate.
 */
#ifndef TRIELINE_IMAGE_H
#define TRIELINE_IMAGE_H

#ifdef __linux__
#include <linux/types.h>
#endif

#define TL_IMAGE_MAGIC 0x4c495254u /* "TRIL" */
#define TL_IMAGE_VERSION 6
#define TL_CHUNK                                                                                             \
	65536u		 /* bytes; a writer that opens an image keeps every chunk that a table reaches into  \
			  */
#define TL_DIRECTORY 64u /* offset of the directory */
#define TL_DIR_ENTRY 8u	 /* bytes of its entries */
#define TL_NO_TABLE 0u
#define TL_VALUE_MAX 0x7fffffffu
#define TL_GUARD 2048u

/* Header, at offset 0. The maker of the image writes it once, except `generation`. */
struct tl_image {
	__u32 magic;
	__u16 version;
	__u16 header_bytes; /* sizeof(struct tl_image) */
	__u64 size;	    /* bytes, a multiple of TL_CHUNK, at most 4 GiB */
	__u32 tables;	    /* slots in the directory */
	__u32 generation;   /* of the newest writer; each writer that opens the image adds one */
	__u32 reserved[10];
};

/* Header of a table, in the 64 bytes before its root. */
struct tl_table {
	__u32 fallback;	  /* value of the prefix of length 0; 0 = none. A change of it counts in the
			     directory entry before and after it is stored. A reader that
			     keeps it compares the entry after each lookup */
	__u8 key_family;  /* 4 = IPv4, 6 = IPv6, 0 = other keys; with TL_EXACT if there is a hash table */
	__u8 root_bits;	  /* as in the directory entry */
	__u16 key_bits;	  /* 1 .. 2048; 32 and 128 for the families 4 and 6 */
	__u32 prefixes;	  /* in the table, the one of length 0 included; informative */
	__u32 root_bytes; /* 4 << root_bits */
	__u32 palette;	  /* entries behind the root: 0 or TL_PALETTE */
	__u32 exact; /* the hash table, as a root in the directory: its offset, and 1 .. 24 bits that index it
		      */
	__u64 multiplier[2];
	__u64
	    mask; /* only keys whose first 64 bits are `first` under this mask may stand in the hash table */
	__u64 first; /* 0 outside the mask */
	__u32 reserved[2];
};

/* Set in `key_family`. The hash table stays where it is for as long as the root. A reader that keeps the
 * place of either compares the directory entry after each lookup, also of a key that it found. */
#define TL_EXACT 0x80u

/* Directory entry. */
#define TL_DIR_BITS 63u /* mask of the number of root bits */

/* Ref. */
#define TL_REF_NODE 0x80000000u
#define TL_REF_KIND_SHIFT 29
#define TL_REF_KIND 0x60000000u
#define TL_REF_OFFSET 0x1fffffffu /* << 3 = bytes */
#define TL_REF_UNIT 8u

/*
 * Node kinds. (The rest of this file is final; the kinds may grow, and an image of another version is
 * refused.)
 *
 * A bitmap node covers 2^stride slots as runs of equal refs. Bit i of the bitmap is set where slot i starts
 * a run. Bit 0 is always set. A slot that leads to a node is a run of its own. `ref[k]` is the ref of the
 * k-th run, so slot i has ref[popcount(bits 0..i) - 1].
 *
 * Tables of IPv4 have these kinds.
 */
enum tl_kind4 {
	TL_NODE6 = 0,  /* struct tl_node6: six key bits */
	TL_LEAF6 = 1,  /* struct tl_leaf6: six key bits, values only, as indices into the palette */
	TL_RANGES = 2, /* struct tl_ranges: the next sixteen key bits, values only, nothing behind them */
};

struct tl_node6 {
	__u64 starts;
	__u32 ref[];
};

#define TL_PALETTE 256u
struct tl_leaf6 {
	__u64 starts;
	__u8 index[]; /* as `ref` of a node6, each an index into the palette */
};

/*
 * Up to nine runs of the next sixteen key bits: where each but the first starts, in descending order, 0 where
 * there is none. Then their values in the same order, that of the first run last. So the value of key bits k
 * is value[number of starts above k].
 */
#define TL_RANGES_STARTS 8
struct tl_ranges {
	__u16 start[TL_RANGES_STARTS];
	__u32 value[];
};

/* Tables of other keys have these kinds. */
enum tl_kind {
	TL_RANGES32 = 0, /* struct tl_ranges32: the next 32 key bits; not in tables of IPv6 */
	TL_DIRECT12 = 0, /* struct tl_direct12: twelve key bits; in tables of IPv6, in slots of the root */
	TL_NODE8 = 1,	 /* struct tl_node8: eight key bits */
	TL_SKIP = 2,	 /* struct tl_skip: 1 to TL_SKIP_MAX key bits that only one way leads through */
	TL_LEAF8 = 3,	 /* struct tl_leaf8: eight key bits, values only; in tables of IPv6 */
};

/*
 * A ref for each number of twelve key bits, as in a root. Below a root of twelve bits, two loads take an
 * address to its first 24 bits. It ends before the image's last TL_GUARD bytes.
 */
#define TL_DIRECT_BITS 12
struct tl_direct12 {
	__u32 ref[1 << TL_DIRECT_BITS];
};

/*
 * As tl_ranges, for the next 32 key bits, those past the key's end being 0. The ref of key bits k is
 * ref[number of starts above k]. A ref may lead to a node; then its run is one slot. With eight runs it is
 * one cache line.
 *
 * Where there are more runs, two levels hold up to 64. The upper one has its starts in ascending order, so
 * that start[0] is less than the last, and those that there are not come first. Its refs are values or lead
 * to a ranges32 of the lower level. Such a ranges32 has the runs of that part and looks at the same 32 key
 * bits.
 */
#define TL_RANGES32_STARTS 7
struct tl_ranges32 {
	__u32 start[TL_RANGES32_STARTS];
	__u32 ref[];
};

/* before[w]: how many runs start before the slots of starts[w]. */
struct tl_node8 {
	__u64 starts[4];
	__u8 before[4];
	__u32 reserved; /* 0 */
	__u32 ref[];
};

struct tl_leaf8 {
	__u64 starts[4]; /* as those of a node8 */
	__u8 before[4];
	__u32 reserved;
	__u8 index[]; /* as `ref` of a node8, each an index into the palette */
};

/*
 * Stands for a chain of nodes with one child each. The next `len` key bits are `bits`, or the answer is
 * `otherwise`. Of more than TL_SKIP_SHORT bits, a __u64 follows the struct with those behind the first 32.
 * Both are numbers whose highest bit comes first. Their last bits are 0 where `len` ends sooner.
 */
#define TL_SKIP_MAX 96
#define TL_SKIP_SHORT 32
#define TL_SKIP_LEN 127 /* mask of `len`, whatever an image says */
struct tl_skip {
	__u32 otherwise; /* a value or 0 */
	__u32 bits;
	__u32 len;
	__u32 next; /* ref */
};

/*
 * The hash table of a table's prefixes of full length: 2^bits words. A key's word is the highest bits of its
 * hash, a number of 64 bits. `hi` and `lo` are the key's first 128 bits, those past its end being 0:
 *
 *   keys of 1 .. 48 bits    hi * multiplier[0]
 *   keys of 49 .. 128 bits  hi * multiplier[0] + lo * multiplier[1]
 *   longer ones             none: such a table has no hash table
 *
 * A word with TL_REF_NODE leads to a bucket of 2^k entries. Bits 30..29 are k, bits 28..0 the offset in units
 * of 8 bytes. Other words: no key is there. They hold a number that is another each time.
 *
 * Of keys of up to 48 bits, a bucket is tl_entry[2^k]. The hash is a permutation of such keys, and what the
 * word's number does not tell of it fits 32 bits. Of longer keys, a bucket has the keys, then the values:
 * __u64 key[2^k][2], __u32 value[2^k].
 *
 * An unused entry has the value 0 and comes last. A bucket is never changed, but replaced by another. Keys
 * without room in their bucket are found by the root.
 *
 * If a key is not found here and its walk has ended, the word must be what it was. Else a prefix of full
 * length may have come and a shorter one gone meanwhile, and the lookup is done again.
 */
#define TL_EXACT_BITS_MAX 24u
#define TL_EXACT_SHORT 48   /* bits of the longest keys that have a tl_entry */
#define TL_EXACT_WIDEST 128 /* bits of the longest keys that may have a hash table */
#define TL_BUCKET 8u	    /* entries of the largest bucket */
struct tl_entry {
	__u32 rest; /* of the hash's first key_bits bits, the last 32 */
	__u32 value;
};

/* No lookup takes more steps than these. */
#define TL_V4_STEPS_MAX 6			/* ceil(32 / 6): a root of 0 bits */
#define TL_V6_STEPS_MAX 16			/* 128 / 8: a root of 0 bits */
#define TL_KEY_STEPS_MAX(bits) ((bits + 7) / 8) /* keys of that width, at most 256 */

/* Bits that hold the length of a prefix, 0 .. key_bits, in the values of tables whose values carry it. */
#define TL_LENGTH_BITS(key_bits) (32 - __builtin_clz(key_bits))

_Static_assert(sizeof(struct tl_image) == TL_DIRECTORY, "the directory follows the header");
_Static_assert(sizeof(struct tl_table) == 64, "table header");
_Static_assert(sizeof(struct tl_node6) == 8, "node6 header");
_Static_assert(sizeof(struct tl_node8) == 40, "node8 header");
_Static_assert(sizeof(struct tl_skip) == 16, "skip");
_Static_assert(sizeof(struct tl_direct12) == 16384, "direct12");
_Static_assert(sizeof(struct tl_ranges) == 16, "ranges header");
_Static_assert(sizeof(struct tl_ranges32) == 28, "ranges32 header");
_Static_assert(sizeof(struct tl_entry) == 8, "entry");

#endif
