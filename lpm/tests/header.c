/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The C header compiled natively, so that header.rs can compare its answers and its layout with Rust's. */
#include <stddef.h>
#include <string.h>
#include "trieline/lpm.h"

/* A value that no table holds: the ways to ask disagree. */
#define DISAGREE 0xffffffffu

__u32 tl_test_lookup4(const void *image, __u64 size, __u32 id, __u32 addr)
{
	struct tl_view graph = {image, size};
	__u32 value = tl_lookup4(graph, id, addr), ids[4] = {id, id, id + 1, id}, found[4];
	__u32 addrs[4] = {addr, ~addr, addr, addr ^ 1};

	tl_lookup4_n(graph, ids, addrs, found, 4);
	if (found[0] != value || found[1] != tl_lookup4(graph, id, ~addr) ||
	    found[2] != tl_lookup4(graph, id + 1, addr) || found[3] != tl_lookup4(graph, id, addr ^ 1))
		return DISAGREE;
	return value;
}

__u32 tl_test_lookup6(const void *image, __u64 size, __u32 id, __u64 hi, __u64 lo)
{
	struct tl_view graph = {image, size};
	__u32 value = tl_lookup6(graph, id, hi, lo), ids[2] = {id, id}, found[2];
	struct tl_key6 addrs[2] = {{hi, lo}, {~hi, lo}};

	tl_lookup6_n(graph, ids, addrs, found, 2);
	if (found[0] != value || found[1] != tl_lookup6(graph, id, ~hi, lo))
		return DISAGREE;
	return value;
}

__u32 tl_test_lookup(const void *image, __u64 size, __u32 id, __u32 bits, const unsigned char *bytes)
{
	struct tl_view graph = {image, size};
	__u64 key[TL_WIDE_WORDS(2048)] = {0};
	__u32 value;

	memcpy(key, bytes, (bits + 7) / 8);
	value = tl_lookup_wide(graph, id, bits, key);
	/* Bits behind the key do not count. */
	if (bits <= 128 &&
	    tl_lookup(graph, id, bits, __builtin_bswap64(key[0]) | ~0ull >> 1 >> (bits < 64 ? bits - 1 : 63),
		      __builtin_bswap64(key[1])) != value)
		return DISAGREE;
	return value;
}

/* Table `id` asked with the keys of other tables answers nothing. */
__u32 tl_test_others(const void *image, __u64 size, __u32 id, __u32 bits)
{
	struct tl_view graph = {image, size};
	__u64 key[TL_WIDE_WORDS(2048)] = {0};
	__u32 found = 0, other;

	if (bits != 32)
		found |= tl_lookup4(graph, id, 0);
	if (bits != 128)
		found |= tl_lookup6(graph, id, 0, 0);
	for (other = 1; other <= 2048; other++)
		found |= tl_lookup_wide(graph, id, other, key) |
			 (other <= 128 ? tl_lookup(graph, id, other, 0, 0) : 0);
	return found;
}

/* The prefix length that tl_match4 (bits = 32) or tl_match6 finds for address 0, and the value above it. */
__u64 tl_test_match(const void *image, __u64 size, __u32 id, __u32 bits)
{
	struct tl_view graph = {image, size};
	struct tl_match match = bits == 32 ? tl_match4(graph, id, 0) : tl_match6(graph, id, 0, 0);

	return (__u64)match.value << 32 | match.len;
}

/* The first loads of tl_lookup4_n and tl_lookup6_n: the root's ref for an address. */
__u32 tl_test_root4(const void *image, __u64 size, __u32 word, __u32 addr)
{
	return tl_root4((struct tl_view){image, size}, word, addr);
}

/* The rest of tl_lookup4_n. */
__u32 tl_test_finish4(const void *image, __u64 size, __u32 id, __u64 entry, __u32 ref, __u32 addr)
{
	return tl_finish4((struct tl_view){image, size}, id, entry, ref, addr);
}

/* Layout facts in the order header.rs expects them. */
const __u64 tl_test_layout[] = {
    TL_IMAGE_MAGIC,
    TL_IMAGE_VERSION,
    TL_CHUNK,
    TL_VALUE_MAX,
    TL_DIRECTORY,
    TL_DIR_ENTRY,
    TL_DIR_BITS,
    TL_REF_NODE,
    TL_REF_KIND_SHIFT,
    TL_REF_OFFSET,
    TL_REF_UNIT,
    sizeof(struct tl_image),
    offsetof(struct tl_image, version),
    offsetof(struct tl_image, header_bytes),
    offsetof(struct tl_image, size),
    offsetof(struct tl_image, tables),
    offsetof(struct tl_image, generation),
    sizeof(struct tl_table),
    offsetof(struct tl_table, fallback),
    offsetof(struct tl_table, key_family),
    offsetof(struct tl_table, root_bits),
    offsetof(struct tl_table, key_bits),
    offsetof(struct tl_table, prefixes),
    offsetof(struct tl_table, root_bytes),
    offsetof(struct tl_table, palette),
    offsetof(struct tl_table, exact),
    offsetof(struct tl_table, multiplier),
    offsetof(struct tl_table, mask),
    offsetof(struct tl_table, first),
    TL_EXACT,
    TL_EXACT_BITS_MAX,
    TL_EXACT_SHORT,
    TL_EXACT_WIDEST,
    TL_BUCKET,
    TL_GUARD,
    TL_NODE6,
    offsetof(struct tl_node6, starts),
    offsetof(struct tl_node6, ref),
    TL_LEAF6,
    TL_PALETTE,
    offsetof(struct tl_leaf6, index),
    TL_RANGES,
    TL_RANGES_STARTS,
    offsetof(struct tl_ranges, value),
    TL_RANGES32,
    TL_RANGES32_STARTS,
    offsetof(struct tl_ranges32, ref),
    TL_NODE8,
    offsetof(struct tl_node8, before),
    TL_DIRECT12,
    TL_DIRECT_BITS,
    offsetof(struct tl_node8, ref),
    TL_SKIP,
    TL_SKIP_MAX,
    TL_SKIP_SHORT,
    TL_SKIP_LEN,
    TL_LEAF8,
    offsetof(struct tl_leaf8, index),
    sizeof(struct tl_skip),
    offsetof(struct tl_skip, bits),
    offsetof(struct tl_skip, len),
    offsetof(struct tl_skip, next),
    offsetof(struct tl_skip, otherwise),
};
const __u32 tl_test_layout_len = sizeof(tl_test_layout) / sizeof(tl_test_layout[0]);
