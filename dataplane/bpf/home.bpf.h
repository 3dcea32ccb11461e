/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The image's home in a BPF object: declares the arena or the array that mem.h reads, sized by user space
 * before the load.
 *
 * TL_ENTER() goes first in every program that looks addresses up.
 */
#ifndef TRIELINE_HOME_BPF_H
#define TRIELINE_HOME_BPF_H

#include <bpf/bpf_helpers.h>
#include <trieline/lpm.h>

#if defined(TL_HOME_ARENA)

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages */
} image SEC(".maps");

#define TL_ENTER() TL_USE_ARENA(image)

#elif defined(TL_HOME_ARRAY)

/* Sections of their own: user space gives the first the image's map, and only writes the second. */
__u8 tl_image_bytes[4096] SEC(".bss.image") __attribute__((aligned(8)));
const volatile __u32 tl_image_mask SEC(".rodata.image") = 0;

#define TL_ENTER() ((void)0)

#else
#error "TL_HOME_ARENA or TL_HOME_ARRAY"
#endif

#endif
