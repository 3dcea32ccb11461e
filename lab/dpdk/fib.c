/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* DPDK's FIB libraries behind a few plain functions, for the experiment `engines`: compiled when it runs,
 * where libdpdk is. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_version.h>

const char *tl_version(void) { return rte_version(); }

/* Starts DPDK's environment without devices. Returns 0, or an errno. It binds the calling thread to a CPU. */
int tl_start(int megabytes, int hugepages)
{
	char size[16];
	char *args[16] = {
	    "trieline",
	    "--no-pci",
	    "--no-telemetry",
	    "--log-level=*:critical",
	    "--force-max-simd-bitwidth=512",
	    "--file-prefix=trieline",
	    "-m",
	    size,
	};
	int count = 8;

	snprintf(size, sizeof size, "%d", megabytes);
	if (hugepages) {
		args[count++] = "--in-memory";
	} else {
		args[count++] = "--no-huge";
		args[count++] = "--no-shconf";
	}
	if (rte_eal_init(count, args) < 0)
		return rte_errno ? rte_errno : EINVAL;
	return 0;
}

/* Bytes that DPDK has given out of its memory. */
unsigned long long tl_bytes(void)
{
	struct rte_malloc_socket_stats stats;
	unsigned long long sum = 0;

	for (unsigned int i = 0; i < rte_socket_count(); i++)
		if (rte_malloc_get_socket_stats(rte_socket_id_by_idx(i), &stats) == 0)
			sum += stats.heap_allocsz_bytes;
	return sum;
}

/* A name that no FIB has had: DPDK finds them by name. */
static const char *name(void)
{
	static char text[16];
	static int count;

	snprintf(text, sizeof text, "trieline%d", count++);
	return text;
}

/* An IPv4 FIB (DIR-24-8) of entries of 2 or 4 bytes, searched by AVX-512; NULL with *error set. */
void *tl_fib4(int entry_bytes, unsigned int tbl8s, int routes, int *error)
{
	struct rte_fib_conf conf = {
	    .type = RTE_FIB_DIR24_8,
	    .max_routes = routes,
	    .dir24_8 = {.nh_sz = entry_bytes == 2 ? RTE_FIB_DIR24_8_2B : RTE_FIB_DIR24_8_4B,
			.num_tbl8 = tbl8s},
	};
	struct rte_fib *fib = rte_fib_create(name(), SOCKET_ID_ANY, &conf);

	if (!fib) {
		*error = rte_errno;
	} else if (rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512)) {
		rte_fib_free(fib);
		fib = NULL;
		*error = ENOTSUP;
	}
	return fib;
}

void tl_fib4_free(void *fib) { rte_fib_free(fib); }

/* Adds a route, or deletes it for next hop 0; the address in host order. Returns 0 or a negative errno. */
int tl_fib4_set(void *fib, const void *address, int length, unsigned int next_hop)
{
	uint32_t ip;

	memcpy(&ip, address, sizeof ip);
	return next_hop ? rte_fib_add(fib, ip, length, next_hop) : rte_fib_delete(fib, ip, length);
}

void tl_fib4_lookup(void *fib, const void *addresses, uint64_t *next_hops, int count)
{
	rte_fib_lookup_bulk(fib, (uint32_t *)addresses, next_hops, count);
}

/* An IPv6 FIB (trie), likewise; addresses in network order. */
void *tl_fib6(int entry_bytes, unsigned int tbl8s, int routes, int *error)
{
	struct rte_fib6_conf conf = {
	    .type = RTE_FIB6_TRIE,
	    .max_routes = routes,
	    .trie = {.nh_sz = entry_bytes == 2 ? RTE_FIB6_TRIE_2B : RTE_FIB6_TRIE_4B, .num_tbl8 = tbl8s},
	};
	struct rte_fib6 *fib = rte_fib6_create(name(), SOCKET_ID_ANY, &conf);

	if (!fib) {
		*error = rte_errno;
	} else if (rte_fib6_select_lookup(fib, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512)) {
		rte_fib6_free(fib);
		fib = NULL;
		*error = ENOTSUP;
	}
	return fib;
}

void tl_fib6_free(void *fib) { rte_fib6_free(fib); }

int tl_fib6_set(void *fib, const void *address, int length, unsigned int next_hop)
{
	return next_hop ? rte_fib6_add(fib, address, length, next_hop)
			: rte_fib6_delete(fib, address, length);
}

void tl_fib6_lookup(void *fib, const void *addresses, uint64_t *next_hops, int count)
{
	rte_fib6_lookup_bulk(fib, (uint8_t(*)[16])addresses, next_hops, count);
}
