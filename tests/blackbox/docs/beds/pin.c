/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Loads the one program of an object and pins it: pin OBJECT PATH */
#include <bpf/libbpf.h>

int main(int argc, char **argv)
{
	struct bpf_object *object = argc == 3 ? bpf_object__open_file(argv[1], NULL) : NULL;

	if (!object || bpf_object__load(object))
		return 1;
	return bpf_program__pin(bpf_object__next_program(object, NULL), argv[2]) ? 1 : 0;
}
