/*
 * A program for the tests of libcairn: what happens to helper processes.
 *
 *     helper DIR signals       signals reach the helper, too
 *     helper DIR refused       the helper refuses a variable, and takes it when it is right
 *     helper DIR unopened      continues after cairn_open has failed
 *     helper DIR lost          helpers cannot be started for some time
 *     helper DIR print         prints a line per step; it is killed once
 *     helper DIR twice         has two runs, and starts a program that has one
 *     helper DIR ended         ends when its helper is lost, and resumes
 *     helper DIR term          gets SIGTERM twice, saves and stops, and resumes
 *     helper DIR fork          a child tries to use the run
 *     helper DIR memory        there is no memory for copies at some times
 *     helper DIR ranks         what fails on one of two ranks
 *     helper DIR other N       two ranks have a communicator of N, or, if N is 2, in another order
 *
 * It exits with 0, or with 3 after an error that it has told.
 */
#define _GNU_SOURCE
#include <cairn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void check(cairn_run *run, int rc, int want, const char *what)
{
	if (rc == want || (want == CAIRN_OK && rc >= 0))
		return;
	fprintf(stderr, "%s: %d: %s\n", what, rc, cairn_error(run));
	exit(3);
}

static void expect(int yes, const char *what)
{
	if (yes)
		return;
	fprintf(stderr, "wrong: %s\n", what);
	exit(3);
}

static cairn_run *start(const char *dir, const char *helper)
{
	cairn_options o = CAIRN_OPTIONS;
	cairn_run *run;
	o.every = 1e6;
	o.helper = helper;
	check(run, cairn_open(&run, dir, &o), CAIRN_OK, "open");
	return run;
}

static int end(cairn_run *run)
{
	check(run, cairn_finish(run, 0), CAIRN_OK, "finish");
	return cairn_close(run) < 0;
}

static pid_t helper(void)
{
	char path[64];
	int pid = 0;
	FILE *f;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	if ((f = fopen(path, "r"))) {
		if (fscanf(f, "%d", &pid) != 1)
			pid = 0;
		fclose(f);
	}
	expect(pid > 0, "there is a helper");
	return pid;
}

static int signals(const char *dir)
{
	static const int list[] = {SIGUSR1, SIGTERM, SIGHUP, SIGINT, SIGUSR2, SIGPIPE, SIGTERM};
	int x = 1;
	cairn_run *run = start(dir, NULL);
	pid_t pid = helper();
	check(run, cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	check(run, cairn_restore(run), CAIRN_OK, "restore");
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		kill(pid, list[i]);
		check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	}
	expect(helper() == pid, "the helper lives");
	return end(run);
}

static int refused(const char *dir)
{
	int a = 1, c = 2;
	size_t n = 5;
	char b[5] = {0};
	cairn_field packed[] = {{"c", CAIRN_CHAR, 0, 0, {0}}, {"i", CAIRN_INT, 1, 0, {0}}};
	cairn_type type;
	cairn_run *run = start(dir, NULL);
	check(run, cairn_struct(run, "packed", 5, 2, packed, &type), CAIRN_OK, "struct");
	check(run, cairn_protect(run, "a", &a, CAIRN_INT, 0, NULL), CAIRN_OK, "a");
	check(run, cairn_protect(run, "c", &c, CAIRN_INT, 0, NULL), CAIRN_OK, "c");
	check(run, cairn_restore(run), CAIRN_OK, "restore");
	check(run, cairn_unprotect(run, "a"), CAIRN_OK, "unprotect");
	check(run, cairn_protect(run, "b", b, type, 0, NULL), CAIRN_OK, "b");
	expect(cairn_checkpoint(run) < 0 && strstr(cairn_error(run), "not aligned"), "a packed struct is refused");
	check(run, cairn_protect(run, "b", b, CAIRN_BYTES, 1, &n), CAIRN_OK, "b as bytes");
	check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	check(run, cairn_close(run), CAIRN_OK, "close");
	run = start(dir, NULL);
	check(run, cairn_protect(run, "b", b, CAIRN_BYTES, 1, &n), CAIRN_OK, "b");
	check(run, cairn_protect(run, "c", &c, CAIRN_INT, 0, NULL), CAIRN_OK, "c");
	check(run, cairn_restore(run), CAIRN_RESTORED, "restore without a");
	return end(run);
}

