// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Drops packets from listed sources on a device; SIGHUP reads the list again. */
#include <err.h>
#include <inttypes.h>
#include <net/if.h>
#include <signal.h>
#include <trieline/libbpf.h>

static struct trieline_error error;

static int read_list(struct trieline *t, const char *list)
{
	struct trieline_loaded loaded;

	if (trieline_load_file(t, list, 0, 1, 1, &loaded, &error))
		return -1;
	printf("%s: %" PRIu64 " IPv4 and %" PRIu64 " IPv6 prefixes\n", list, loaded.ipv4, loaded.ipv6);
	return 0;
}

static __u64 dropped(struct bpf_object *object, __u32 table)
{
	int fd = bpf_object__find_map_fd_by_name(object, "drops"), cpus = libbpf_num_possible_cpus();
	__u64 sum = 0, counts[cpus];

	for (int cpu = bpf_map_lookup_elem(fd, &table, counts) ? cpus : 0; cpu < cpus; cpu++)
		sum += counts[cpu];
	return sum;
}

int main(int count, char **args)
{
	struct trieline_options options = {0};
	struct bpf_object *object;
	struct trieline *t;
	sigset_t signals;
	int got = 0;

	if (count < 3)
		errx(2, "usage: acl DEVICE LIST [arena|array]");
	options.map_type = count < 4		      ? TRIELINE_ANY
			   : strcmp(args[3], "arena") ? TRIELINE_ARRAY
						      : TRIELINE_ARENA;
	setlinebuf(stdout);
	sigemptyset(&signals);
	sigaddset(&signals, SIGHUP), sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	t = trieline_create(&options, &error);
	if (!t || read_list(t, args[2]))
		errx(1, "%s", error.text);
	object =
	    bpf_object__open(trieline_map_type(t) == TRIELINE_ARENA ? "acl.arena.bpf.o" : "acl.array.bpf.o");
	if (!object || trieline_load_object(t, object, &error))
		errx(1, "%s", object ? error.text : "acl.*.bpf.o: make builds them");
	if (!bpf_program__attach_xdp(bpf_object__next_program(object, NULL), if_nametoindex(args[1])))
		err(1, "attaching to %s", args[1]);
	puts("attached");
	while (!sigwait(&signals, &got) && got == SIGHUP)
		if (read_list(t, args[2]))
			warnx("%s; what is not said to be new stays as it was", error.text);
	printf("dropped %llu IPv4 and %llu IPv6 packets\n", dropped(object, 0), dropped(object, 1));
	return 0;
}
