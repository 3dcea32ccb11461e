/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Ids for messages that have none. Where the application has reserved eight bytes, the tracer writes a time
 * into the packet that no other message has. It does so before the hook at the device's queue reads it as the
 * id.
 *
 * Only UDP: there a packet is a message. The bytes of TCP are sent again from the socket's own copy, which
 * this program never sees. They need no id: sender and receiver count them alike.
 */
#ifndef TRACE_STAMP_H
#define TRACE_STAMP_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"
#include "packet.bpf.h"
#include "socket.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tr_stamps);
} stamps SEC(".maps");

#define TR_STAMP_TRIES 8
#define TR_UDP_CHECKSUM 6 /* where it lies in the header */

/* The time, or the first nanosecond after it that is nobody's; 0 where others were always quicker. */
static __always_inline __u64 tr_new_stamp(struct tr_stamps *own)
{
	for (int i = 0; i < TR_STAMP_TRIES; i++) {
		__u64 last = *(volatile __u64 *)&own->last_ns, now = bpf_ktime_get_ns();

		if (now <= last)
			now = last + 1;
		if (__sync_val_compare_and_swap(&own->last_ns, last, now) == last)
			return now;
	}
	return 0;
}

/* The words of a checksum that these eight bytes are in, at an even or odd place of the datagram. */
static __always_inline void tr_words(__be32 words[3], __u64 bytes, __u32 offset)
{
	__u32 shift = offset & 1 ? 8 : 0;

	words[0] = bytes << shift;
	words[1] = bytes >> (32 - shift);
	words[2] = shift ? bytes >> 56 : 0;
}

/* Writes eight bytes of a datagram and mends its checksum, unless that is still to be made or is not wanted.
 */
static __always_inline bool tr_rewrite(struct __sk_buff *packet, __u32 header, __u32 offset, __u64 old,
				       __u64 new)
{
	__be32 before[3], after[3];
	__u64 flags = BPF_F_MARK_MANGLED_0;
	__u32 checksum = header + TR_UDP_CHECKSUM;
	__s64 difference;

	tr_words(before, old, offset);
	tr_words(after, new, offset);
	difference = bpf_csum_diff(before, sizeof(before), after, sizeof(after), 0);
	if (bpf_l4_csum_replace(packet, checksum, 0, difference, flags))
		return false;
	if (!bpf_skb_store_bytes(packet, header + TR_UDP_HEADER + offset, &new, sizeof(new), 0))
		return true;
	difference = bpf_csum_diff(after, sizeof(after), before, sizeof(before), 0);
	bpf_l4_csum_replace(packet, checksum, 0, difference, flags);
	return false;
}

/* enum tr_stamp; TR_STAMPS for packets that are no message of the traced. */
static __always_inline __u32 tr_stamp(struct __sk_buff *packet, struct tr_stamps *own)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(packet);
	struct task_struct *task;
	struct sock *sk = skb->sk;
	__u32 header, offset, bytes;
	struct tr_socket socket;
	__u64 old, new;
	__s64 before;

	if (!sk)
		return TR_STAMPS;
	task = bpf_get_current_task_btf();
	if (!tr_is_wanted(task))
		return TR_STAMPS;
	socket = tr_describe(sk);
	if (tr_transport(&socket) != TR_UDP || tr_is_late(task) || tr_is_noted(skb))
		return TR_STAMPS;
	before = skb->head + skb->transport_header - skb->data;
	barrier_var(before);
	header = before;
	bytes = skb->len - header - TR_UDP_HEADER;
	offset = config.id_offset[!tr_is_client(task)];
	if (packet->gso_size || tr_part(skb) != TR_WHOLE)
		return TR_STAMP_SEVERAL;
	if (bytes < offset + sizeof(old))
		return TR_STAMP_SHORT;
	if (bpf_skb_load_bytes(packet, header + TR_UDP_HEADER + offset, &old, sizeof(old)))
		return TR_STAMP_FAILED;
	if (old != config.stamp_over)
		return TR_STAMP_TAKEN;
	new = tr_new_stamp(own);
	return new && tr_rewrite(packet, header, offset, old, new) ? TR_STAMP_WRITTEN : TR_STAMP_FAILED;
}

SEC("tcx/egress")
int stamp_leaving(struct __sk_buff *packet)
{
	__u32 zero = 0, done;
	struct tr_stamps *own = bpf_map_lookup_elem(&stamps, &zero);

	if (own) {
		done = tr_stamp(packet, own);
		if (done < TR_STAMPS)
			__sync_fetch_and_add(&own->counts[done], 1);
	}
	return TCX_NEXT;
}

#endif
