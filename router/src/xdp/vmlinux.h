/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The few kernel and wire types our BPF programs need, so that no kernel headers are needed to build them.
 *
 * Numbers and names are the kernel's user API; wire structs follow RFC 791, 8200, 8754 and IEEE 802.1Q.
 */
#ifndef TRIELINE_VMLINUX_H
#define TRIELINE_VMLINUX_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;

enum bpf_map_type {
	BPF_MAP_TYPE_UNSPEC = 0,
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_ARENA = 33,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_RDONLY_PROG = 128,
	BPF_F_MMAPABLE = 1024,
};

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
	XDP_REDIRECT = 4,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

#define ETH_HLEN 14
#define VLAN_HLEN 4
#define ETH_ZLEN 60
#define ETH_P_802_3_MIN 0x0600
#define ETH_P_IP 0x0800
#define ETH_P_TEB 0x6558 /* a frame in GRE */
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86dd
#define ETH_P_ARP 0x0806
#define ETH_P_SLOW 0x8809
#define ETH_P_PAE 0x888e
#define ETH_P_8021AD 0x88a8
#define ETH_P_LLDP 0x88cc
#define ETH_P_MVRP 0x88f5
#define ETH_P_MMRP 0x88f6
#define ETH_P_1588 0x88f7
#define ETH_P_CFM 0x8902

struct ethhdr {
	__u8 h_dest[6];
	__u8 h_source[6];
	__be16 h_proto;
};

struct vlan_hdr {
	__be16 h_vlan_TCI;
	__be16 h_vlan_encapsulated_proto;
};

#define IPPROTO_HOPOPTS 0
#define IPPROTO_ICMP 1
#define IPPROTO_IGMP 2
#define IPPROTO_IPIP 4
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_DCCP 33
#define IPPROTO_IPV6 41
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_GRE 47
#define IPPROTO_ESP 50
#define IPPROTO_AH 51
#define IPPROTO_ICMPV6 58
#define IPPROTO_NONE 59
#define IPPROTO_DSTOPTS 60
#define IPPROTO_OSPF 89
#define IPPROTO_PIM 103
#define IPPROTO_COMP 108
#define IPPROTO_L2TP 115
#define IPPROTO_SCTP 132
#define IPPROTO_UDPLITE 136
#define IPPROTO_MPLS 137
#define IPPROTO_ETHERNET 143

struct iphdr {
	__u8 version_ihl;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__sum16 check;
	__be32 saddr;
	__be32 daddr;
};

/* In a frame hardly ever at a multiple of 8: the machines that BPF is compiled for here load it all the same.
 */
struct in6_addr {
	__be64 hi;
	__be64 lo;
};

struct ipv6hdr {
	__be32 flow; /* version, traffic class, flow label */
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	struct in6_addr saddr;
	struct in6_addr daddr;
};

#define IPV6_SRCRT_TYPE_3 3
#define IPV6_SRCRT_TYPE_4 4
#define SR6_FLAG1_HMAC 8

struct ipv6_sr_hdr {
	__u8 nexthdr;
	__u8 hdrlen;
	__u8 type;
	__u8 segments_left;
	__u8 first_segment; /* "last entry" in RFC 8754 */
	__u8 flags;
	__be16 tag;
};

_Static_assert(sizeof(struct iphdr) == 20, "RFC 791");
_Static_assert(sizeof(struct ipv6hdr) == 40, "RFC 8200");
_Static_assert(sizeof(struct ipv6_sr_hdr) == 8, "RFC 8754");

#endif
