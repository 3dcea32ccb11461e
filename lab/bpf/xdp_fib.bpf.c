/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Plane `fib`: the XDP forwarder that Linux's users have, by the kernel's own routes and neighbours. It does
 * for a packet what xdp-forward of xdp-tools does by default. The lookup obeys policy rules, there are no
 * counters on the way of a forwarded packet, and IPv4 options are not looked at. The kernel gets the rest.
 */
#include "fib.bpf.h"

/* Unicast frames that the kernel got. */
__u64 passed SEC(".bss.passed");

/* Devices that packets may leave by, by index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 protocol;
};

struct ipv4 {
	__u8 version_length;
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__be32 version_class_label;
	__be16 length;
	__u8 protocol;
	__u8 hop_limit;
	__be32 source[4];
	__be32 destination[4];
};

#define IPV4 bpf_htons(0x0800)
#define IPV6 bpf_htons(0x86dd)
#define CLASS_LABEL bpf_htonl(0x0fffffff)

/* One hop less is 0x0100 more in the checksum, with the carry added again (RFC 1141). */
static __always_inline void decrement(struct ipv4 *ip)
{
	__u32 sum = ip->checksum + (__u32)bpf_htons(0x0100);

	ip->checksum = sum + (sum >= 0xffff);
	ip->ttl--;
}

static __always_inline int pass(struct ethernet *eth)
{
	if (!(eth->destination[0] & 1))
		__sync_fetch_and_add(&passed, 1);
	return XDP_PASS;
}

SEC("xdp")
int forward(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct lab_fib_lookup fib = {};
	struct ipv4 *ip = (void *)(eth + 1);
	struct ipv6 *ip6 = (void *)(eth + 1);

	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	if (eth->protocol == IPV4) {
		if ((void *)(ip + 1) > end || ip->ttl <= 1)
			return pass(eth);
		fib.family = AF_INET;
		fib.protocol = ip->protocol;
		fib.length = bpf_ntohs(ip->length);
		fib.class = ip->tos;
		fib.source[0] = ip->source;
		fib.destination[0] = ip->destination;
	} else if (eth->protocol == IPV6) {
		if ((void *)(ip6 + 1) > end || ip6->hop_limit <= 1)
			return pass(eth);
		fib.family = AF_INET6;
		fib.protocol = ip6->protocol;
		fib.length = bpf_ntohs(ip6->length);
		fib.class = ip6->version_class_label & CLASS_LABEL;
		__builtin_memcpy(fib.source, ip6->source, 16);
		__builtin_memcpy(fib.destination, ip6->destination, 16);
	} else {
		return pass(eth);
	}
	fib.ifindex = ctx->ingress_ifindex;
	/* No route, no neighbour, too long, or a device that is not in the map: the kernel's work. */
	if (fib_lookup(ctx, &fib, sizeof(fib), 0) || !bpf_map_lookup_elem(&egress, &fib.ifindex))
		return pass(eth);
	if (eth->protocol == IPV4)
		decrement(ip);
	else
		ip6->hop_limit--;
	__builtin_memcpy(eth->destination, fib.dmac, 6);
	__builtin_memcpy(eth->source, fib.smac, 6);
	return bpf_redirect_map(&egress, fib.ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
