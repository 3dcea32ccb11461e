/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * First step of a packet's journey: which port it came in by, and whether its headers are what Linux would
 * accept.
 *
 * Every check here has its twin in the kernel (ip_rcv_core, ip6_rcv_core, ip_route_input_slow, ip6_forward).
 * Where the kernel would drop silently or answer, the packet is passed, so that the kernel's own counters and
 * ICMP stay right.
 */
#ifndef TRIELINE_PARSE_BPF_H
#define TRIELINE_PARSE_BPF_H

#include "xdp/maps.bpf.h"

#define TL_INLINE static inline __attribute__((always_inline))
#define TL_GO_ON TL_VERDICTS /* no verdict yet */
#define TL_BE16(x) __builtin_bswap16(x)
#define TL_BE32(x) __builtin_bswap32(x)
#define TL_BE64(x) __builtin_bswap64(x)
#define TL_LIKELY(x) __builtin_expect(!!(x), 1)
#define TL_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Keeps the comparisons before and after it apart: Linux 6.1's verifier learns both bounds of a number only
 * from two of them. */
#define TL_BOUND(x) asm volatile("" : "+r"(x))

/* 0. The verifier takes it for any number, so that ways that differ only in a number are one to it. */
TL_INLINE __u32 tl_zero(__u32 any)
{
	__u32 same = any;

	TL_BOUND(same);
	return any ^ same;
}

struct tl_frame {
	struct tl_port *port;
	void *l3;  /* network header; `l3` and `end` die with any bpf_xdp_adjust_*() */
	void *end; /* of the linear part */
	__u32 l2;  /* bytes before l3: 14, and 4 for each tag */
	__u32 tag; /* as in struct tl_adjacency, priority bits cleared */
	__u32 ifindex;
	__u32 place; /* of its port in the map */
	__u32 oif;   /* the device it leaves by, once that is known */
	__be16 proto;
	__u16 l3_len;  /* of the IP packet, by its own header */
	__u8 frags;    /* the packet goes on in further buffers, which are not seen here */
	__u8 filtered; /* the port's filters have said what they say */
	__u8 called;   /* and what is bound to the destination */
};

/*
 * Whether the tables are too old to be used. The verifier makes jiffies a plain load. A timer that sets a
 * word would save that load, but would be one more thing that has to work if the daemon does not.
 */
TL_INLINE int tl_is_stale(void) { return TL_UNLIKELY(bpf_jiffies64() > tl_heartbeat.deadline); }

/* The place of the untagged port of a device whose number is too high to be one. */
__attribute__((noinline)) __u32 tl_place_of(__u32 ifindex)
{
	struct tl_tagged key = {.ifindex = ifindex};
	__u32 *place = bpf_map_lookup_elem(&tagged, &key);

	return place ? *place : TL_PORT_PLACES;
}

/* Ports whose packets meet filters, SID hooks or a tenant's bounds, whatever becomes of them. */
#define TL_PORT_GUARDED (TL_PORT_TENANT | TL_PORT_FILTER | TL_PORT_SID_HOOK)

#define TL_TAGS_MOST 4

TL_INLINE int tl_is_tag(__be16 proto)
{
	return proto == TL_BE16(ETH_P_8021Q) || proto == TL_BE16(ETH_P_8021AD);
}

/*
 * As Linux reads tags (__netif_receive_skb_core): one with id 0 is taken off, whichever kind it is and
 * however many there are. One with another id leads to its device, which with 802.1Q, and once, may be a port
 * of ours. Behind other tags the packet is looked for, too: rules may hold for it. A function of its own: few
 * frames have such tags.
 *
 * In the answer, from the lowest bits on: a verdict or TL_GO_ON, and the bytes before what the tags lead
 * to (from 8 on). Then the VLAN (16) and the EtherType (32).
 */
__attribute__((noinline)) __u64 tl_read_tags(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 verdict = TL_PASS_NOT_IP, vid = 0, l2 = sizeof(struct ethhdr);
	struct vlan_hdr *vlan = data + sizeof(struct ethhdr);
	__u32 i, id, foreign = 0;
	__be16 proto;

	if ((void *)vlan > end)
		return TL_PASS_NOT_IP | l2 << 8;
	proto = ((struct ethhdr *)data)->h_proto;
#pragma unroll
	for (i = 0; i < TL_TAGS_MOST; i++) {
		if ((void *)(vlan + 1) > end)
			break;
		id = TL_BE16(vlan->h_vlan_TCI) & 0xfff;
		if (id && (vid || proto != TL_BE16(ETH_P_8021Q)))
			foreign = 1;
		else
			vid += id;
		proto = vlan->h_vlan_encapsulated_proto;
		vlan++;
		l2 += sizeof(*vlan);
		if (!tl_is_tag(proto)) {
			verdict = TL_GO_ON;
			break;
		}
	}
	if (foreign)
		verdict = TL_PASS_NO_PORT;
	return verdict | l2 << 8 | vid << 16 | (__u64)proto << 32;
}

