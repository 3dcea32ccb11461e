/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Lookups to be timed, compiled once per structure: a trieline image in either map type, or
 * BPF_MAP_TYPE_LPM_TRIE.
 *
 * N is 4 or 6 for the addresses of an IP version, 48 for an IPv4 address and a port:
 *   - packetN: a whole XDP program a packet. Take the next key, write it into the packet, parse the headers,
 *     look it up.
 *   - loopN: independent lookups in a loop inside one program.
 *   - emptyN and loop_emptyN: the same without the lookup.
 *   - answerN: each key's answer into `answers`, for the comparison with the oracle.
 *   - update4 and delete4: the other operations, where BPF programs have them: LPM_TRIE.
 */
#include "addresses.bpf.h"

struct lab_lookups lookups SEC(".bss.lookups");
__u32 answers[LAB_ADDRESSES] SEC(".bss.answers");

#if defined(LAB_LPM_TRIE)

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct bpf_lpm_trie_key4);
	__type(value, __u32);
} trie4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct bpf_lpm_trie_key6);
	__type(value, __u32);
} trie6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct bpf_lpm_trie_key48);
	__type(value, __u32);
} trie48 SEC(".maps");

static __always_inline __u32 lookup4(__u32 address)
{
	struct bpf_lpm_trie_key4 key = {.prefixlen = 32};
	__u32 *value;

	__builtin_memcpy(key.address, &address, 4);
	value = bpf_map_lookup_elem(&trie4, &key);
	return value ? *value : 0;
}

static __always_inline __u32 lookup6(__u64 hi, __u64 lo)
{
	struct bpf_lpm_trie_key6 key = {.prefixlen = 128};
	__u32 *value;

	__builtin_memcpy(key.address, &hi, 8);
	__builtin_memcpy(key.address + 8, &lo, 8);
	value = bpf_map_lookup_elem(&trie6, &key);
	return value ? *value : 0;
}

static __always_inline __u32 lookup48(__u64 endpoint)
{
	struct bpf_lpm_trie_key48 key = {.prefixlen = 48};
	__u32 *value;

	__builtin_memcpy(key.bytes, &endpoint, 6);
	value = bpf_map_lookup_elem(&trie48, &key);
	return value ? *value : 0;
}

#else

#include <trieline/bpf.h>

/* The table under test is the image's first. */
static __always_inline __u32 lookup4(__u32 address) { return tl_lookup4(TL_IMAGE, 0, bpf_ntohl(address)); }

static __always_inline __u32 lookup6(__u64 hi, __u64 lo)
{
	return tl_lookup6(TL_IMAGE, 0, bpf_be64_to_cpu(hi), bpf_be64_to_cpu(lo));
}

static __always_inline __u32 lookup48(__u64 endpoint)
{
	return tl_lookup(TL_IMAGE, 0, 48, bpf_be64_to_cpu(endpoint), 0);
}

#endif

/* How a packet's lookup goes on. */
enum look {
	EMPTY,	/* it is left out */
	VALUE,	/* its answer is the value */
	STRUCT, /* the value is an index into an array of structs; an LPM_TRIE has them in its nodes */
};

#if defined(LAB_LPM_TRIE)
#define STRUCT_OF(index) (index)
#else
struct lab_struct {
	__u32 value;
	__u32 more[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAB_ADDRESSES);
	__type(key, __u32);
	__type(value, struct lab_struct);
} structs SEC(".maps");

static __always_inline __u32 struct_of(__u32 index)
{
	struct lab_struct *entry = bpf_map_lookup_elem(&structs, &index);

	return entry ? entry->value : 0;
}
#define STRUCT_OF(index) struct_of(index)
#endif

static __always_inline __u64 begin(void)
{
	__u64 n = lookups.done++;

	if (n == 0)
		lookups.first_ns = bpf_ktime_get_ns();
	if (n + 1 == lookups.limit)
		lookups.last_ns = bpf_ktime_get_ns();
	return n;
}

#define ETH 14
#define PROTOCOL(frame) (*(volatile __u16 *)((frame) + 12))

static __always_inline int packet4_with(struct xdp_md *ctx, enum look look)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = begin();
	__u32 destination;

	if (frame + ETH + 20 > end)
		return XDP_ABORTED;
	*(volatile __u32 *)(frame + ETH + 16) = address4(n);
	if (PROTOCOL(frame) != bpf_htons(0x0800) || *(volatile __u8 *)(frame + ETH) != 0x45)
		return XDP_ABORTED;
	destination = *(volatile __u32 *)(frame + ETH + 16);
	lookups.sum += look == EMPTY   ? destination
		       : look == VALUE ? lookup4(destination)
				       : STRUCT_OF(lookup4(destination));
	return XDP_DROP;
}

