/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The contract of a SID hook: a BPF program of your own, called for each packet to a SRv6 SID that it is
 * bound to.
 *
 *   #include <trieline/sid_hook.h>
 *
 *   SEC("xdp.frags")
 *   int my_sid_hook(struct xdp_md *ctx)
 *   {
 *           return TL_SID_HOOK_GO_ON;
 *   }
 *
 *   [[sid_hook]]                              # /etc/trieline/trielined.toml
 *   name = "mine"
 *   sid = "fd00:a::1"                         # ip -6 route add fd00:a::1 encap seg6local action End dev eth1
 *   program = "/sys/fs/bpf/my_sid_hook"       # bpftool prog load my_sid_hook.o /sys/fs/bpf/my_sid_hook
 *
 * The program is an XDP program of its own, loaded and pinned by its author. Its section is "xdp.frags" (or
 * another with BPF_F_XDP_HAS_FRAGS), as frames of several buffers come to it too. In generic mode they do
 * not, and its section is "xdp".
 *
 * ARGUMENT. The frame as it came in, from its Ethernet header on, with up to four tags (802.1Q, 802.1ad).
 * trieline has checked that behind the Ethernet header and the tags stands a whole IPv6 header, in the
 * first buffer. It has also checked that the destination is the SID. The destination MAC address is the
 * port's, or the kernel is to get the packet. If the route to the SID is not one of `encap seg6local`, the
 * kernel is to get the packet. The same holds if the frame has not the payload length that the header says.
 * trieline has not checked the bytes behind the IPv6 header, nor the hop limit.
 *
 * RETURN VALUE.
 *   TL_SID_HOOK_GO_ON  the endpoint's behaviour follows (End, End.DT4, ...), on the packet as it is now
 *                      (by the kernel, if that was to get it)
 *   XDP_DROP           dropped; verdict sid_hook_drop
 *   XDP_PASS           the kernel gets it as it is now; verdict sid_hook_pass
 *   XDP_REDIRECT       sent where bpf_redirect() or bpf_redirect_map() said; verdict sid_hook_redirect
 *   anything else      dropped; verdict sid_hook_bad_return. XDP_TX is not possible here: redirect.
 * A packet whose program is gone is dropped; verdict sid_hook_missing.
 *
 * WHAT IT MAY CHANGE. Any byte, and the frame's length by bpf_xdp_adjust_head() and bpf_xdp_adjust_tail(). If
 * the endpoint is to follow: the Ethernet header and the tag keep their length, an IPv6 header follows them,
 * and its payload length fits. These are checked again, and a packet that fails is dropped as ipv6_length or
 * ipv6_header. The route was looked up before: another destination is not looked up, only what the behaviour
 * looks up itself.
 *
 * WHAT IT COSTS. A hash lookup for each packet to a SID, on all devices of a node that has SID hooks. Those
 * to its own also cost the tail call and the program. Packets that XDP forwards otherwise pay nothing.
 */
#ifndef TRIELINE_SID_HOOK_H
#define TRIELINE_SID_HOOK_H

/* Beside the numbers of enum xdp_action. */
enum tl_sid_hook_return {
	TL_SID_HOOK_GO_ON = 64,
	TL_SID_HOOK_MISSING = 65, /* trieline's own: no program is there */
};

#endif
