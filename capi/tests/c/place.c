// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * trieline/libbpf.h: a program placed, loaded and run. One that sleeps, one with a callback that may, one of
 * the other map type and nothing at all refused. Usage: place arena|array OBJECT SLEEPABLE OTHER DEFERRED
 */
#include <stdlib.h>
#include <trieline/libbpf.h>

static struct trieline_error error;

#define EXPECT(condition)                                                                                    \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s; last error %d: %s\n", __FILE__, __LINE__, #condition,    \
				error.code, error.text);                                                     \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

/* The program's answer. */
static __u32 found(struct bpf_object *object)
{
	unsigned char packet[64] = {0};
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = packet, .data_size_in = sizeof(packet));

	EXPECT(
	    !bpf_prog_test_run_opts(bpf_program__fd(bpf_object__find_program_by_name(object, "look")), &run));
	return run.retval;
}

int main(int count, char **args)
{
	const unsigned char net[4] = {192, 0, 2, 0}, half[4] = {192, 0, 2, 128};
	struct trieline_options options = {TRIELINE_ANY, 0, 0};
	struct bpf_object *object, *sleepable, *deferred, *other;
	struct trieline *t;

	if (count != 6)
		return 2;
	options.map_type = strcmp(args[1], "arena") ? TRIELINE_ARRAY : TRIELINE_ARENA;
	t = trieline_create(&options, &error);
	EXPECT(t && !trieline_table_create(t, 0, TRIELINE_IPV4, &error));
	EXPECT(trieline_insert(t, 0, net, 24, 7, &error) == 0);
	object = bpf_object__open(args[2]);
	EXPECT(object && !trieline_load_object(t, object, &error));
	EXPECT(found(object) == 7);
	EXPECT(trieline_insert(t, 0, half, 25, 8, &error) == 0 && found(object) == 8);

	sleepable = bpf_object__open(args[3]);
	EXPECT(sleepable && trieline_load_object(t, sleepable, &error) == -EINVAL && error.code == -EINVAL);
	EXPECT(strstr(error.text, "`sleeps` (syscall) is sleepable"));
	deferred = bpf_object__open(args[5]);
	EXPECT(deferred && trieline_load_object(t, deferred, &error) == -EINVAL);
	/* Linux before 6.10 has no such function, and the load fails. */
	EXPECT(strstr(error.text, "`deferred` (tc) calls bpf_wq_set_callback_impl") ||
	       strstr(error.text, "loading"));
	other = bpf_object__open(args[4]);
	EXPECT(other && trieline_load_object(t, other, &error) == -EINVAL);
	EXPECT(strstr(error.text, "has no place for tables in an"));
	EXPECT(trieline_load_object(t, NULL, &error) == -EINVAL && strstr(error.text, "`object` is NULL"));
	EXPECT(trieline_check(t, NULL, &error) == -EINVAL && trieline_place(NULL, object, NULL) == -EINVAL);

	bpf_object__close(other);
	bpf_object__close(deferred);
	bpf_object__close(sleepable);
	bpf_object__close(object);
	trieline_close(t);
	puts("ok");
	return 0;
}