/* Whether a frame is sent to this port. Linux forwards only what was sent to this very host (PACKET_HOST). */
TL_INLINE int tl_is_to(const void *frame, const struct tl_port *port)
{
	/* Both have eight bytes; the last two are not the address. */
	return !((*(const __u64 *)frame ^ *(const __u64 *)port->mac) << 16);
}

TL_INLINE __u32 tl_parse_link(struct xdp_md *ctx, struct tl_frame *f)
{
	void *data = (void *)(long)ctx->data;
	struct ethhdr *eth = data;
	__u32 verdict = TL_GO_ON;

	f->end = (void *)(long)ctx->data_end;
	f->port = 0;
	f->l2 = 0;
	f->frags = 0;
	f->filtered = 0;
	f->called = 0;
	f->oif = 0;
	if (data + sizeof(*eth) > f->end)
		return TL_PASS_NOT_IP;
	f->ifindex = ctx->ingress_ifindex;
	f->proto = eth->h_proto;
	f->l3 = data + sizeof(*eth);
	f->l2 = sizeof(*eth);
	f->tag = 0;
	f->place = f->ifindex;
	if (TL_UNLIKELY(f->place >= TL_PORTS))
		f->place = tl_place_of(f->place);
	if (TL_UNLIKELY(tl_is_tag(f->proto))) {
		struct vlan_hdr *vlan = f->l3;
		struct tl_tagged key = {.ifindex = f->ifindex};
		__u32 *found;

		if (f->l3 + sizeof(*vlan) > f->end) {
			verdict = TL_PASS_NOT_IP;
		} else if (TL_UNLIKELY(f->proto != TL_BE16(ETH_P_8021Q) ||
				       tl_is_tag(vlan->h_vlan_encapsulated_proto))) {
			__u64 tags = tl_read_tags(ctx);

			verdict = tags & 0xff;
			f->l2 = tags >> 8 & 31;
			key.vid = tags >> 16 & 0xfff;
			f->proto = tags >> 32;
		} else {
			f->proto = vlan->h_vlan_encapsulated_proto;
			f->l2 = (f->l2 + sizeof(*vlan) + tl_zero(f->proto)) & 31;
			key.vid = TL_BE16(vlan->h_vlan_TCI) & 0xfff;
		}
		f->l3 = data + f->l2;
		if (key.vid) { /* VLAN 0 only carries a priority: the port's own packet */
			f->tag = TL_BE16(ETH_P_8021Q) | (__u32)TL_BE16(key.vid) << 16;
			found = bpf_map_lookup_elem(&tagged, &key);
			f->place = found ? *found : TL_PORT_PLACES;
		}
	}
	if (TL_LIKELY(verdict != TL_PASS_NO_PORT))
		f->port = bpf_map_lookup_elem(&ports, &f->place);
	if (TL_UNLIKELY(!f->port || !(f->port->flags & TL_PORT_USED))) {
		/*
		 * No device of this network namespace takes the frame. But a bridge, a receive handler or a
		 * VLAN device in another namespace may, and the rules of the device hold for it.
		 */
		f->place = f->ifindex;
		if (TL_UNLIKELY(f->place >= TL_PORTS))
			f->place = tl_place_of(f->place);
		f->port = bpf_map_lookup_elem(&ports, &f->place);
		/* The counters of one without rules may be another port's by now. */
		if (f->port && !(f->port->flags & TL_PORT_USED && f->port->flags & TL_PORT_GUARDED))
			f->port = 0;
		return TL_PASS_NO_PORT;
	}
	if (TL_UNLIKELY(verdict != TL_GO_ON))
		return verdict;
	if (!tl_is_to(data, f->port))
		return TL_PASS_MAC_MISMATCH;
	return TL_GO_ON;
}

/* Whether the frame holds fewer than `len` bytes from l3 on. Only a frame of several buffers needs the call.
 */
