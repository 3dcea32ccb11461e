/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Points B and C in functions of the processes themselves. They serve where the bytes at the processes'
 * sockets say nothing (TLS) or a queue of their own is to be timed. Where each program is attached: src/user.
 * A program that is attached to a function's return has a cookie, and learns from the function's value how
 * many bytes it moved.
 */
#ifndef TRACE_USER_H
#define TRACE_USER_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"

static __always_inline int tr_function(struct pt_regs *regs, __u32 point)
{
	struct task_struct *task;
	struct tr_source source = {.call = -1};
	struct tr_event record = {};

	if (bpf_get_attach_cookie(regs)) {
		/* Half of the register: the rest has no meaning where the function returns an int. */
		__s32 bytes = regs->ax;

		if (bytes <= 0) /* an error, an end, or nothing there yet */
			return 0;
		record.bytes = bytes;
	}
	task = bpf_get_current_task_btf();
	if (!tr_is_wanted(task))
		return 0;
	record.time_ns = bpf_ktime_get_ns();
	record.socket = 1 + point; /* there is none: what came in and what goes out are two streams */
	record.thread = task->pid;
	record.process = task->tgid;
	record.point = point;
	record.transport = TR_FUNCTION;
	tr_note(&record, &source);
	return 0;
}

SEC("uprobe")
int function_received(struct pt_regs *regs) { return tr_function(regs, TR_RECEIVED); }

SEC("uprobe")
int function_sent(struct pt_regs *regs) { return tr_function(regs, TR_SENT); }

#endif
