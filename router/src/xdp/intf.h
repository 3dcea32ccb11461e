/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The maps as the XDP program and user space both see them: keys, values and verdicts, written once.
 *
 * build.rs makes the Rust types and the names of the verdicts from this file's BTF. The tables themselves are
 * not here: image.h.
 */
#ifndef TRIELINE_INTF_H
#define TRIELINE_INTF_H

#include <trieline/image.h>

/* Numbers that both sides know. */
enum tl_limits {
	TL_INTF_VERSION =
	    17, /* grows with any change of a layout; pinned maps of another version are replaced */
	TL_INTF_IMAGE = TL_IMAGE_VERSION, /* of the image that the program reads; likewise */
	TL_PORTS =
	    65536, /* untagged ports with a lower ifindex have that place, others one among the tagged ones */
	TL_TAGGED = 65536, /* tagged ports, and untagged ones of higher numbers */
	TL_PORT_PLACES = TL_PORTS + TL_TAGGED,
	TL_DEVICES = 65536, /* that packets may leave by */
	TL_COUNTER_SLOTS =
	    256, /* 0: packets of no port, and of ports beyond the slots; the last: of former ports */
	TL_COUNTERS = 128,     /* room for verdicts in a slot */
	TL_OUTER_MAX = 96,     /* bytes kept in an adjacency: IPv6 header and an SRH of three segments */
	TL_OUTER_LONG = 560,   /* the most that is pushed: IPv6 header and an SRH of 32 segments */
	TL_LONG_OUTERS = 4096, /* headers longer than TL_OUTER_MAX */
	TL_SCRATCH = 2048,     /* longest frame that is moved to make room for a long header */
	TL_GROUPS = 4096,
	TL_BUCKETS = 128, /* of a group */
	TL_SIDS = 16384,  /* counters of SIDs; slot 0 is none */
	TL_FILTERS = 64,  /* in a list; the map has room for as many again, built aside */
	TL_FILTER_LISTS = 64,
	TL_FILTER_PORTS = 8,	/* ranges of ports in a filter */
	TL_FILTER_NAME = 32,	/* bytes, the last of them 0 */
	TL_FILTER_REACH = 1024, /* an IP header that begins later is not looked at */
	TL_ANY_PROTOCOL = 256,
	TL_MAIN4 = 0, /* tables of the kernel's own: local and main */
	TL_MAIN6 = 1,
	TL_LOCAL_BITS = 32768, /* a page */
	TL_SID_HOOKS = 64,
	TL_CSIDS = 16384,    /* prefixes of NEXT-C-SID */
	TL_CSID_UNKNOWN = 0, /* their value where the steps are not known, or differ from table to table */
	TL_CAPTURES = 64,    /* slots */
	TL_CAPTURE_ALL = 0,  /* the slot for packets of all kinds */
	TL_SNAP_MAX = 16384, /* bytes of a frame that a capture can keep */
};

/*
 * A lookup id, what a port or an action names to say which routes decide. It is a table's id or, with this
 * bit, the index of the first of several rules (struct tl_rule).
 */
#define TL_LOOKUP_POLICY 0x80000000u
/* The value of a `throw` route: the next rule decides. No action has this number. */
#define TL_VALUE_THROW 0x7fffffffu
/* Rules that are followed for a packet; what would come after them is the kernel's. */
#define TL_RULES_MAX 32

/*
 * The XDP program's decision on a packet, with the reason. The value is the index of the packet's counter.
 * The name after FORWARD, PASS or DROP, in lower case, is the label of the metric and the key in JSON.
 * Names are unique.
 *
 * Each kind has a range with free places. Add a verdict at the end of its range. Pinned maps hold these
 * numbers, so one that is in use neither moves nor is used again, and then TL_INTF_VERSION stays as it is.
 */
