/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Equal-cost paths: one flow, one bucket of its group.
 */
#ifndef TRIELINE_GROUP_BPF_H
#define TRIELINE_GROUP_BPF_H

#include "xdp/lookup.bpf.h"

/* struct tl_instance's, known when the program is loaded: a number in its instructions. */
const volatile __u64 tl_hash_key SEC(".rodata.flow") = 0;

TL_INLINE __u64 tl_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

/* Fields that distinguish flows; the lower bits as in `fib_multipath_hash_fields`, the inner packet's six
 * above. */
enum tl_flow_field {
	TL_FLOW_SOURCE = 1,
	TL_FLOW_DESTINATION = 2,
	TL_FLOW_PROTOCOL = 4,
	TL_FLOW_LABEL = 8,
	TL_FLOW_SOURCE_PORT = 16,
	TL_FLOW_DESTINATION_PORT = 32,
	TL_FLOW_OUTER = 63,
	TL_FLOW_INNER = 6, /* bits to those of the inner packet */
	TL_FLOW_L4 = TL_FLOW_OUTER & ~TL_FLOW_LABEL,
};

/* `fib_multipath_hash_policy` */
enum tl_flow_policy { TL_FLOW_L3_POLICY, TL_FLOW_L4_POLICY, TL_FLOW_INNER_POLICY, TL_FLOW_FIELDS_POLICY };

/* A header's keys. IPv4 addresses are in the low half. */
struct tl_keys {
	struct in6_addr source, destination;
	__u32 label;
	__u16 ports[2];
	__u8 protocol;
	__u8 six;
	__u8 carries; /* another packet begins at `next` */
	__u32 next;
};

/* Of two flows that are each other's way back, the hash is the same, as Linux's (__flow_hash_consistentify).
 */
TL_INLINE __u64 tl_hash_keys(const struct tl_keys *keys, __u32 fields)
{
	struct in6_addr source = {}, destination = {}, swap;
	__u64 sport = 0, dport = 0, port;
	__u64 hash = tl_hash_key;

	if (fields & TL_FLOW_SOURCE)
		source = keys->source;
	if (fields & TL_FLOW_DESTINATION)
		destination = keys->destination;
	if (source.hi > destination.hi || (source.hi == destination.hi && source.lo > destination.lo)) {
		swap = source;
		source = destination;
		destination = swap;
	}
	if (fields & TL_FLOW_SOURCE_PORT)
		sport = keys->ports[0];
	if (fields & TL_FLOW_DESTINATION_PORT)
		dport = keys->ports[1];
	if (sport > dport) {
		port = sport;
		sport = dport;
		dport = port;
	}
	if (fields & TL_FLOW_LABEL)
		hash ^= keys->label;
	if (fields & TL_FLOW_PROTOCOL)
		hash ^= (__u64)keys->protocol << 32;
	if (keys->six) {
		hash = tl_mix(hash, source.hi);
		hash = tl_mix(hash, destination.hi);
	}
	hash = tl_mix(hash, source.lo);
	hash = tl_mix(hash, destination.lo);
	return tl_mix(tl_mix(hash, sport << 16 | dport), tl_hash_key);
}

/* Address, label and next header of the packet at `at`; where what it carries begins, 0 if it has no header.
 */
TL_INLINE __u32 tl_read_keys(struct xdp_md *ctx, __u32 at, struct tl_keys *keys)
{
	struct ipv6hdr ip6;
	struct iphdr ip;

	if (bpf_xdp_load_bytes(ctx, at, &ip, sizeof(ip)))
		return 0;
	if (ip.version_ihl >> 4 == 4 && (ip.version_ihl & 15) >= 5) {
		keys->source.hi = keys->destination.hi = 0;
		keys->source.lo = ip.saddr;
		keys->destination.lo = ip.daddr;
		keys->label = 0;
		keys->protocol = ip.protocol;
		keys->six = 0;
		/* With bit 31: a fragment. */
		return (at + (ip.version_ihl & 15) * 4) | (ip.frag_off & TL_BE16(0x3fff) ? 1u << 31 : 0);
	}
	if (ip.version_ihl >> 4 != 6 || bpf_xdp_load_bytes(ctx, at, &ip6, sizeof(ip6)))
		return 0;
	keys->source = ip6.saddr;
	keys->destination = ip6.daddr;
	keys->label = ip6.flow & TL_BE32(0xfffff);
	keys->protocol = ip6.nexthdr;
	keys->six = 1;
	return at + sizeof(ip6);
}

