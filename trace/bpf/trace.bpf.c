/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The hooks. Each backend (src/hooks.rs) takes the same points in another way, but in the same order. The
 * order is whether the process is traced, the socket, the clock, then one record. Where a setting leaves
 * sockets out, the socket comes first.
 */
#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"
#include "packet.bpf.h"
#include "socket.bpf.h"
#include "message.bpf.h"
#include "ring.bpf.h"
#include "stamp.bpf.h"
#include "arrival.bpf.h"
#include "stream.bpf.h"
#include "inside.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A call that has moved something, as a hook found it. */
struct tr_move {
	struct sock *sk; /* NULL: the hook has only its address, in `socket` */
	const struct tr_socket *socket;
	__u32 point;
	int bytes;
	long call;     /* as in struct tr_source */
	__u64 buffer;  /* the same */
	__u16 several; /* TR_SEVERAL, or 0 */
	__u64 began_ns;
};

static __always_inline void tr_moved(struct task_struct *task, const struct tr_move *move)
{
	struct tr_source source = {.call = move->several ? -1 : move->call, .buffer = move->buffer};
	__u32 transport = tr_transport(move->socket);
	struct tr_event record = {};

	if (transport == TR_TRANSPORTS || (move->point == TR_SENT && transport == TR_UDP && !config.sent_udp))
		return;
	record.time_ns = bpf_ktime_get_ns();
	record.socket = move->sk ? tr_number(move->sk, transport) : tr_inode_number(move->socket->sk);
	record.thread = task->pid;
	record.process = task->tgid;
	record.bytes = move->bytes;
	record.point = move->point;
	record.transport = transport;
	record.flags = move->several | (tr_is_client(task) ? TR_CLIENT : 0);
	if (config.stages && move->sk && transport != TR_UDP)
		source.position = tr_position(move->sk, move->socket, &record);
	else if (transport == TR_TCP && move->point == TR_SENT && !config.sent_udp)
		source.position = tr_write_seq(move->socket); /* tells which segments are this call's */
	record.id = source.position;
	if (config.id_bytes && !move->several)
		tr_read_id(&record, &source);
	tr_note(&record, &source);
	tr_ends(move->began_ns, &record);
}

/* --- the end of a thread: its number will be another's
 * ------------------------------------------------------------------------- */

SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_ended, struct task_struct *task)
{
	struct tr_source source = {.call = -1};
	struct tr_event record = {.point = TR_ENDED};

	if (!tr_is_wanted(task))
		return 0;
	record.time_ns = bpf_ktime_get_ns();
	record.thread = task->pid;
	record.process = task->tgid;
	tr_note(&record, &source);
	return 0;
}

/* --- another program: its runtime is another, too
 * ------------------------------------------------------------------------- */

SEC("tp_btf/sched_process_exec")
int BPF_PROG(program_begins, struct task_struct *task, int old_pid)
{
	struct tr_source source = {.call = -1};
	struct tr_event record = {.point = TR_PROGRAM};

	if (!tr_is_wanted(task))
		return 0;
	record.time_ns = bpf_ktime_get_ns();
	record.process = task->tgid;
	if (old_pid != task->pid) {
		/* The thread has the number of the first one now. */
		record.thread = old_pid;
		record.point = TR_ENDED;
		tr_note(&record, &source);
		record.point = TR_PROGRAM;
	}
	record.thread = task->pid;
	tr_note(&record, &source);
	return 0;
}

/* --- both ends of the sockets' own calls
 * ------------------------------------------------------------------------- */