static __always_inline int packet6_with(struct xdp_md *ctx, enum look look)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = begin(), hi, lo;

	if (frame + ETH + 40 > end)
		return XDP_ABORTED;
	address6(n, &hi, &lo);
	*(volatile __u64 *)(frame + ETH + 24) = hi;
	*(volatile __u64 *)(frame + ETH + 32) = lo;
	if (PROTOCOL(frame) != bpf_htons(0x86dd) || *(volatile __u8 *)(frame + ETH) >> 4 != 6)
		return XDP_ABORTED;
	hi = *(volatile __u64 *)(frame + ETH + 24);
	lo = *(volatile __u64 *)(frame + ETH + 32);
	lookups.sum += look == EMPTY ? hi + lo : look == VALUE ? lookup6(hi, lo) : STRUCT_OF(lookup6(hi, lo));
	return XDP_DROP;
}

/* An address and the port behind it, as a firewall's rules for UDP have them. */
static __always_inline int packet48_with(struct xdp_md *ctx, int look)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = begin(), endpoint;

	if (frame + ETH + 28 > end)
		return XDP_ABORTED;
	endpoint = address48(n);
	*(volatile __u32 *)(frame + ETH + 16) = endpoint;
	*(volatile __u16 *)(frame + ETH + 22) = endpoint >> 32;
	if (PROTOCOL(frame) != bpf_htons(0x0800) || *(volatile __u8 *)(frame + ETH) != 0x45)
		return XDP_ABORTED;
	endpoint = *(volatile __u32 *)(frame + ETH + 16);
	endpoint |= (__u64) * (volatile __u16 *)(frame + ETH + 22) << 32;
	lookups.sum += look ? lookup48(endpoint) : endpoint;
	return XDP_DROP;
}

SEC("xdp")
int packet4(struct xdp_md *ctx) { return packet4_with(ctx, VALUE); }

SEC("xdp")
int struct4(struct xdp_md *ctx) { return packet4_with(ctx, STRUCT); }

SEC("xdp")
int packet6(struct xdp_md *ctx) { return packet6_with(ctx, VALUE); }

SEC("xdp")
int struct6(struct xdp_md *ctx) { return packet6_with(ctx, STRUCT); }

SEC("xdp")
int packet48(struct xdp_md *ctx) { return packet48_with(ctx, 1); }

SEC("xdp")
int empty4(struct xdp_md *ctx) { return packet4_with(ctx, EMPTY); }

SEC("xdp")
int empty6(struct xdp_md *ctx) { return packet6_with(ctx, EMPTY); }

SEC("xdp")
int empty48(struct xdp_md *ctx) { return packet48_with(ctx, 0); }

struct lab_loop {
	__u64 from;
	__u64 sum;
};

static long step4(__u64 i, struct lab_loop *loop)
{
	loop->sum += lookup4(address4(loop->from + i));
	return 0;
}

static long step6(__u64 i, struct lab_loop *loop)
{
	__u64 hi, lo;

	address6(loop->from + i, &hi, &lo);
	loop->sum += lookup6(hi, lo);
	return 0;
}

static long step48(__u64 i, struct lab_loop *loop)
{
	loop->sum += lookup48(address48(loop->from + i));
	return 0;
}

static long step_empty4(__u64 i, struct lab_loop *loop)
{
	loop->sum += address4(loop->from + i);
	return 0;
}

static long step_empty6(__u64 i, struct lab_loop *loop)
{
	__u64 hi, lo;

	address6(loop->from + i, &hi, &lo);
	loop->sum += hi + lo;
	return 0;
}

static long step_empty48(__u64 i, struct lab_loop *loop)
{
	loop->sum += address48(loop->from + i);
	return 0;
}

static long answer_step4(__u64 i, void *unused)
{
	answers[i & (LAB_ADDRESSES - 1)] = lookup4(address4(i));
	return 0;
}

static long answer_step6(__u64 i, void *unused)
{
	__u64 hi, lo;

	address6(i, &hi, &lo);
	answers[i & (LAB_ADDRESSES - 1)] = lookup6(hi, lo);
	return 0;
}

static long answer_step48(__u64 i, void *unused)
{
	answers[i & (LAB_ADDRESSES - 1)] = lookup48(address48(i));
	return 0;
}

#if defined(LAB_LPM_TRIE)

/* As the kernel's own bench: of keys that are there. The sum counts those that the map took. */
static long step_update4(__u64 i, struct lab_loop *loop)
{
	struct bpf_lpm_trie_key4 key = {.prefixlen = 32};
	__u32 address = address4(loop->from + i), value = lookups.value;

	__builtin_memcpy(key.address, &address, 4);
	loop->sum += !bpf_map_update_elem(&trie4, &key, &value, BPF_EXIST);
	return 0;
}