/* Reads the keys of the packet at `keys->next`, as Linux's flow dissector does. */
TL_INLINE void tl_dissect(struct xdp_md *ctx, struct tl_keys *keys)
{
	__u32 at, i;
	__u8 head[4];

	keys->carries = 0;
	at = tl_read_keys(ctx, keys->next, keys);
	if (!at)
		return;
	keys->ports[0] = keys->ports[1] = 0;
	for (i = 0; keys->six && i < 4; i++) {
		if (keys->protocol != IPPROTO_HOPOPTS && keys->protocol != IPPROTO_ROUTING &&
		    keys->protocol != IPPROTO_DSTOPTS && keys->protocol != IPPROTO_FRAGMENT)
			break;
		if (bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
			return;
		if (keys->protocol == IPPROTO_FRAGMENT)
			at |= 1u << 31;
		else
			at += (head[1] + 1) * 8;
		keys->protocol = head[0];
		if (at >> 31)
			break;
	}
	if (at >> 31)
		return;
	keys->next = at;
	switch (keys->protocol) {
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		keys->carries = 1;
		break;
	case IPPROTO_GRE:
		if (bpf_xdp_load_bytes(ctx, at, head, sizeof(head)) || head[0] & 0x40 || head[1] & 7)
			break;
		keys->next += 4 * (1 + (head[0] >> 7) + (head[0] >> 5 & 1) + (head[0] >> 4 & 1));
		keys->carries = (head[2] == 0x08 && head[3] == 0) || (head[2] == 0x86 && head[3] == 0xdd);
		break;
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_DCCP:
	case IPPROTO_ESP:
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
		bpf_xdp_load_bytes(ctx, at, keys->ports, sizeof(keys->ports));
	}
}

/* Addresses alone, with IPv6 flow label and next header. Of an ICMP error those of the packet that it quotes,
 * so that it goes the way of that flow (ip_multipath_l3_keys, ip6_multipath_l3_keys). */
TL_INLINE void tl_keys_l3(struct xdp_md *ctx, struct tl_keys *keys)
{
	__u32 at = tl_read_keys(ctx, keys->next, keys), error;
	__u8 type;

	if (!at || keys->protocol != (keys->six ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return;
	if (at >> 31) {
		/* A first fragment has the ICMP header. */
		__be16 fragment;

		if (bpf_xdp_load_bytes(ctx, keys->next + 6, &fragment, sizeof(fragment)) ||
		    fragment & TL_BE16(0x1fff))
			return;
		at &= ~(1u << 31);
	}
	if (bpf_xdp_load_bytes(ctx, at, &type, sizeof(type)))
		return;
	/* Unreachable, source quench, redirect, time exceeded, parameter problem; of IPv6 the first four. */
	error = keys->six ? type >= 1 && type <= 4 : type < 13 && 0x1838 >> type & 1;
	if (error)
		tl_read_keys(ctx, at + 8, keys);
}

#define TL_FLOW_HEADERS 6

/*
 * A hash of the flow of the packet at `offset`, by what Linux tells flows apart by. `policy` and `fields`
 * are as in its sysctls fib_multipath_hash_policy and fib_multipath_hash_fields.
 *
 * A secret key keeps outsiders from choosing flows that all go one way, and makes two nodes one after another
 * choose apart. The kernel's own has another: the same flows may go other ways there.
 */
__attribute__((noinline)) __u32 tl_flow_hash(struct xdp_md *ctx, __u32 offset, __u32 policy, __u32 fields)
{
	struct tl_keys keys = {.next = offset & 0xfff};
	__u64 hash;
	__u32 i;

	switch (policy) {
	case TL_FLOW_L4_POLICY:
		tl_dissect(ctx, &keys);
		return tl_hash_keys(&keys, TL_FLOW_L4);
	case TL_FLOW_INNER_POLICY:
	case TL_FLOW_FIELDS_POLICY:
		tl_dissect(ctx, &keys);
		hash = fields & TL_FLOW_OUTER ? tl_hash_keys(&keys, fields & TL_FLOW_OUTER) : 0;
		if (policy == TL_FLOW_FIELDS_POLICY && !(keys.carries && fields >> TL_FLOW_INNER))
			return hash;
		for (i = 0; i < TL_FLOW_HEADERS && keys.carries; i++)
			tl_dissect(ctx, &keys);
		if (policy == TL_FLOW_FIELDS_POLICY)
			return tl_mix(hash, tl_hash_keys(&keys, fields >> TL_FLOW_INNER));
		return tl_hash_keys(&keys, TL_FLOW_SOURCE | TL_FLOW_DESTINATION |
					       (keys.six ? TL_FLOW_LABEL | TL_FLOW_PROTOCOL : 0));
	default:
		tl_keys_l3(ctx, &keys);
		return tl_hash_keys(&keys, TL_FLOW_SOURCE | TL_FLOW_DESTINATION |
					       (keys.six ? TL_FLOW_LABEL | TL_FLOW_PROTOCOL : 0));
	}
}

/*
 * The same of most packets, by plain loads: each helper and each function call costs a packet some
 * nanoseconds. 0 where tl_flow_hash() has to read on. An ICMP error quotes another flow; options, fragments
 * and other protocols than TCP and UDP may have their ports elsewhere, or none.
 */
TL_INLINE __u32 tl_plain_flow_hash(const void *l3, const void *end, __u32 policy)
{
	__u32 fields = policy == TL_FLOW_L4_POLICY ? TL_FLOW_L4 : TL_FLOW_SOURCE | TL_FLOW_DESTINATION;
	const struct ipv6hdr *ip6 = l3;
	const struct iphdr *ip = l3;
	struct tl_keys keys = {};
	const __be16 *ports;

	if (policy > TL_FLOW_L4_POLICY || (const void *)(ip + 1) > end)
		return 0;
	if (ip->version_ihl == 0x45) {
		keys.source.lo = ip->saddr;
		keys.destination.lo = ip->daddr;
		keys.protocol = ip->protocol;
		ports = (const void *)(ip + 1);
		if (keys.protocol == IPPROTO_ICMP || ip->frag_off & TL_BE16(0x3fff))
			return 0;
	} else {
		if (ip->version_ihl >> 4 != 6 || (const void *)(ip6 + 1) > end)
			return 0;
		keys.source = ip6->saddr;
		keys.destination = ip6->daddr;
		keys.label = ip6->flow & TL_BE32(0xfffff);
		keys.protocol = ip6->nexthdr;
		keys.six = 1;
		ports = (const void *)(ip6 + 1);
		if (keys.protocol == IPPROTO_ICMPV6)
			return 0;
		if (policy == TL_FLOW_L3_POLICY)
			fields |= TL_FLOW_LABEL | TL_FLOW_PROTOCOL;
	}
	if (policy == TL_FLOW_L4_POLICY) {
		if ((keys.protocol != IPPROTO_TCP && keys.protocol != IPPROTO_UDP) ||
		    (const void *)(ports + 2) > end)
			return 0;
		keys.ports[0] = ports[0];
		keys.ports[1] = ports[1];
	}
	return tl_hash_keys(&keys, fields);
}

/* The action that a group's flow takes. */
__attribute__((noinline)) __u64 tl_bucket(struct xdp_md *ctx, __u32 offset, __u64 word)
{
	__u32 index = tl_action_index(word);
	struct tl_group *group = bpf_map_lookup_elem(&groups, &index);
	volatile __u64 *words = (volatile void *)group;
	__u32 zero = 0;
	struct tl_local_addrs *own = bpf_map_lookup_elem(&local_addrs, &zero);
	__u8 *version = (void *)(long)ctx->data + (offset & 0xfff);
	__u32 hash;
	__u64 flows;

	if (!group || !own || (void *)(version + 1) > (void *)(long)ctx->data_end)
		return TL_ACTION_NONE;
	flows = *(volatile __u64 *)&own->flows;
	if (*version >> 4 == 6)
		flows >>= TL_FLOWS_FAMILY;
	hash = tl_plain_flow_hash(version, (void *)(long)ctx->data_end, flows & 0xff);
	if (TL_UNLIKELY(!hash))
		hash = tl_flow_hash(ctx, offset, flows & 0xff, flows >> TL_FLOWS_FIELDS & 0xffff);
	if (TL_UNLIKELY(word & TL_SENT_ON))
		return tl_sent_on(words[hash & (TL_BUCKETS - 1)]);
	return words[hash & (TL_BUCKETS - 1)];
}

/* Returns a word of another kind as it is; of a group, the flow's bucket. */
TL_INLINE __u64 tl_ecmp_select(struct xdp_md *ctx, __u32 offset, __u64 word)
{
	if (TL_UNLIKELY(tl_action_kind(word) == TL_ACTION_GROUP))
		return tl_bucket(ctx, offset, word);
	return word;
}

#endif
