/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Writes the headers of the frames that the lab sends.
 */
#ifndef LAB_HEADS_H
#define LAB_HEADS_H

#include "kernel.h"
#include "intf.h"

/* Offsets of the headers that vary. */
#define ETH 14
#define TAG 4
#define HEAD4 48   /* Ethernet, perhaps a tag, IPv4, UDP: 42 or 46, rounded up to words */
#define HEAD6 64   /* Ethernet, IPv6, UDP: 62 */
#define HEADS 112  /* Ethernet, IPv6, SRH of one segment, IPv4, UDP: 106 */
#define HEADS6 128 /* the same with IPv6 inside: 126 */
#define HEADS2 128 /* Ethernet, IPv6, SRH of two segments, IPv4, UDP: 122 */
#define INNER (ETH + 40 + 24)
#define INNER2 (ETH + 40 + 40)

static __always_inline void put_head(__u64 *frame, const __u64 *head, __u32 bytes)
{
#pragma unroll
	for (__u32 i = 0; i < bytes / 8; i++)
		frame[i] = head[i];
}

/* Writes the destination of the IPv4 header at `ip` and the checksum that goes with it. */
static __always_inline void put_destination4(__u8 *ip, __u32 destination, __u64 sum)
{
	sum += (destination & 0xffff) + (destination >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*(__u16 *)(ip + 10) = ~sum;
	*(__u32 *)(ip + 16) = destination;
}

#endif