static long step_delete4(__u64 i, struct lab_loop *loop)
{
	struct bpf_lpm_trie_key4 key = {.prefixlen = 32};
	__u32 address = address4(loop->from + i);

	__builtin_memcpy(key.address, &address, 4);
	loop->sum += !bpf_map_delete_elem(&trie4, &key);
	return 0;
}

#endif

/*
 * Lookups in batches of n. The addresses of a batch depend on the answers of the batch before, as a packet's
 * second lookup may on its first. The sum stays below 2^63, which the compiler does not know.
 */
#if defined(LAB_LPM_TRIE)
#define SEVERAL4(n)                                                                                          \
	for (k = 0; k < n; k++)                                                                              \
	value[k] = lookup4(batch4[k])
#define SEVERAL6(n)                                                                                          \
	for (k = 0; k < n; k++)                                                                              \
	value[k] = lookup6(batch6[k].hi, batch6[k].lo)
#define HOST32(address) (address)
#define HOST64(address) (address)
struct lab_batch6 {
	__u64 hi, lo;
} batch6[8] SEC(".bss.batch6");
#else
#define SEVERAL4(n) tl_lookup4_n(TL_IMAGE, first_table, batch4, value, n)
#define SEVERAL6(n) tl_lookup6_n(TL_IMAGE, first_table, batch6, value, n)
#define HOST32(address) bpf_ntohl(address)
#define HOST64(address) bpf_be64_to_cpu(address)
struct tl_key6 batch6[8] SEC(".bss.batch6");
const __u32 first_table[8] = {};
#endif
__u32 batch4[8] SEC(".bss.batch4");

#define BATCH(n)                                                                                             \
	static long step_batch4_##n(__u64 i, struct lab_loop *loop)                                          \
	{                                                                                                    \
		__u32 value[n], k, last = loop->sum >> 63;                                                   \
                                                                                                             \
		for (k = 0; k < n; k++)                                                                      \
			batch4[k] = HOST32(address4(loop->from + i * n + k) ^ last);                         \
		SEVERAL4(n);                                                                                 \
		for (k = 0; k < n; k++)                                                                      \
			loop->sum += value[k];                                                               \
		return 0;                                                                                    \
	}                                                                                                    \
	static long step_batch6_##n(__u64 i, struct lab_loop *loop)                                          \
	{                                                                                                    \
		__u64 hi, lo, last = loop->sum >> 63;                                                        \
		__u32 value[n], k;                                                                           \
                                                                                                             \
		for (k = 0; k < n; k++) {                                                                    \
			address6(loop->from + i * n + k, &hi, &lo);                                          \
			batch6[k].hi = HOST64(hi ^ last);                                                    \
			batch6[k].lo = HOST64(lo);                                                           \
		}                                                                                            \
		SEVERAL6(n);                                                                                 \
		for (k = 0; k < n; k++)                                                                      \
			loop->sum += value[k];                                                               \
		return 0;                                                                                    \
	}                                                                                                    \
	LOOP_OF(batch##n##_4, step_batch4_##n, n)                                                            \
	LOOP_OF(batch##n##_6, step_batch6_##n, n)

/* One call works through `limit` lookups: bpf_loop is not limited in time, as may_goto is. */
#define LOOP(name, step) LOOP_OF(name, step, 1)
#define LOOP_OF(name, step, n)                                                                               \
	SEC("xdp") int name(struct xdp_md *ctx)                                                              \
	{                                                                                                    \
		struct lab_loop loop = {.from = lookups.done};                                               \
		long done;                                                                                   \
                                                                                                             \
		lookups.first_ns = bpf_ktime_get_ns();                                                       \
		done = bpf_loop(lookups.limit / n, step, &loop, 0);                                          \
		lookups.last_ns = bpf_ktime_get_ns();                                                        \
		if (done > 0)                                                                                \
			lookups.done += done * n;                                                            \
		lookups.sum += loop.sum;                                                                     \
		return XDP_DROP;                                                                             \
	}

LOOP(loop4, step4)
LOOP(loop6, step6)
LOOP(loop48, step48)
LOOP(loop_empty4, step_empty4)
LOOP(loop_empty6, step_empty6)
LOOP(loop_empty48, step_empty48)
BATCH(1)
BATCH(2)
BATCH(4)
BATCH(8)
LOOP(answer4, answer_step4)
LOOP(answer6, answer_step6)
LOOP(answer48, answer_step48)
#if defined(LAB_LPM_TRIE)
LOOP(update4, step_update4)
LOOP(delete4, step_delete4)
#endif

char _license[] SEC("license") = "Dual BSD/GPL";
