/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * For BPF programs: where their tables live, and the base of every lookup in lpm.h:
 *
 *   #include <trieline/bpf.h>
 *   __u32 value = tl_lookup4(TL_IMAGE, 0, bpf_ntohl(ip->saddr));
 *
 * Compile with -DTL_ARENA -mcpu=v4 (Linux 6.9, clang 18) or -DTL_ARRAY -mcpu=v3 (Linux 6.1), best
 * both: the loader takes the one that the tables are in. User space places the map (`Tables::load` in Rust,
 * trieline_place() in C) before the object is loaded. An object that is loaded without it finds no table.
 */
#ifndef TRIELINE_BPF_H
#define TRIELINE_BPF_H

#include <bpf/bpf_helpers.h>
#include <trieline/lpm.h>

#if defined(TL_ARENA)

/* Numbers of the kernel's interface, for those whose <linux/bpf.h> is older than arenas. */
#define TL_MAP_TYPE_ARENA 33
#define TL_MAP_MMAPABLE (1u << 10)

struct {
	__uint(type, TL_MAP_TYPE_ARENA);
	__uint(map_flags, TL_MAP_MMAPABLE);
	__uint(max_entries, 1); /* pages */
} tl_tables SEC(".maps");

/* A program reads an arena only if it names it: so each lookup does. */
static inline __attribute__((always_inline)) tl_base_t tl_image_base(void)
{
	asm volatile("" ::"r"(&tl_tables));
	return 0;
}

#elif defined(TL_ARRAY)

/* Sections of their own: user space gives the first the tables' map, and only writes the second. */
__u8 tl_image_bytes[4096] SEC(".bss.tl_tables") __attribute__((aligned(8)));
const volatile __u32 tl_image_mask SEC(".rodata.tl_mask") = 0;

static inline __attribute__((always_inline)) tl_base_t tl_image_base(void) { return 0; }

#else
#error "define TL_ARENA (and compile with -mcpu=v4) or TL_ARRAY (-mcpu=v3)"
#endif

/* The first parameter of every lookup. */
#define TL_IMAGE tl_image_base()

#endif