enum tl_verdict {
	/* Redirected to another device. SRv6 by RFC 8986. */
	TL_FORWARD_IPV4 = 0,
	TL_FORWARD_IPV6,
	TL_FORWARD_END_DX4,	  /* RFC 8986 4.5: outer headers removed, inner IPv4 forwarded */
	TL_FORWARD_H_ENCAPS_IPV4, /* RFC 8986 5.1, IPv4 inside */
	TL_FORWARD_H_ENCAPS_IPV6,
	TL_FORWARD_SID_HOOK_REDIRECT, /* the program bound to the SID redirects */
	TL_FORWARD_H_ENCAPS_L2,	      /* RFC 8986 5.3: the whole frame inside */
	TL_FORWARD_H_INSERT,	      /* an SRH put into the IPv6 packet */
	TL_FORWARD_END,		      /* RFC 8986 4.1, also with PSP or NEXT-C-SID */
	TL_FORWARD_END_X,	      /* 4.2 */
	TL_FORWARD_END_T,	      /* 4.3 */
	TL_FORWARD_END_DX2,	      /* 4.9: the inner frame leaves as it is */
	TL_FORWARD_END_DX6,	      /* 4.4 */
	TL_FORWARD_END_DT4,	      /* 4.7, and 4.8 with IPv4 inside */
	TL_FORWARD_END_DT6,	      /* 4.6, and 4.8 with IPv6 inside */
	TL_FORWARD_END_B6,	      /* an SRH inserted at a SID */
	TL_FORWARD_END_B6_ENCAPS,     /* 4.13 */

	/* Given to the kernel, untouched. */
	TL_PASS_NO_PORT = 32,	/* device or VLAN not given to trieline */
	TL_PASS_NOT_IP,		/* another EtherType, five tags, or a frame without a whole header */
	TL_PASS_MAC_MISMATCH,	/* destination MAC address is not the port's: group, or another host's */
	TL_PASS_FORWARDING_OFF, /* forwarding of this family is off on the port */
	TL_PASS_IPV4_OPTIONS,	/* header longer than 20 bytes */
	TL_PASS_IPV4_SPECIAL_PURPOSE, /* source or destination of 0/8, 127/8 or 224/3 */
	TL_PASS_IPV4_TTL,	      /* TTL would reach 0: the kernel answers */
	TL_PASS_IPV6_HOP_BY_HOP,      /* hop-by-hop options */
	TL_PASS_IPV6_SPECIAL_PURPOSE, /* unspecified, loopback, v4-mapped, link-local or multicast address */
	TL_PASS_IPV6_HOP_LIMIT,	      /* hop limit would reach 0 */
	TL_PASS_REVERSE_PATH, /* source is an own address, not routed (loose), not by this port (strict) */
	TL_PASS_NO_ROUTE,     /* no prefix matches */
	TL_PASS_NO_ACTION,    /* the table's value names an action that is not set */
	TL_PASS_LOCAL,	      /* an address of this node */
	TL_PASS_UNREACHABLE,  /* unreachable route: the kernel sends the ICMP error */
	TL_PASS_PROHIBIT,     /* prohibit route, likewise */
	TL_PASS_UNRESOLVED,   /* link-layer address of the next hop not known */
	TL_PASS_UNSUPPORTED,  /* a route only the kernel can follow */
	TL_PASS_TOO_BIG,      /* larger than the MTU, or than 64 KiB: the kernel fragments or answers */
	TL_PASS_NO_DEVICE,    /* output device not given to trieline */
	TL_PASS_XDP_FRAGS,    /* longer than one buffer; the output device takes no such frames */
	TL_PASS_NO_HEADROOM,  /* no room in front of the frame for a new header */
	TL_PASS_SEG6_OFF,     /* SRv6 is off on the port */
	TL_PASS_SEG6_HEADERS, /* headers that the behaviour does not take, more of them, or an HMAC */
	TL_PASS_SEG6_INNER,   /* the inner packet needs the kernel: options, TTL, length, special address */
	TL_PASS_SEG6_INNER_NO_ROUTE, /* the inner destination is not plainly forwarded by the table asked */
	TL_PASS_SEG6_NEXT,	     /* nor is the next segment */
	TL_PASS_SEG6_LINK,	     /* a frame that cannot be carried or delivered whole: tag, length */
	TL_PASS_FILTER,		     /* by a filter */
	TL_PASS_SID_HOOK_PASS,	     /* by the program bound to the SID */
	TL_PASS_NO_XDP_XMIT,	     /* the output device takes no redirected frames at present */
	TL_PASS_NO_CARRIER,	     /* the output device is down or without carrier */
	TL_PASS_TABLE_FULL,	     /* no room for one more next hop or table */
	TL_PASS_RULE,		     /* a policy rule only the kernel can follow */
	TL_PASS_ON_LINK,	     /* End.DX4 with an on-link next hop, which Linux does not send to */
	TL_PASS_CSUM_PARTIAL,	     /* its sender left the checksum to a device: the kernel sees to it */
	TL_PASS_REDIRECT,  /* leaves by the way it came: the kernel tells its sender of a shorter one */
	TL_PASS_PROXY_NDP, /* neighbour discovery, which the kernel may have to answer (proxy_ndp) */
	TL_PASS_STALE,	   /* no daemon has followed the kernel's routes for longer than max_stale */
#ifdef TL_NEXT_BUILD	   /* a build with one verdict more, for the test of upgrades */
	TL_PASS_NEXT_BUILD,
#endif

