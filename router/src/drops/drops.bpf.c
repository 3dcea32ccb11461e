// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Counts what becomes of packets after the XDP program forwarded them: the driver of the output device takes
 * them, or they are lost. The programs stand at the kernel's tracepoints, which see the packets of all
 * network namespaces and of all XDP programs. So each asks first whether a packet is of this instance.
 *
 * xdp_bulk_tx has no program here: it counts packets that leave by XDP_TX, an action that the XDP program
 * never returns.
 */
#include "xdp/vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define RELOCATED __attribute__((preserve_access_index))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The few kernel types; the loader moves every access to where this kernel has the field (CO-RE). */
struct net {
	__u64 net_cookie;
} RELOCATED;

typedef struct {
	struct net *net;
} RELOCATED possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} RELOCATED;

struct bpf_map {
	__u32 id;
} RELOCATED;

struct bpf_prog_aux {
	__u32 used_map_cnt;
	struct bpf_map **used_maps;
} RELOCATED;

struct bpf_prog {
	struct bpf_prog_aux *aux;
} RELOCATED;

struct bpf_dtab_netdev {
	struct net_device *dev;
} RELOCATED;

/* errno, as the kernel and drivers return it. */
enum {
	ENXIO = 6,
	ENOMEM = 12,
	EOVERFLOW = 75,
	EMSGSIZE = 90,
	EOPNOTSUPP = 95,
	ENETDOWN = 100,
};

/*
 * The fates of a forwarded packet. The value is the index of the counter; the name after TL_LOST, in lower
 * case, is the label of the metric and the key in JSON. Pinned maps hold these numbers: add a fate at the
 * end.
 */
enum tl_fate {
	TL_SENT = 0,		 /* the driver took it */
	TL_LOST_RING_FULL = 1,	 /* the driver took fewer packets than it was given */
	TL_LOST_NO_XDP_XMIT = 2, /* the device takes no redirected frames, or none of several buffers */
	TL_LOST_DOWN = 3,	 /* the device is down */
	TL_LOST_TOO_BIG = 4,	 /* longer than the device's MTU */
	TL_LOST_NO_HEADROOM = 5, /* no room in front of the frame for the kernel's record of it */
	TL_LOST_NO_MEMORY = 6,
	TL_LOST_EXCEPTION = 7, /* a driver could not redirect, or, in generic mode, not send */
	TL_LOST_OTHER = 8,     /* another error */
};

enum tl_drops_limits {
	TL_FATES = 16,		/* room for counters */
	TL_DROP_DEVICES = 1024, /* output devices; packets of further ones count as those of no device */
	TL_DROP_SOURCES = 4096, /* devices that the XDP program gets packets from */
	TL_USED_MAPS = 64,	/* the most maps that the kernel lets a program use */
};

struct tl_fates {
	__u64 packets[TL_FATES];
};

/* By the number of the output device. Key 0, made by user space: former devices, and those of other network
 * namespaces. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, TL_DROP_DEVICES);
	__type(key, __u32);
	__type(value, struct tl_fates);
} drops SEC(".maps");

/* Devices of this network namespace that hand their packets to this instance's XDP program. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TL_DROP_SOURCES);
	__type(key, __u32);
	__type(value, __u32);
} drop_sources SEC(".maps");

/* The device whose driver was refused the last packet: it may report that packet a second time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} drop_scratch SEC(".maps");

/* The instance that these programs count for; written before they are loaded. */
struct tl_drops_of {
	__u64 netns;	/* cookie of its network namespace */
	__u32 counters; /* number of the map that its XDP programs count in */
	__u32 reserved;
};
const volatile struct tl_drops_of tl_drops_of SEC(".rodata.drops") = {};

static __always_inline int tl_is_here(const struct net_device *dev)
{
	return dev->nd_net.net->net_cookie == tl_drops_of.netns;
}

/* Whether it is one of this instance's XDP programs: they change with each version, their maps do not. */
static __always_inline int tl_is_ours(const struct bpf_prog *prog)
{
	struct bpf_map **maps = prog->aux->used_maps, *map;
	__u32 count = prog->aux->used_map_cnt, i;

	for (i = 0; i < TL_USED_MAPS && i < count; i++) {
		if (bpf_probe_read_kernel(&map, sizeof(map), maps + i))
			break;
		if (BPF_CORE_READ(map, id) == tl_drops_of.counters)
			return 1;
	}
	return 0;
}

