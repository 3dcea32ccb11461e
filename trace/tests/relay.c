/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A broker for tests: passes messages from descriptor 0 to descriptor 1 by the system calls that its
 * arguments name. At the end it prints to standard error, for each message, its own clock after the receive
 * and before the send.
 *
 * Tracers of functions find relay_receive and relay_send in it. At the same places lie the static probes
 * relay:received, which is passed only while somebody listens, and relay:sending.
 *
 * It becomes the program RELAY_NEXT behind a message with the id 1.
 *
 * usage: relay read|readv|recv|recvmsg|pieces|recvmmsg|epoll|splice|uring|mixed|segments
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BYTES 65536
#define MESSAGES_MAX 1000000

static char buffer[BYTES];
static uint64_t received_ns[MESSAGES_MAX], sending_ns[MESSAGES_MAX];

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct iovec whole = {.iov_base = buffer, .iov_len = BYTES};

static ssize_t by_read(int fd, size_t bytes)
{
	return bytes ? write(fd, buffer, bytes) : read(fd, buffer, BYTES);
}

static ssize_t by_readv(int fd, size_t bytes)
{
	struct iovec part = {.iov_base = buffer, .iov_len = bytes};

	return bytes ? writev(fd, &part, 1) : readv(fd, &whole, 1);
}

static ssize_t by_recv(int fd, size_t bytes)
{
	return bytes ? send(fd, buffer, bytes, 0) : recv(fd, buffer, BYTES, 0);
}

/* A send of several datagrams. */
static ssize_t by_segments(int fd, size_t bytes)
{
	int segment = 16;

	if (bytes && setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)))
		die("UDP_SEGMENT");
	return by_recv(fd, bytes);
}

static ssize_t by_recvmsg(int fd, size_t bytes)
{
	struct iovec part = {.iov_base = buffer, .iov_len = bytes ? bytes : BYTES};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	return bytes ? sendmsg(fd, &message, 0) : recvmsg(fd, &message, 0);
}

/* recvmsg and sendmsg with a message in three places, which do not lie in order. */
static ssize_t by_pieces(int fd, size_t bytes)
{
	size_t rest = (bytes ? bytes : BYTES / 2) - 13;
	struct iovec parts[] = {{buffer + 100, 3}, {buffer, 10}, {buffer + 200, rest}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};

	return bytes ? sendmsg(fd, &message, 0) : recvmsg(fd, &message, 0);
}

static ssize_t by_recvmmsg(int fd, size_t bytes)
{
	struct iovec part = {.iov_base = buffer, .iov_len = bytes ? bytes : BYTES};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
	int done = bytes ? sendmmsg(fd, &message, 1, 0) : recvmmsg(fd, &message, 1, 0, NULL);

	return done == 1 ? (ssize_t)message.msg_len : done;
}

static ssize_t by_epoll(int fd, size_t bytes)
{
	static int epoll = -1;
	struct epoll_event event = {.events = EPOLLIN};
	ssize_t got;

	if (bytes)
		return send(fd, buffer, bytes, 0);
	if (epoll < 0) {
		epoll = epoll_create1(0);
		if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ||
		    fcntl(fd, F_SETFL, O_NONBLOCK))
			die("epoll");
	}
	/* Asks until nothing is left, as event loops do, then waits. */
	while ((got = recv(fd, buffer, BYTES, 0)) < 0 && errno == EAGAIN)
		epoll_wait(epoll, &event, 1, -1);
	return got;
}

static ssize_t by_splice(int fd, size_t bytes)
{
	static int ends[2] = {-1, -1};

	if (ends[0] < 0 && pipe(ends))
		die("pipe");
	return bytes ? splice(ends[0], NULL, fd, NULL, bytes, 0) : splice(fd, NULL, ends[1], NULL, BYTES, 0);
}

/* One request at a time, by the bare system calls. A caller that does not wait writes to something else until
 * it is done. */
