// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The steps of a loader with libtrieline, as C and as C++: fill, look up, replace, pin, reopen, free; and the
 * error of each mistake.
 *
 * usage: tables any|arena|array DIRECTORY FILE BADFILE; DIRECTORY (in bpffs) may be `-`.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trieline/trieline.h>

static struct trieline_error error;

#define EXPECT(condition)                                                                                    \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s; last error %d: %s\n", __FILE__, __LINE__, #condition,    \
				error.code, error.text);                                                     \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

/* A call that fails so, with these words. */
#define FAILS(call, errno_, words)                                                                           \
	do {                                                                                                 \
		EXPECT((call) == -(errno_));                                                                 \
		EXPECT(error.code == -(errno_));                                                             \
		EXPECT(strstr(error.text, words));                                                           \
	} while (0)

static const unsigned char net[4] = {192, 0, 2, 0}, host[4] = {192, 0, 2, 129}, other[4] = {10, 0, 0, 1};
static const unsigned char half[4] = {192, 0, 2, 128}, zero[4] = {0, 0, 0, 0};

static void one_by_one(struct trieline *t)
{
	uint32_t value, length;

	EXPECT(!trieline_table_create(t, 0, TRIELINE_IPV4, &error));
	EXPECT(trieline_insert(t, 0, net, 24, 7, &error) == 0);
	EXPECT(trieline_insert(t, 0, net, 24, 8, &error) == 1);
	EXPECT(trieline_insert(t, 0, half, 25, 9, NULL) == 0);
	EXPECT(trieline_insert(t, 0, zero, 0, 1, &error) == 0 && error.code == 0 && !error.text[0]);
	EXPECT(trieline_lookup(t, 0, host, &value, &error) == 1 && value == 9);
	EXPECT(trieline_match(t, 0, host, &value, &length, &error) == 1 && value == 9 && length == 25);
	EXPECT(trieline_lookup(t, 0, other, &value, &error) == 1 && value == 1);
	EXPECT(trieline_get(t, 0, net, 24, &value, &error) == 1 && value == 8);
	EXPECT(trieline_get(t, 0, net, 25, &value, &error) == 0 && value == 0);
	EXPECT(trieline_remove(t, 0, zero, 0, &error) == 1 && trieline_remove(t, 0, zero, 0, &error) == 0);
	EXPECT(trieline_lookup(t, 0, other, &value, &error) == 0 && value == 0);
	EXPECT(trieline_match(t, 0, other, NULL, NULL, &error) == 0);
	EXPECT(trieline_count(t, 0, &error) == 2);
}

static void many_at_once(struct trieline *t)
{
	const struct trieline_entry changes[] = {{other, 32, 5}, {net, 24, 0}, {half, 25, 6}};
	const struct trieline_entry bad[] = {{other, 32, 4}, {host, 24, 4}};
	const struct trieline_entry odd[] = {{other, 32, 4}, {NULL, 24, 4}};
	uint32_t value;

	EXPECT(trieline_apply(t, 0, changes, 3, &error) == 3);
	EXPECT(trieline_count(t, 0, &error) == 2);
	EXPECT(trieline_lookup(t, 0, host, &value, &error) == 1 && value == 6);
	FAILS(trieline_apply(t, 0, bad, 2, &error), EINVAL, "entry 1: 192.0.2.129/24: host bits are set");
	FAILS(trieline_replace(t, 0, TRIELINE_IPV4, odd, 2, &error), EINVAL, "`entry 1: key` is NULL");
	EXPECT(trieline_get(t, 0, other, 32, &value, &error) == 1 && value == 5);
	EXPECT(!trieline_replace(t, 0, TRIELINE_IPV4, changes, 1, &error));
	EXPECT(trieline_count(t, 0, &error) == 1);
	EXPECT(trieline_lookup(t, 0, host, &value, &error) == 0);
}

/* Prefixes of full length, which stand in a hash table: the table stays one of IPv4. */
static void hosts(struct trieline *t)
{
	struct trieline_entry entries[300];
	unsigned char keys[300][4];
	uint32_t value, n;

	for (n = 0; n < 300; n++) {
		const unsigned char key[4] = {10, 1, (unsigned char)(n >> 8), (unsigned char)n};

		memcpy(keys[n], key, 4);
		entries[n].key = keys[n];
		entries[n].length = 32;
		entries[n].value = n + 1;
	}
	EXPECT(!trieline_replace(t, 12, TRIELINE_IPV4, entries, 300, &error));
	EXPECT(trieline_lookup(t, 12, keys[299], &value, &error) == 1 && value == 300);
	FAILS(trieline_replace(t, 12, TRIELINE_IPV6, NULL, 0, &error), EEXIST, "table 12 has IPv4 addresses");
	EXPECT(!trieline_replace(t, 12, TRIELINE_IPV4, entries, 299, &error));
	EXPECT(trieline_lookup(t, 12, keys[299], &value, &error) == 0);
	EXPECT(trieline_lookup(t, 12, keys[0], &value, &error) == 1 && value == 1);
	EXPECT(!trieline_table_remove(t, 12, &error));
}