static __always_inline void tl_count(__u32 device, __u32 fate, __u64 packets)
{
	struct tl_fates *fates = bpf_map_lookup_elem(&drops, &device);

	if (UNLIKELY(!fates)) {
		const struct tl_fates none = {};
		__u32 unknown = 0;

		bpf_map_update_elem(&drops, &device, &none, BPF_NOEXIST);
		fates = bpf_map_lookup_elem(&drops, &device);
		if (!fates)
			fates = bpf_map_lookup_elem(&drops, &unknown);
		if (!fates)
			return;
	}
	fates->packets[fate & (TL_FATES - 1)] += packets;
}

static __always_inline __u32 tl_fate_of(int err)
{
	switch (-err) {
	case 0:
		return TL_LOST_RING_FULL;
	case ENXIO:
	case EOPNOTSUPP:
		return TL_LOST_NO_XDP_XMIT;
	case ENETDOWN:
		return TL_LOST_DOWN;
	case EMSGSIZE:
		return TL_LOST_TOO_BIG;
	case EOVERFLOW:
		return TL_LOST_NO_HEADROOM;
	case ENOMEM:
		return TL_LOST_NO_MEMORY;
	default:
		return TL_LOST_OTHER;
	}
}

/* Once for up to 16 packets of native XDP, when they are handed to the driver of `to`. They came in by
 * `from`, whose one XDP program redirected them. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(tl_devmap_xmit, const struct net_device *from, const struct net_device *to, int sent,
	     int dropped, int err)
{
	__u32 source = from->ifindex, device;

	if (!tl_is_here(from) || !bpf_map_lookup_elem(&drop_sources, &source))
		return 0;
	device = to->nd_net.net == from->nd_net.net ? to->ifindex : 0;
	if (sent > 0)
		tl_count(device, TL_SENT, sent);
	if (UNLIKELY(dropped > 0))
		tl_count(device, tl_fate_of(err), dropped);
	return 0;
}

/* Once for a packet that the kernel does not redirect, so that no driver gets it. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(tl_redirect_err, const struct net_device *from, const struct bpf_prog *prog, const void *target,
	     int err, enum bpf_map_type map_type, __u32 map_id, __u32 index)
{
	__u32 zero = 0, device = 0, *refused;
	const struct bpf_dtab_netdev *entry = target;
	const struct net_device *to = 0;

	if (!tl_is_here(from) || !tl_is_ours(prog))
		return 0;
	if (map_type == BPF_MAP_TYPE_UNSPEC)
		device = index; /* bpf_redirect() */
	else if ((map_type == BPF_MAP_TYPE_DEVMAP || map_type == BPF_MAP_TYPE_DEVMAP_HASH) && entry &&
		 bpf_core_field_exists(entry->dev))
		to = BPF_CORE_READ(entry, dev);
	if (to && BPF_CORE_READ(to, nd_net.net) == from->nd_net.net)
		device = BPF_CORE_READ(to, ifindex);
	tl_count(device, err ? tl_fate_of(err) : TL_LOST_OTHER, 1);
	refused = bpf_map_lookup_elem(&drop_scratch, &zero);
	if (refused)
		*refused = from->ifindex;
	return 0;
}

/*
 * Once for a packet that a driver could not redirect, or that generic XDP could not send (then `dev` is the
 * output device). Some drivers come here for each packet that xdp_redirect_err had.
 */
SEC("tp_btf/xdp_exception")
int BPF_PROG(tl_exception, const struct net_device *dev, const struct bpf_prog *prog, __u32 action)
{
	__u32 zero = 0, *refused;

	if (!tl_is_here(dev) || !tl_is_ours(prog))
		return 0;
	refused = bpf_map_lookup_elem(&drop_scratch, &zero);
	if (action == XDP_REDIRECT && refused && *refused == (__u32)dev->ifindex) {
		*refused = 0;
		return 0;
	}
	tl_count(dev->ifindex, TL_LOST_EXCEPTION, 1);
	return 0;
}

/* Never called, so never loaded: keeps the types that user space is generated from in the object's BTF. */
struct tl_drop_types {
	enum tl_fate fate;
	enum tl_drops_limits limits;
};

int tl_drop_types(const struct tl_drop_types *types) { return types->fate; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
