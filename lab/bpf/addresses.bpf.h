/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The destinations of a run: addresses in network order, worked out beforehand by user space, so that a
 * program only reads the next one.
 */
#ifndef LAB_ADDRESSES_H
#define LAB_ADDRESSES_H

#include "kernel.h"
#include "intf.h"

/* LAB_ADDRESSES of 4 bytes (IPv4), 8 (IPv4 and port, two bytes of zero) or 16 (IPv6). Zero-filled memory, one
 * map element. */
__u64 addresses[LAB_ADDRESSES * 2] SEC(".bss.addresses");

static __always_inline __u32 address4(__u64 n) { return ((__u32 *)addresses)[n & (LAB_ADDRESSES - 1)]; }

static __always_inline __u64 address48(__u64 n) { return addresses[n & (LAB_ADDRESSES - 1)]; }

static __always_inline void address6(__u64 n, __u64 *hi, __u64 *lo)
{
	__u64 i = (n & (LAB_ADDRESSES - 1)) * 2;

	*hi = addresses[i];
	*lo = addresses[i + 1];
}

#endif
