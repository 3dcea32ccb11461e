/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A hook's view of the socket: its transport, and whether it is traced. */
#ifndef TRACE_SOCKET_H
#define TRACE_SOCKET_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"

struct tr_socket {
	const struct sock *sk;
	__u16 family;
	__u16 type;
	__u16 protocol;
	__u16 port;   /* local */
	__u16 remote; /* port of the other end */
};

/* For pointers that the verifier knows as struct sock. */
static __always_inline struct tr_socket tr_describe(const struct sock *sk)
{
	const struct sock_common *common = &sk->__sk_common;

	return (struct tr_socket){
	    .sk = sk,
	    .family = common->skc_family,
	    .type = sk->sk_type,
	    .protocol = sk->sk_protocol,
	    .port = common->skc_num,
	    .remote = bpf_ntohs(common->skc_dport),
	};
}

/* For pointers that were read out of the kernel's memory. */
static __always_inline struct tr_socket tr_describe_read(const struct sock *sk)
{
	return (struct tr_socket){
	    .sk = sk,
	    .family = BPF_CORE_READ(sk, __sk_common.skc_family),
	    .type = BPF_CORE_READ(sk, sk_type),
	    .protocol = BPF_CORE_READ(sk, sk_protocol),
	    .port = BPF_CORE_READ(sk, __sk_common.skc_num),
	    .remote = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport)),
	};
}

/* enum tr_transport; TR_TRANSPORTS for sockets that are not traced (netlink, raw, other ports). */
static __always_inline __u32 tr_transport(const struct tr_socket *socket)
{
	__u32 transport;

	if (socket->family == AF_UNIX)
		transport = socket->type == SOCK_STREAM ? TR_UNIX_STREAM : TR_UNIX_DATAGRAM;
	else if (socket->family != AF_INET && socket->family != AF_INET6)
		return TR_TRANSPORTS;
	else if (socket->protocol == IPPROTO_UDP)
		transport = TR_UDP;
	else if (socket->protocol == IPPROTO_TCP)
		transport = TR_TCP;
	else
		return TR_TRANSPORTS;
	if (!(config.transports & 1u << transport))
		return TR_TRANSPORTS;
	if (config.by_port &&
	    (transport > TR_TCP || (socket->port != who.port && socket->remote != who.port)))
		return TR_TRANSPORTS;
	return transport;
}

/* Whether a setting leaves sockets of processes out. */
static __always_inline bool tr_is_choosy(void)
{
	return config.by_port || ~config.transports & ((1u << TR_FUNCTION) - 1);
}

/*
 * A socket's number. Its address is the next socket's as soon as it is closed, so a number is the kernel's
 * cookie, which no two sockets have had. It is made by a call once, read from the socket later. Where streams
 * are followed it is the address, for the two ends of a Unix socket know each other by that. There TR_OPENED
 * marks a new socket.
 */
static __always_inline __u64 tr_number(struct sock *sk, __u32 transport)
{
	__u64 cookie;

	if (config.stages && transport != TR_UDP)
		return (__u64)sk;
	cookie = sk->__sk_common.skc_cookie.counter;
	if (!cookie) /* by a way round to the same socket: a packet's is not taken as it is */
		cookie = bpf_get_socket_cookie(sk->sk_socket->sk);
	return cookie ? cookie : (__u64)sk; /* closed, and nobody's any more */
}

/* The same where a hook has a socket's address only and cannot have the kernel make a cookie: its inode's
 * number. */
static __always_inline __u64 tr_inode_number(const struct sock *sk)
{
	__u64 number = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);

	return number ? number : (__u64)sk; /* the kernel's own */
}

/* The number of the next byte that is to be sent over a TCP socket. */
static __always_inline __u32 tr_write_seq(const struct tr_socket *socket)
{
	const struct tcp_sock *tcp = (const void *)socket->sk;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		tcp = bpf_rdonly_cast(tcp, bpf_core_type_id_kernel(struct tcp_sock));
		return tcp->write_seq;
	}
	return BPF_CORE_READ(tcp, write_seq);
}

#define S_IFMT 0170000
#define S_IFSOCK 0140000

/* The socket behind a descriptor of the task; NULL: it is something else. */
static __always_inline struct sock *tr_socket_of(struct task_struct *task, __u32 descriptor)
{
	struct fdtable *table = task->files->fdt;
	struct file *file = NULL;
	struct socket *socket;

	if (descriptor >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + descriptor);
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

/* Whether that socket is behind a descriptor of the task. */
static __always_inline bool tr_is_behind(struct task_struct *task, __u32 descriptor, const struct sock *sk)
{
	struct fdtable *table = task->files->fdt;
	__u64 file = (__u64)sk->sk_socket->file;

	return file && descriptor < table->max_fds && tr_load(table->fd + descriptor) == file;
}

#endif
