/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Records go to a ring per CPU in memory that user space has mapped and polls, so no process is ever woken.
 *
 * A record's place is claimed by an atomic addition, as one hook may interrupt another on the same CPU. When
 * the ring comes round, old records are overwritten; `claimed` and the records' sequence numbers tell the
 * reader exactly how many it has missed (src/ring.rs).
 */
#ifndef TRACE_RING_H
#define TRACE_RING_H

#include "kernel.h"
#include "intf.h"
#include "filter.bpf.h"
#include "message.bpf.h"

/* Sizes are set before the load: one element a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tr_cpu);
} cpus SEC(".maps");

/* One element a CPU that has a ring, with slots_mask + 1 records: a hook looks up its ring and no more. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct tr_ring));
} rings SEC(".maps");

/* Beside each record its bytes; of struct tr_payload there is as much as `config.capture` needs. Both sizes
 * are set before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct tr_payload));
} payloads SEC(".maps");

/* Readers see stores in this order; x86-64 needs only that the compiler keeps it. */
static __always_inline void tr_publish(__u32 *sequence, __u32 value)
{
#ifdef TR_STORES_IN_ORDER
	asm volatile("" ::: "memory");
	*(volatile __u32 *)sequence = value;
#else
	__sync_lock_test_and_set(sequence, value);
#endif
}

/* The place of a CPU's next record, its number among all CPUs' records, and its sequence number. NULL: the
 * CPU has no ring. */
static __always_inline struct tr_record *tr_claim(__u32 *slot, __u32 *sequence)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct tr_ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	struct tr_cpu *own;
	__u64 claimed, at;

	if (!ring) {
		own = bpf_map_lookup_elem(&cpus, &cpu);
		if (own)
			__sync_fetch_and_add(&own->unnoted, 1);
		return NULL;
	}
	claimed = __sync_fetch_and_add(&ring->claimed, 1);
	at = claimed & config.slots_mask;
	*sequence = claimed + 1;
	*slot = cpu * (config.slots_mask + 1) + at;
	return &ring->records[at];
}

static __always_inline void tr_fill(struct tr_record *record, const struct tr_event *noted, __u16 flags)
{
	record->time_ns = noted->time_ns;
	record->socket = noted->socket;
	record->id = noted->id;
	record->who = noted->thread | (__u64)noted->process << TR_WHO_PROCESS |
		      (__u64)noted->point << TR_WHO_POINT | (__u64)noted->transport << TR_WHO_TRANSPORT |
		      (__u64)flags << TR_WHO_FLAGS;
	record->bytes = noted->bytes;
}

/* Whether anything lies beside the record. Sends over TCP have their position there where their id takes its
 * place. */
static __always_inline bool tr_has_payload(const struct tr_event *record)
{
	return config.capture || config.stages ||
	       (config.id_bytes && !config.sent_udp && record->transport == TR_TCP);
}

static __always_inline void tr_note(const struct tr_event *noted, const struct tr_source *source)
{
	__u32 slot, sequence;
	struct tr_record *record = tr_claim(&slot, &sequence);
	struct tr_payload *payload;
	__u16 flags = noted->flags;

	if (!record)
		return;
	if (tr_has_payload(noted)) {
		payload = bpf_map_lookup_elem(&payloads, &slot);
		if (payload)
			flags |= tr_capture(payload, noted->bytes, source);
	}
	tr_fill(record, noted, flags);
	tr_publish(&record->sequence, sequence);
}

#endif
