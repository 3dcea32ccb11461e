/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libtrieline: longest-prefix-match tables in BPF memory, filled and changed by the loader while BPF programs
 * look up in them. Link with `pkg-config --cflags --libs trieline`. Programs include <trieline/bpf.h>;
 * <trieline/libbpf.h> gives them the tables.
 *
 *   struct trieline_error error;
 *   struct trieline *t = trieline_create(NULL, &error);
 *   const unsigned char net[4] = { 192, 0, 2, 0 };
 *
 *   if (!t || trieline_table_create(t, 0, TRIELINE_IPV4, &error) ||
 *       trieline_insert(t, 0, net, 24, 7, &error) < 0)
 *           errx(1, "%s", error.text);
 *
 * Keys        bytes in network order, as they stand in packets; as many as the table's kind says.
 * Lengths     of prefixes, in bits, from 0. Bits behind the length must be zero.
 * Values      1 ... TRIELINE_VALUE_MAX. 0 is "nothing": what a lookup finds where no prefix matches.
 * Tables      have ids 0 ... `tables`-1, which programs pass to lookups.
 *
 * Errors: functions that return int or int64_t return a negative errno on failure, those that return
 * a pointer NULL. Then `error`, which may be NULL, holds the same code and a sentence. Nothing has changed
 * then, unless said otherwise. -EINVAL: an argument, also a NULL pointer; -ENOENT: no such table, nothing
 * pinned; -EEXIST: it exists already; -ENOSPC: the map is full. -EPERM: capabilities, named in the text;
 * -EBUSY: another process has the pins; -EBADMSG: a file or an image is damaged. -ENOTRECOVERABLE: a mistake
 * of this library, after which the tables can only be closed. Others are the kernel's.
 *
 * Threads: a handle can be used by several at once; calls wait for each other. Programs and the kernel are
 * never waited for, except by trieline_synchronize, trieline_close and changes of a map that is full while
 * replaced memory waits. That takes some tens of milliseconds. A process that has tables open must not fork
 * without exec. The child has neither the thread that waits for programs nor, of an arena, the memory.
 *
 * BPF programs find, for every address, the table before a change or after it. Sleepable BPF programs are not
 * waited for and must not look up.
 */
#ifndef TRIELINE_TRIELINE_H
#define TRIELINE_TRIELINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRIELINE_VALUE_MAX 0x7fffffffu

/* Tables in one BPF map, and the right to change them. */
struct trieline;

/* An error: a negative errno (0: none) and a sentence with the finding and the expectation, and for a file
 * its name and line. */
struct trieline_error {
	int code;
	char text[1020];
};

/* Where tables live. */
enum trieline_map_type {
	TRIELINE_ANY = 0,   /* an arena where the kernel has one, else an array */
	TRIELINE_ARENA = 1, /* BPF arena: Linux 6.9; at most 4 GiB, taken as it fills */
	TRIELINE_ARRAY = 2, /* memory-mapped BPF array: Linux 6.1; at most 512 MiB, all of it at once */
};

/* Options for new tables; zeros take the default. */
struct trieline_options {
	uint32_t map_type; /* enum trieline_map_type; default TRIELINE_ANY */
	uint32_t tables;   /* how many there can be; default 64 */
	uint64_t bytes;	   /* of all together: a power of two from 64 KiB; default 64 MiB */
};

/* Kinds of keys that a table is searched for: addresses, or keys of 1 to 2048 bits. A key of `bits` bits
 * has (bits + 7) / 8 bytes. */
#define TRIELINE_IPV4 (4u << 16 | 32u)
#define TRIELINE_IPV6 (6u << 16 | 128u)
#define TRIELINE_KEY(bits) ((uint32_t)(bits))

/* A prefix and its value. */
struct trieline_entry {
	const void *key;
	uint32_t length;
	uint32_t value;
};

/* The use of the map. */
struct trieline_stats {
	uint64_t bytes;	      /* its size: the limit */
	uint64_t used;	      /* in tables that this handle filled */
	uint64_t waiting;     /* replaced; waits for programs that may still hold it */
	uint64_t peak;	      /* the most that both have come to */
	uint64_t claimed;     /* in chunks of 64 KiB that hold anything */
	uint32_t tables;      /* ids there are */
	uint32_t tables_used; /* ids that have a table */
};

/* --- all tables ---------------------------------------------------------------------------------------- */

/* New tables, all empty. NULL options: the defaults. They go with trieline_close and the programs that use
 * them, unless they are pinned. Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. */
struct trieline *trieline_create(const struct trieline_options *options, struct trieline_error *error);

/* Takes over what is pinned in `directory`; -EBUSY while another process has it. Programs go on with the
 * tables as they are. A map holds answers, not prefixes. Before you change a table, fill it for all addresses
 * at once with trieline_replace or trieline_load_file; until then only trieline_lookup and
 * trieline_table_remove take it. So the map must hold old and new. */
struct trieline *trieline_open(const char *directory, struct trieline_error *error);

/* Pins them in `directory` of a BPF file system, made if missing: then they stay when this process ends. */
int trieline_pin(struct trieline *t, const char *directory, struct trieline_error *error);

/* Removes the pin of `directory`, and the directory if it is empty then; -EBUSY while a process, also this
 * one, has the tables open. Programs keep them. */
int trieline_unpin(const char *directory, struct trieline_error *error);

/* Ends the handle; NULL is allowed. Other threads may not use it meanwhile. Pinned tables stay, and programs
 * keep theirs. */
void trieline_close(struct trieline *t);

