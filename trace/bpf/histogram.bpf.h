/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * T2 without records: each thread's last receive is kept with the thread, and its next send counts the
 * difference into a histogram of the CPU. The rules are those of the joining by thread
 * (src/join/by_thread.rs), but that the first send ends T2, whichever socket it is by, since what comes later
 * cannot be waited for.
 */
#ifndef TRACE_HISTOGRAM_H
#define TRACE_HISTOGRAM_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"
#include "ring.bpf.h"

/* What a thread has in hand. */
struct tr_in_hand {
	__u64 received_ns;
	__u64 received_socket;
	__u64 queued_ns; /* TCP: the first segment since a call ended last */
	__u64 queued_socket;
	__u32 queued_position; /* of its first byte */
	__u32 queued_bytes;
	__u32 reads; /* receives since the last send */
	__u32 sends; /* sends since the last receive */
	__u32 transport;
	__u32 is_batch;
	__u64 lost; /* receives that were lost by then, of whichever thread */
};

/* There was no memory to keep them. */
__u64 lost_receives;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tr_in_hand);
} in_hand SEC(".maps");

/* TR_WAYS for each CPU; the number is set before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tr_histogram);
} histograms SEC(".maps");

static __always_inline __u32 tr_log2(__u64 value)
{
	__u32 log = 0;

	for (__u32 step = 32; step; step /= 2) {
		if (value >> step) {
			value >>= step;
			log += step;
		}
	}
	return log;
}

/* Sixteen buckets for each power of two; below sixteen one for each value. */
static __always_inline __u32 tr_bucket(__u64 ns)
{
	__u32 log;

	if (ns < 16)
		return ns;
	log = tr_log2(ns);
	return (log - 3) * 16 + ((ns >> ((log - 4) & 63)) & 15);
}

static __always_inline void tr_add(__u32 count, __u64 value)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct tr_cpu *own = bpf_map_lookup_elem(&cpus, &cpu);

	if (own)
		__sync_fetch_and_add(&own->counts[count], value);
}

/* What a thread has received is not known to be its last receive, once one was lost. */
static __always_inline void tr_cut_off(struct tr_in_hand *hand)
{
	if (hand->lost == lost_receives)
		return;
	hand->lost = lost_receives;
	if (!hand->sends)
		tr_add(TR_COUNT_CUT_OFF, hand->reads);
	hand->reads = 0;
}

static __always_inline void tr_count_receive(struct tr_in_hand *hand, const struct tr_event *record)
{
	bool is_stream = record->transport == TR_TCP || record->transport == TR_UNIX_STREAM ||
			 record->transport == TR_FUNCTION;

	tr_add(TR_COUNT_RECEIVED, 1);
	tr_cut_off(hand);
	if (hand->reads && !hand->sends) {
		if (!is_stream || hand->received_socket != record->socket)
			hand->is_batch = 1;
		hand->reads++;
	} else {
		hand->reads = 1;
		hand->sends = 0;
		hand->is_batch = 0;
	}
	if (record->flags & TR_SEVERAL)
		hand->is_batch = 1;
	hand->queued_ns = 0; /* by an older call, whose rest has left since */
	hand->received_ns = record->time_ns;
	hand->received_socket = record->socket;
	hand->transport = record->transport;
}

static __always_inline void tr_count_send(struct tr_in_hand *hand, const struct tr_event *record,
					  __u64 left_ns, bool at_queue)
{
	struct tr_histogram *histogram;
	__u32 way;

	tr_add(TR_COUNT_SENT, 1);
	tr_cut_off(hand);
	if (!hand->reads) {
		tr_add(TR_COUNT_UNMATCHED_SENT, 1);
		return;
	}
	if (hand->sends++) {
		if (!hand->is_batch)
			tr_add(TR_COUNT_COPIES, 1);
		return;
	}
	if (hand->is_batch) {
		tr_add(TR_COUNT_AMBIGUOUS, hand->reads);
		return;
	}
	tr_add(TR_COUNT_MATCHED, 1);
	if (hand->reads > 1)
		tr_add(TR_COUNT_PIECES, hand->reads - 1);
	way = hand->transport * TR_TRANSPORTS + record->transport;
	way = way * 4 + (hand->received_socket == record->socket) * 2 + at_queue;
	way += bpf_get_smp_processor_id() * TR_WAYS;
	histogram = bpf_map_lookup_elem(&histograms, &way);
	if (histogram)
		__sync_fetch_and_add(
		    &histogram->buckets[tr_bucket(left_ns - hand->received_ns) & (TR_BUCKETS - 1)], 1);
}

/* Whether the segment has the first byte of a send over TCP that ends before `position`: it may as well be an
 * older send's. */
static __always_inline bool tr_is_first_segment(const struct tr_in_hand *hand, const struct tr_event *sent,
						__u32 position)
{
	return hand->queued_ns && hand->queued_socket == sent->socket && !(sent->flags & TR_SEVERAL) &&
	       position - sent->bytes - hand->queued_position < hand->queued_bytes;
}

static __always_inline void tr_count(struct task_struct *task, const struct tr_event *record, __u32 position)
{
	struct tr_in_hand *hand = bpf_task_storage_get(
	    &in_hand, task, NULL, record->point == TR_RECEIVED ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);

	if (!hand && record->point == TR_RECEIVED) {
		__sync_fetch_and_add(&lost_receives, 1);
		tr_add(TR_COUNT_LOST, 1);
	} else if (!hand) {
		if (record->point != TR_QUEUED || record->transport == TR_UDP) {
			tr_add(TR_COUNT_SENT, 1);
			tr_add(TR_COUNT_UNMATCHED_SENT, 1);
		}
	} else if (record->point == TR_RECEIVED) {
		tr_count_receive(hand, record);
	} else if (record->transport == TR_TCP && record->point == TR_QUEUED) {
		/* Other sockets' segments are queued on this thread's time as well; the end of the call
		 * tells. */
		if (!hand->queued_ns || hand->queued_socket != record->socket) {
			hand->queued_ns = record->time_ns;
			hand->queued_socket = record->socket;
			hand->queued_position = position;
			hand->queued_bytes = record->bytes;
		}
	} else if (record->transport == TR_TCP && tr_is_first_segment(hand, record, position)) {
		tr_count_send(hand, record, hand->queued_ns, true);
		hand->queued_ns = 0;
	} else {
		if (record->transport == TR_TCP && !config.sent_udp)
			tr_add(TR_COUNT_QUEUED_LATER, 1);
		tr_count_send(hand, record, record->time_ns, record->point == TR_QUEUED);
		hand->queued_ns = 0;
	}
}

#endif
