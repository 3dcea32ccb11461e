/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A message's place in its stream, and the two sockets that the stream joins. A receiver's record shares them
 * with the sender's, though the message itself has neither.
 */
#ifndef TRACE_STREAM_H
#define TRACE_STREAM_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"
#include "ring.bpf.h"
#include "socket.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tr_stream);
} streams SEC(".maps");

static __always_inline void tr_identify(struct tr_identity *identity, struct sock *sk,
					const struct tr_socket *socket)
{
	struct sock_common *common = &sk->__sk_common;

	identity->family = socket->family;
	identity->local_port = socket->port;
	identity->remote_port = socket->remote;
	if (socket->family == AF_UNIX) {
		identity->peer = (__u64)BPF_CORE_READ((struct unix_sock *)sk, peer);
	} else if (socket->family == AF_INET) {
		__builtin_memcpy(identity->local, &common->skc_rcv_saddr, 4);
		__builtin_memcpy(identity->remote, &common->skc_daddr, 4);
	} else {
		BPF_CORE_READ_INTO(identity->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(identity->remote, sk, __sk_common.skc_v6_daddr);
	}
}

/* Records the socket's identity. */
static __always_inline void tr_introduce(const struct tr_identity *identity, const struct tr_event *message)
{
	struct tr_event noted = *message;
	struct tr_record *record;
	struct tr_payload *payload;
	__u32 slot, sequence;

	record = tr_claim(&slot, &sequence);
	if (!record)
		return;
	payload = bpf_map_lookup_elem(&payloads, &slot);
	if (payload) {
		__builtin_memcpy(payload->bytes, identity, sizeof(*identity));
		payload->captured = sizeof(struct tr_identity);
	}
	noted.point = TR_OPENED;
	tr_fill(record, &noted, message->flags);
	tr_publish(&record->sequence, sequence);
}

/* Where the message ends in its stream. */
static __always_inline __u32 tr_position(struct sock *sk, const struct tr_socket *socket,
					 struct tr_event *message)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	bool is_received = message->point == TR_RECEIVED;
	struct tr_stream *stream;
	__u32 step;

	stream = bpf_sk_storage_get(&streams, sk, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!stream) {
		/* Also where a hook interrupted one that was making it. */
		message->flags |= TR_NO_POSITION;
		return 0;
	}
	if (!stream->is_known) {
		stream->is_known = 1;
		tr_identify(&stream->identity, sk, socket);
		tr_introduce(&stream->identity, message);
	}
	if (message->transport == TR_TCP)
		return is_received ? BPF_CORE_READ(tcp, copied_seq) : tr_write_seq(socket);
	step = message->transport == TR_UNIX_STREAM ? message->bytes : 1;
	return step + __sync_fetch_and_add(is_received ? &stream->received : &stream->sent, step);
}

#endif
