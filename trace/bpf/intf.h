/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Shared by the hooks and the Rust side; Rust reads the structs and the numbers from here through BTF. */
#ifndef TRACE_INTF_H
#define TRACE_INTF_H

enum tr_limits {
	TR_TGIDS_MAX = 16,	/* processes that one trace can name */
	TR_GENERATIONS_MAX = 4, /* how far up a process's parents are looked for */
	TR_ID_MAX = 8,		/* bytes of a message id */
	TR_CAPTURE_MAX = 4096,	/* bytes of a message that a record can have beside it */
};

/* Where a message was seen. */
enum tr_point {
	TR_RECEIVED,  /* the kernel has copied it to the process: before the receiving call returns */
	TR_QUEUED,    /* it is handed to the device's queue, inside the sending call */
	TR_SENT,      /* the kernel has taken it from the process: before the sending call returns */
	TR_ARRIVED,   /* its packet is handed over by the device that it came in by: in no process */
	TR_FORWARDED, /* it leaves a host that passes it on: noted by who forwards, not by these hooks */
	TR_OPENED,  /* no message: a socket seen for the first time; beside the record is a struct tr_identity
		     */
	TR_ENDED,   /* no message: the thread ends */
	TR_PROGRAM, /* no message: the process begins another program */
	TR_POINTS,
};

enum tr_transport {
	TR_UDP,
	TR_TCP,
	TR_UNIX_STREAM,
	TR_UNIX_DATAGRAM, /* and SOCK_SEQPACKET: messages keep their borders */
	TR_FUNCTION,	  /* no socket: functions of the process itself */
	TR_TRANSPORTS,
};

/* The state of a record's message id. */
enum tr_flags {
	TR_HAS_ID = 1,
	TR_SHORT = 2,	  /* the message ends before the id does */
	TR_NO_BUFFER = 4, /* the hook does not see where the message lies (io_uring, recvmmsg, sendmmsg), or
			     its id is in two places */
	TR_FAULT = 8,	  /* the process's memory could not be read */
	TR_NO_POSITION = 128, /* the kernel had no memory to count the socket's stream */
	TR_CLIENT = 32,	      /* of a process that sends to those that are traced, or receives from them; of
				 packets:   to the port that is traced */
	TR_SEVERAL =
	    16, /* one record for a call or a packet with several messages: `bytes` is their number */
};

/* One event, as it lies in a ring. */
struct tr_record {
	__u64 time_ns;	/* CLOCK_MONOTONIC */
	__u64 socket;	/* its number: no other socket has had it, or TR_OPENED comes before (socket.bpf.h) */
	__u64 id;	/* bytes of the message, the first one lowest; without TR_HAS_ID its position (struct
			   tr_payload), where nothing lies beside the record */
	__u64 who;	/* from the lowest bit on: thread, process, point, transport, flags */
	__u32 sequence; /* of the CPU's records, from 1 on; stored last: the rest of the record is there when
			   it is */
	__u32 bytes;
};

/* Bits of `who`. No kernel of 64 bits gives a thread or a process a larger number (PID_MAX_LIMIT); the rest
 * are flags. */
enum tr_who {
	TR_PID_BITS = 22,
	TR_KIND_BITS = 4,
	TR_WHO_PROCESS = TR_PID_BITS,
	TR_WHO_POINT = TR_WHO_PROCESS + TR_PID_BITS,
	TR_WHO_TRANSPORT = TR_WHO_POINT + TR_KIND_BITS,
	TR_WHO_FLAGS = TR_WHO_TRANSPORT + TR_KIND_BITS,
};

/* Beside a record, if bytes are captured: its first ones, as many as `config.capture` allows. */
struct tr_payload {
	__u32 captured;
	__u32 position; /* where the message ends in its stream, modulo 2^32, as TCP numbers its bytes. Of
			   Unix streams bytes since the socket was first seen; of Unix datagrams their number.
			   Of TR_QUEUED over TCP where it begins; 0 over UDP, which has none, and with
			   TR_NO_POSITION */
	__u8 bytes[TR_CAPTURE_MAX];
};

