/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Second step: the longest match of the destination decides. Its value is the number of an action, one 64-bit
 * word.
 */
#ifndef TRIELINE_LOOKUP_BPF_H
#define TRIELINE_LOOKUP_BPF_H

#include "xdp/parse.bpf.h"

/* Whether an address, in host byte order and IPv4 in its first 32 bits, is within a prefix. */
TL_INLINE int tl_within(__u64 hi, __u64 lo, const __u64 *prefix, __u8 len)
{
	if (len == 0)
		return 1;
	if (len <= 64)
		return (hi ^ prefix[0]) >> ((64 - len) & 63) == 0;
	return hi == prefix[0] && (lo ^ prefix[1]) >> ((128 - len) & 63) == 0;
}

/* A lookup verified apart, so that the rules below do not multiply it. */
__attribute__((noinline)) __u32 tl_table4(__u32 table, __u32 destination)
{
	return tl_lookup4(TL_IMAGE, table, destination);
}

__attribute__((noinline)) __u32 tl_table6(__u32 table, __u64 hi, __u64 lo)
{
	return tl_lookup6(TL_IMAGE, table, hi, lo);
}

/*
 * The value by `ip rule`: rule by rule, the first table that has a route for the destination. A function of
 * its own: packets whose lookup id is a plain table do not pay for it.
 */
__attribute__((noinline)) __u32 tl_rules4(__u32 lookup, __u32 source, __u32 destination)
{
	__u32 at = lookup & ~TL_LOOKUP_POLICY, value, i;
	__u64 from = (__u64)source << 32, to = (__u64)destination << 32;
	struct tl_rule *rule;
	int selected;

	for (i = 0; i < TL_RULES_MAX; i++) {
		rule = bpf_map_lookup_elem(&rules, &at);
		if (!rule)
			return 0;
		selected = tl_within(from, 0, rule->from, rule->from_len) &&
			   tl_within(to, 0, rule->to, rule->to_len);
		at = rule->next;
		if (selected == !(rule->flags & TL_RULE_NOT)) {
			if (rule->flags & TL_RULE_GOTO) {
				at = rule->table;
			} else if (rule->table & TL_LOOKUP_POLICY) {
				return rule->table & ~TL_LOOKUP_POLICY;
			} else {
				value = tl_table4(rule->table, destination);
				if (value && value != TL_VALUE_THROW && value != rule->except)
					return value;
			}
		}
		if (!at)
			return 0;
	}
	return 0;
}

__attribute__((noinline)) __u32 tl_rules6(__u32 lookup, __u64 from_hi, __u64 from_lo, __u64 to_hi,
					  __u64 to_lo)
{
	__u32 at = lookup & ~TL_LOOKUP_POLICY, value, i;
	struct tl_rule *rule;
	int selected;

	for (i = 0; i < TL_RULES_MAX; i++) {
		rule = bpf_map_lookup_elem(&rules, &at);
		if (!rule)
			return 0;
		selected = tl_within(from_hi, from_lo, rule->from, rule->from_len) &&
			   tl_within(to_hi, to_lo, rule->to, rule->to_len);
		at = rule->next;
		if (selected == !(rule->flags & TL_RULE_NOT)) {
			if (rule->flags & TL_RULE_GOTO) {
				at = rule->table;
			} else if (rule->table & TL_LOOKUP_POLICY) {
				return rule->table & ~TL_LOOKUP_POLICY;
			} else {
				value = tl_table6(rule->table, to_hi, to_lo);
				if (value && value != TL_VALUE_THROW && value != rule->except)
					return value;
			}
		}
		if (!at)
			return 0;
	}
	return 0;
}

/*
 * The value that decides for a packet from `source` to `destination`, 0 where nothing does. `lookup` is what
 * a port or an action names.
 */
TL_INLINE __u32 tl_route4(__u32 lookup, __be32 source, __be32 destination)
{
	if (TL_UNLIKELY(lookup & TL_LOOKUP_POLICY))
		return tl_rules4(lookup, TL_BE32(source), TL_BE32(destination));
	return tl_lookup4(TL_IMAGE, lookup, TL_BE32(destination));
}

