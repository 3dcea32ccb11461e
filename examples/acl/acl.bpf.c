// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Drops packets whose source is in a list, which user space replaces at will. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <trieline/bpf.h>

enum { IPV4, IPV6 }; /* tables */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* one a table */
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

static int verdict(__u32 table, __u32 listed)
{
	__u64 *count;

	if (!listed)
		return XDP_PASS;
	count = bpf_map_lookup_elem(&drops, &table);
	if (count)
		++*count;
	return XDP_DROP;
}

SEC("xdp")
int acl(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	__be64 source[2];

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP) && (void *)(ip + 1) <= end)
		return verdict(IPV4, tl_lookup4(TL_IMAGE, IPV4, bpf_ntohl(ip->saddr)));
	if (eth->h_proto == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end) {
		__builtin_memcpy(source, &ip6->saddr, sizeof(source));
		return verdict(
		    IPV6, tl_lookup6(TL_IMAGE, IPV6, bpf_be64_to_cpu(source[0]), bpf_be64_to_cpu(source[1])));
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