/* IPv6, and keys of other widths. */
static void other_keys(struct trieline *t)
{
	const unsigned char six[16] = {0x20, 0x01, 0x0d, 0xb8};
	uint32_t value, length, bits;

	EXPECT(!trieline_table_create(t, 1, TRIELINE_IPV6, &error));
	EXPECT(trieline_insert(t, 1, six, 32, 3, &error) == 0);
	EXPECT(trieline_lookup(t, 1, six, &value, &error) == 1 && value == 3);
	for (bits = 1; bits <= 2048; bits += bits < 170 || bits == 2047 ? 1 : bits == 2040 ? 7 : 11) {
		/* Of the very size, so that valgrind sees who reads behind it. */
		uint32_t bytes = (bits + 7) / 8, unused = 8 * bytes - bits;
		unsigned char *key = (unsigned char *)malloc(bytes);

		if (!key)
			abort();
		memset(key, 0xab, bytes);
		key[bytes - 1] = (unsigned char)(0xffu << unused);
		EXPECT(!trieline_table_create(t, 2, TRIELINE_KEY(bits), &error));
		EXPECT(trieline_insert(t, 2, key, bits, bits, &error) == 0);
		EXPECT(trieline_match(t, 2, key, &value, &length, &error) == 1 && value == bits &&
		       length == bits);
		EXPECT(trieline_lookup(t, 2, key, &value, &error) == 1 && value == bits);
		FAILS(trieline_insert(t, 2, key, bits + 1, 1, &error), EINVAL, "is over");
		if (unused) {
			key[bytes - 1] |= 1;
			FAILS(trieline_insert(t, 2, key, bits, 1, &error), EINVAL, "host bits are set");
		}
		key[bytes - 1] ^= (unsigned char)(1u << unused);
		EXPECT(trieline_lookup(t, 2, key, &value, &error) == 0);
		EXPECT(!trieline_table_remove(t, 2, &error));
		free(key);
	}
	EXPECT(bits == 2059); /* the last were 2047 and 2048 */
	FAILS(trieline_table_create(t, 2, TRIELINE_KEY(2049), &error), EINVAL, "invalid kind of key");
	FAILS(trieline_table_create(t, 2, 0, &error), EINVAL, "invalid kind of key");
}

static void mistakes(struct trieline *t)
{
	struct trieline_options options = {TRIELINE_ANY, 0, 12345};

	EXPECT(!trieline_create(&options, &error) && error.code == -EINVAL && strstr(error.text, "12345"));
	options.map_type = 9;
	EXPECT(!trieline_create(&options, &error) && strstr(error.text, "map_type 9"));
	EXPECT(!trieline_open("/sys/fs/bpf/no-such-tables", &error) && error.code == -ENOENT);
	EXPECT(!trieline_open(NULL, &error) && strstr(error.text, "`directory` is NULL"));
	FAILS(trieline_pin(t, "/tmp", &error), EINVAL, "not in a BPF file system");
	FAILS(trieline_pin(t, NULL, &error), EINVAL, "`directory` is NULL");
	FAILS(trieline_unpin("/sys/fs/bpf/no-such-tables", &error), ENOENT, "nothing is pinned there");
	FAILS(trieline_insert(NULL, 0, net, 24, 1, &error), EINVAL, "`t` is NULL");
	FAILS(trieline_insert(t, 0, NULL, 24, 1, &error), EINVAL, "`key` is NULL");
	FAILS(trieline_insert(t, 0, net, 33, 1, &error), EINVAL, "33 is over 32");
	FAILS(trieline_insert(t, 0, net, 4000000000u, 1, &error), EINVAL, "is over 32");
	FAILS(trieline_insert(t, 0, net, 24, 0, &error), EINVAL, "invalid value 0");
	FAILS(trieline_insert(t, 0, net, 24, TRIELINE_VALUE_MAX + 1, &error), EINVAL,
	      "invalid value 2147483648");
	FAILS(trieline_insert(t, 40, net, 24, 1, &error), ENOENT, "cannot find table 40: make it");
	FAILS(trieline_insert(t, 64, net, 24, 1, &error), ENOENT, "expected one below 64");
	FAILS(trieline_table_create(t, 0, TRIELINE_IPV4, &error), EEXIST,
	      "table 0 (IPv4 addresses) is there");
	FAILS(trieline_replace(t, 0, TRIELINE_IPV6, NULL, 0, &error), EEXIST, "would have IPv6 addresses");
	FAILS(trieline_replace(t, 0, TRIELINE_IPV4, NULL, 3, &error), EINVAL, "`entries` is NULL");
	FAILS(trieline_lookup(t, 0, NULL, NULL, &error), EINVAL, "`key` is NULL");
	FAILS(trieline_table_remove(t, 50, &error), ENOENT, "cannot find table 50");
	FAILS(trieline_stats(t, NULL, &error), EINVAL, "`stats` is NULL");
	FAILS(trieline_count(t, 50, &error), ENOENT, "cannot find table 50");
	EXPECT(trieline_map_fd(NULL) == -EINVAL && trieline_map_bytes(NULL) == 0);
	trieline_close(NULL);
}