TL_INLINE __u32 tl_route6(__u32 lookup, const struct in6_addr *source, const struct in6_addr *destination)
{
	if (TL_UNLIKELY(lookup & TL_LOOKUP_POLICY))
		return tl_rules6(lookup, TL_BE64(source->hi), TL_BE64(source->lo), TL_BE64(destination->hi),
				 TL_BE64(destination->lo));
	return tl_lookup6(TL_IMAGE, lookup, TL_BE64(destination->hi), TL_BE64(destination->lo));
}

/* The value of a destination by a lookup id, found apart. */
TL_INLINE __u32 tl_lookup_value4(__u32 lookup, __be32 source, __be32 destination)
{
	return TL_UNLIKELY(lookup & TL_LOOKUP_POLICY)
		   ? tl_rules4(lookup, TL_BE32(source), TL_BE32(destination))
		   : tl_table4(lookup, TL_BE32(destination));
}

TL_INLINE __u32 tl_lookup_value6(__u32 lookup, __u64 from_hi, __u64 from_lo, __u64 to_hi, __u64 to_lo)
{
	return TL_UNLIKELY(lookup & TL_LOOKUP_POLICY) ? tl_rules6(lookup, from_hi, from_lo, to_hi, to_lo)
						      : tl_table6(lookup, to_hi, to_lo);
}

/* An action, read by one load, so that kind and adjacency belong together. */
TL_INLINE __u64 tl_action_word(__u32 value)
{
	volatile __u64 *word = bpf_map_lookup_elem(&actions, &value);

	return word ? *word : TL_ACTION_NONE;
}

/* The fields of struct tl_action in its word. */
TL_INLINE __u32 tl_action_kind(__u64 word) { return word & 0xff; }

/* `verdict`, `flavours` or `on_link`. */
TL_INLINE __u32 tl_action_detail(__u64 word) { return word >> 8 & 0xff; }

TL_INLINE __u32 tl_action_counter(__u64 word) { return word >> 16 & 0xffff; }

/* `adjacency`, `lookup`, `group` or `csid`. */
TL_INLINE __u32 tl_action_index(__u64 word) { return word >> 32; }

/* The verdict of a TL_ACTION_VERDICT; a damaged one may not forward. */
TL_INLINE __u32 tl_action_verdict(__u64 word)
{
	__u32 verdict = tl_action_detail(word);

	return verdict >= TL_PASS_FIRST && verdict < TL_VERDICTS ? verdict : TL_PASS_NO_ACTION;
}

TL_INLINE struct tl_adjacency *tl_action_adjacency(__u64 word)
{
	__u32 index = tl_action_index(word);

	return bpf_map_lookup_elem(&adjacencies, &index);
}

/* The word of a verdict. */
#define TL_VERDICT_WORD(verdict) ((__u64)TL_ACTION_VERDICT | (__u64)(verdict) << 8)

/* In a word, where no flavours are: a VRF device sent the packet on. */
#define TL_SENT_ON (1u << 15)

/* The action of a packet that a VRF device sends on. The kernel takes it for one of its own by then. So it
 * meets no endpoint behaviour, and a headend gets it a hop older. No further lookup id is followed. */
TL_INLINE __u64 tl_sent_on(__u64 word)
{
	switch (tl_action_kind(word)) {
	case TL_ACTION_NONE:
	case TL_ACTION_VERDICT:
	case TL_ACTION_FORWARD:
	case TL_ACTION_INSERT:
		return word;
	case TL_ACTION_ENCAPS:
	case TL_ACTION_GROUP:
		return word | TL_SENT_ON;
	}
	return TL_VERDICT_WORD(TL_PASS_UNSUPPORTED);
}

/* The action of a value found by another lookup id than the port's. */
TL_INLINE __u64 tl_vrf_action(__u32 value)
{
	return tl_sent_on(value ? tl_action_word(value) : TL_VERDICT_WORD(TL_PASS_NO_ROUTE));
}

