// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Loads the maps of an object, pins each as DIRECTORY/NAME, and prints `NAME ID`. Standard input holds the
 * entries to store, one a line: `NAME ADDRESS LENGTH VALUE`. The value is in hexadecimal, byte by byte, and
 * so is a key that is not an address. usage: fill OBJECT DIRECTORY
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <err.h>
#include <stdio.h>
#include <string.h>

static void bytes(const char *hex, unsigned char *to)
{
	for (size_t at = 0; hex[2 * at]; at++)
		sscanf(hex + 2 * at, "%2hhx", &to[at]);
}

static void store(struct bpf_object *object, const char *name, const char *address, unsigned length,
		  const char *hex)
{
	unsigned char key[64] = {0}, value[64] = {0};
	int fd = bpf_object__find_map_fd_by_name(object, name);

	memcpy(key, &length, 4);
	if (!strpbrk(address, ".:"))
		bytes(address, key + 4);
	else if (inet_pton(strchr(address, ':') ? AF_INET6 : AF_INET, address, key + 4) != 1)
		errx(1, "%s %s", name, address);
	bytes(hex, value);
	if (fd < 0 || bpf_map_update_elem(fd, key, value, BPF_ANY))
		err(1, "%s %s/%u", name, address, length);
}

int main(int count, char **args)
{
	struct bpf_object *object = count == 3 ? bpf_object__open(args[1]) : NULL;
	char name[16], address[64], hex[129], path[256];
	struct bpf_map *map;
	unsigned length;

	if (!object || bpf_object__load(object))
		errx(1, "usage: fill OBJECT DIRECTORY");
	bpf_object__for_each_map(map, object)
	{
		struct bpf_map_info info = {0};
		__u32 size = sizeof(info);

		snprintf(path, sizeof(path), "%s/%s", args[2], bpf_map__name(map));
		if (bpf_map__pin(map, path) || bpf_obj_get_info_by_fd(bpf_map__fd(map), &info, &size))
			err(1, "%s", path);
		printf("%s %u\n", bpf_map__name(map), info.id);
	}
	while (scanf("%15s %63s %u %128s", name, address, &length, hex) == 4)
		store(object, name, address, length, hex);
	return 0;
}