/* Fills in *stats. */
int trieline_stats(struct trieline *t, struct trieline_stats *stats, struct trieline_error *error);

/* Makes replaced memory that no program can hold any more usable; does not wait. 1: some still waits. Changes
 * do this by themselves: it is for idle times. */
int trieline_reclaim(struct trieline *t, struct trieline_error *error);

/* Waits until all replaced memory is usable. */
int trieline_synchronize(struct trieline *t, struct trieline_error *error);

/* Waits for that, then gives the whole chunks of 64 KiB that no table uses back to the kernel, 1 MiB a call.
 * Returns how many bytes. Tables in an array keep their memory: 0. Negative: errno. Call it after much was
 * removed.
 */
int64_t trieline_give_back(struct trieline *t, struct trieline_error *error);

/* Programs that want the prefix's length too (tl_match4 and tl_match6 of lpm.h) need it in the values. Give
 * the calls below those of tl_with_length(value, len, 32 or 128), which is in lpm.h. */

/* --- one table ----------------------------------------------------------------------------------------- */

/* An empty table `id` of `kind` (TRIELINE_IPV4, TRIELINE_IPV6, TRIELINE_KEY(bits)). -EEXIST: there is one. */
int trieline_table_create(struct trieline *t, uint32_t id, uint32_t kind, struct trieline_error *error);

/* Removes table `id`, for all addresses at once. */
int trieline_table_remove(struct trieline *t, uint32_t id, struct trieline_error *error);

/* Makes table `id` hold these entries and nothing else, for all addresses at once; it need not exist. In any
 * order; of equal prefixes the last counts. -EEXIST: the table is of another kind. O(n log n). */
int trieline_replace(struct trieline *t, uint32_t id, uint32_t kind, const struct trieline_entry *entries,
		     size_t count, struct trieline_error *error);

/* Many changes: all of them or, on an error, none. Value 0 removes; of equal prefixes the last counts.
 * Lookups see address after address change. Returns how many prefixes changed. */
int64_t trieline_apply(struct trieline *t, uint32_t id, const struct trieline_entry *entries, size_t count,
		       struct trieline_error *error);

/* Adds a prefix or changes its value. 1: it was there, 0: it was not. */
int trieline_insert(struct trieline *t, uint32_t id, const void *key, uint32_t length, uint32_t value,
		    struct trieline_error *error);

/* Removes a prefix. 1: it was there, 0: it was not. Part of the map is kept for removals, so that -ENOSPC
 * is rare. With -ENOSPC the old value still answers: trieline_replace or trieline_table_remove the table if
 * it must not.
 */
int trieline_remove(struct trieline *t, uint32_t id, const void *key, uint32_t length,
		    struct trieline_error *error);

/* The value of exactly this prefix. 1: it is there, 0: it is not, and *value (which may be NULL) is 0. */
int trieline_get(struct trieline *t, uint32_t id, const void *key, uint32_t length, uint32_t *value,
		 struct trieline_error *error);

/* Longest match, by the bytes that programs walk. 1: found, 0: not, and *value (which may be NULL) is 0. */
int trieline_lookup(struct trieline *t, uint32_t id, const void *key, uint32_t *value,
		    struct trieline_error *error);

/* Longest match with its prefix length in *length (which may be NULL), from the loader's own prefixes. 1:
 * found, 0: not. */
int trieline_match(struct trieline *t, uint32_t id, const void *key, uint32_t *value, uint32_t *length,
		   struct trieline_error *error);

/* Prefixes in table `id`. */
int64_t trieline_count(struct trieline *t, uint32_t id, struct trieline_error *error);

/* --- files --------------------------------------------------------------------------------------------- */

#define TRIELINE_NO_TABLE 0xffffffffu

/* Prefixes that a file has, of each family. */
struct trieline_loaded {
	uint64_t ipv4;
	uint64_t ipv6;
};

/* Replaces table `ipv4` and table `ipv6` by the prefixes of `file`, each for all addresses at once.
 * Prefixes of a family whose table is TRIELINE_NO_TABLE are left out. The tables need not exist. `file` has
 * `PREFIX [VALUE]` lines (# begins a comment), JSON with "dst" (also of `ip -j route`) or `ip route` lines.
 * It is packed by gzip or not; `-` is standard input. A prefix without a value gets `value`; words get the
 * numbers 1, 2, ... in the order they appear. A bad file changes nothing: the text names file, line, what
 * stands there and what was expected. -ENOSPC can leave the table of IPv4 new and that of IPv6 old: then
 * the text names both. *loaded may be NULL. */
int trieline_load_file(struct trieline *t, const char *file, uint32_t ipv4, uint32_t ipv6, uint32_t value,
		       struct trieline_loaded *loaded, struct trieline_error *error);

/* --- for the loader (trieline/libbpf.h uses them) --------------------------------------------------------
 */

/* 0 if a loaded program of these `count` instructions (bpf_program__insns) hands no callback to a work queue
 * or a task, where it may sleep. Else -EINVAL, and the text names the function that it calls for that. */
int trieline_stays_awake(const void *instructions, size_t count, struct trieline_error *error);

/* The map's descriptor; it is the handle's: do not close it. */
int trieline_map_fd(struct trieline *t);

/* TRIELINE_ARENA or TRIELINE_ARRAY: which of its two compilations a program is to be loaded from. */
int trieline_map_type(struct trieline *t);

/* Bytes of the map; 0 on failure. */
uint64_t trieline_map_bytes(struct trieline *t);

#ifdef __cplusplus
}
#endif

#endif
