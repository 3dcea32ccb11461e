// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The XDP program: the journey of a packet, one step a header file.
 *
 *   link -> port -> IPv4 | IPv6 -> filters -> reverse path -> longest match -> action -> forward | SRv6 |
 * drop | guard -> pass
 *
 * One lookup of the destination decides; everything it leads to was made ready by user space.
 */
#include "xdp/vmlinux.h"
#include "xdp/parse.bpf.h"
#include "xdp/checksum.bpf.h"
#include "capture/capture.bpf.h"
#include "filter/filter.bpf.h"
#include "sid_hook/sid_hook.bpf.h"
#include "xdp/lookup.bpf.h"
#include "xdp/group.bpf.h"
#include "xdp/egress.bpf.h"
#include "xdp/rewrite.bpf.h"
#include "srv6/srv6.bpf.h"
#include "guard/guard.bpf.h"
#include "xdp/stats.bpf.h"

TL_INLINE __u32 tl_ipv4(struct xdp_md *ctx, struct tl_frame *f)
{
	__u32 verdict = tl_parse_ipv4(ctx, f), filtered, value;
	const struct iphdr *ip = f->l3;
	struct tl_adjacency *adj;
	__u64 word;

	filtered = tl_filter_port(ctx, f, 0, verdict);
	if (filtered != TL_GO_ON)
		return filtered;
	if (verdict != TL_GO_ON)
		return verdict;
	if (tl_is_stale())
		return TL_PASS_STALE;
#ifdef TL_NEXT_BUILD
	if (ip->tos == TL_NEXT_BUILD)
		return TL_PASS_NEXT_BUILD;
#endif
	filtered = tl_reverse_path(f, ip->saddr, ip->daddr);
	if (filtered != TL_GO_ON)
		return filtered;
	value = tl_route4(f->port->table4, ip->saddr, ip->daddr);
	if (!value)
		return TL_PASS_NO_ROUTE;
	word = tl_ecmp_select(ctx, f->l2, tl_action4(value, ip->saddr, ip->daddr));
	if (tl_action_kind(word) == TL_ACTION_VERDICT)
		return tl_action_verdict(word);
	if (tl_action_kind(word) != TL_ACTION_FORWARD && tl_action_kind(word) != TL_ACTION_ENCAPS)
		return TL_PASS_NO_ACTION;
	if (TL_UNLIKELY(f->port->flags & TL_PORT_CSUM_PARTIAL) && tl_is_csum_partial4(ctx, f, ip))
		return TL_PASS_CSUM_PARTIAL;
	adj = tl_action_adjacency(word);
	if (!adj)
		return TL_PASS_NO_ACTION;
	if (tl_action_kind(word) == TL_ACTION_FORWARD)
		return tl_forward_ipv4(ctx, f, adj);
	if (!tl_seg6_on(f))
		return TL_PASS_SEG6_OFF;
	return tl_h_encaps(ctx, f, adj, IPPROTO_IPIP, word & TL_SENT_ON);
}

TL_INLINE __u32 tl_ipv6(struct xdp_md *ctx, struct tl_frame *f)
{
	__u32 verdict = tl_parse_ipv6(ctx, f), filtered, value;
	const struct ipv6hdr *ip6 = f->l3;
	struct tl_adjacency *adj;
	__u64 word;

	filtered = tl_filter_port(ctx, f, 1, verdict);
	if (filtered != TL_GO_ON)
		return filtered;
	if (verdict != TL_GO_ON)
		return verdict;
	if (tl_is_stale())
		return TL_PASS_STALE;
	value = tl_route6(f->port->table6, &ip6->saddr, &ip6->daddr);
	if (!value)
		return TL_PASS_NO_ROUTE;
	word = tl_ecmp_select(ctx, f->l2, tl_action6(value, &ip6->saddr, &ip6->daddr));
	if (tl_action_kind(word) == TL_ACTION_VERDICT)
		return tl_action_verdict(word);
	if (TL_UNLIKELY(f->port->flags & (TL_PORT_CSUM_PARTIAL | TL_PORT_PROXY_NDP))) {
		if (f->port->flags & TL_PORT_CSUM_PARTIAL && tl_is_csum_partial6(ctx, f, ip6))
			return TL_PASS_CSUM_PARTIAL;
		if (f->port->flags & TL_PORT_PROXY_NDP && tl_is_ndp(ctx, f->l2))
			return TL_PASS_PROXY_NDP;
	}
	if (tl_action_kind(word) > TL_ACTION_ENCAPS)
		return tl_seg6(ctx, f, word);
	if (tl_action_kind(word) == TL_ACTION_NONE)
		return TL_PASS_NO_ACTION;
	adj = tl_action_adjacency(word);
	if (!adj)
		return TL_PASS_NO_ACTION;
	if (tl_action_kind(word) == TL_ACTION_FORWARD)
		return tl_forward_ipv6(ctx, f, adj);
	if (!tl_seg6_on(f))
		return TL_PASS_SEG6_OFF;
	return tl_h_encaps(ctx, f, adj, IPPROTO_IPV6, word & TL_SENT_ON);
}

/* Loaded to take frames of several buffers where a driver gives them to it (load.rs). */
SEC("xdp")
int trieline(struct xdp_md *ctx)
{
	__u64 captured = 0;
	struct tl_frame f;
	__u32 verdict, first;

	if (TL_UNLIKELY(tl_capture_on()))
		captured = tl_capture_in(ctx, TL_CAPTURE_ALL);
	verdict = tl_parse_link(ctx, &f);
	if (verdict == TL_GO_ON) {
		if (f.proto == TL_BE16(ETH_P_IP))
			verdict = tl_ipv4(ctx, &f);
		else if (f.proto == TL_BE16(ETH_P_IPV6))
			verdict = tl_ipv6(ctx, &f);
		else
			verdict = TL_PASS_NOT_IP;
	}
	first = verdict;
	verdict = tl_guard(ctx, &f, verdict);
	if (TL_UNLIKELY(captured))
		tl_capture_out(ctx, TL_CAPTURE_ALL, captured, first << 16 | verdict, f.oif);
	return tl_finish(f.port, verdict);
}

/* Run by the daemon in its loop: the tables are current, and may be used for so long. */
SEC("syscall")
int tl_beat(struct tl_beat *beat)
{
	tl_heartbeat.deadline = bpf_jiffies64() + beat->ticks;
	return 0;
}

/* Never called, so never loaded: keeps the types that user space is generated from in the object's BTF. */
struct tl_types {
	enum tl_verdict verdict;
	enum tl_action_kind kind;
	enum tl_flavour flavour;
	enum tl_adjacency_flags outer;
	struct tl_dt46 dt46;
	enum tl_port_flags flags;
	enum tl_filter_action filter_action;
	enum tl_filter_list filter_list;
	enum tl_sid_hook_kind sid_hook_kind;
	enum tl_limits limits;
	struct tl_instance instance;
	struct tl_rule rule;
	enum tl_rule_flags rule_flags;
	struct tl_image image;
	struct tl_table table;
	struct tl_skip skip;
	struct tl_local_addrs own;
	struct tl_heartbeat heartbeat;
	struct tl_beat beat;
	enum tl_flows flows;
	enum tl_image_map_type map_type;
};

int tl_types(const struct tl_types *types, const struct tl_node6 *node6, const struct tl_node8 *node8)
{
	return types->verdict + (int)node6->starts + (int)node8->starts[0];
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