/*
 * The word by the lookup id that an action names, as a route into a VRF does. Functions of their own: only
 * packets that meet such a route pay.
 */
__attribute__((noinline)) __u64 tl_vrf_lookup4(__u32 lookup, __be32 source, __be32 destination)
{
	return tl_vrf_action(tl_lookup_value4(lookup, source, destination));
}

__attribute__((noinline)) __u64 tl_vrf_lookup6(__u32 lookup, __u64 from_hi, __u64 from_lo, __u64 to_hi,
					       __u64 to_lo)
{
	return tl_vrf_action(tl_lookup_value6(lookup, from_hi, from_lo, to_hi, to_lo));
}

/* The action of a value, or of the one that it leads to by another lookup id. */
TL_INLINE __u64 tl_action4(__u32 value, __be32 source, __be32 destination)
{
	__u64 word = tl_action_word(value);

	if (TL_UNLIKELY(tl_action_kind(word) == TL_ACTION_TABLE))
		return tl_vrf_lookup4(tl_action_index(word), source, destination);
	return word;
}

TL_INLINE __u64 tl_action6(__u32 value, const struct in6_addr *source, const struct in6_addr *destination)
{
	__u64 word = tl_action_word(value);

	if (TL_UNLIKELY(tl_action_kind(word) == TL_ACTION_TABLE))
		return tl_vrf_lookup6(tl_action_index(word), TL_BE64(source->hi), TL_BE64(source->lo),
				      TL_BE64(destination->hi), TL_BE64(destination->lo));
	return word;
}

#define TL_EGRESS_KEY(ifindex, tag) ((__u64)(ifindex) << 32 | (tag))

/* Whether an action sends by a device and tag. */
TL_INLINE int tl_leaves_by(__u64 word, __u64 way)
{
	struct tl_adjacency *adj = tl_action_kind(word) == TL_ACTION_FORWARD ? tl_action_adjacency(word) : 0;

	return adj && TL_EGRESS_KEY(adj->ifindex, adj->tag) == way;
}

/* Whether a route rejects what is sent by it. */
TL_INLINE int tl_rejects(__u64 word)
{
	return word == TL_VERDICT_WORD(TL_DROP_BLACKHOLE) || word == TL_VERDICT_WORD(TL_PASS_UNREACHABLE) ||
	       word == TL_VERDICT_WORD(TL_PASS_PROHIBIT);
}

/*
 * Reverse path of IPv4 (RFC 3704; Linux has no such setting for IPv6). With a `way`, a port's device and tag:
 * whether packets to the source would leave by it (strict: by a next hop, as __fib_validate_source
 * asks). With 0: whether they would leave by any (loose). The answer is TL_GO_ON or a verdict. A function of
 * its own, verified and called apart: only ports that ask for it pay.
 */
__attribute__((noinline)) __u32 tl_reverse_path4(__u32 lookup, __be32 source, __be32 destination, __u64 way)
{
	__u32 value, index, i;
	struct tl_group *group;
	__u64 word;

	value = tl_route4(lookup, destination, source);
	word = value ? tl_action4(value, destination, source) : TL_ACTION_NONE;
	index = tl_action_index(word);
	switch (tl_action_kind(word)) {
	case TL_ACTION_FORWARD:
		return !way || tl_leaves_by(word, way) ? TL_GO_ON : TL_PASS_REVERSE_PATH;
	case TL_ACTION_ENCAPS: /* which device its route names is not known here */
		return !way ? TL_GO_ON : TL_PASS_REVERSE_PATH;
	case TL_ACTION_VERDICT:
		if (!way && word == TL_VERDICT_WORD(TL_PASS_UNRESOLVED))
			return TL_GO_ON;
		/* Linux drops it and sends no error. But it takes a connection's packets to an address of its
		 * own without a look at the source. */
		return tl_rejects(word) && tl_action_word(tl_lookup_value4(lookup, source, destination)) !=
					       TL_VERDICT_WORD(TL_PASS_LOCAL)
			   ? TL_DROP_SOURCE_BLACKHOLE
			   : TL_PASS_REVERSE_PATH;
	case TL_ACTION_GROUP:
		group = way ? bpf_map_lookup_elem(&groups, &index) : 0;
		/* Neighbouring buckets are mostly of one next hop. */
		for (i = 0; group && i < TL_BUCKETS; i++)
			if (tl_leaves_by(((volatile __u64 *)group)[i * 37 & (TL_BUCKETS - 1)], way))
				return TL_GO_ON;
		return !way ? TL_GO_ON : TL_PASS_REVERSE_PATH;
	}
	return TL_PASS_REVERSE_PATH;
}

