/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Measuring traffic. The sender's programs make marked frames at a given rate. BPF_PROG_TEST_RUN with live
 * frames calls one again and again, and a call sends the next frame, or waits a slice of time and drops. The
 * receiver's program ends the frames, and counts each flow by the marks' sequence numbers.
 */
#include "heads.bpf.h"

/* ---- sender ---- */

struct lab_pace pace SEC(".bss.pace");
struct lab_flow flows[LAB_FLOWS_MAX] SEC(".bss.flows");
__u16 order[LAB_ORDER] SEC(".bss.order");
__u32 sequences[LAB_FLOWS_MAX] SEC(".bss.sequences"); /* frames of each flow so far */
__u64 stop SEC(".bss.stop");

struct lab_wait {
	__u64 now;
	__u64 until;
};

static long wait_step(__u64 i, struct lab_wait *wait)
{
	wait->now = bpf_ktime_get_ns();
	return wait->now >= wait->until;
}

/* The clock when the next frame is due; 0 when it is not due yet, or there is none. */
static __always_inline __u64 due(void)
{
	struct lab_wait wait = {.now = bpf_ktime_get_ns()};
	__u64 due, passed;

	if (pace.sent >= pace.limit || stop)
		return 0;
	if (pace.sent == 0)
		pace.first_ns = wait.now;
	if (!pace.interval)
		return wait.now;
	due = pace.first_ns + (pace.next >> LAB_INTERVAL_SHIFT);
	if (wait.now < due) {
		wait.until = wait.now + pace.slice_ns;
		if (due < wait.until)
			wait.until = due;
		bpf_loop(1 << 14, wait_step, &wait, 0);
		if (wait.now < due)
			return 0;
	}
	passed = (wait.now - pace.first_ns) << LAB_INTERVAL_SHIFT;
	if (passed > pace.next + pace.burst) {
		pace.stalls++;
		pace.stalled_ns += (passed - pace.next) >> LAB_INTERVAL_SHIFT;
		pace.next = passed;
	}
	pace.next += pace.interval;
	return wait.now;
}

struct lab_next {
	struct lab_template *template;
	struct lab_flow *flow;
	__u32 number; /* of the flow */
	__u64 now;
};

/* Chooses the frame that is sent now; false for none. */
static __always_inline int begin(struct xdp_md *ctx, struct lab_next *next)
{
	__u32 place, flow, bytes = ctx->data_end - ctx->data;

	next->now = due();
	if (!next->now)
		return 0;
	place = pace.patterns ? pace.sent % pace.patterns : 0;
	next->template = &pace.templates[pace.pattern[place & (LAB_PATTERN - 1)] & (LAB_TEMPLATES - 1)];
	if (next->template->bytes != bytes)
		bpf_xdp_adjust_tail(ctx, (int)next->template->bytes - (int)bytes);
	flow = order[pace.sent & (LAB_ORDER - 1)];
	next->flow = &flows[flow];
	next->number = flow;
	return 1;
}

/* Marks a frame that is going to be sent. */
static __always_inline void put_mark(__u8 *mark, const struct lab_next *next)
{
	*(__u16 *)(mark - 8) = next->flow->source_port;
	*(__u16 *)(mark + LAB_MARK_FLOW) = pace.first_flow + next->number;
	*(__u32 *)(mark + LAB_MARK_TAG) = pace.tag;
	*(__u32 *)(mark + LAB_MARK_SEQUENCE) = sequences[next->number & (LAB_FLOWS_MAX - 1)]++;
	*(__u64 *)(mark + LAB_MARK_NS) = next->now;
	pace.sent++;
	pace.last_ns = next->now;
}

static __always_inline int mark4(struct xdp_md *ctx, __u32 bytes, __u32 ip, int verdict)
{
	struct lab_next next;
	void *frame, *end;

	if (!begin(ctx, &next))
		return XDP_DROP;
	frame = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (frame + bytes > end || frame + ip + 28 + LAB_MARK > end)
		return XDP_ABORTED;
	put_head(frame, next.template->head, bytes);
	put_destination4(frame + ip, *(__u32 *)next.flow->destination, next.template->sum);
	put_mark(frame + ip + 28, &next);
	return verdict;
}