	/* Dropped, as Linux drops it. */
	TL_DROP_IPV4_HEADER = 96, /* version or header length */
	TL_DROP_IPV4_CHECKSUM,	  /* header checksum */
	TL_DROP_IPV4_LENGTH,	  /* total length below the header's or above the frame's */
	TL_DROP_IPV6_HEADER,	  /* version */
	TL_DROP_IPV6_LENGTH,	  /* payload length above the frame's */
	TL_DROP_BLACKHOLE,	  /* blackhole route */
	TL_DROP_SEGMENTS_LEFT,	  /* decapsulation that is not the last segment */
	TL_DROP_NO_SEGMENT,	  /* a behaviour that goes on to the next segment, and no SRH with one left */
	TL_DROP_SRH,		  /* an SRH whose lengths do not agree */
	TL_DROP_FILTERED,	  /* by a filter */
	TL_DROP_SID_HOOK_DROP,	  /* by the program bound to the SID */
	TL_DROP_SID_HOOK_BAD_RETURN, /* it returned what means nothing */
	TL_DROP_SID_HOOK_MISSING,    /* it is gone */
	TL_DROP_TENANT,		     /* only the kernel could do it, which does not know this tenant */
	TL_DROP_ECN, /* decapsulation of congestion met by a packet that knows no ECN (RFC 6040 4.2) */
	TL_DROP_SID_HOOK_HEADERS, /* headers that hide what is inside from the filters bound to the SID */
	TL_DROP_REWRITE_FAILED,	  /* headers that cannot be written or taken off once the packet has begun to
				     change */
	TL_DROP_UNINSPECTABLE, /* tenants, filters or SID hooks cannot see what the kernel, or another, finds
				* in it
				*/
	TL_DROP_SOURCE_BLACKHOLE, /* the reverse path filter is on, and the source's route rejects packets */

	TL_VERDICTS = 128
};
#define TL_PASS_FIRST TL_PASS_NO_PORT
#define TL_DROP_FIRST TL_DROP_IPV4_HEADER

/* `kind` of an action. */
enum tl_action_kind {
	TL_ACTION_NONE = 0,    /* not set */
	TL_ACTION_VERDICT = 1, /* pass or drop; `verdict` names the reason */
	TL_ACTION_FORWARD = 2,
	TL_ACTION_ENCAPS = 3,
	TL_ACTION_END_DX4 = 4,	     /* and forward through the adjacency */
	TL_ACTION_END_DX4_TABLE = 5, /* and look the inner destination up in the port's IPv4 table */
	TL_ACTION_TABLE = 6,	     /* look the destination up again, by the lookup id in `lookup`; once */
	TL_ACTION_GROUP = 7,	     /* index of a struct tl_group */
	TL_ACTION_INSERT = 8,	     /* H.Insert: the adjacency's header is an SRH */
	TL_ACTION_END = 9,	     /* index: NEXT-C-SID's bytes of block << 8 | node and function */
	TL_ACTION_END_X = 10,
	TL_ACTION_END_T = 11, /* index is a lookup id */
	TL_ACTION_END_DX2 = 12,
	TL_ACTION_END_DX6 = 13,
	TL_ACTION_END_DX6_TABLE = 14,
	TL_ACTION_END_DT4 = 15,	 /* index is a lookup id */
	TL_ACTION_END_DT6 = 16,	 /* index is a lookup id */
	TL_ACTION_END_DT46 = 17, /* leads to a struct tl_dt46 */
	TL_ACTION_END_B6 = 18,	 /* the adjacency's header is an SRH */
	TL_ACTION_END_B6_ENCAPS = 19,
	TL_ACTION_END_DX4_VRF = 20, /* the next hop is behind a VRF device: index is that VRF's lookup id */
	TL_ACTION_END_DX6_VRF = 21,
};

