/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A program that looks up in a work queue's callback. That runs in a process and may sleep, so that the
 * program has to be refused, though it cannot sleep itself. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <trieline/bpf.h>

/* Older headers lack it; the kernel knows it by its name. */
struct bpf_wq {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct element {
	struct bpf_wq work;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct element);
} works SEC(".maps");

extern int bpf_wq_init(struct bpf_wq *work, void *map, unsigned int flags) __ksym;
extern int bpf_wq_start(struct bpf_wq *work, unsigned int flags) __ksym;
extern int bpf_wq_set_callback_impl(struct bpf_wq *work, int(callback)(void *map, int *key, void *value),
				    unsigned int flags, void *aux) __ksym;

__u32 found;

static int later(void *map, int *key, void *value)
{
	found = tl_lookup4(TL_IMAGE, 0, 1);
	return 0;
}

SEC("tc")
int deferred(struct __sk_buff *packet)
{
	__u32 zero = 0;
	struct element *element = bpf_map_lookup_elem(&works, &zero);

	if (!element || bpf_wq_init(&element->work, &works, 0))
		return 0;
	if (!bpf_wq_set_callback_impl(&element->work, later, 0, 0))
		bpf_wq_start(&element->work, 0);
	return 0;
}

char _license[] SEC("license") = "GPL";
