/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How the lookups of lpm.h read an image, by where it lives. Define one before including lpm.h:
 *
 *   TL_ARENA        BPF arena mapped at 1 << 44 (map_extra), so that an offset is the low half of the
 * pointer. Needs Linux 6.9 and clang -mcpu=v4. The program must name the arena (bpf.h does).
 *   TL_ARRAY        a global byte array `tl_image_bytes` (a memory-mapped BPF array of one element), its size
 * a power of two of at most 512 MiB, `tl_image_mask` = size - 1 in read-only data. Linux 5.5.
 *   neither         native C: `struct tl_view` says where the image is and how long its memory is. Loads past
 * its end give 0, so that a lookup in a damaged image stays inside; begin it at a multiple of 8 bytes.
 *
 * The first parameter of each load is the image's base; BPF map types ignore it.
 */
#ifndef TRIELINE_MEM_H
#define TRIELINE_MEM_H

#include "image.h"

#if defined(TL_ARENA)

typedef const void *tl_base_t;

#define tl_arena __attribute__((address_space(1)))
/* `off` must be a zero-extended 32-bit offset: the JIT adds the arena's base. A page never filled reads as 0.
 */
#define tl_load32(base, off) (*(volatile __u32 tl_arena *)(__u64)(__u32)(off))
#define tl_load64(base, off) (*(volatile __u64 tl_arena *)(__u64)(__u32)(off))
#define tl_load8(base, off) (*(volatile __u8 tl_arena *)(__u64)(__u32)(off))

#elif defined(TL_ARRAY)

typedef const void *tl_base_t;
extern const volatile __u32 tl_image_mask;
extern __u8 tl_image_bytes[];

/* The mask keeps any offset, also a damaged one, inside the array; alignment is masked as well, so that the
 * last load ends inside. The barrier keeps clang, which may know that an offset is aligned, from leaving that
 * to a verifier that does not. */
#define TL_ARRAY_AT(type, off)                                                                               \
	({                                                                                                   \
		__u64 tl_o = (__u32)(off);                                                                   \
		asm volatile("" : "+r"(tl_o));                                                               \
		tl_o &= tl_image_mask & ~(__u32)(sizeof(type) - 1);                                          \
		*(volatile type *)(tl_image_bytes + tl_o);                                                   \
	})
#define tl_load32(base, off) TL_ARRAY_AT(__u32, off)
#define tl_load64(base, off) TL_ARRAY_AT(__u64, off)
#define tl_load8(base, off) TL_ARRAY_AT(__u8, off)

#else

/* The memory of an image; `size` bytes can be read, even if the image's header is wrong. */
struct tl_view {
	const void *base;
	__u64 size;
};
typedef struct tl_view tl_base_t;

#define TL_VIEW_LOAD(name, type)                                                                             \
	static inline __attribute__((always_inline)) type name(tl_base_t graph, __u32 off)                   \
	{                                                                                                    \
		if (off + (__u64)sizeof(type) > graph.size)                                                  \
			return 0;                                                                            \
		return *(const volatile type *)((const char *)graph.base + off);                             \
	}
TL_VIEW_LOAD(tl_load32, __u32)
TL_VIEW_LOAD(tl_load64, __u64)
TL_VIEW_LOAD(tl_load8, __u8)

#endif
#endif
