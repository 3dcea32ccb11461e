/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * For loaders that use libbpf: gives a BPF object the tables of libtrieline. All of it is compiled into the
 * loader, so that an object meets no libbpf but the one that opened it.
 *
 *   struct bpf_object *object = bpf_object__open(
 *       trieline_map_type(t) == TRIELINE_ARENA ? "acl.arena.bpf.o" : "acl.array.bpf.o");
 *
 *   if (!object || trieline_load_object(t, object, &error))
 *
 * With a skeleton: trieline_place(t, skeleton->obj, &error), acl__load(skeleton), trieline_check(t,
 * skeleton->obj, &error).
 *
 * libbpf: 1.1 or newer where tables are in an arena, 1.3 or newer where they are in an array. (Older ones
 * cannot resize the section that stands for the array.) Errors are those of trieline.h.
 */
#ifndef TRIELINE_LIBBPF_H
#define TRIELINE_LIBBPF_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <trieline/trieline.h>

#define TRIELINE_MAP_TYPE_ARENA 33 /* headers older than Linux 6.9 have no name for it */

__attribute__((format(printf, 3, 4))) static inline int trieline_fail(struct trieline_error *error, int code,
								      const char *format, ...)
{
	va_list list;

	if (error) {
		error->code = code;
		va_start(list, format);
		vsnprintf(error->text, sizeof(error->text), format, list);
		va_end(list);
	}
	return code;
}

/* Makes an opened object that includes <trieline/bpf.h>, compiled for trieline_map_type(), use the tables.
 * Call it before the object is loaded. Returns 0 or a negative errno. */
static inline int trieline_place(struct trieline *t, struct bpf_object *object, struct trieline_error *error)
{
	int fd = trieline_map_fd(t), map_type = trieline_map_type(t), placed = 0, failed = 0;
	struct bpf_map_info info;
	struct bpf_map *map;
	__u32 size = sizeof(info), mask;

	if (fd < 0)
		return trieline_fail(error, fd, "`t` has no map; expected tables that can be used");
	if (!object)
		return trieline_fail(error, -EINVAL, "`object` is NULL; expected an opened BPF object");
	if (map_type == TRIELINE_ARRAY && libbpf_major_version() == 1 && libbpf_minor_version() < 3)
		return trieline_fail(
		    error, -EOPNOTSUPP,
		    "libbpf %s cannot resize a section; expected 1.3 or newer for tables in an array",
		    libbpf_version_string());
	memset(&info, 0, sizeof(info));
	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return trieline_fail(error, -errno, "reading the shape of the tables' map: %s",
				     strerror(errno));
	bpf_object__for_each_map(map, object)
	{
		const char *name = bpf_map__name(map);

		if (map_type == TRIELINE_ARENA && (int)bpf_map__type(map) == TRIELINE_MAP_TYPE_ARENA &&
		    !strcmp(name, "tl_tables")) {
			failed = failed ? failed : bpf_map__set_max_entries(map, info.max_entries);
			failed = failed ? failed : bpf_map__set_map_extra(map, info.map_extra);
			failed = failed ? failed : bpf_map__reuse_fd(map, fd);
			placed = 1;
		} else if (map_type == TRIELINE_ARRAY && !strcmp(name, ".bss.tl_tables")) {
			/* The size first, so that libbpf's own mapping of the section has it too. */
			failed = failed ? failed : bpf_map__set_value_size(map, info.value_size);
			failed = failed ? failed : bpf_map__reuse_fd(map, fd);
			placed = 1;
		} else if (map_type == TRIELINE_ARRAY && !strcmp(name, ".rodata.tl_mask")) {
			mask = info.value_size - 1;
			failed = failed ? failed : bpf_map__set_initial_value(map, &mask, sizeof(mask));
		}
	}
	if (failed)
		return trieline_fail(error, failed, "giving `%s` the tables' map: %s",
				     bpf_object__name(object), strerror(-failed));
	if (!placed)
		return trieline_fail(
		    error, -EINVAL,
		    "`%s` has no place for tables in an %s; expected a program that includes "
		    "<trieline/bpf.h>, compiled with -DTL_%s",
		    bpf_object__name(object), map_type == TRIELINE_ARENA ? "arena" : "array",
		    map_type == TRIELINE_ARENA ? "ARENA" : "ARRAY");
	return 0;
}

/* Whether a loaded program uses the map of this id; negative: errno. */
static inline int trieline_uses(int program, __u32 id)
{
	struct bpf_prog_info info;
	__u32 size = sizeof(info), ids[64], i;

	memset(&info, 0, sizeof(info));
	info.nr_map_ids = sizeof(ids) / sizeof(*ids); /* the most that the verifier allows */
	info.map_ids = (__u64)(unsigned long)ids;
	if (bpf_obj_get_info_by_fd(program, &info, &size))
		return -errno;
	for (i = 0; i < info.nr_map_ids && i < sizeof(ids) / sizeof(*ids); i++)
		if (ids[i] == id)
			return 1;
	return 0;
}

/* Refuses a loaded object in which a program uses the tables and is sleepable. Also refuses one in which a
 * program uses them and hands a callback to a work queue or a task, which may sleep. Its memory would be
 * reused before such a program ends. Call it before programs are attached.
 * Returns 0 or a negative errno. */
static inline int trieline_check(struct trieline *t, struct bpf_object *object, struct trieline_error *error)
{
	struct bpf_program *program;
	struct bpf_map_info info;
	__u32 size = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (!object)
		return trieline_fail(error, -EINVAL, "`object` is NULL; expected a loaded BPF object");
	if (bpf_obj_get_info_by_fd(trieline_map_fd(t), &info, &size))
		return trieline_fail(error, -errno, "reading the tables' map: %s", strerror(errno));
	bpf_object__for_each_program(program, object)
	{
		const char *section = bpf_program__section_name(program);
		size_t kind = strcspn(section, "/");
		struct trieline_error why = {0, "is sleepable"};
		int uses, sleeps;

		sleeps = bpf_program__type(program) == BPF_PROG_TYPE_SYSCALL ||
			 bpf_program__flags(program) & BPF_F_SLEEPABLE ||
			 (kind >= 2 && !strncmp(section + kind - 2, ".s", 2));
		uses = bpf_program__fd(program) < 0 ? 0 : trieline_uses(bpf_program__fd(program), info.id);
		if (uses < 0)
			return trieline_fail(error, uses, "asking what program `%s` uses: %s",
					     bpf_program__name(program), strerror(-uses));
		if (!uses)
			continue;
		if (!sleeps) {
			int failed = trieline_stays_awake(bpf_program__insns(program),
							  bpf_program__insn_cnt(program), &why);

			if (!failed)
				continue;
			if (failed != -EINVAL)
				return trieline_fail(error, failed, "%s", why.text);
		}
		return trieline_fail(error, -EINVAL,
				     "program `%s` (%s) %s and looks tables up; grace periods do "
				     "not wait for it: expected programs that cannot sleep",
				     bpf_program__name(program), section, why.text);
	}
	return 0;
}

/* Places the tables, loads the object and checks it. Returns 0 or a negative errno; then close the object. */
static inline int trieline_load_object(struct trieline *t, struct bpf_object *object,
				       struct trieline_error *error)
{
	int failed = trieline_place(t, object, error);

	if (failed)
		return failed;
	failed = bpf_object__load(object);
	if (failed)
		return trieline_fail(error, failed, "loading `%s`: %s", bpf_object__name(object),
				     strerror(-failed));
	return trieline_check(t, object, error);
}

#endif
