/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The headers of an IPv6 packet, read once for filters, functions and the guard, and no further than the
 * kernel reads them.
 *
 * The kernel cuts a packet to its payload length, and puts fragments together at an address of its own. So
 * nothing beyond the payload length counts, a first fragment must hold all headers (RFC 7112), and a later
 * one says nothing. Without its first one it comes to nothing.
 */
#ifndef TRIELINE_HEADERS_BPF_H
#define TRIELINE_HEADERS_BPF_H

#include "xdp/parse.bpf.h"

#define TL_EXTENSIONS 6
#define TL_NO_END 0xffff /* headers begin within TL_FILTER_REACH and are read to 16 KiB at most */

/*
 * The result of tl_headers6(), from the lowest bits on: the protocol behind the extension headers, then the
 * flags below. From bit 16 on: where that protocol begins. From 32: where the packet ends, within the bytes
 * around it; from 48: where the first routing header with segments left begins (0: none).
 */
#define TL_HEADERS_CUT (1 << 8)	     /* headers end early, or are more than are looked at: no protocol */
#define TL_HEADERS_LATER (1 << 9)    /* not the first fragment: the protocol is what it claims */
#define TL_HEADERS_ROUTED (1 << 10)  /* a routing header was there */
#define TL_HEADERS_STRANGE (1 << 11) /* one with segments left that is not an SRH, or a second one */
#define TL_HEADERS_AT(headers) ((headers) >> 16 & 0xffff)
#define TL_HEADERS_END(headers) ((headers) >> 32 & 0xffff)
#define TL_HEADERS_SRH(headers) ((headers) >> 48)

/* Bytes of an IPv6 extension header after which another header follows; 0 for all else. */
TL_INLINE __u32 tl_extension_bytes(__u8 kind, __u8 length)
{
	switch (kind) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		return (length + 1) * 8;
	case IPPROTO_AH: /* RFC 4302, 2.2 */
		return (length + 2) * 4;
	case IPPROTO_FRAGMENT:
		return 8;
	default:
		return 0;
	}
}

/* The headers of the IPv6 packet at `at`; what is around it ends at `end`. */
__attribute__((noinline)) __u64 tl_headers6(struct xdp_md *ctx, __u32 at, __u32 end)
{
	__u32 flags = 0, srh = 0, whole = 1, bytes, i;
	__u8 head[4], kind;

	/* Payload length and next header. */
	if (bpf_xdp_load_bytes(ctx, at + 4, head, sizeof(head)))
		return TL_HEADERS_CUT;
	kind = head[2];
	bytes = head[0] << 8 | head[1];
	at += sizeof(struct ipv6hdr);
	if (end > bpf_xdp_get_buff_len(ctx))
		end = bpf_xdp_get_buff_len(ctx);
	if (end > TL_NO_END)
		end = TL_NO_END;
	/* Without a length, the kernel reads on behind hop-by-hop options: one of them may have it. */
	if ((bytes || kind != IPPROTO_HOPOPTS) && at + bytes < end)
		end = at + bytes;
	for (i = 0; i < TL_EXTENSIONS && tl_extension_bytes(kind, 0); i++) {
		if (at + 8 > end || bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
			break;
		bytes = tl_extension_bytes(kind, head[1]);
		if (kind == IPPROTO_ROUTING) {
			flags |= TL_HEADERS_ROUTED;
			if (head[3] && (srh || head[2] != IPV6_SRCRT_TYPE_4))
				flags |= TL_HEADERS_STRANGE;
			else if (head[3])
				srh = at;
		}
		at += bytes;
		if (kind == IPPROTO_FRAGMENT) {
			if (head[2] || head[3] & 0xf8) {
				flags |= TL_HEADERS_LATER;
				kind = head[0];
				break;
			}
			whole = 0;
		}
		kind = head[0];
	}
	/* Of a fragment the protocol's header has to be there, too. */
	if (!(flags & TL_HEADERS_LATER) && (tl_extension_bytes(kind, 0) || at + !whole > end))
		flags |= TL_HEADERS_CUT;
	return (__u64)srh << 48 | (__u64)end << 32 | (__u64)(at & 0xffff) << 16 | flags | kind;
}

#endif
