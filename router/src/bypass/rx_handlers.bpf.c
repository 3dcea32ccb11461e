// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Lists the receive handlers of a network namespace's devices. Netlink and sysfs do not tell them. A
 * macvlan that was moved to another namespace leaves no trace there, and takes the packets of its lower
 * device all the same. The program does not stand in a packet's journey: user space runs it
 * (BPF_PROG_TEST_RUN).
 */
#include "xdp/vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define RELOCATED __attribute__((preserve_access_index))

/* The few kernel types; the loader moves every access to where this kernel has the field (CO-RE). */
struct list_head {
	struct list_head *next;
} RELOCATED;

struct net_device {
	int ifindex;
	struct list_head dev_list;
	void *rx_handler;
	void *rx_handler_data;
} RELOCATED;

struct net {
	struct list_head dev_base_head;
} RELOCATED;

struct nsproxy {
	struct net *net_ns;
} RELOCATED;

struct task_struct {
	struct nsproxy *nsproxy;
} RELOCATED;

struct macvlan_port {
	struct net_device *dev;
	struct list_head vlans;
} RELOCATED;

enum macvlan_mode {
	MACVLAN_MODE_PASSTHRU = 8,
	MACVLAN_MODE_SOURCE = 16,
};

struct macvlan_dev {
	struct list_head list;
	enum macvlan_mode mode;
} RELOCATED;

/* Devices of a namespace, and macvlans of a device; with more, `complete` is 0. */
#define TL_DEVICES_MAX (1 << 20)
#define TL_MACVLANS_MAX (1 << 16)
#define TL_HANDLERS (1 << 14)

struct tl_handler {
	__u32 ifindex;
	__u32 takes;   /* 1: frames to the device's own MAC address, too */
	char name[56]; /* the function's */
};

/* In and out. */
struct tl_handlers {
	__u32 found;	/* handlers in the map */
	__u32 complete; /* 1: the list was read to its end */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TL_HANDLERS);
	__type(key, __u32);
	__type(value, struct tl_handler);
} handlers SEC(".maps");

struct walk {
	struct list_head *head;
	struct list_head *at;
	__u32 found;
	__u32 complete;
};

static long next_macvlan(__u32 i, void *context)
{
	struct walk *walk = context;
	struct list_head *at = walk->at;
	struct macvlan_dev *dev;
	int mode;

	if (at == walk->head) {
		walk->complete = 1;
		return 1;
	}
	dev = (void *)at - bpf_core_field_offset(struct macvlan_dev, list);
	mode = BPF_CORE_READ(dev, mode);
	/* Both take frames whatever their destination, by macvlan_handle_frame(). */
	if (mode == MACVLAN_MODE_PASSTHRU || mode == MACVLAN_MODE_SOURCE)
		return 1;
	walk->at = BPF_CORE_READ(at, next);
	return !walk->at;
}

/* Whether all macvlans of a device have MAC addresses of their own, and take only frames to these. */
static int is_by_mac(void *data)
{
	struct macvlan_port *port = data;
	struct walk walk = {};

	if (!bpf_core_type_exists(struct macvlan_port) || !bpf_core_type_exists(struct macvlan_dev))
		return 0;
	walk.head = (void *)port + bpf_core_field_offset(struct macvlan_port, vlans);
	walk.at = BPF_CORE_READ(port, vlans.next);
	if (!walk.at)
		return 0;
	bpf_loop(TL_MACVLANS_MAX, next_macvlan, &walk, 0);
	return walk.complete;
}

static long next_device(__u32 i, void *context)
{
	static const char macvlan[] = "macvlan_handle_frame";
	struct walk *walk = context;
	struct list_head *at = walk->at;
	struct tl_handler *record;
	struct net_device *dev;
	void *handler;

	if (at == walk->head) {
		walk->complete = 1;
		return 1;
	}
	dev = (void *)at - bpf_core_field_offset(struct net_device, dev_list);
	handler = BPF_CORE_READ(dev, rx_handler);
	if (handler) {
		record = bpf_map_lookup_elem(&handlers, &walk->found);
		if (!record)
			return 1;
		walk->found++;
		record->ifindex = BPF_CORE_READ(dev, ifindex);
		BPF_SNPRINTF(record->name, sizeof(record->name), "%ps", handler);
		record->takes = bpf_strncmp(record->name, sizeof(macvlan) - 1, macvlan) ||
				!is_by_mac(BPF_CORE_READ(dev, rx_handler_data));
	}
	walk->at = BPF_CORE_READ(at, next);
	return !walk->at;
}

SEC("syscall")
int list_handlers(struct tl_handlers *reported)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct net *net = BPF_CORE_READ(task, nsproxy, net_ns);
	struct walk walk = {};

	walk.head = (void *)net + bpf_core_field_offset(struct net, dev_base_head);
	walk.at = BPF_CORE_READ(net, dev_base_head.next);
	if (walk.at)
		bpf_loop(TL_DEVICES_MAX, next_device, &walk, 0);
	reported->found = walk.found;
	reported->complete = walk.complete;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
