/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The C header compiled natively, so that header.rs can compare its answers and its layout with Rust's. */
#include <stddef.h>
#include "trieline/lpm.h"

__u32 tl_test_lookup4(const void *image, __u64 size, __u32 id, __u32 addr)
{
	return tl_lookup4((struct tl_view){image, size}, id, addr);
}

__u32 tl_test_lookup6(const void *image, __u64 size, __u32 id, __u64 hi, __u64 lo)
{
	return tl_lookup6((struct tl_view){image, size}, id, hi, lo);
}

/* Layout facts in the order header.rs expects them. */
const __u64 tl_test_layout[] = {
    TL_IMAGE_MAGIC,
    TL_IMAGE_VERSION,
    TL_CHUNK,
    TL_VALUE_MAX,
    TL_DIRECTORY,
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
    TL_HOSTS,
    TL_HOSTS_BITS,
    TL_HOSTS_WINDOW,
    sizeof(struct tl_host) << TL_HOSTS_BITS,
    TL_RANGES32,
    TL_RANGES32_STARTS,
    offsetof(struct tl_ranges32, ref),
    TL_NODE8,
    TL_NODE8_SLOTS,
    offsetof(struct tl_node8, ref),
    TL_SKIP,
    TL_SKIP_MAX,
    TL_RAW8,
    sizeof(struct tl_skip),
    offsetof(struct tl_skip, bits),
    offsetof(struct tl_skip, len),
    offsetof(struct tl_skip, next),
    offsetof(struct tl_skip, otherwise),
};
const __u32 tl_test_layout_len = sizeof(tl_test_layout) / sizeof(tl_test_layout[0]);