static __always_inline int mark6(struct xdp_md *ctx, __u32 bytes, __u32 ip, int verdict)
{
	struct lab_next next;
	void *frame, *end;

	if (!begin(ctx, &next))
		return XDP_DROP;
	frame = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (frame + bytes > end || frame + ip + 48 + LAB_MARK > end)
		return XDP_ABORTED;
	put_head(frame, next.template->head, bytes);
	*(__u64 *)(frame + ip + 24) = *(__u64 *)next.flow->destination;
	*(__u64 *)(frame + ip + 32) = *(__u64 *)(next.flow->destination + 8);
	put_mark(frame + ip + 48, &next);
	return verdict;
}

SEC("xdp")
int ipv4(struct xdp_md *ctx) { return mark4(ctx, HEAD4, ETH, XDP_TX); }

SEC("xdp")
int ipv6(struct xdp_md *ctx) { return mark6(ctx, HEAD6, ETH, XDP_TX); }

SEC("xdp")
int srv6(struct xdp_md *ctx) { return mark4(ctx, HEADS, INNER, XDP_TX); }

SEC("xdp")
int srv6_ipv6(struct xdp_md *ctx) { return mark6(ctx, HEADS6, INNER, XDP_TX); }

SEC("xdp")
int transit(struct xdp_md *ctx) { return mark4(ctx, HEADS2, INNER2, XDP_TX); }

/* ---- receiver ---- */

struct lab_expected expected SEC(".bss.expected");
__u32 devices[LAB_FLOWS_MAX] SEC(".bss.devices"); /* by flow: the only right one, or 0 for any */

/* Frames of a flow can arrive on two CPUs at once. */
struct lab_slot {
	struct lab_arrival arrival;
	struct bpf_spin_lock lock;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAB_FLOWS_MAX); /* the loader sets fewer */
	__type(key, __u32);
	__type(value, struct lab_slot);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lab_tally);
} tallies SEC(".maps");

/* The mark of a frame, behind UDP in IPv4 or IPv6, alone, in IPv6, or in IPv6 with a routing header. */
static __always_inline __u8 *find_mark(__u8 *frame, __u8 *end)
{
	__u8 *at = frame + ETH;
	__u16 type;
	__u8 next;

	if (at + 20 > end)
		return 0;
	type = *(__u16 *)(frame + 12);
	if (type == bpf_htons(0x8100)) {
		type = *(__u16 *)(frame + 16);
		at += 4;
	}
	if (type == bpf_htons(0x86dd)) {
		if (at + 40 > end)
			return 0;
		next = at[6];
		at += 40;
		if (next == 43) {
			if (at + 8 > end)
				return 0;
			next = at[0];
			at += (at[1] + 1) * 8;
		}
	} else {
		next = type == bpf_htons(0x0800) ? 4 : 0;
	}
	if (next == 4) {
		if (at + 20 > end || at[0] != 0x45)
			return 0;
		next = at[9];
		at += 20;
	} else if (next == 41) {
		if (at + 40 > end)
			return 0;
		next = at[6];
		at += 40;
	}
	if (next != 17 || at + 8 + LAB_MARK > end || *(__u16 *)(at + 2) != bpf_htons(LAB_DISCARD))
		return 0;
	return at + 8;
}

static __always_inline __u32 bucket(__u64 ns)
{
	__u32 bits = 0;
	__u64 rest = ns >> LAB_LATENCY_BITS;

	if (ns >> LAB_LATENCY_MAX)
		return LAB_BUCKETS - 1;
	/* How far the value is shifted to leave 32 ... 63. */
	if (rest >> 32)
		bits += 32, rest >>= 32;
	if (rest >> 16)
		bits += 16, rest >>= 16;
	if (rest >> 8)
		bits += 8, rest >>= 8;
	if (rest >> 4)
		bits += 4, rest >>= 4;
	if (rest >> 2)
		bits += 2, rest >>= 2;
	if (rest >> 1)
		bits += 1;
	if (ns >> LAB_LATENCY_BITS == 0)
		return ns;
	return ((bits + 1) << LAB_LATENCY_BITS) + ((ns >> bits) & ((1 << LAB_LATENCY_BITS) - 1));
}

