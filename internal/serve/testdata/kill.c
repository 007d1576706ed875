/*
 * Kills the program it is linked into at a chosen event, for the tests:
 *
 *     KILL_AT=EVENT#N[=SIGNAL]    at the Nth event of that name; SIGKILL unless given
 *     KILL_RANK=R                 … only in the process of this rank
 *     KILL_WAIT=1                 points wait until their checkpoint is durable
 *
 * Events are calls: point (of cairn_point), send and receive (of messages, before
 * they are sent or received), copy (of 4 KiB or more, after half of it is
 * copied), flush, failed (a point that returns an error), and committed (a
 * point after the Nth checkpoint of this process is durable).
 *
 * Link with -Wl,--wrap=memcpy,--wrap=cairn__copy_stream,--wrap=sendmsg,--wrap=recv,
 * --wrap=fflush,--wrap=cairn_point.
 */
#define _GNU_SOURCE
#include <cairn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

void *__real_memcpy(void *to, const void *from, size_t n);
void __real_cairn__copy_stream(unsigned char *to, const unsigned char *from, size_t n);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __real_recv(int fd, void *p, size_t n, int flags);
int __real_fflush(FILE *f);
cairn_status __real_cairn_point(cairn_run *run);

static char event[32];
static int count, wait, sig = SIGKILL;

__attribute__((constructor)) static void begin(void)
{
	const char *at = getenv("KILL_AT"), *only = getenv("KILL_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	if (!rank)
		rank = getenv("PMI_RANK");
	wait = getenv("KILL_WAIT") != NULL;
	if (!at || (only && rank && strcmp(only, rank) != 0))
		return;
	sscanf(at, "%31[^#]#%d=%d", event, &count, &sig);
}

static void reached(const char *name)
{
	if (strcmp(name, event) == 0 && __atomic_sub_fetch(&count, 1, __ATOMIC_RELAXED) == 0)
		raise(sig);
}

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
	if (n >= 4096) {
		__real_memcpy(to, from, n / 2);
		reached("copy");
	}
	return __real_memcpy(to, from, n);
}

void __wrap_cairn__copy_stream(unsigned char *to, const unsigned char *from, size_t n)
{
	if (n >= 4096) {
		__real_cairn__copy_stream(to, from, n / 2);
		reached("copy");
	}
	__real_cairn__copy_stream(to, from, n);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	reached("send");
	return __real_sendmsg(fd, m, flags);
}

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
	reached("receive");
	return __real_recv(fd, p, n, flags);
}

int __wrap_fflush(FILE *f)
{
	reached("flush");
	return __real_fflush(f);
}

cairn_status __wrap_cairn_point(cairn_run *run)
{
	static uint64_t last, began;
	struct timespec ms = {0, 1000000};
	cairn_status rc;
	if (!began++)
		last = cairn_last(run);
	reached("point");
	rc = __real_cairn_point(run);
	if (rc < 0)
		reached("failed");
	while (rc == CAIRN_SAVED && wait && cairn_saving(run))
		nanosleep(&ms, NULL);
	if (cairn_last(run) > last) {
		last = cairn_last(run);
		reached("committed");
	}
	return rc;
}