static ssize_t request(int fd, size_t bytes, bool waits)
{
	static int ring = -1;
	static char *queue;
	static struct io_uring_sqe *requests;
	static struct io_uring_params setup;
	unsigned *tail, *head, *index;
	struct io_uring_cqe *answers;
	static int other = -1;
	static uint64_t others[2] = {1, ~0ull};
	ssize_t done;

	if (ring < 0) {
		other = eventfd(0, EFD_NONBLOCK);
		ring = syscall(SYS_io_uring_setup, 4, &setup);
		if (ring < 0)
			die("io_uring_setup");
		queue = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
		requests = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
		if (queue == MAP_FAILED || requests == MAP_FAILED ||
		    !(setup.features & IORING_FEAT_SINGLE_MMAP))
			die("mapping the ring");
	}
	tail = (unsigned *)(queue + setup.sq_off.tail);
	index = (unsigned *)(queue + setup.sq_off.array);
	head = (unsigned *)(queue + setup.cq_off.head);
	answers = (struct io_uring_cqe *)(queue + setup.cq_off.cqes);
	requests[0] = (struct io_uring_sqe){
	    .opcode = bytes ? IORING_OP_SEND : IORING_OP_RECV,
	    .fd = fd,
	    .addr = (uintptr_t)buffer,
	    .len = bytes ? bytes : BYTES,
	};
	index[*tail & (setup.sq_entries - 1)] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, waits, waits ? IORING_ENTER_GETEVENTS : 0, NULL, 0) < 0)
		die("io_uring_enter");
	while (__atomic_load_n((unsigned *)(queue + setup.cq_off.tail), __ATOMIC_ACQUIRE) == *head)
		if (write(other, others, sizeof(*others)) < 0)
			die("eventfd");
	done = answers[*head & (setup.cq_entries - 1)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	if (done < 0)
		errno = -done;
	return done;
}

static ssize_t by_uring(int fd, size_t bytes) { return request(fd, bytes, true); }

/* io_uring receives on the way out of calls that have nothing to do with it. */
static ssize_t by_mixed(int fd, size_t bytes)
{
	return bytes ? send(fd, buffer, bytes, 0) : request(fd, 0, false);
}

/* Receives without `bytes`, sends with them. */
static const struct {
	const char *name;
	ssize_t (*move)(int fd, size_t bytes);
} styles[] = {
    {"read", by_read},	   {"readv", by_readv},	      {"recv", by_recv},	 {"recvmsg", by_recvmsg},
    {"pieces", by_pieces}, {"recvmmsg", by_recvmmsg}, {"epoll", by_epoll},	 {"splice", by_splice},
    {"uring", by_uring},   {"mixed", by_mixed},	      {"segments", by_segments},
};

/* A static probe as <sys/sdt.h> writes it: an instruction that does nothing, and a note that says where. */
asm(".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"
    ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.popsection");
#define PROBE(name, semaphore)                                                                               \
	asm volatile("990: nop\n"                                                                            \
		     ".pushsection .note.stapsdt, \"\", \"note\"\n.balign 4\n"                               \
		     ".4byte 992f - 991f, 994f - 993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n"         \
		     "993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                                     \
		     ".asciz \"relay\"\n.asciz \"" name "\"\n.asciz \"\"\n994: .balign 4\n.popsection")
volatile uint16_t relay_received_semaphore __attribute__((section(".probes")));

__attribute__((noipa)) ssize_t relay_receive(ssize_t (*move)(int, size_t)) { return move(0, 0); }

__attribute__((noipa)) ssize_t relay_send(ssize_t (*move)(int, size_t), size_t bytes)
{
	return move(1, bytes);
}

int main(int count, char **arguments)
{
	ssize_t (*move)(int, size_t) = NULL;
	size_t messages = 0;
	ssize_t got;

	for (size_t i = 0; count == 2 && i < sizeof(styles) / sizeof(*styles); i++)
		if (!strcmp(arguments[1], styles[i].name))
			move = styles[i].move;
	if (!move) {
		fprintf(stderr,
			"usage: relay "
			"read|readv|recv|recvmsg|pieces|recvmmsg|epoll|splice|uring|mixed|segments\n");
		return 2;
	}
	while ((got = relay_receive(move)) > 0) {
		if (relay_received_semaphore)
			PROBE("received", "relay_received_semaphore");
		/* Only the first ones are printed: tests by the clock send as many as they can. */
		if (messages < MESSAGES_MAX) {
			received_ns[messages] = now();
			sending_ns[messages++] = now();
		}
		PROBE("sending", "0");
		if (relay_send(move, got) != got)
			die("sending");
		if (buffer[8] == 1 && getenv("RELAY_NEXT")) {
			char *next = strdup(getenv("RELAY_NEXT"));

			unsetenv("RELAY_NEXT");
			execl(next, next, arguments[1], NULL);
			die(next);
		}
	}
	if (got < 0)
		die("receiving");
	for (size_t i = 0; i < messages; i++)
		fprintf(stderr, "%llu %llu\n", (unsigned long long)received_ns[i],
			(unsigned long long)sending_ns[i]);
	return 0;
}