/* Flavours of TL_ACTION_END and TL_ACTION_END_X. */
enum tl_flavour {
	TL_END_PSP = 1,	      /* RFC 8986 4.16.1 */
	TL_END_NEXT_CSID = 2, /* RFC 9800 4.1 */
};

/* The action that a table's value stands for. One aligned 8-byte store changes it. */
struct tl_action {
	__u8 kind;
	union {
		__u8 verdict;  /* of TL_ACTION_VERDICT */
		__u8 flavours; /* of TL_ACTION_END and TL_ACTION_END_X */
		__u8 on_link;  /* of TL_ACTION_FORWARD: to the destination itself */
	};
	__u16 counter; /* slot of the SID's counters; 0 = none */
	union {
		__u32 adjacency; /* index of a struct tl_adjacency */
		__u32 lookup; /* of TL_ACTION_TABLE, _END_T, _END_DT4, _END_DT6, _END_DX?_VRF: a lookup id */
		__u32 group;  /* of TL_ACTION_GROUP */
		__u32 csid;   /* of TL_ACTION_END with NEXT-C-SID: bytes of block << 8 | node and function */
	};
};

/* `flags` of an adjacency. */
enum tl_adjacency_flags {
	TL_OUTER_L2 = 1,	 /* the frame goes inside, not the packet */
	TL_OUTER_LABEL_NONE = 2, /* sysctl seg6_flowlabel -1: flow label 0 */
	TL_OUTER_LABEL_HASH = 4, /* seg6_flowlabel 1: a hash of the flow */
	TL_OUTER_RFC = 8,	 /* hop limits and traffic class by RFC 8986 and 6040, not as Linux */
};

/* A ready-made header, copied word by word. But for `used` never changed while an action leads to it: a new
 * one is written aside. */
struct tl_adjacency {
	__u32 ifindex;	  /* key in the device map */
	__u16 mtu;	  /* of the IP packet that leaves, outer header included */
	__u16 outer_len;  /* bytes of `outer`, 0 when nothing is pushed */
	__u8 macs[12];	  /* destination, source */
	__u32 tag;	  /* 802.1Q tag (TPID, TCI) as in the frame; 0 = untagged */
	__u32 long_outer; /* index of a struct tl_long_outer, when outer_len is above TL_OUTER_MAX */
	__u8 flags;
	__u8 used;	 /* 1: the XDP program sent a packet by it since user space stored 0 */
	__u8 csid_block; /* NEXT-C-SID: bytes of the locator block and of node and function */
	__u8 csid_function;
	__u8 outer[TL_OUTER_MAX];
} __attribute__((aligned(8)));

/* In an adjacency's place for TL_ACTION_END_DT46, which sends nothing by itself: where it looks up what is
 * inside. */
struct tl_dt46 {
	__u8 unused[32];
	__u32 lookup4;
	__u32 lookup6;
	__u8 unused_too[TL_OUTER_MAX - 8];
} __attribute__((aligned(8)));

/*
 * One rule of `ip rule`: packets from and to these prefixes are looked up in a table. Where that has no
 * route, the next rule decides. Addresses are in host byte order and IPv4 in the first 32 bits. Never changed
 * while a lookup id leads to it.
 */
enum tl_rule_flags {
	TL_RULE_USED = 1, /* not a free place */
	TL_RULE_NOT = 2,  /* packets that the prefixes do not select */
	TL_RULE_GOTO = 4, /* no table: the rule that decides next, further on in the policy; 0 = none */
};

struct tl_rule {
	__u64 from[2];
	__u64 to[2];
	__u8 from_len;
	__u8 to_len;
	__u16 flags;
	__u32 table;  /* a table's id; with TL_LOOKUP_POLICY, the value that decides */
	__u32 next;   /* 0: that was the last */
	__u32 except; /* where the table's value is this, the next rule decides; 0: of no route */
};

/* A header that does not fit into its adjacency. */
struct tl_long_outer {
	__u8 bytes[TL_OUTER_LONG];
};