/* The addresses of a socket. */
struct tr_identity {
	__u8 local[16]; /* IPv4: the first four */
	__u8 remote[16];
	__u64 peer; /* Unix: address of the other end, 0 where it has none of its own */
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u16 unused;
};

/* The state kept with a socket. */
struct tr_stream {
	struct tr_identity identity;
	__u32 is_known;
	__u32 sent; /* as positions count */
	__u32 received;
	__u32 unused;
};

/* Time that a hook itself spends inside T2, nanoseconds in all. */
enum tr_inside {
	TR_INSIDE_TAIL,	 /* of receives: from the clock on */
	TR_INSIDE_HEAD,	 /* of sends: up to the clock */
	TR_INSIDE_CLOCK, /* of receives: another reading of the clock, which the tail has */
	TR_INSIDES,
};

/* Counts of leaving packets, where ids are written into them. */
enum tr_stamp {
	TR_STAMP_WRITTEN,
	TR_STAMP_TAKEN,	  /* other bytes than those reserved are there: an id already, or the message's own */
	TR_STAMP_SHORT,	  /* the message ends before the place does */
	TR_STAMP_SEVERAL, /* several messages in one packet (UDP_SEGMENT), or a part of one (a fragment) */
	TR_STAMP_FAILED,  /* the packet could not be written */
	TR_STAMPS,
};

struct tr_stamps {
	__u64 last_ns; /* the stamp last written: the next is a later one */
	__u64 counts[TR_STAMPS];
};

/* A CPU's ring, from a cache line of its own on. */
struct tr_ring {
	__u64 claimed; /* records that hooks have begun on this CPU */
	__u64 unused[7];
	struct tr_record records[1]; /* as many as there are */
};

/* A CPU's state, in cache lines of its own. */
struct tr_cpu {
	__u64 unnoted;		  /* events, where the CPU has no ring */
	__u64 inside[TR_INSIDES]; /* only of calibrations */
	__u64 packet; /* address of the packet last noted at a device that hands it on to another */
	__u64 device; /* that device's */
	__u64 unused[13 - TR_INSIDES];
};

/* The traced processes. User space writes it while the hooks are on: a service that restarts is in another
 * cgroup.
 */
struct tr_traced {
	__u64 cgroup;  /* its number: its processes and those below */
	__u64 comm[2]; /* name of the process, padded with zeros */
	__u32 cgroup_level;
	__u32 port; /* local or remote */
	__u32 tgid[TR_TGIDS_MAX];
};

/* The settings of a trace: set before the load, so that hooks are compiled without the parts that are off. */
struct tr_config {
	__u64 stamp_over; /* what the application leaves where a stamp is to be */
	__u32 by_cgroup;  /* which members of struct tr_traced must hold */
	__u32 by_comm;
	__u32 by_port;
	__u32 tgids;	      /* how many of its `tgid` are set; 0: any process */
	__u32 except;	      /* this process is not traced whatever else holds; 0: none */
	__u32 descendants;    /* also processes that descend from these */
	__u32 transports;     /* bit of each enum tr_transport */
	__u32 network;	      /* number of the network namespace at whose devices messages arrive */
	__u32 slots_mask;     /* records a CPU can hold, a power of two, less one */
	__u32 id_offset[2];   /* in what is received, in what is sent */
	__u32 id_bytes;	      /* 0: no id */
	__u32 capture;	      /* a message's first bytes to be noted: a multiple of eight; 0: none */
	__u32 stages;	      /* note positions in streams, and who sockets are */
	__u64 client_comm[2]; /* name of a client; zeros: none by a name */
	__u32 clients;	      /* how many of `client` are set */
	__u32 clients_only;   /* no other process is traced */
	__u32 client[TR_TGIDS_MAX];
	__u32 inside;	/* also take the times of enum tr_inside */
	__u32 sent_udp; /* note UDP when sent as well: for kernels without a hook at the device queue */
	__u32 by_inode; /* sockets are numbered by their inodes */
};

#endif