static __always_inline int tr_socket_call(struct sock *sk, __u32 point, int bytes, int flags)
{
	struct tr_move move = {.sk = sk, .point = point, .bytes = bytes, .began_ns = tr_begins()};
	struct task_struct *task;
	struct tr_socket socket;
	struct pt_regs *regs;

	/* Nothing moved: an error, an end, or a socket that had nothing to read, which busy processes ask
	 * again and again. */
	if (bytes <= 0 || flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	/* Noted at the device's queue. */
	if (point == TR_SENT && !config.sent_udp && sk->sk_protocol == IPPROTO_UDP)
		return 0;
	socket = tr_describe(sk);
	move.socket = &socket;
	/* Before the thread is asked for, which is a call. */
	if (tr_is_choosy() && tr_transport(&socket) == TR_TRANSPORTS)
		return 0;
	task = bpf_get_current_task_btf();
	if (!tr_is_wanted(task))
		return 0;
	if (config.id_bytes || config.capture) {
		regs = (struct pt_regs *)bpf_task_pt_regs(task);
		move.buffer = regs->si;
		/* io_uring may send on the way out of another call, and the kernel sends by itself: neither
		 * has a buffer there. */
		move.call = tr_is_behind(task, regs->di, sk) ? regs->orig_ax : -1;
		if (regs->dx == 1) /* of recvmmsg and sendmmsg: one message and no more */
			move.call = tr_single(move.call);
	}
	tr_moved(task, &move);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(socket_received, struct sock *sk, int ret, int flags)
{
	return tr_socket_call(sk, TR_RECEIVED, ret, flags);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(socket_sent, struct sock *sk, int ret, int flags) { return tr_socket_call(sk, TR_SENT, ret, 0); }

/* The same points by the ends of the address families' functions: Linux before 6.3 has no tracepoints in
 * sockets. */
#define TR_RECEIVES(function)                                                                                \
	SEC("fexit/" #function)                                                                              \
	int BPF_PROG(function##_ended, struct socket *sock, void *message, __u64 size, int flags, int ret)   \
	{                                                                                                    \
		return tr_socket_call(sock->sk, TR_RECEIVED, ret, flags);                                    \
	}
#define TR_SENDS(function)                                                                                   \
	SEC("fexit/" #function)                                                                              \
	int BPF_PROG(function##_ended, struct socket *sock, void *message, __u64 size, int ret)              \
	{                                                                                                    \
		return tr_socket_call(sock->sk, TR_SENT, ret, 0);                                            \
	}
TR_RECEIVES(inet_recvmsg)
TR_RECEIVES(inet6_recvmsg)
TR_RECEIVES(unix_stream_recvmsg)
/* Of datagrams and of SOCK_SEQPACKET; compilers put unix_dgram_recvmsg into its callers. */
SEC("fexit/__unix_dgram_recvmsg")
int BPF_PROG(unix_dgram_recvmsg_ended, struct sock *sk, void *message, __u64 size, int flags, int ret)
{
	return tr_socket_call(sk, TR_RECEIVED, ret, flags);
}
TR_SENDS(inet_sendmsg)
TR_SENDS(inet6_sendmsg)
TR_SENDS(unix_stream_sendmsg)
TR_SENDS(unix_dgram_sendmsg)

/* --- the device's queue
 * ------------------------------------------------------------------------------------------ */

SEC("tp_btf/net_dev_queue")
int BPF_PROG(device_queued, struct sk_buff *skb)
{
	__u64 began_ns = tr_begins();
	struct task_struct *task;
	struct sock *sk = skb->sk;
	struct tr_source source = {.call = -1};
	struct tr_event record = {};
	struct tr_socket socket;
	const unsigned char *transport_header;
	__u32 transport, header = TR_UDP_HEADER, segments = 0;
	enum tr_part part = TR_WHOLE;
	__s64 before;

	if (!sk)
		return 0;
	socket = tr_describe(sk);
	transport = tr_transport(&socket);
	if (transport > TR_TCP)
		return 0;
	task = bpf_get_current_task_btf();
	if (!tr_is_wanted(task) || tr_is_late(task) || tr_is_noted_again(skb))
		return 0;
	transport_header = skb->head + skb->transport_header;
	if (transport == TR_TCP) {
		/* The upper half of byte 12 is the header's length in words. */
		header = (tr_load(transport_header + 8) >> 36 & 15) * 4;
		source.position = bpf_ntohl((__u32)tr_load(transport_header + 4));
	} else {
		part = tr_part(skb);
		segments = tr_segments(skb);
	}
	before = transport_header - skb->data;
	barrier_var(
	    before); /* a difference of two pointers: the compiler shall not add to one of them in 32 bits */
	before += header;
	if (skb->len <= before || part == TR_LATER_PART) /* the former: an acknowledgement */
		return 0;
	record.time_ns = bpf_ktime_get_ns();
	record.socket = config.by_inode ? tr_inode_number(sk) : tr_number(sk, transport);
	record.thread = task->pid;
	record.process = task->tgid;
	record.bytes = skb->len - before;
	record.point = TR_QUEUED;
	record.transport = transport;
	record.flags = tr_is_client(task) ? TR_CLIENT : 0;
	record.id = source.position;
	if (part == TR_FIRST_PART)
		record.bytes = tr_datagram_bytes(transport_header);
	if (segments > 1) {
		record.flags |= TR_SEVERAL;
		record.bytes = segments;
	} else if (transport == TR_UDP) { /* the bytes of TCP are seen as the call ends */
		source.packet = transport_header + header;
		source.linear = skb->len - skb->data_len - before;
		if (config.id_bytes)
			tr_read_packet_id(&record, &source);
	}
	tr_note(&record, &source);
	tr_ends(began_ns, &record);
	return 0;
}

/* --- the end of system calls, where a kernel has no tracepoints in sockets (before Linux 6.3)
 * ----------------------- */

SEC("tp_btf/sys_exit")
int BPF_PROG(call_ended, struct pt_regs *regs, long ret)
{
	__u64 began_ns = tr_begins();
	struct task_struct *task;
	struct tr_socket socket;
	struct sock *sk;
	__u32 point = TR_SENT;
	__u16 several = 0;
	__u64 flags = 0;
	__u32 bytes;
	long call;

	if (ret <= 0)
		return 0;
	switch (regs->orig_ax) {
	case CALL_RECVFROM:
		flags = regs->r10;
		point = TR_RECEIVED;
		break;
	case CALL_RECVMSG:
		flags = regs->dx;
		point = TR_RECEIVED;
		break;
	case CALL_RECVMMSG:
		flags = regs->r10;
		several = TR_SEVERAL;
		/* fallthrough */
	case CALL_READ:
	case CALL_READV:
		point = TR_RECEIVED;
		break;
	case CALL_SENDMMSG:
		several = TR_SEVERAL;
		break;
	case CALL_WRITE:
	case CALL_WRITEV:
	case CALL_SENDTO:
	case CALL_SENDMSG:
		break;
	default:
		return 0;
	}
	task = bpf_get_current_task_btf();
	if (flags & (MSG_PEEK | MSG_ERRQUEUE) || !tr_is_wanted(task))
		return 0;
	sk = tr_socket_of(task, regs->di);
	if (!sk)
		return 0;
	socket = tr_describe_read(sk);
	call = regs->orig_ax;
	bytes = ret;
	if (several && ret == 1 &&
	    !bpf_probe_read_user(&bytes, sizeof(bytes), (void *)(regs->si + TR_MMSGHDR_BYTES))) {
		several = 0;
		call = tr_single(call);
	}
	tr_moved(task, &(struct tr_move){.socket = &socket,
					 .point = point,
					 .bytes = bytes,
					 .call = call,
					 .buffer = regs->si,
					 .several = several,
					 .began_ns = began_ns});
	return 0;
}

/* --- functions of the processes themselves, only with --uprobe or --usdt -------------------------------- */

#include "user.bpf.h"

/* Never called, so never loaded: keeps types for user space in the object's BTF that no map has. */
struct tr_types {
	struct tr_ring ring;
	enum tr_limits limits;
	enum tr_point point;
	enum tr_transport transport;
	enum tr_flags flags;
	enum tr_who who;
	enum tr_inside inside;
	enum tr_stamp stamp;
};

int tr_types(const struct tr_types *types) { return types->limits; }