static int lost(const char *dir)
{
	char link[PATH_MAX], log[PATH_MAX];
	const char *real = getenv("CAIRN_HELPER");
	int x = 1, rc, tries = 0, ch;
	struct timespec ms = {0, 10000000};
	FILE *f;
	cairn_run *run;
	snprintf(link, sizeof link, "%s.helper", dir);
	snprintf(log, sizeof log, "%s.log", dir);
	expect(real && symlink(real, link) == 0, "a link");
	run = start(dir, link);
	check(run, cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	check(run, cairn_restore(run), CAIRN_OK, "restore");
	unlink(link);
	f = fopen(link, "w");
	fprintf(f, "#!/bin/sh\necho >> %s\n", log);
	fchmod(fileno(f), 0700);
	fclose(f);
	kill(helper(), SIGKILL);
	while ((rc = cairn_save(run)) >= 0 || rc == CAIRN_NOTSAVED)
		nanosleep(&ms, NULL); /* until it sees that */
	for (int i = 0; i < 100; i++)
		expect(cairn_save(run) == CAIRN_NOHELPER, "a save without a helper");
	f = fopen(log, "r");
	while (f && (ch = fgetc(f)) != EOF)
		tries += ch == '\n';
	expect(tries > 0 && tries < 20, "a helper is not tried at every call");
	unlink(link);
	expect(symlink(real, link) == 0, "the link again");
	while ((rc = cairn_save(run)) == CAIRN_NOHELPER)
		nanosleep(&ms, NULL);
	check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	return end(run);
}

enum { STEPS = 1000 };

static int print(const char *dir)
{
	int step = 0;
	cairn_run *run = start(dir, NULL);
	check(run, cairn_protect(run, "step", &step, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	int restored = cairn_restore(run);
	check(run, restored, CAIRN_OK, "restore");
	for (; step < STEPS; step++) {
		check(run, cairn_point(run), CAIRN_OK, "point");
		if (step == STEPS / 2)
			check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		if (step == STEPS - 100 && restored != CAIRN_RESTORED)
			raise(SIGKILL);
		printf("step %d\n", step);
	}
	return end(run);
}

static int twice(const char *dir, char *self)
{
	char other[PATH_MAX], command[3 * PATH_MAX];
	int x = 1, y = 2;
	cairn_run *a = start(dir, NULL), *b;
	check(a, cairn_protect(a, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	check(a, cairn_restore(a), CAIRN_OK, "restore");
	check(a, cairn_checkpoint(a), CAIRN_OK, "checkpoint");
	snprintf(other, sizeof other, "%s.other", dir);
	b = start(other, NULL);
	check(b, cairn_protect(b, "y", &y, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	check(b, cairn_restore(b), CAIRN_OK, "restore");
	check(b, cairn_checkpoint(b), CAIRN_OK, "checkpoint of the other run");
	check(b, cairn_close(b), CAIRN_OK, "close the other run");
	b = start(other, NULL);
	check(b, cairn_protect(b, "y", &y, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	check(b, cairn_restore(b), CAIRN_RESTORED, "restore the other run");
	expect(end(b) == 0, "the end of the other run");
	snprintf(command, sizeof command, "'%s' '%s.child' signals", self, dir);
	expect(system(command) == 0, "a program that this one starts");
	check(a, cairn_checkpoint(a), CAIRN_OK, "second checkpoint");
	check(a, cairn_close(a), CAIRN_OK, "close");
	a = start(dir, NULL);
	check(a, cairn_protect(a, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	check(a, cairn_restore(a), CAIRN_RESTORED, "restore what was closed");
	printf("checkpoints %d\n", (int)cairn_last(a));
	return end(a);
}

/* ended is for 'cairn run', which starts it again. */
static int ended(const char *dir)
{
	int x = 1, rc;
	struct timespec ms = {0, 1000000};
	cairn_run *run = start(dir, NULL);
	check(run, cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	if ((rc = cairn_restore(run)) == CAIRN_RESTORED) {
		printf("resumed with %d\n", x);
		return end(run);
	}
	check(run, rc, CAIRN_OK, "restore");
	x = 2;
	check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	kill(helper(), SIGKILL);
	while ((rc = cairn_point(run)) == CAIRN_OK)
		nanosleep(&ms, NULL);
	expect(rc == CAIRN_NOHELPER && strstr(cairn_error(run), "'cairn run' starts it again"), "no other helper");
	raise(SIGKILL); /* without cairn_close */
	return 3;
}

/* terminated is for 'cairn run': a scheduler may send SIGTERM more than once. */
static int terminated(const char *dir)
{
	int x = 1, rc;
	cairn_run *run = start(dir, NULL);
	check(run, cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	if ((rc = cairn_restore(run)) == CAIRN_RESTORED) {
		printf("resumed with %d\n", x);
		return end(run);
	}
	check(run, rc, CAIRN_OK, "restore");
	x = 2;
	raise(SIGTERM);
	raise(SIGTERM);
	check(run, cairn_point(run), CAIRN_STOPPED, "point");
	check(run, cairn_close(run), CAIRN_OK, "close");
	return 75;
}

/* forked lets a child use the run while the parent's copy has grown. */
static int forked(const char *dir)
{
	size_t n = 1 << 20, m = 4 << 20;
	double *x = calloc(n, sizeof *x), *y = calloc(m, sizeof *y);
	int go[2], status;
	pid_t child;
	char c = 0;
	cairn_run *run = start(dir, NULL);
	check(run, cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "x");
	check(run, cairn_restore(run), CAIRN_OK, "restore");
	check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	expect(pipe(go) == 0, "pipe");
	if ((child = fork()) == 0) {
		expect(read(go[0], &c, 1) == 1, "a signal of the parent");
		expect(cairn_protect(run, "z", y, CAIRN_DOUBLE, 1, &n) == CAIRN_ARGUMENT, "protect in a child");
		expect(cairn_protect(run, "x", y, CAIRN_DOUBLE, 1, &n) == CAIRN_ARGUMENT, "protect again in a child");
		expect(cairn_unprotect(run, "x") == CAIRN_ARGUMENT, "unprotect in a child");
		expect(cairn_read(run, 0, "x", y, CAIRN_DOUBLE, 1, &n) == CAIRN_ARGUMENT, "read in a child");
		expect(cairn_fopen(run, "/dev/null", "w") == NULL, "fopen in a child");
		expect(cairn_protect_fd(run, 0, "stdin") == CAIRN_ARGUMENT, "protect_fd in a child");
		expect(strstr(cairn_error(run), "forked") != NULL, "the error of a child");
		cairn_close(run);
		_exit(0);
	}
	check(run, cairn_protect(run, "y", y, CAIRN_DOUBLE, 1, &m), CAIRN_OK, "y");
	check(run, cairn_checkpoint(run), CAIRN_OK, "second checkpoint");
	expect(write(go[1], &c, 1) == 1 && waitpid(child, &status, 0) == child && status == 0, "the child");
	x[n - 1] = 5, y[m - 1] = 6;
	check(run, cairn_checkpoint(run), CAIRN_OK, "third checkpoint");
	check(run, cairn_close(run), CAIRN_OK, "close");
	x[n - 1] = y[m - 1] = 0;
	run = start(dir, NULL);
	check(run, cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "x");
	check(run, cairn_protect(run, "y", y, CAIRN_DOUBLE, 1, &m), CAIRN_OK, "y");
	check(run, cairn_restore(run), CAIRN_RESTORED, "restore");
	expect(x[n - 1] == 5 && y[m - 1] == 6, "what the parent has saved");
	free(x);
	free(y);
	return end(run);
}

int __real_fallocate(int fd, int mode, off_t at, off_t n);
static int no_memory;

int __wrap_fallocate(int fd, int mode, off_t at, off_t n)
{
	if (!no_memory || mode & FALLOC_FL_PUNCH_HOLE)
		return __real_fallocate(fd, mode, at, n);
	errno = ENOSPC;
	return -1;
}

static int memory(const char *dir)
{
	size_t n = 20 << 20, m = 1000, more = n + 1;
	double *x = calloc(more, sizeof *x), *y = calloc(m, sizeof *y);
	cairn_run *run = start(dir, NULL);
	no_memory = 1;
	check(run, cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &n), CAIRN_NOMEMORY, "x without memory");
	check(run, cairn_protect(run, "y", y, CAIRN_DOUBLE, 1, &m), CAIRN_NOMEMORY, "y without memory");
	no_memory = 0;
	check(run, cairn_protect(run, "y", y, CAIRN_DOUBLE, 1, &m), CAIRN_OK, "y");
	check(run, cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "x");
	check(run, cairn_restore(run), CAIRN_OK, "restore");
	check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	no_memory = 1;
	check(run, cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &more), CAIRN_NOMEMORY, "x cannot grow");
	expect(cairn_checkpoint(run) < 0, "a checkpoint without x");
	no_memory = 0;
	check(run, cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &more), CAIRN_OK, "x grows");
	x[n] = 3;
	check(run, cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	check(run, cairn_close(run), CAIRN_OK, "close");
	x[n] = 0;
	run = start(dir, NULL);
	check(run, cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &more), CAIRN_OK, "x");
	check(run, cairn_protect(run, "y", y, CAIRN_DOUBLE, 1, &m), CAIRN_OK, "y");
	check(run, cairn_restore(run), CAIRN_RESTORED, "restore");
	expect(x[n] == 3, "what was saved");
	free(x);
	free(y);
	return end(run);
}

/* shared is memory of two processes, which are ranks. */
static struct {
	pthread_barrier_t barrier;
	uint64_t values[2][8];
	unsigned char bytes[2][1 << 16];
} *shared;
static int rank;

static int gather(void *context, const void *mine, int n, void *all)
{
	(void)context;
	expect((size_t)n <= sizeof shared->bytes[0], "a short exchange");
	memcpy(shared->bytes[rank], mine, (size_t)n);
	pthread_barrier_wait(&shared->barrier);
	for (int i = 0; i < 2; i++)
		memcpy((char *)all + i * n, shared->bytes[i], (size_t)n);
	pthread_barrier_wait(&shared->barrier);
	return 0;
}

static int most(void *context, uint64_t *v, int n)
{
	(void)context;
	memcpy(shared->values[rank], v, (size_t)n * sizeof *v);
	pthread_barrier_wait(&shared->barrier);
	for (int i = 0; i < n; i++)
		if (shared->values[!rank][i] > v[i])
			v[i] = shared->values[!rank][i];
	pthread_barrier_wait(&shared->barrier);
	return 0;
}

void *__real_calloc(size_t n, size_t size);
static size_t no_calloc; /* the next one of so many elements fails */

void *__wrap_calloc(size_t n, size_t size)
{
	if (n != no_calloc)
		return __real_calloc(n, size);
	no_calloc = 0;
	return NULL;
}

static int ranks(const char *dir)
{
	pthread_barrierattr_t attr;
	int x = 1, status = 0;
	pid_t child;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	expect(shared != MAP_FAILED && pthread_barrier_init(&shared->barrier, &attr, 2) == 0, "a barrier");
	if ((child = fork()) == 0)
		rank = 1;
	for (int i = 0; i < 3; i++) {
		cairn_comm comm = {rank, 2, NULL, gather, most};
		cairn_run *run;
		no_calloc = rank && i < 2 ? 2 * (size_t)i + 1 : 0; /* the run, what all ranks say, none */
		int rc = cairn_open_comm(&run, dir, NULL, &comm);
		if (i < 2) {
			check(run, rc, rank ? CAIRN_NOMEMORY : CAIRN_ERROR, "open, when a rank has no memory");
		} else {
			check(run, rc, CAIRN_OK, "open");
			rc = cairn_protect(run, "x", &x, rank ? (cairn_type)99 : CAIRN_INT, 0, NULL);
			check(run, rc, rank ? CAIRN_ARGUMENT : CAIRN_OK, "protect");
			check(run, cairn_restore(run), rank ? CAIRN_ARGUMENT : CAIRN_ERROR, "restore, when a rank cannot");
		}
		cairn_close(run);
	}
	expect(!child || (waitpid(child, &status, 0) == child && status == 0), "the other rank");
	return 0;
}

/* alone is an operation of a communicator in which only this process takes part. */
static int alone(void *context, uint64_t *v, int n) { return (void)context, (void)v, (void)n, 0; }

static int other(const char *dir, int n)
{
	cairn_comm comm = {1 - atoi(getenv("CAIRN_RANK")), n, NULL, gather, alone, NULL};
	cairn_run *run;
	int rc = cairn_open_comm(&run, dir, NULL, &comm);
	check(run, rc, CAIRN_OK, "open");
	return 0;
}

static int unopened(const char *dir)
{
	cairn_options o = CAIRN_OPTIONS;
	cairn_run *run;
	double x = 1;
	o.every = -1;
	check(run, cairn_open(&run, dir, &o), CAIRN_ARGUMENT, "open");
	for (int i = 0; i < 2; i++) {
		expect(strstr(cairn_error(run), "every is -1") != NULL, "the error is that of cairn_open");
		check(run, cairn_protect(run, "x", &x, CAIRN_DOUBLE, 0, NULL), CAIRN_ARGUMENT, "protect");
		check(run, cairn_restore(run), CAIRN_ARGUMENT, "restore");
		check(run, cairn_point(run), CAIRN_ARGUMENT, "point");
		check(run, cairn_checkpoint(run), CAIRN_ARGUMENT, "checkpoint");
	}
	check(run, cairn_finish(run, 0), CAIRN_ARGUMENT, "finish");
	return cairn_close(run) < 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";
	return strcmp(what, "signals") == 0 ? signals(argv[1])
	     : strcmp(what, "refused") == 0 ? refused(argv[1])
	     : strcmp(what, "unopened") == 0 ? unopened(argv[1])
	     : strcmp(what, "lost") == 0 ? lost(argv[1])
	     : strcmp(what, "print") == 0 ? print(argv[1])
	     : strcmp(what, "twice") == 0 ? twice(argv[1], argv[0])
	     : strcmp(what, "ended") == 0 ? ended(argv[1])
	     : strcmp(what, "term") == 0 ? terminated(argv[1])
	     : strcmp(what, "fork") == 0 ? forked(argv[1])
	     : strcmp(what, "memory") == 0 ? memory(argv[1])
	     : strcmp(what, "ranks") == 0 ? ranks(argv[1])
	     : strcmp(what, "other") == 0 ? other(argv[1], atoi(argv[3]))
	     : 2;
}
