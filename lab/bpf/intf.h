/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared by the lab's programs and its Rust side; Rust reads the sizes and the structs from here through BTF.
 */
#ifndef LAB_INTF_H
#define LAB_INTF_H

#define LAB_ADDRESSES (1u << 20) /* a power of two */
#define LAB_FRAME_MAX 128	 /* bytes of a frame that the generator writes afresh */

/* A run of the generator: user space sets it, the program counts on. */
struct lab_run {
	__u64 sent;		       /* frames so far */
	__u64 limit;		       /* frames of this run */
	__u64 first_ns;		       /* monotonic clock at the first frame */
	__u64 last_ns;		       /* and at the last */
	__u64 head[LAB_FRAME_MAX / 8]; /* the headers; destination and IPv4 checksum zero */
	__u32 sum;		       /* IPv4: one's complement sum of the header's sixteen-bit words */
	__u32 reserved;
};

/* Counts of a sink. */
struct lab_sink {
	__u64 frames;
	__u64 bytes;
	__u64 first_ns; /* monotonic clock at the first frame */
	__u32 kept;	/* bytes of `frame` in use */
	__u32 reserved;
	__u8 frame[LAB_FRAME_MAX]; /* the first frame */
};

/* A run of lookups: user space sets `limit`, the program counts on. */
struct lab_lookups {
	__u64 done;	/* lookups so far */
	__u64 limit;	/* lookups of this run */
	__u64 first_ns; /* monotonic clock at the first */
	__u64 last_ns;	/* and at the last */
	__u64 sum;	/* of all values found: keeps the work from being optimised away; or keys changed */
	__u64 value;	/* that updates write */
};

#define LAB_CPUS_MAX 64	  /* a power of two */
#define LAB_ID_AT 8	  /* bytes before a message's id */
enum { LAB_SENDTO = 44 }; /* number of the system call on x86-64 */
#define LAB_RINGBUF_BYTES (1u << 20)
enum { LAB_NO_WAKEUP = 1, LAB_CREATE = 1 };

/* The work of a hook. */
enum lab_work {
	LAB_EMPTY,
	LAB_FILTER,	  /* asks whether the process is the traced one, and counts */
	LAB_CLOCK,	  /* and reads the clock; each of the following as well */
	LAB_RING_SECTION, /* a record into a ring of the CPU in a section, claimed by an atomic addition */
	LAB_RING_PLAIN,	  /* the same, claimed by a plain one */
	LAB_RING_ARRAY,	  /* a record into an array that is looked up */
	LAB_RINGBUF,	  /* BPF's ring buffer, without wakeups */
	LAB_HASH,	  /* the time by thread: put at the receive, taken and deleted at the send */
	LAB_TASK,	  /* the time in the task's storage */
};

/* Set before the load. */
struct lab_hooks {
	__u32 tgid;
	__u32 work;
};

struct lab_noted {
	__u64 events[2]; /* receives, sends */
	__u64 refused;	 /* that a store did not take */
	__u64 last_ns;
};

#endif
