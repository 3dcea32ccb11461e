/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Whether a process is one that is traced: what bystanders pay for, as hooks ask it before nearly all else.
 */
#ifndef TRACE_FILTER_H
#define TRACE_FILTER_H

#include "kernel.h"
#include "intf.h"

#ifdef TR_PLAIN
/* The programs for traces of processes by their numbers that ask for nothing else (`is_plain` in
 * src/layout.rs). The kernel leaves a load and a test of each setting in a program. So the compiler takes all
 * but these for zero. It does not know the values of these, because the object is weak. */
const struct tr_config settings __weak SEC(".rodata");
#define config                                                                                               \
	((const struct tr_config){                                                                           \
	    .tgids = settings.tgids,                                                                         \
	    .except = settings.except,                                                                       \
	    .transports = settings.transports,                                                               \
	    .slots_mask = settings.slots_mask,                                                               \
	    .inside = settings.inside,                                                                       \
	    .sent_udp = settings.sent_udp,                                                                   \
	})
#else
const volatile struct tr_config config;
#endif
volatile struct tr_traced who SEC(".data.who");

static __always_inline bool tr_is_named(int tgid)
{
	for (int i = 0; i < TR_TGIDS_MAX; i++) {
		if ((__u32)i >= config.tgids)
			return false;
		if (who.tgid[i] == (__u32)tgid)
			return true;
	}
	return false;
}

static __always_inline bool tr_descends(struct task_struct *task)
{
	struct task_struct *parent = task;

	for (int i = 0; i < TR_GENERATIONS_MAX; i++) {
		parent = parent->real_parent;
		if (tr_is_named(parent->tgid))
			return true;
	}
	return false;
}

static __always_inline bool tr_is_called(struct task_struct *task, const volatile __u64 *name)
{
	const char *comm = task->group_leader->comm;

	return tr_load(comm) == name[0] && tr_load(comm + 8) == name[1];
}

/* Whether it sends to those that are traced, or receives from them. */
static __always_inline bool tr_is_client(struct task_struct *task)
{
	for (int i = 0; i < TR_TGIDS_MAX; i++) {
		if ((__u32)i >= config.clients)
			break;
		if (config.client[i] == (__u32)task->tgid)
			return true;
	}
	return config.client_comm[0] && tr_is_called(task, config.client_comm);
}

/* Whether it is in the traced cgroup or below it. By loads, where the kernel has its ancestors as pointers
 * (Linux 6.1): a helper is a call. */
static __always_inline bool tr_is_grouped(struct task_struct *task)
{
	__u32 level = who.cgroup_level, ancestors;
	struct cgroup *own, *ancestor;

	if (!bpf_core_field_exists(struct cgroup, ancestors) || !bpf_ksym_exists(bpf_rdonly_cast))
		return bpf_get_current_ancestor_cgroup_id(level) == who.cgroup;
	own = task->cgroups->dfl_cgrp;
	if ((__u32)own->level < level)
		return false;
	ancestors = bpf_core_field_offset(struct cgroup, ancestors);
	ancestor = (void *)tr_load((const char *)own + ancestors + level * sizeof(ancestor));
	ancestor = bpf_rdonly_cast(ancestor, bpf_core_type_id_kernel(struct cgroup));
	return ancestor->kn->id == who.cgroup;
}

static __always_inline bool tr_is_wanted(struct task_struct *task)
{
	if (config.except && config.except == (__u32)task->tgid)
		return false;
	if (tr_is_client(task))
		return true;
	if (config.clients_only)
		return false;
	if (config.tgids && !tr_is_named(task->tgid) && !(config.descendants && tr_descends(task)))
		return false;
	if (config.by_comm && !tr_is_called(task, who.comm))
		return false;
	return !config.by_cgroup || tr_is_grouped(task);
}

#endif
