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

/*
 * Measuring traffic. Behind its UDP header each frame carries a mark of 18 bytes in the sender's byte order.
 * It has the flow at 0, the run's tag at 2, the sequence number within the flow at 6, the monotonic clock
 * at 10.
 */
enum lab_mark { LAB_MARK_FLOW = 0, LAB_MARK_TAG = 2, LAB_MARK_SEQUENCE = 6, LAB_MARK_NS = 10, LAB_MARK = 18 };
#define LAB_DISCARD 9		 /* the UDP port of every marked frame */
#define LAB_FLOWS_MAX (1u << 16) /* a mark has two bytes for the flow */
#define LAB_ORDER (1u << 20)	 /* places of the order that flows take turns in; a power of two */
#define LAB_TEMPLATES 8		 /* frames of different lengths in a run; a power of two */
#define LAB_PATTERN 64		 /* places of the order of lengths; a power of two */
#define LAB_INTERVAL_SHIFT 16	 /* intervals are in 2^-16 ns */

/* The head of a flow's frames, as far as flows differ. */
struct lab_flow {
	__u8 destination[16]; /* IPv4: the first four bytes */
	__u16 source_port;    /* network order */
	__u16 reserved[3];
};

/* A frame of one length. */
struct lab_template {
	__u64 head[LAB_FRAME_MAX / 8]; /* the headers; destination and IPv4 checksum zero */
	__u32 sum;		       /* IPv4: one's complement sum of the header's sixteen-bit words */
	__u32 bytes;		       /* of the frame, without FCS */
};

/* A paced run: user space sets the first part, the program the second. */
struct lab_pace {
	struct lab_template templates[LAB_TEMPLATES];
	__u8 pattern[LAB_PATTERN]; /* which template is next */
	__u64 limit;		   /* frames of this run */
	__u64 interval;		   /* between two frames; 0: as fast as possible */
	__u64 burst;	/* so far behind the schedule frames follow at once; beyond it the schedule moves */
	__u64 slice_ns; /* a call waits no longer than this */
	__u32 tag;
	__u32 first_flow; /* the number of flow 0 in marks */
	__u32 patterns;	  /* places of the pattern in use */
	__u32 reserved;

	__u64 sent;
	__u64 first_ns; /* monotonic clock at the first frame */
	__u64 last_ns;	/* and at the last */
	__u64 next;	/* when the next frame is due, in intervals' unit since the first */
	__u64 stalls;	/* how often the schedule moved */
	__u64 stalled_ns;
};

#define LAB_WINDOW                                                                                           \
	16 /* words of 64 sequence numbers in which a repeated one is recognised; a power of two             \
	    */

/* A flow as the receiver saw it. */
struct lab_arrival {
	__u32 tag;    /* of the run that the rest belongs to */
	__u32 next;   /* the highest sequence number, plus one */
	__u32 device; /* index of the device that the last frame came by */
	__u32 reserved;
	__u64 received;	  /* all frames */
	__u64 duplicated; /* of them: whose number had come before */
	__u64 reordered;  /* of them: whose number is below one that had come before; no duplicates */
	__u64 late;	  /* of `reordered`: below the window, so that a duplicate is not recognised */
	__u64 strayed;	  /* by another device than the expected one */
	__u64 first_ns;
	__u64 last_ns;
	__u64 changes;	/* how often `device` changed */
	__u64 since_ns; /* when it last did */
	__u64 seen[LAB_WINDOW];
};

/* Latencies in buckets: below 32 ns one each, then 32 for each power of two. */
#define LAB_LATENCY_BITS 5
#define LAB_LATENCY_MAX 40 /* bits; longer ones count in the last bucket */
#define LAB_BUCKETS ((LAB_LATENCY_MAX - LAB_LATENCY_BITS + 1) << LAB_LATENCY_BITS)

/* The counts of a receiving CPU. */
struct lab_tally {
	__u64 frames; /* marked, of this run */
	__u64 bytes;
	__u64 foreign; /* marked, with another tag or flow */
	__u64 other;   /* everything else, left to the kernel */
	__u64 max_ns;  /* longest latency */
	__u64 buckets[LAB_BUCKETS];
};

/* The run that the receiver counts. */
struct lab_expected {
	__u32 tag;
	__u32 flows;
};

#define LAB_FLOWS 16384	     /* a power of two */
#define LAB_FLOW_ORDER 65536 /* packets until the order of flows begins again; a power of two */
#define LAB_FLOW_WORDS 7     /* Ethernet, IPv4, UDP, flow, sequence number: 50 bytes, rounded up */
#define LAB_INDIRECTION 128  /* entries of a NIC's indirection table */
#define LAB_RSS_INPUT 36     /* most bytes that are hashed: two IPv6 addresses and a flow label */
#define LAB_RSS_CPUS 64	     /* a power of two */

/* The fields that choose a queue. */
enum lab_rss_fields {
	LAB_RSS_PACKET, /* not by a hash: one packet to each queue in turn */
	LAB_RSS_IP,
	LAB_RSS_IP_PORTS,
	LAB_RSS_OUTER,
	LAB_RSS_OUTER_LABEL,
	LAB_RSS_INNER, /* addresses and ports of the IPv4 packet in the tunnel */
};

/* A run of the sender of flows: user space sets `limit` and `start_ns`, the program counts on. */
struct lab_flows_run {
	__u64 sent;
	__u64 limit;
	__u64 begin;	/* where in the order of flows it begins */
	__u64 start_ns; /* no frame before this time */
	__u64 first_ns; /* monotonic clock at the first frame */
	__u64 last_ns;	/* and at the last */
};

/* Counts of frames. Two of them never share a cache line, nor a pair of lines that is fetched together. */
struct lab_count {
	__u64 frames;
	__u64 bytes;
	__u64 unused[14];
};

/* Frames that XDP programs redirected in vain. */
struct lab_redirects {
	__u64 refused; /* by the kernel, before any driver got them */
	__u64 dropped; /* by the driver of the output device: its ring was full */
};

/* A run of the steering program: user space sets `fields`, the program counts on. */
struct lab_rss_run {
	__u64 steered;
	__u64 other; /* frames that are not of the run */
	enum lab_rss_fields fields;
	__u32 reserved;
};

/* A flow as it arrives. */
struct lab_rss_flow {
	__u64 received;
	__u64 reordered; /* packets behind one of the same flow with a higher number */
	__u64 next;	 /* the number after the highest that came */
	__u64 label;	 /* the outer flow label, network order, of its last packet */
};

/* A run of `livelock`'s sender: user space sets the first part, the program the second. */
struct lab_offer {
	__u64 head[8];	 /* the frame's first 56 bytes; the tag of the run lies at 42 */
	__u64 gap_ps;	 /* between two frames, picoseconds */
	__u64 slice_ns;	 /* a call waits no longer than this */
	__u64 length_ns; /* of the run */

	__u64 sent;
	__u64 first_ns; /* monotonic clock at the first frame */
	__u64 last_ns;	/* and when the run was over */
	__u64 over;
};

#endif