/* Equal-cost paths: the flow's hash chooses a bucket, which is a whole action, but never a group. Never
 * changed while an action leads to it. */
struct tl_group {
	struct tl_action buckets[TL_BUCKETS];
};

/* As the kernel's `count` of a seg6local route. */
struct tl_sid_count {
	__u64 packets;
	__u64 bytes;
	__u64 errors;
};

/* `flags` of a port. */
enum tl_port_flags {
	TL_PORT_USED = 1,
	TL_PORT_FORWARD4 = 2,
	TL_PORT_FORWARD6 = 4,
	TL_PORT_SEG6 = 8,
	TL_PORT_RPF_LOOSE = 16,
	TL_PORT_RPF_STRICT = 32,
	TL_PORT_FILTER = 64,	/* list TL_LIST_PORTS holds */
	TL_PORT_SID_HOOK = 128, /* SIDs may have hooks */
	TL_PORT_TENANT = 256,	/* of a tenant that the kernel does not know: what it would get is dropped */
	TL_PORT_ECN = 512,	/* decapsulation combines the ECN fields (RFC 6040 4.2) */
	TL_PORT_CSUM_PARTIAL = 1024, /* checksums of packets that come in may be unfinished */
	TL_PORT_REDIRECTS4 = 2048,   /* the kernel sends redirects (send_redirects) */
	TL_PORT_REDIRECTS6 = 4096,   /* likewise; IPv6 has no such setting */
	TL_PORT_PROXY_NDP = 8192,    /* neighbour discovery may be for addresses of others (proxy_ndp) */
};

/* A device, or a VLAN of one, whose packets are ours to forward. */
struct tl_port {
	__u32 flags;
	__u32 table4; /* lookup ids */
	__u32 table6;
	__u32 ifindex; /* of the device the kernel receives these packets on (the VLAN device) */
	__u8 mac[6];
	__u16 counters; /* slot in the counters map */
};

/* Key of the map of tagged ports. */
struct tl_tagged {
	__u32 ifindex;
	__u16 vid; /* 0: the untagged port of a device that has no place by its number */
	__u16 reserved;
};

struct tl_counters {
	__u64 packets[TL_COUNTERS];
};

/* `action` of a filter. */
enum tl_filter_action {
	TL_FILTER_COUNT = 0, /* and go on with the next */
	TL_FILTER_ALLOW = 1, /* no further filters */
	TL_FILTER_PASS = 2,
	TL_FILTER_DROP = 3,
};

/* A filter: packets from or to the addresses of a set. Never changed while a list holds it. */
struct tl_filter {
	__u32 table4; /* ids of the set's tables in the image; ids beyond all tables where it has none */
	__u32 table6;
	__u8 action;
	__u8 source;	/* 1: the source is looked up, 0: the destination */
	__u8 ranges[2]; /* of each of `ports`; 0: any port, or none */
	__u8 counter;	/* its slot */
	__u8 link;	/* 1: asked of packets that belong to the link, too */
	__u16 protocol; /* or TL_ANY_PROTOCOL */
	struct {
		__u16 first, last;
	} ports[2][TL_FILTER_PORTS]; /* destination ports, source ports */
	__u8 name[TL_FILTER_NAME];
};

/* A list: its first filter in the low half, their number above, and TL_LIST_UPPER if one asks for more than
 * addresses. One aligned store changes it. */
enum tl_filter_list {
	TL_LIST_PORTS = 0, /* the list for all packets of ports with filters */
	TL_LIST_UPPER = 1 << 24,
};

struct tl_filter_count {
	__u64 packets;
	__u64 bytes; /* of whole frames */
};

/* `kind` of a SID hook. */
enum tl_sid_hook_kind {
	TL_SID_HOOK_FILTER = 1,	 /* index: a list of filters, for the packet inside */
	TL_SID_HOOK_PCAP = 2,	 /* the slot of a capture */
	TL_SID_HOOK_PROGRAM = 3, /* a place among the programs */
};

/* The hook that packets to a SID meet before its behaviour. */
struct tl_sid_hook {
	__u32 kind;
	__u32 index;
};

/* Key of the prefixes whose destinations NEXT-C-SID changes. */
struct tl_csid_key {
	__u32 len; /* bits */
	__u8 to[16];
};

