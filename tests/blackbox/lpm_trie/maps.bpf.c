// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Maps as other people's programs have them, with BTF. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

enum kind { PASS = 1, DROP = 2 };

struct action {
	__u16 port;
	__u8 flags;
	enum kind kind;
	__u8 mac[6];
};

#define TRIE(name, bytes, type_)                                                                             \
	struct name##_key {                                                                                  \
		__u32 prefixlen;                                                                             \
		__u8 data[bytes];                                                                            \
	};                                                                                                   \
	struct {                                                                                             \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);                                                         \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                        \
		__uint(max_entries, 100000);                                                                 \
		__type(key, struct name##_key);                                                              \
		__type(value, type_);                                                                        \
	} name SEC(".maps")

TRIE(v4, 4, __u32);
TRIE(v6, 16, struct action);
TRIE(wide, 4, __u64);
TRIE(odd, 6, __u32);

/* Without BTF for its values. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 10);
	__uint(key_size, 8);
	__uint(value_size, 3);
} bare SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10);
	__type(key, __u64);
	__type(value, __u32);
} other SEC(".maps");

char LICENSE[] SEC("license") = "Dual BSD/GPL";
