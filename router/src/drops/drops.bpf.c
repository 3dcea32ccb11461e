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
	__u32 id;
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
 * The fates of a forwarded packet. The value is the index of the counter. The name after TL_LOST, in lower
 * case, is the label of the metric and the key in JSON. Pinned maps hold these numbers: add a fate at the
 * end.
 */
enum tl_fate {
	TL_SENT = 0,		 /* the driver took it */
	TL_LOST_RING_FULL = 1,	 /* the driver took fewer packets than it was given */
	TL_LOST_NO_XDP_XMIT = 2, /* the device takes no redirected frames, or none of several buffers */
	TL_LOST_DOWN = 3,	 /* the device is down, or its transmit queues are off */
	TL_LOST_TOO_BIG = 4,	 /* longer than the device's MTU */
	TL_LOST_NO_HEADROOM = 5, /* no room in front of the frame for the kernel's record of it */
	TL_LOST_NO_MEMORY = 6,
	TL_LOST_EXCEPTION = 7, /* a driver could not redirect, or, in generic mode, not send */
	TL_LOST_OTHER = 8,     /* another error */
	TL_LOST_NO_QUEUE = 9,  /* no transmit queue for this CPU; a bond without an active port */
};

enum tl_drops_limits {
	TL_FATES = 16,		 /* room for counters */
	TL_DROP_SLOTS = 1024,	 /* places of counters, one an output device */
	TL_SLOT_FORMER = 0,	 /* the place of devices that are gone: no program counts there */
	TL_SLOT_OTHER = 1,	 /* the place of packets whose output device has none, or is unknown */
	TL_SLOT_FIRST = 2,	 /* of devices */
	TL_DROP_SOURCES = 65536, /* devices that the XDP program gets packets from */
	TL_USED_MAPS = 64,	 /* the most maps that the kernel lets a program use */
	/* Added to a place, it is a key of drop_devices for a device that is gone. */
	TL_DROP_FORMER = 0x80000000u,
};

struct tl_fates {
	__u64 packets[TL_FATES];
};

/* Counters by place. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TL_DROP_SLOTS);
	__type(key, __u32);
	__type(value, struct tl_fates);
} drops SEC(".maps");

/* The place of an output device, as user space gave it. A hash may use an element for another key while a
 * program still reads it, so the value names its device. */
struct tl_place {
	__u32 slot;
	__u32 device;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * TL_DROP_SLOTS);
	__type(key, __u32);
	__type(value, struct tl_place);
} drop_devices SEC(".maps");

/* Devices of this network namespace that hand their packets to this instance's XDP program. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TL_DROP_SOURCES);
	__type(key, __u32);
	__type(value, __u32);
} drop_sources SEC(".maps");

/* The programs that count. One store replaces all of them: the kernel detaches the former ones later. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} drop_generation SEC(".maps");

/* Notes of a CPU from one run for the next. */
struct tl_drop_notes {
	__u32 refused; /* the input device of a packet not redirected: its driver may report it once more */
	__u32 prog;    /* number of an XDP program, */
	__u32 ours;    /* and whether it is of this instance */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_drop_notes);
} drop_notes SEC(".maps");

/* The instance that these programs count for; written before they are loaded. */
struct tl_drops_of {
	__u64 netns;	  /* cookie of its network namespace */
	__u64 generation; /* they count while drop_generation has this number */
	__u32 counters;	  /* number of the map that its XDP programs count in */
	__u32 reserved;
};
const volatile struct tl_drops_of tl_drops_of SEC(".rodata.drops") = {};

/* Whether packets of this device may count. */
static __always_inline int tl_is_here(const struct net_device *dev)
{
	__u64 *generation;
	__u32 zero = 0;

	if (dev->nd_net.net->net_cookie != tl_drops_of.netns)
		return 0;
	generation = bpf_map_lookup_elem(&drop_generation, &zero);
	return generation && *generation == tl_drops_of.generation;
}

/* Whether this device hands its packets to this instance's XDP program: it has no other one. */
static __always_inline int tl_is_source(const struct net_device *dev)
{
	__u32 device = dev->ifindex;

	return tl_is_here(dev) && bpf_map_lookup_elem(&drop_sources, &device);
}