TL_INLINE int tl_shorter(struct xdp_md *ctx, struct tl_frame *f, __u32 len)
{
	if (TL_LIKELY(f->l3 + len <= f->end))
		return 0;
	f->frags = 1;
	return bpf_xdp_get_buff_len(ctx) < f->l2 + len;
}

/* Whether the frame holds more than `most` bytes from l3 on, the largest packet that a 16-bit length can
 * mean. Then a length of 0 is BIG TCP's. */
TL_INLINE int tl_beyond_length(struct xdp_md *ctx, const struct tl_frame *f, __u32 most)
{
	return bpf_xdp_get_buff_len(ctx) > f->l2 + most;
}

/* 0/8, 127/8, 224/3, as source or destination. */
TL_INLINE int tl_ipv4_special_purpose(const __be32 *addr)
{
	__u8 net = *(const __u8 *)addr;

	return (__u8)(net - 1) >= 223 || net == 127;
}

/* ::/64 (unspecified, loopback, v4-mapped), link-local and multicast. */
TL_INLINE int tl_ipv6_special_purpose(const struct in6_addr *addr)
{
	__u64 hi = TL_BE64(addr->hi);

	if (TL_LIKELY(hi >> 61 == 1)) /* 2000::/3 */
		return 0;
	return hi == 0 || hi >> 54 == 0xfe80 >> 6 || hi >> 56 == 0xff;
}

TL_INLINE __u32 tl_parse_ipv4(struct xdp_md *ctx, struct tl_frame *f)
{
	const struct iphdr *ip = f->l3;
	const __u32 *word = f->l3;
	__u64 sum;

	if (!(f->port->flags & TL_PORT_FORWARD4))
		return TL_PASS_FORWARDING_OFF;
	if (f->l3 + sizeof(*ip) > f->end)
		return TL_PASS_NOT_IP;
	if (TL_UNLIKELY(ip->version_ihl != 0x45))
		return ip->version_ihl >> 4 == 4 && (ip->version_ihl & 15) > 5 ? TL_PASS_IPV4_OPTIONS
									       : TL_DROP_IPV4_HEADER;
	sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff); /* no more than 16 bits */
	if (TL_UNLIKELY(sum != 0xffff))
		return TL_DROP_IPV4_CHECKSUM;
	f->l3_len = TL_BE16(ip->tot_len);
	if (TL_UNLIKELY(f->l3_len < sizeof(*ip)))
		return f->l3_len == 0 && tl_beyond_length(ctx, f, 0xffff) ? TL_PASS_TOO_BIG
									  : TL_DROP_IPV4_LENGTH;
	if (tl_shorter(ctx, f, f->l3_len))
		return TL_DROP_IPV4_LENGTH;
	if (TL_UNLIKELY(tl_ipv4_special_purpose(&ip->saddr) || tl_ipv4_special_purpose(&ip->daddr)))
		return TL_PASS_IPV4_SPECIAL_PURPOSE;
	return TL_GO_ON;
}

TL_INLINE __u32 tl_parse_ipv6(struct xdp_md *ctx, struct tl_frame *f)
{
	const struct ipv6hdr *ip6 = f->l3;
	__u32 len;

	if (!(f->port->flags & TL_PORT_FORWARD6))
		return TL_PASS_FORWARDING_OFF;
	if (f->l3 + sizeof(*ip6) > f->end)
		return TL_PASS_NOT_IP;
	if (TL_UNLIKELY(*(__u8 *)ip6 >> 4 != 6))
		return TL_DROP_IPV6_HEADER;
	if (TL_UNLIKELY(ip6->nexthdr == IPPROTO_HOPOPTS))
		return TL_PASS_IPV6_HOP_BY_HOP;
	len = sizeof(*ip6) + TL_BE16(ip6->payload_len);
	if (TL_UNLIKELY(!ip6->payload_len) && tl_beyond_length(ctx, f, sizeof(*ip6) + 0xffff))
		return TL_PASS_TOO_BIG;
	if (tl_shorter(ctx, f, len))
		return TL_DROP_IPV6_LENGTH;
	if (TL_UNLIKELY(len > 0xffff)) /* larger than any MTU; l3_len has 16 bits */
		return TL_PASS_TOO_BIG;
	f->l3_len = len;
	if (TL_UNLIKELY(tl_ipv6_special_purpose(&ip6->saddr) || tl_ipv6_special_purpose(&ip6->daddr)))
		return TL_PASS_IPV6_SPECIAL_PURPOSE;
	return TL_GO_ON;
}

#endif
