/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The message's id, from its bytes.
 *
 * The socket's tracepoints carry no payload, but they run inside a system call, whose registers say where the
 * process has its buffer: so no hook on system calls, which all processes would pay for, is needed to read
 * it.
 */
#ifndef TRACE_MESSAGE_H
#define TRACE_MESSAGE_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"

/* System calls of x86-64. */
enum tr_call {
	CALL_READ = 0,
	CALL_WRITE = 1,
	CALL_READV = 19,
	CALL_WRITEV = 20,
	CALL_SENDTO = 44,
	CALL_RECVFROM = 45,
	CALL_SENDMSG = 46,
	CALL_RECVMSG = 47,
	CALL_RECVMMSG = 299,
	CALL_SENDMMSG = 307,
};

/* struct iovec and struct user_msghdr, as processes have them. */
struct tr_iovec {
	__u64 base;
	__u64 bytes;
};
#define TR_MSGHDR_IOV 16 /* where a struct msghdr has the address of its iovecs */

/* Reads the id into `record`, from the buffer of the system call that the task is in. */
static __always_inline void tr_read_id(struct tr_record *record, long call, __u64 buffer)
{
	struct tr_iovec vector = {.base = buffer, .bytes = record->bytes};
	__u32 offset = config.id_offset[record->point != TR_RECEIVED], end = offset + config.id_bytes;
	__u64 id = 0;

	switch (call) {
	case CALL_READ:
	case CALL_WRITE:
	case CALL_SENDTO:
	case CALL_RECVFROM:
		break;
	case CALL_RECVMSG:
	case CALL_SENDMSG:
		if (bpf_probe_read_user(&buffer, sizeof(buffer), (void *)(buffer + TR_MSGHDR_IOV)))
			goto fault;
		/* fallthrough */
	case CALL_READV:
	case CALL_WRITEV:
		if (bpf_probe_read_user(&vector, sizeof(vector), (void *)buffer))
			goto fault;
		break;
	default:
		record->flags |= TR_NO_BUFFER;
		return;
	}
	if (record->bytes < end || vector.bytes < end) {
		record->flags |= TR_SHORT;
		return;
	}
	if (bpf_probe_read_user(&id, config.id_bytes & 15, (void *)(vector.base + offset)))
		goto fault;
	record->id = id;
	record->flags |= TR_HAS_ID;
	return;
fault:
	record->flags |= TR_FAULT;
}

/* Reads the id of a datagram that is about to leave, from the packet. */
static __always_inline void tr_read_packet_id(struct tr_record *record, const void *payload, __u32 linear)
{
	__u32 offset = config.id_offset[1], end = offset + config.id_bytes;
	__u64 id = 0;

	if (record->bytes < end)
		record->flags |= TR_SHORT;
	else if (linear < end)
		record->flags |= TR_NO_BUFFER;
	else if (bpf_probe_read_kernel(&id, config.id_bytes & 15, payload + offset))
		record->flags |= TR_FAULT;
	else {
		record->id = id;
		record->flags |= TR_HAS_ID;
	}
}

#endif