/* A running capture, written by the process that reads its ring. */
struct tl_capture {
	__u64 until;   /* CLOCK_MONOTONIC, ns: when it ends by itself; 0 = off */
	__u32 snap;    /* bytes of a frame that are kept */
	__u32 ifindex; /* only packets that come in by this device; 0 = any */
	struct {
		__be64 hi, lo;
	} sid;		/* only packets whose outer destination this is; 0 = any */
	__u64 interval; /* ns from one packet to the next at the highest rate; 0 = no limit */
	/* By the XDP program: */
	__u64 due;     /* no packet before this time */
	__u64 number;  /* packets taken */
	__u64 limited; /* packets left out for the rate */
	__u64 lost;    /* records that the ring had no room for */
};

/* Own addresses, as a filter: the bit of each one's hash is set, and perhaps that of others. */
struct tl_local_addrs {
	__u64 bits[TL_LOCAL_BITS / 64];
	__u64 flows; /* besides them, the fields that distinguish flows: enum tl_flows */
};
/* Of each family `fib_multipath_hash_policy`, in 8 bits, and `fib_multipath_hash_fields`, in 16: IPv4 from
 * the lowest bit on, IPv6 24 bits above. */
enum tl_flows {
	TL_FLOWS_FIELDS = 8,  /* bits to the fields */
	TL_FLOWS_FAMILY = 24, /* bits to IPv6 */
};
#define TL_LOCAL_HASH 0x9e3779b1u /* times the address as it lies in memory; its highest bits */

/* In the ring, before the bytes of the frame. */
struct tl_capture_record {
	__u64 time;   /* CLOCK_MONOTONIC, ns */
	__u64 number; /* of the packet; the same coming in and leaving */
	__u32 ifindex;
	__u32 bytes; /* of the frame */
	__u16 kept;  /* of them here */
	__u8 filter; /* counter slot of the filter that dropped or passed it, plus 1; 0: none did */
	__u8 reserved;
	__u16 verdict; /* TL_VERDICTS while it is not known */
	__u8 out;      /* 1: what became of it, with the frame only if it is sent; 0: as it came in */
	__u8 first;    /* of TL_DROP_TENANT: why the kernel would have got it */
};

/*
 * Until when the tables may be used. A running daemon moves `deadline` on, by the program tl_beat; once it
 * has passed, every packet is the kernel's.
 */
struct tl_heartbeat {
	__u64 deadline; /* jiffies; all ones: none */
	__u64 beaten;	/* CLOCK_MONOTONIC in ns: when the daemon last did so; 0: never */
	__u64 limit;	/* ns from `beaten` to `deadline`; 0: none */
};

/* The argument of tl_beat. */
struct tl_beat {
	__u64 ticks; /* jiffies from now to the deadline */
};

/* `map_type` of an instance. */
enum tl_image_map_type {
	TL_IMAGE_ARENA = 1,
	TL_IMAGE_ARRAY = 2,
};

/* The maker of these maps. */
struct tl_instance {
	__u32 version;	/* TL_INTF_VERSION */
	__u32 map_type; /* enum tl_image_map_type */
	__u64 image_bytes;
	__u64 netns; /* cookie of the network namespace: unlike its inode never given to another */
	__u32 tables;
	__u32 image_version; /* TL_INTF_IMAGE */
	__u64 hash_key;	     /* of the flow hash: random, kept as long as the maps */
	__u64 frags;	     /* 1: the program takes frames of several buffers */
};

_Static_assert((int)TL_VERDICTS <= (int)TL_COUNTERS, "verdicts fit a counter slot");
_Static_assert(sizeof(struct tl_action) == 8, "one store");
_Static_assert(sizeof(struct tl_adjacency) == 128, "two cache lines, L2 header in the first");
_Static_assert(sizeof(struct tl_dt46) == sizeof(struct tl_adjacency), "one map holds both");
_Static_assert(sizeof(struct tl_rule) == 48, "no padding");
_Static_assert(sizeof(struct tl_port) == 24, "port");
_Static_assert(sizeof(struct tl_filter) == 112, "fourteen words");
_Static_assert(sizeof(struct tl_tagged) == 8, "no padding in a hash key");

#endif