/* Notes a sequence number as RFC 6479 does: the words form a ring, and the highest number clears those that
 * it passes. */
static __always_inline void note_sequence(struct lab_arrival *flow, __u32 sequence)
{
	__u32 word = sequence / 64, passed;
	__u64 bit = 1ull << (sequence % 64);

	if (flow->next == 0 || sequence >= flow->next) {
		passed = flow->next ? word - (flow->next - 1) / 64 : LAB_WINDOW;
		for (__u32 i = 0; i < LAB_WINDOW; i++)
			if (i < passed)
				flow->seen[(word - i) & (LAB_WINDOW - 1)] = 0;
		flow->seen[word & (LAB_WINDOW - 1)] |= bit;
		flow->next = sequence + 1;
	} else if ((flow->next - 1) / 64 - word >= LAB_WINDOW) {
		flow->reordered++;
		flow->late++;
	} else if (flow->seen[word & (LAB_WINDOW - 1)] & bit) {
		flow->duplicated++;
	} else {
		flow->reordered++;
		flow->seen[word & (LAB_WINDOW - 1)] |= bit;
	}
}

static __always_inline void note(struct lab_arrival *flow, __u32 sequence, __u32 device, __u32 wanted,
				 __u64 now)
{
	if (flow->tag != expected.tag) {
		flow->received = flow->duplicated = flow->reordered = flow->late = flow->strayed = 0;
		flow->changes = flow->since_ns = 0;
		flow->next = 0;
		flow->tag = expected.tag;
	}
	if (flow->received++ == 0) {
		flow->first_ns = now;
		flow->since_ns = now;
	} else if (flow->device != device) {
		flow->changes++;
		flow->since_ns = now;
	}
	flow->device = device;
	flow->last_ns = now;
	if (wanted && wanted != device)
		flow->strayed++;
	note_sequence(flow, sequence);
}

enum lab_end { LAB_OTHER, LAB_FOREIGN, LAB_COUNTED };

/* Counts a frame that arrived. */
static __always_inline enum lab_end arrive(__u8 *frame, __u8 *end, __u64 bytes, __u32 device)
{
	__u32 zero = 0, flow, sequence, wanted;
	struct lab_tally *tally = bpf_map_lookup_elem(&tallies, &zero);
	__u64 now = bpf_ktime_get_ns(), latency;
	__u8 *mark = find_mark(frame, end);
	struct lab_slot *slot;

	if (!tally)
		return LAB_FOREIGN;
	if (!mark) {
		tally->other++;
		return LAB_OTHER;
	}
	flow = *(__u16 *)(mark + LAB_MARK_FLOW);
	sequence = *(__u32 *)(mark + LAB_MARK_SEQUENCE);
	latency = now - *(__u64 *)(mark + LAB_MARK_NS);
	slot = flow < expected.flows ? bpf_map_lookup_elem(&arrivals, &flow) : 0;
	if (!slot || *(__u32 *)(mark + LAB_MARK_TAG) != expected.tag) {
		tally->foreign++;
		return LAB_FOREIGN;
	}
	wanted = devices[flow & (LAB_FLOWS_MAX - 1)];
	bpf_spin_lock(&slot->lock);
	note(&slot->arrival, sequence, device, wanted, now);
	bpf_spin_unlock(&slot->lock);
	tally->frames++;
	tally->bytes += bytes;
	if (latency > tally->max_ns)
		tally->max_ns = latency;
	zero = bucket(latency);
	if (zero < LAB_BUCKETS)
		tally->buckets[zero]++;
	return LAB_COUNTED;
}

SEC("xdp")
int receive(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return arrive(frame, end, end - frame, ctx->ingress_ifindex) == LAB_OTHER ? XDP_PASS : XDP_DROP;
}

/* On the egress of a node: the kernel's frames end here, before they are sent. */
SEC("tc")
int receive_tc(struct __sk_buff *skb)
{
	__u8 *frame = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	return arrive(frame, end, skb->len, skb->ifindex) == LAB_OTHER ? TC_ACT_OK : TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
