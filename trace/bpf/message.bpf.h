/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The message's bytes: its id, or its first ones for those who look for more in them (src/decode).
 *
 * The socket's tracepoints carry no payload, but they run inside a system call, whose registers say where the
 * process has its buffer. So no hook on system calls, which all processes would pay for, is needed to read
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
#define TR_MMSGHDR_BYTES 56 /* where a struct mmsghdr has the bytes that were moved */
#define TR_MSGHDR_IOV 16    /* where a struct msghdr has the address of its iovecs, and then their number */
#define TR_IOVECS_MAX 8	    /* how many of them are looked at */

/* One event, as hooks put it together. */
struct tr_event {
	__u64 time_ns;
	__u64 socket;
	__u64 id;
	__u32 thread;
	__u32 process;
	__u32 bytes;
	__u8 point;
	__u8 transport;
	__u16 flags;
};

/* Where a hook finds a message. */
struct tr_source {
	const void *packet; /* what is about to leave; NULL: it lies in the process */
	__u32 linear;	    /* bytes of the packet in one piece */
	long call;	    /* the system call that the task is in */
	__u64 buffer;	    /* its second argument */
	__u32 position;	    /* where the message ends in its stream, a segment begins */
};

/* A call for several messages names the first as a call for one does. */
static __always_inline long tr_single(long call)
{
	if (call == CALL_RECVMMSG)
		return CALL_RECVMSG;
	return call == CALL_SENDMMSG ? CALL_SENDMSG : call;
}

/* Clients send as those that are traced receive, and the other way round. */
static __always_inline __u32 tr_id_offset(const struct tr_event *record)
{
	bool is_sent = record->point != TR_RECEIVED;

	return config.id_offset[is_sent != !!(record->flags & TR_CLIENT)];
}

/* The iovecs of the call, or one for its buffer. Returns the number of them, 0 where there is none to be
 * seen, as a call's that names several messages. */
static __always_inline __u64 tr_vectors(const struct tr_source *source, __u32 bytes, struct tr_iovec *first,
					__u64 *address, __u16 *flags)
{
	struct tr_iovec list = {.base = source->buffer};

	*address = 0;
	switch (source->call) {
	case CALL_READ:
	case CALL_WRITE:
	case CALL_SENDTO:
	case CALL_RECVFROM:
		first->base = source->buffer;
		first->bytes = bytes;
		return 1;
	case CALL_RECVMSG:
	case CALL_SENDMSG:
		if (bpf_probe_read_user(&list, sizeof(list), (void *)(source->buffer + TR_MSGHDR_IOV)))
			goto fault;
		break;
	case CALL_READV:
	case CALL_WRITEV:
		list.bytes = TR_IOVECS_MAX; /* never more than make up `bytes` are used */
		break;
	default:
		*flags |= TR_NO_BUFFER;
		return 0;
	}
	if (bpf_probe_read_user(first, sizeof(*first), (void *)list.base))
		goto fault;
	*address = list.base;
	return list.bytes;
fault:
	*flags |= TR_FAULT;
	return 0;
}

/* Goes on to the iovec that the id begins in; false: it is not there, or not whole. */
static __always_inline bool tr_find_id(struct tr_iovec *vector, __u32 *offset, __u64 address, __u64 vectors)
{
	for (__u64 i = 1; i < TR_IOVECS_MAX && *offset >= vector->bytes; i++) {
		*offset -= vector->bytes;
		if (i >= vectors ||
		    bpf_probe_read_user(vector, sizeof(*vector), (void *)(address + i * sizeof(*vector))))
			return false;
	}
	return *offset + config.id_bytes <= vector->bytes;
}

/* Reads the id of a message in the process. */
static __always_inline void tr_read_id(struct tr_event *record, const struct tr_source *source)
{
	__u32 offset = tr_id_offset(record);
	struct tr_iovec vector;
	__u64 address, id = 0, vectors;

	vectors = tr_vectors(source, record->bytes, &vector, &address, &record->flags);
	if (!vectors)
		return;
	if (record->bytes < offset + config.id_bytes) {
		record->flags |= TR_SHORT;
	} else if (!tr_find_id(&vector, &offset, address, vectors)) {
		record->flags |= TR_NO_BUFFER;
	} else if (bpf_probe_read_user(&id, config.id_bytes & 15, (void *)(vector.base + offset))) {
		record->flags |= TR_FAULT;
	} else {
		record->id = id;
		record->flags |= TR_HAS_ID;
	}
}

/* Reads the id of a datagram that is about to leave, from the packet. */
static __always_inline void tr_read_packet_id(struct tr_event *record, const struct tr_source *source)
{
	__u32 offset = tr_id_offset(record), end = offset + config.id_bytes;

	if (record->bytes < end) {
		record->flags |= TR_SHORT;
	} else if (source->linear < end) {
		record->flags |= TR_NO_BUFFER;
	} else {
		record->id = tr_load(source->packet + offset) & ~0ull >> ((64 - 8 * config.id_bytes) & 63);
		record->flags |= TR_HAS_ID;
	}
}

/* A CPU's room to put iovecs together: its second half lets any piece follow any other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tr_payload[2]);
} together SEC(".maps");

/* The verifier must see these bounds right before each copy: they do not survive a spill to the stack. */
static __always_inline __u32 tr_bounded(__u32 bytes)
{
	barrier_var(bytes);
	return bytes < config.capture ? bytes : config.capture;
}

/* Copies the first `wanted` bytes out of several iovecs; returns how many could be read. */
static __always_inline __u32 tr_gather(__u8 *to, __u32 wanted, __u64 address, __u64 vectors)
{
	struct tr_iovec vector;
	__u32 zero = 0, done = 0;
	__u8 *room = bpf_map_lookup_elem(&together, &zero);

	if (!room)
		return 0;
	for (int i = 0; i < TR_IOVECS_MAX; i++) {
		__u64 bytes;

		if ((__u64)i >= vectors || done >= wanted || done > config.capture ||
		    bpf_probe_read_user(&vector, sizeof(vector), (void *)(address + i * sizeof(vector))))
			break;
		bytes = wanted - done;
		if (vector.bytes < bytes)
			bytes = vector.bytes;
		if (bytes > config.capture || bpf_probe_read_user(room + done, bytes, (void *)vector.base))
			break;
		done += bytes;
	}
	return bpf_probe_read_kernel(to, tr_bounded(done), room) ? 0 : done;
}

/* Notes the message's first bytes; returns what hindered it. */
static __always_inline __u16 tr_capture(struct tr_payload *payload, __u32 bytes,
					const struct tr_source *source)
{
	__u8 *to = payload->bytes;
	__u32 wanted = tr_bounded(bytes);
	struct tr_iovec first;
	__u64 address, vectors;
	__u16 flags = 0;

	payload->captured = 0;
	payload->position = source->position;
	if (!config.capture)
		return 0;
	if (source->packet) {
		if (wanted > source->linear)
			wanted = source->linear;
		if (bpf_probe_read_kernel(to, tr_bounded(wanted), source->packet))
			return TR_FAULT;
	} else {
		vectors = tr_vectors(source, bytes, &first, &address, &flags);
		if (!vectors)
			return flags;
		if (first.bytes < wanted)
			wanted = tr_gather(to, wanted, address, vectors);
		else if (bpf_probe_read_user(to, tr_bounded(wanted), (void *)first.base))
			return TR_FAULT;
	}
	payload->captured = wanted;
	return wanted ? 0 : TR_NO_BUFFER;
}

#endif
