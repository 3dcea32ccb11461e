// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Maps as other people's programs have them, with BTF. */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>

enum kind { PASS = 1, DROP = 2 };

struct action {
	__u16 port;
	__u8 flags;
	enum kind kind;
	__u8 mac[6];
};

#define TRIE(name, members, type_)                                                                           \
	struct name##_key {                                                                                  \
		__u32 prefixlen;                                                                             \
		members                                                                                      \
	} __attribute__((packed));                                                                           \
	struct {                                                                                             \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);                                                         \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                        \
		__uint(max_entries, 100000);                                                                 \
		__type(key, struct name##_key);                                                              \
		__type(value, type_);                                                                        \
	} name SEC(".maps")

TRIE(v4, __u8 data[4];, __u32);
TRIE(v6, __u8 data[16];, struct action);
TRIE(wide, __be32 addr;, __u64);
TRIE(in4, struct in_addr addr;, __u32);
TRIE(in6, struct in6_addr addr;, __u32);

/* Keys that are no addresses, or more than one. */
TRIE(endpoint, __be32 saddr; __be16 dport;, __u32);
TRIE(endpoint6, struct in6_addr saddr; __be16 dport;, struct action);
TRIE(ports, __be16 sport; __be16 dport;, __u32);
TRIE(pair, __be64 from; __be64 to;, __u32);
TRIE(odd, __u8 kind; __u8 rest[2];, __u32);

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
