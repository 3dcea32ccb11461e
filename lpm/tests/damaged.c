/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Damages an image again and again and looks addresses up in it, for a build with sanitizers (damaged.rs).
 * Usage: damaged IMAGE ROUNDS. Prints how many lookups ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trieline/lpm.h"

static __u64 seed = 0x9e3779b97f4a7c15;

static __u64 next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1d;
}

int main(int argc, char **argv)
{
	static const __u32 sizes[] = {0, 4, 8, 63, 64, 100, 4096, 65536};
	__u64 rounds = argc == 3 ? strtoull(argv[2], NULL, 10) : 0, ended = 0, found[6] = {0};
	FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
	__u32 size, count = 0, *sound, *used, *whole;

	if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 65536)
		return 2;
	rewind(file);
	sound = malloc(size);
	used = malloc(size);
	whole = malloc(size);
	if (!sound || !used || !whole || fread(sound, 1, size, file) != size)
		return 2;
	fclose(file);
	for (__u32 at = 0; at < size / 4; at++)
		if (sound[at])
			used[count++] = at;
	memcpy(whole, sound, size);
	for (__u64 round = 0; round < rounds; round++) {
		/* Sometimes memory that ends before the image does; exactly as long as said, so that a read
		 * past it is seen. */
		__u32 bytes = next() % 16 ? size : sizes[next() % 8], changes = 1 + next() % 6, changed[6];
		__u32 *image;

		image = whole;
		for (__u32 i = 0; i < changes; i++) {
			__u32 at = used[next() % count], how = next() % 4;

			changed[i] = at;
			image[at] = how == 0   ? sound[at] ^ 1u << next() % 32
				    : how == 1 ? sound[used[next() % count]]
				    : how == 2 ? (sound[at] & 0xe0000000) | (next() & 0x1fffffff)
					       : (__u32)next();
		}
		if (bytes != size) {
			image = malloc(bytes);
			if (!image)
				return 2;
			memcpy(image, whole, bytes);
		}
		struct tl_view graph = {image, bytes};
		__u64 key[TL_WIDE_WORDS(2048)];

		for (__u32 i = 0; i < TL_WIDE_WORDS(2048); i++)
			key[i] = next();

		for (__u32 i = 0; i < 24; i++) {
			/* Half of the addresses begin as the tables' prefixes do: with a small number. */
			__u64 high = i & 1 ? next() : next() >> 12, low = next();
			__u32 id = next() % 7;

			__u32 ids[2] = {id, id ^ 1}, addrs[2] = {high >> 32, low}, values[2];
			struct tl_key6 keys[2] = {{high, low}, {low, high}};

			key[0] = __builtin_bswap64(high);
			found[0] += !!tl_lookup4(graph, id, high >> 32);
			found[1] += !!tl_lookup6(graph, id, high, low);
			found[2] += !!tl_lookup(graph, id, 48, high, low);
			found[3] += !!tl_lookup_wide(graph, id, 2048, key);
			tl_lookup4_n(graph, ids, addrs, values, 2);
			found[4] += !!values[0];
			tl_lookup6_n(graph, ids, keys, values, 2);
			found[5] += !!values[0];
			ended += 6;
		}
		if (image != whole)
			free(image);
		for (__u32 i = 0; i < changes; i++)
			whole[changed[i]] = sound[changed[i]];
	}
	free(whole);
	free(sound);
	free(used);
	printf("%llu lookups in %llu damaged images ended; with a value, by function:",
	       (unsigned long long)ended, (unsigned long long)rounds);
	for (__u32 i = 0; i < 6; i++)
		printf(" %llu", (unsigned long long)found[i]);
	printf("\n");
	/* Each has walked. */
	for (__u32 i = 0; i < 6; i++)
		if (found[i] < rounds / 100)
			return 1;
	return 0;
}
