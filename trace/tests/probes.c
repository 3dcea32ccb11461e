/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Functions that do nothing and begin with different instructions, on which the price of a probe depends. For
 * each name on standard input the function is called and the nanoseconds of a call are printed.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CALLS 10000
#define FUNCTION(name, code)                                                                                 \
	void name(void);                                                                                     \
	asm(".globl " #name "\n.type " #name ", @function\n" #name ": " code "\n.size " #name ", . "         \
	    "- " #name)

FUNCTION(begins_with_push, "push %rbp\npop %rbp\nret");
FUNCTION(begins_with_sub, "sub $8, %rsp\nadd $8, %rsp\nret");
FUNCTION(begins_with_endbr64, "endbr64\nret");
FUNCTION(begins_with_nop, "nop\nret"); /* as a static probe of <sys/sdt.h> */
FUNCTION(begins_with_nop5, ".byte 0x0f, 0x1f, 0x44, 0, 0\nret");
FUNCTION(returns_one, "push %rbp\nmov $1, %eax\npop %rbp\nret");
FUNCTION(never_called, "ret");

static const struct {
	const char *name;
	void (*function)(void);
} functions[] = {
    {"begins_with_push", begins_with_push},
    {"begins_with_sub", begins_with_sub},
    {"begins_with_endbr64", begins_with_endbr64},
    {"begins_with_nop", begins_with_nop},
    {"begins_with_nop5", begins_with_nop5},
    {"returns_one", returns_one},
    {"never_called", never_called},
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(void)
{
	char name[64];

	while (scanf("%63s", name) == 1) {
		for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
			uint64_t begun;

			if (strcmp(name, functions[i].name))
				continue;
			begun = now();
			for (int call = 0; call < CALLS; call++)
				functions[i].function();
			printf("%.2f\n", (double)(now() - begun) / CALLS);
			fflush(stdout);
		}
	}
	return 0;
}