/* The action of a destination that the packet did not come in with: inside, or the next segment. Not a
 * function around the lookup's: each call costs a packet some nanoseconds. */
TL_INLINE __u64 tl_inner_action4(__u32 lookup, __be32 source, __be32 destination)
{
	__u32 value = tl_lookup_value4(lookup, source, destination);

	return value ? tl_action4(value, source, destination) : TL_ACTION_NONE;
}

TL_INLINE __u64 tl_inner_action6(__u32 lookup, const struct in6_addr *source,
				 const struct in6_addr *destination)
{
	__u32 value = tl_lookup_value6(lookup, TL_BE64(source->hi), TL_BE64(source->lo),
				       TL_BE64(destination->hi), TL_BE64(destination->lo));

	return value ? tl_action6(value, source, destination) : TL_ACTION_NONE;
}

/* The action word of a source by a lookup id. Functions of their own: few packets ask. */
__attribute__((noinline)) __u64 tl_source_word4(__u32 lookup, __be32 source, __be32 destination)
{
	__u32 value = tl_lookup_value4(lookup, destination, source);

	return value ? tl_action_word(value) : TL_ACTION_NONE;
}

__attribute__((noinline)) __u64 tl_source_word6(__u32 lookup, __u64 hi, __u64 lo)
{
	__u32 value = tl_lookup_value6(lookup, 0, 0, hi, lo);

	return value ? tl_action_word(value) : TL_ACTION_NONE;
}

/* The bit of an IPv4 address in `struct tl_local_addrs`. */
#define TL_LOCAL_BIT(address) ((address) * TL_LOCAL_HASH / (0x80000000u / (TL_LOCAL_BITS / 2)))

/* Whether a source is this node's, or a broadcast address, by a bit that few others have. Linux drops such a
 * packet from outside, unless accept_local is set, with or without a reverse path filter. A rule, or a table
 * where routes of table local and of main overlap, may leave the source's prefix to the kernel and so hide
 * what it is: then it may be this node's. */
TL_INLINE int tl_local_source(__u32 lookup, __be32 source, __be32 destination)
{
	__u32 zero = 0, bit = TL_LOCAL_BIT(source);
	struct tl_local_addrs *own = bpf_map_lookup_elem(&local_addrs, &zero);
	__u64 word;

	if (TL_LIKELY(!own || !(own->bits[bit / 64] >> bit % 64 & 1)))
		return 0;
	word = tl_source_word4(lookup, source, destination);
	return word == TL_VERDICT_WORD(TL_PASS_LOCAL) || word == TL_VERDICT_WORD(TL_PASS_RULE) ||
	       word == TL_VERDICT_WORD(TL_PASS_UNSUPPORTED);
}

/* The verdict by the source and the port's reverse path filter, if it has one, or TL_GO_ON. */
TL_INLINE __u32 tl_reverse_path(const struct tl_frame *f, __be32 source, __be32 destination)
{
	__u32 flags = f->port->flags;

	if (tl_local_source(f->port->table4, source, destination))
		return TL_PASS_REVERSE_PATH;
	if (TL_LIKELY(!(flags & (TL_PORT_RPF_LOOSE | TL_PORT_RPF_STRICT))))
		return TL_GO_ON;
	return tl_reverse_path4(f->port->table4, source, destination,
				flags & TL_PORT_RPF_STRICT ? TL_EGRESS_KEY(f->ifindex, f->tag) : 0);
}

#endif