static void files(struct trieline *t, const char *file, const char *bad)
{
	struct trieline_loaded loaded;
	uint32_t value;

	EXPECT(!trieline_load_file(t, file, 10, 11, 1, &loaded, &error));
	EXPECT(loaded.ipv4 == 2 && loaded.ipv6 == 1);
	EXPECT(trieline_lookup(t, 10, host, &value, &error) == 1 && value == 1);
	FAILS(trieline_load_file(t, bad, 10, 11, 1, NULL, &error), EBADMSG, ":2: ");
	EXPECT(strstr(error.text, bad) && strstr(error.text, "prefix length 33 is over 32"));
	FAILS(trieline_load_file(t, "/no/such/file", 10, 11, 1, NULL, &error), ENOENT, "/no/such/file");
	FAILS(trieline_load_file(t, file, 11, 10, 1, NULL, &error), EEXIST, "would have IPv4 addresses");
	FAILS(trieline_load_file(t, file, 10, 10, 1, NULL, &error), EINVAL, "expected two tables");
	EXPECT(trieline_count(t, 10, &error) == 2 && trieline_count(t, 11, &error) == 1);
	EXPECT(!trieline_load_file(t, file, TRIELINE_NO_TABLE, 11, 1, NULL, &error));
	EXPECT(!trieline_table_remove(t, 10, &error) && !trieline_table_remove(t, 11, &error));
}

/* A list whose IPv6 prefixes do not fit: the error names the new table and the old one. */
static void no_room(uint32_t map_type, const char *file, const char *big)
{
	struct trieline_options options = {map_type, 0, 256 << 10};
	struct trieline *t = trieline_create(&options, &error);
	uint32_t value;

	EXPECT(t && !trieline_load_file(t, file, 0, 1, 1, NULL, &error));
	FAILS(trieline_load_file(t, big, 0, 1, 9, NULL, &error), ENOSPC,
	      "table 0 has the new IPv4 list, table 1 keeps");
	EXPECT(strstr(error.text, "the image is full"));
	EXPECT(trieline_lookup(t, 0, host, &value, &error) == 1 && value == 9);
	EXPECT(trieline_count(t, 0, &error) == 1 && trieline_count(t, 1, &error) == 1);
	trieline_close(t);
}

/* The tables outlive the handle; the next handle fills them again. */
static struct trieline *reopened(struct trieline *t, const char *directory)
{
	const struct trieline_entry entry = {net, 24, 2};
	uint32_t value;

	EXPECT(!trieline_pin(t, directory, &error));
	EXPECT(!trieline_open(directory, &error) && error.code == -EBUSY);
	trieline_close(t);
	t = trieline_open(directory, &error);
	EXPECT(t);
	EXPECT(trieline_lookup(t, 0, other, &value, &error) == 1 && value == 5);
	FAILS(trieline_insert(t, 0, net, 24, 1, &error), ENOENT, "filled by an earlier process");
	FAILS(trieline_table_create(t, 0, TRIELINE_IPV4, &error), EEXIST, "trieline_replace replaces it");
	EXPECT(!trieline_replace(t, 0, TRIELINE_IPV4, &entry, 1, &error));
	EXPECT(trieline_insert(t, 0, half, 25, 3, &error) == 0);
	FAILS(trieline_unpin(directory, &error), EBUSY, "is in use");
	return t;
}

int main(int count, char **args)
{
	struct trieline_options options = {TRIELINE_ANY, 0, 1 << 24};
	struct trieline_stats stats;
	struct trieline *t;

	if (count != 6)
		return 2;
	options.map_type = !strcmp(args[1], "arena")   ? TRIELINE_ARENA
			   : !strcmp(args[1], "array") ? TRIELINE_ARRAY
						       : TRIELINE_ANY;
	t = trieline_create(&options, &error);
	EXPECT(t);
	EXPECT(trieline_map_bytes(t) == options.bytes && trieline_map_fd(t) >= 0);
	EXPECT(options.map_type == TRIELINE_ANY || trieline_map_type(t) == (int)options.map_type);
	one_by_one(t);
	many_at_once(t);
	hosts(t);
	other_keys(t);
	mistakes(t);
	files(t, args[3], args[4]);
	no_room(options.map_type, args[3], args[5]);
	EXPECT(!trieline_stats(t, &stats, &error) && stats.tables == 64 && stats.tables_used == 2);
	EXPECT(stats.bytes == options.bytes && stats.used > 0);
	EXPECT(!trieline_synchronize(t, &error) && trieline_reclaim(t, &error) == 0);
	EXPECT(!trieline_stats(t, &stats, &error) && stats.waiting == 0);
	if (strcmp(args[2], "-"))
		t = reopened(t, args[2]);
	trieline_close(t);
	EXPECT(!strcmp(args[2], "-") || !trieline_unpin(args[2], &error));
	puts("ok");
	return 0;
}
