/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The cost of hooks on messages, piece by piece: every kind of hook with every kind of work inside, for the
 * experiment trace-hooks. For trace-overhead, the way of the paper: an id in the message and a hash of times.
 */
#include "kernel.h"
#include "intf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sk_buff {
	void *sk;
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

struct trace_event_raw_sys_enter {
	long id;
	unsigned long args[6];
} __attribute__((preserve_access_index));

struct trace_event_raw_sys_exit {
	long id;
	long ret;
} __attribute__((preserve_access_index));

const volatile struct lab_hooks config;

/* --- the work */

#define RING 512 /* records of a CPU, a power of two */

struct event {
	__u64 time_ns;
	__u64 socket;
	__u64 id;
	__u32 thread;
	__u32 point;
	__u64 sequence;
};

struct cpu {
	__u64 claimed;
	__u64 unused[15];
};

/* In sections, which programs read and write without asking for their place. */
struct lab_noted noted SEC(".bss.noted");
struct cpu heads[LAB_CPUS_MAX] SEC(".data.heads");
struct event ring[LAB_CPUS_MAX][RING] SEC(".bss.ring");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LAB_CPUS_MAX *RING);
	__type(key, __u32);
	__type(value, struct event);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, LAB_RINGBUF_BYTES);
} ringbuf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, __u32);
	__type(value, __u64);
} by_thread SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} with_task SEC(".maps");

static __always_inline void fill(struct event *event, __u64 now, void *socket, __u32 thread, __u32 point)
{
	event->time_ns = now;
	event->socket = (__u64)socket;
	event->id = 0;
	event->thread = thread;
	event->point = point;
}

static __always_inline void note(struct event *event, __u64 now, void *socket, __u32 thread, __u32 point,
				 __u64 claimed)
{
	fill(event, now, socket, thread, point);
	asm volatile("" ::: "memory");
	*(volatile __u64 *)&event->sequence = claimed + 1;
}

/* One thread on one CPU is measured, so plain counters do. */
static __always_inline int work(void *socket, __u32 point)
{
	struct task_struct *task;
	struct event *event;
	__u32 cpu, thread, slot;
	__u64 now, claimed, *value;

	if (config.work == LAB_EMPTY)
		return 0;
	task = bpf_get_current_task_btf();
	if ((__u32)task->tgid != config.tgid)
		return 0;
	noted.events[point]++;
	if (config.work == LAB_FILTER)
		return 0;
	now = bpf_ktime_get_ns();
	if (config.work == LAB_CLOCK) {
		noted.last_ns = now;
		return 0;
	}
	thread = task->pid;
	switch (config.work) {
	case LAB_RING_SECTION:
		cpu = bpf_get_smp_processor_id() & (LAB_CPUS_MAX - 1);
		claimed = __sync_fetch_and_add(&heads[cpu].claimed, 1);
		note(&ring[cpu][claimed & (RING - 1)], now, socket, thread, point, claimed);
		break;
	case LAB_RING_PLAIN:
		cpu = bpf_get_smp_processor_id() & (LAB_CPUS_MAX - 1);
		claimed = heads[cpu].claimed++;
		note(&ring[cpu][claimed & (RING - 1)], now, socket, thread, point, claimed);
		break;
	case LAB_RING_ARRAY:
		cpu = bpf_get_smp_processor_id() & (LAB_CPUS_MAX - 1);
		claimed = __sync_fetch_and_add(&heads[cpu].claimed, 1);
		slot = cpu * RING + (claimed & (RING - 1));
		event = bpf_map_lookup_elem(&array, &slot);
		if (event)
			note(event, now, socket, thread, point, claimed);
		break;
	case LAB_RINGBUF:
		event = bpf_ringbuf_reserve(&ringbuf, sizeof(*event), 0);
		if (!event) {
			noted.refused++;
			break;
		}
		fill(event, now, socket, thread, point);
		bpf_ringbuf_submit(event, LAB_NO_WAKEUP);
		break;
	case LAB_HASH:
		if (point == 0) {
			if (bpf_map_update_elem(&by_thread, &thread, &now, 0))
				noted.refused++;
			break;
		}
		value = bpf_map_lookup_elem(&by_thread, &thread);
		if (value)
			noted.last_ns = now - *value;
		bpf_map_delete_elem(&by_thread, &thread);
		break;
	case LAB_TASK:
		value = bpf_task_storage_get(&with_task, task, 0, LAB_CREATE);
		if (!value)
			noted.refused++;
		else if (point == 0)
			*value = now;
		else
			noted.last_ns = now - *value;
		break;
	}
	return 0;
}

/* --- the hooks: the end of a receive, then a point of the send */

SEC("tp_btf/sock_recv_length")
int BPF_PROG(socket_received, void *sk, int ret) { return ret > 0 ? work(sk, 0) : 0; }

SEC("tp_btf/sock_send_length")
int BPF_PROG(socket_sent, void *sk, int ret) { return ret > 0 ? work(sk, 1) : 0; }

SEC("tp_btf/net_dev_queue")
int BPF_PROG(device_queued, struct sk_buff *skb) { return skb->sk ? work(skb->sk, 1) : 0; }

SEC("tp_btf/sys_exit")
int BPF_PROG(any_call_ended, void *regs, long ret) { return ret > 0 ? work(regs, 0) : 0; }

SEC("tp_btf/sys_enter")
int BPF_PROG(any_call_begun, void *regs, long number) { return number == LAB_SENDTO ? work(regs, 1) : 0; }

SEC("tracepoint/syscalls/sys_exit_recvfrom")
int receive_ended(struct trace_event_raw_sys_exit *call) { return call->ret > 0 ? work(0, 0) : 0; }

SEC("tracepoint/syscalls/sys_enter_sendto")
int send_begun(struct trace_event_raw_sys_enter *call) { return work(0, 1); }

/* --- the paper's way: the time of each message by its id, at both points */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before the load */
	__type(key, __u64);
	__type(value, __u64);
} received_ns SEC(".maps"), sent_ns SEC(".maps");

/* Where each thread's receive has its buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, __u32);
	__type(value, __u64);
} buffers SEC(".maps");

static __always_inline int is_traced(void) { return bpf_get_current_pid_tgid() >> 32 == config.tgid; }

static __always_inline int keep(void *times, __u64 buffer, __u32 point)
{
	__u64 now = bpf_ktime_get_ns(), id = 0;

	if (bpf_probe_read_user(&id, sizeof(id), (void *)(buffer + LAB_ID_AT)) ||
	    bpf_map_update_elem(times, &id, &now, 0))
		noted.refused++;
	else
		noted.events[point]++;
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_recvfrom")
int paper_receive_begun(struct trace_event_raw_sys_enter *call)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 buffer = call->args[1];

	if (is_traced())
		bpf_map_update_elem(&buffers, &thread, &buffer, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_recvfrom")
int paper_receive_ended(struct trace_event_raw_sys_exit *call)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 *buffer;

	if (call->ret <= 0 || !is_traced())
		return 0;
	buffer = bpf_map_lookup_elem(&buffers, &thread);
	return buffer ? keep(&received_ns, *buffer, 0) : 0;
}

SEC("tracepoint/syscalls/sys_enter_sendto")
int paper_send_begun(struct trace_event_raw_sys_enter *call)
{
	return is_traced() ? keep(&sent_ns, call->args[1], 1) : 0;
}