/* Whether it is one of this instance's XDP programs: they change with each version, their maps do not. */
static __always_inline int tl_is_ours(const struct bpf_prog *prog, struct tl_drop_notes *notes)
{
	struct bpf_map **maps, *map;
	__u32 count, i;

	if (notes->prog == prog->aux->id)
		return notes->ours;
	notes->prog = prog->aux->id;
	notes->ours = 0;
	maps = prog->aux->used_maps;
	count = prog->aux->used_map_cnt;
	for (i = 0; i < TL_USED_MAPS && i < count; i++) {
		if (bpf_probe_read_kernel(&map, sizeof(map), maps + i))
			break;
		if (BPF_CORE_READ(map, id) == tl_drops_of.counters) {
			notes->ours = 1;
			break;
		}
	}
	return notes->ours;
}

/* Counts for an output device; 0: it is unknown. */
static __always_inline void tl_count(__u32 device, __u32 fate, __u64 packets)
{
	const volatile struct tl_place *found = bpf_map_lookup_elem(&drop_devices, &device);
	__u32 slot = TL_SLOT_OTHER;
	struct tl_fates *fates;

	if (found) {
		__u64 word = *(const volatile __u64 *)found;
		struct tl_place place;

		__builtin_memcpy(&place, &word, sizeof(place));
		if (place.device == device)
			slot = place.slot;
	}
	fates = bpf_map_lookup_elem(&drops, &slot);
	if (fates)
		fates->packets[fate & (TL_FATES - 1)] += packets;
}

static __always_inline __u32 tl_fate_of(int err)
{
	switch (-err) {
	case 0:
		return TL_LOST_RING_FULL;
	case ENXIO:
		return TL_LOST_NO_QUEUE;
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
	__u32 device;

	if (!tl_is_source(from))
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
	const struct bpf_dtab_netdev *entry = 0;
	const struct net_device *to = 0;
	struct tl_drop_notes *notes;
	__u32 zero = 0, device = 0;

	if (!tl_is_source(from))
		return 0;
	if (map_type == BPF_MAP_TYPE_UNSPEC) {
		device = index; /* bpf_redirect() */
	} else if ((map_type == BPF_MAP_TYPE_DEVMAP || map_type == BPF_MAP_TYPE_DEVMAP_HASH) &&
		   bpf_core_field_exists(entry->dev)) {
		/* Linux 6.1 lets no program load `target`, a `const void *`, the third argument. */
		if (!bpf_probe_read_kernel(&entry, sizeof(entry), ctx + 2) && entry)
			to = BPF_CORE_READ(entry, dev);
	}
	if (to && BPF_CORE_READ(to, nd_net.net) == from->nd_net.net)
		device = BPF_CORE_READ(to, ifindex);
	tl_count(device, tl_fate_of(err), 1);
	notes = bpf_map_lookup_elem(&drop_notes, &zero);
	if (notes)
		notes->refused = from->ifindex;
	return 0;
}

/*
 * Once for a packet that the driver of the input device `dev` could not redirect: the output device is not
 * known. Some drivers come here for each packet that xdp_redirect_err had. In generic mode, once for a packet
 * that the output device `dev` did not take: the action is XDP_TX then.
 */
SEC("tp_btf/xdp_exception")
int BPF_PROG(tl_exception, const struct net_device *dev, const struct bpf_prog *prog, __u32 action)
{
	struct tl_drop_notes *notes;
	__u32 zero = 0;

	if ((action != XDP_REDIRECT && action != XDP_TX) || !tl_is_here(dev))
		return 0;
	notes = bpf_map_lookup_elem(&drop_notes, &zero);
	if (!notes)
		return 0;
	if (action == XDP_TX) {
		if (tl_is_ours(prog, notes))
			tl_count(dev->ifindex, TL_LOST_EXCEPTION, 1);
		return 0;
	}
	if (notes->refused == (__u32)dev->ifindex)
		notes->refused = 0;
	else if (tl_is_source(dev))
		tl_count(0, TL_LOST_EXCEPTION, 1);
	return 0;
}

/* Never called, so never loaded: keeps the types that user space is generated from in the object's BTF. */
struct tl_drop_types {
	enum tl_fate fate;
	enum tl_drops_limits limits;
	struct tl_place place;
};

int tl_drop_types(const struct tl_drop_types *types) { return types->fate; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
