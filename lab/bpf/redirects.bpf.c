/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Counts frames that an XDP program redirected and that no driver took, in one network namespace. Drivers
 * count them as something else or not at all: a veth as a drop of its RX ring.
 */
#include "kernel.h"
#include "intf.h"
#include <bpf/bpf_tracing.h>

struct ns_common {
	__u32 inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

struct bpf_prog;

/* The inode of the namespace; user space sets it before the load. */
const volatile __u32 namespace SEC(".rodata.namespace") = 0;
struct lab_redirects redirects SEC(".bss.redirects");

/* Once for a frame that the kernel does not redirect. Its device is down or not there, or the frame exceeds
 * the device's MTU. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(refused, const struct net_device *from)
{
	if (from->nd_net.net->ns.inum == namespace)
		__sync_fetch_and_add(&redirects.refused, 1);
	return 0;
}

/* Once for up to 16 frames that are handed to the driver of `to`. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(handed, const struct net_device *from, const struct net_device *to, int sent, int dropped)
{
	if (dropped > 0 && from->nd_net.net->ns.inum == namespace)
		__sync_fetch_and_add(&redirects.dropped, dropped);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
