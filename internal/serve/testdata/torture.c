/*
 * A program for the tests of libcairn: what programs do besides computing.
 *
 *     torture DIR many N       N small variables, of which types and number change
 *     torture DIR vanish N     N small variables that vanish, while as many of another size appear
 *     torture DIR fork         children that outlive points and use the run
 *     torture DIR signals      its own handlers, and calls that signals interrupt
 *     torture DIR threads      threads that compute between points and request checkpoints
 *     torture DIR alloc MIB    so much memory
 *     torture DIR unsaid       checkpoints that cannot be saved
 *     torture DIR incomplete   variables that cannot be protected
 *     torture DIR lost         helpers that are killed
 *     torture DIR blocks       arrays that come and go under new names
 *     torture DIR pages        a large array of which few pages change, then all, then none
 *     torture DIR files        files in another directory, and files opened late
 *     torture DIR finished     what is in a stream's buffer when the run has finished
 *     torture DIR again        files that must be new, opened again after restarts and by other helpers
 *
 * It exits with 0, or with 3 after an error that it has told.
 */
#define _GNU_SOURCE
#include <cairn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static cairn_run *run;

static void check(int rc, int want, const char *what)
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
	abort();
}

static void start(const char *dir)
{
	cairn_options o = CAIRN_OPTIONS;
	o.every = 1e6;
	check(cairn_open(&run, dir, &o), CAIRN_OK, "open");
}

static int end(void)
{
	check(cairn_finish(run, 0), CAIRN_OK, "finish");
	return cairn_close(run) < 0;
}

static char *name(int i)
{
	static char s[32];
	snprintf(s, sizeof s, "v%d", i);
	return s;
}

static int many(const char *dir, int n)
{
	int *v = calloc((size_t)n, sizeof *v);
	float *f = calloc((size_t)n, sizeof *f);
	start(dir);
	for (int i = 0; i < n; i++)
		check(cairn_protect(run, name(i), &v[i], CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	check(cairn_restore(run), CAIRN_OK, "restore");
	for (int i = 0; i < n; i++)
		v[i] = i;
	check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	for (int i = 0; i < n; i++)
		check(cairn_protect(run, name(i), &f[i], CAIRN_FLOAT, 0, NULL), CAIRN_OK, "protect again");
	for (int i = 0; i < n; i += 2)
		check(cairn_unprotect(run, name(i)), CAIRN_OK, "unprotect");
	for (int i = 0; i < n; i++)
		f[i] = (float)i;
	check(cairn_checkpoint(run), CAIRN_OK, "second checkpoint");
	check(cairn_close(run), CAIRN_OK, "close");
	memset(f, 0, (size_t)n * sizeof *f);
	start(dir);
	for (int i = 1; i < n; i += 2)
		check(cairn_protect(run, name(i), &f[i], CAIRN_FLOAT, 0, NULL), CAIRN_OK, "protect");
	check(cairn_restore(run), CAIRN_RESTORED, "restore");
	for (int i = 0; i < n; i++)
		expect(f[i] == (i % 2 ? (float)i : 0), "a value");
	free(v);
	free(f);
	return end();
}

static long long mirror(void);

/* mapped reports whether memory that was shared with a helper is still mapped. */
static int mapped(void)
{
	char line[512];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		found |= strstr(line, "cairn-mirror") != NULL;
	fclose(f);
	return found;
}

static int vanish(const char *dir, int n)
{
	char *data = calloc((size_t)n, 300), s[32];
	long long early = 0;
	double first = 0, took;
	start(dir);
	check(cairn_restore(run), CAIRN_OK, "restore");
	for (int k = 0; k < 4; k++) {
		size_t bytes = k % 2 ? 300 : 8;
		clock_t began = clock();
		for (int i = 0; i < n; i++) {
			snprintf(s, sizeof s, "x%d_%d", k, i);
			check(cairn_protect(run, s, data + (size_t)i * 300, CAIRN_UINT8, 1, &bytes), CAIRN_OK, s);
		}
		took = (double)(clock() - began) / CLOCKS_PER_SEC;
		first = k ? first : took;
		expect(took <= 8 * first + 0.2, "the processor time does not depend on what has vanished");
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		for (int i = 0; i < n; i++) {
			snprintf(s, sizeof s, "x%d_%d", k, i);
			check(cairn_unprotect(run, s), CAIRN_OK, s);
		}
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint of nothing");
		early = k == 1 ? mirror() : early;
	}
	expect(early > 0 && mirror() == early && mapped(), "memory is used again");
	free(data);
	check(end(), 0, "end");
	expect(!mapped(), "memory is given back");
	return 0;
}

static int calls, closed; /* of a communicator that fails */
static int no_gather(void *c, const void *mine, int n, void *all) { return (void)c, (void)mine, (void)n, (void)all, ++calls; }
static int no_max(void *c, uint64_t *v, int n) { return (void)c, (void)v, (void)n, ++calls; }
static void no_more(void *c) { (void)c, closed++; }

/* A forked child of one of several ranks, and calls out of order. */
static void forked_rank(const char *dir)
{
	cairn_comm comm = {0, 2, NULL, no_gather, no_max, no_more};
	int before, status;
	pid_t child;
	check(cairn_open_comm(&run, dir, NULL, &comm), CAIRN_ERROR, "open with a communicator that fails");
	before = calls;
	if ((child = fork()) == 0) {
		expect(cairn_checkpoint(run) == CAIRN_ARGUMENT && cairn_wait(run) == CAIRN_ARGUMENT, "a child of a rank");
		cairn_close(run);
		_exit(calls != before || closed);
	}
	expect(waitpid(child, &status, 0) == child && status == 0, "the child talks to no rank");
	expect(cairn_save(run) == CAIRN_ARGUMENT && cairn_wait(run) == CAIRN_ARGUMENT && calls == before, "calls before cairn_restore");
	cairn_close(run);
	expect(closed == 1, "cairn_close closes the communicator");
	expect(cairn_checkpoint(NULL) == CAIRN_ARGUMENT && cairn_wait(NULL) == CAIRN_ARGUMENT, "calls without a run");
}

static int forked(const char *dir)
{
	double x[1000] = {0};
	size_t n = 1000;
	int hold[2], status;
	pid_t lives;
	char c;
	start(dir);
	check(cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "protect");
	check(cairn_restore(run), CAIRN_OK, "restore");
	expect(pipe(hold) == 0, "pipe");
	if ((lives = fork()) == 0) { /* has all descriptors of the run, until the parent is gone */
		close(hold[1]);
		_exit(read(hold[0], &c, 1) != 0);
	}
	for (int i = 0; i < 5; i++) {
		pid_t child = fork();
		if (child == 0) {
			expect(cairn_point(run) == CAIRN_ARGUMENT || i == 0, "a point of a child");
			expect(cairn_checkpoint(run) == CAIRN_ARGUMENT, "a checkpoint of a child");
			expect(strstr(cairn_error(run), "forked") != NULL, "the error of a child");
			cairn_close(run);
			_exit(0);
		}
		x[0] = i;
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		expect(waitpid(child, &status, 0) == child && status == 0, "a child");
	}
	expect(cairn_last(run) == 5, "five checkpoints");
	check(end(), 0, "end");
	close(hold[1]);
	expect(waitpid(lives, &status, 0) == lives && status == 0, "the child that lives");
	forked_rank(dir);
	return 0;
}

static volatile sig_atomic_t terms, alarms;
static void on_term(int sig) { (void)sig, terms = terms + 1; }
static void on_alarm(int sig) { (void)sig, alarms = alarms + 1; }

static int signals(const char *dir)
{
	size_t n = 300000;
	double *x = calloc(n, sizeof *x);
	struct sigaction act, old;
	struct itimerval often = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
	memset(&act, 0, sizeof act);
	act.sa_handler = on_term;
	sigaction(SIGTERM, &act, NULL);
	act.sa_handler = on_alarm; /* no SA_RESTART */
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	start(dir);
	check(cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "protect");
	check(cairn_restore(run), CAIRN_OK, "restore");
	for (int i = 0; i < 10 || alarms < 20; i++) {
		x[i] = i;
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	}
	raise(SIGTERM);
	check(cairn_point(run), CAIRN_OK, "a point after the program's own signal");
	for (int i = 0; i < 1000000; i++) /* then points look closer rarely */
		check(cairn_point(run), CAIRN_OK, "one of many points");
	raise(SIGUSR1); /* nobody but the library wants it */
	check(cairn_point(run), CAIRN_SAVED, "the point after the signal");
	cairn_request(run);
	if (cairn_point(run) != CAIRN_SAVED) { /* the one before was being written */
		check(cairn_wait(run), CAIRN_OK, "wait");
		check(cairn_point(run), CAIRN_SAVED, "the point after the request");
	}
	check(cairn_wait(run), CAIRN_OK, "wait");
	setitimer(ITIMER_REAL, &off, NULL);
	expect(terms == 1, "the program's own handler");
	check(end(), 0, "end");
	sigaction(SIGUSR1, NULL, &old);
	expect(old.sa_handler == SIG_DFL, "the handler of SIGUSR1 is gone");
	sigaction(SIGTERM, NULL, &old);
	expect(old.sa_handler == on_term, "the handler of SIGTERM is the program's");
	free(x);
	return 0;
}

enum { THREADS = 4, CELLS = 400000, STEPS = 40 };
static double cells[THREADS][CELLS];
static pthread_barrier_t barrier;

static void *compute(void *arg)
{
	double *mine = arg;
	for (int s = 0; s < STEPS; s++) {
		for (int i = s; i < CELLS; i += 100)
			mine[i] += s;
		if (s % 10 == 3)
			cairn_request(run);
		pthread_barrier_wait(&barrier); /* all have computed */
		pthread_barrier_wait(&barrier); /* the point is over */
	}
	return NULL;
}

static int threads(const char *dir)
{
	pthread_t t[THREADS];
	size_t dims[] = {THREADS, CELLS};
	int saved = 0;
	start(dir);
	check(cairn_protect(run, "cells", cells, CAIRN_DOUBLE, 2, dims), CAIRN_OK, "protect");
	check(cairn_restore(run), CAIRN_OK, "restore");
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		expect(pthread_create(&t[i], NULL, compute, cells[i]) == 0, "a thread");
	for (int s = 0; s < STEPS; s++) {
		pthread_barrier_wait(&barrier);
		int rc = cairn_point(run);
		check(rc, CAIRN_OK, "point");
		saved += rc == CAIRN_SAVED;
		pthread_barrier_wait(&barrier);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
#ifdef _OPENMP
	for (int s = 0; s < 10; s++) {
#pragma omp parallel for
		for (int i = 0; i < THREADS * CELLS; i++)
			cells[i / CELLS][i % CELLS] += 1;
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	}
#endif
	check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	expect(saved > 0, "a request of a thread");
	return end();
}

static int alloc(const char *dir, size_t mib)
{
	size_t n = mib << 17;
	double *x = calloc(n, sizeof *x);
	if (!x)
		return 3;
	start(dir);
	check(cairn_protect(run, "x", x, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "protect");
	check(cairn_restore(run), CAIRN_OK, "restore");
	x[n - 1] = 1;
	check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	free(x);
	return end();
}

static void written(void)
{
	while (cairn_saving(run))
		cairn_last(run);
}

/* A file of the state that was removed makes checkpoints fail. */
static int unsaid(const char *dir)
{
	char path[4096];
	int x = 1;
	start(dir);
	snprintf(path, sizeof path, "%s.out", dir);
	check(cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
	expect(cairn_fopen(run, path, "w") != NULL, "a file");
	check(cairn_restore(run), CAIRN_OK, "restore");
	expect(unlink(path) == 0, "unlink");
	check(cairn_checkpoint(run), CAIRN_NOTSAVED, "checkpoint");
	check(cairn_wait(run), CAIRN_OK, "what was told is told once");
	check(cairn_save(run), CAIRN_OK, "save");
	written();
	check(cairn_wait(run), CAIRN_NOTSAVED, "wait");
	check(cairn_save(run), CAIRN_OK, "save");
	check(cairn_save(run), CAIRN_NOTSAVED, "save after one that failed");
	expect(strstr(cairn_error(run), path) != NULL, cairn_error(run));
	written();
	check(cairn_point(run), CAIRN_NOTSAVED, "point");
	for (int i = 0; i < 3; i++) {
		check(cairn_begin(run), CAIRN_OK, "begin");
		check(cairn_add(run, "x"), CAIRN_OK, "add");
		check(cairn_commit(run), i ? CAIRN_NOTSAVED : CAIRN_OK, "commit");
	}
	expect(cairn_last(run) == 0, "no checkpoint");
	check(cairn_close(run), CAIRN_NOTSAVED, "close");
	return 0;
}

static int incomplete(const char *dir)
{
	double x = 0, y = 0;
	start(dir);
	check(cairn_protect(run, "x", &x, CAIRN_DOUBLE, 0, NULL), CAIRN_OK, "protect");
	check(cairn_protect(run, "y", &y, 99, 0, NULL), CAIRN_ARGUMENT, "protect with a wrong type");
	check(cairn_protect(run, "z", NULL, CAIRN_DOUBLE, 0, NULL), CAIRN_ARGUMENT, "protect nothing");
	check(cairn_unprotect(run, "z"), CAIRN_OK, "unprotect");
	check(cairn_restore(run), CAIRN_ARGUMENT, "restore");
	expect(strstr(cairn_error(run), "\"y\"") != NULL, cairn_error(run));
	check(cairn_protect(run, "y", &y, CAIRN_DOUBLE, 0, NULL), CAIRN_OK, "protect");
	check(cairn_restore(run), CAIRN_OK, "restore");
	check(cairn_protect(run, "x", &x, 99, 0, NULL), CAIRN_ARGUMENT, "protect with a wrong type");
	cairn_request(run);
	check(cairn_point(run), CAIRN_NOTSAVED, "point");
	check(cairn_checkpoint(run), CAIRN_NOTSAVED, "checkpoint");
	check(cairn_protect(run, "x", &x, CAIRN_DOUBLE, 0, NULL), CAIRN_OK, "protect");
	check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	return end();
}

static void kill_helper(void)
{
	char path[64];
	int pid = 0;
	siginfo_t info;
	FILE *f;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	f = fopen(path, "r");
	expect(f && fscanf(f, "%d", &pid) == 1, "a helper");
	fclose(f);
	kill(pid, SIGKILL);
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
}

static int lost(const char *dir)
{
	char helper[4096];
	int x = 1, rc;
	cairn_options o = CAIRN_OPTIONS;
	snprintf(helper, sizeof helper, "%s.helper", dir);
	expect(symlink(getenv("CAIRN_HELPER"), helper) == 0, "symlink");
	o.helper = helper;
	o.every = 1e6;
	for (int i = 0; i < 2; i++) {
		check(cairn_open(&run, dir, &o), CAIRN_OK, "open");
		check(cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
		check(cairn_restore(run), CAIRN_OK, "restore");
		check(cairn_begin(run), CAIRN_OK, "begin");
		check(cairn_add(run, "x"), CAIRN_OK, "add");
		kill_helper();
		unlink(helper);
		check(cairn_commit(run), CAIRN_NOHELPER, "commit without a helper");
		expect(!cairn_saving(run), "nothing is being saved");
		check(cairn_point(run), CAIRN_NOHELPER, "point without a helper");
		expect(symlink(getenv("CAIRN_HELPER"), helper) == 0, "symlink");
		while ((rc = cairn_point(run)) == CAIRN_NOHELPER) /* it may be tried later */
			usleep(1000);
		check(rc, CAIRN_NOTSAVED, "point with another helper");
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		kill_helper();
		check(cairn_finish(run, 0), CAIRN_OK, "finish");
		if (i)
			break;
		kill_helper();
		check(cairn_close(run), CAIRN_NOHELPER, "close without a helper");
	}
	check(cairn_close(run), CAIRN_OK, "close");
	check(cairn_open(&run, dir, &o), CAIRN_FINISHED, "open when it has finished");
	cairn_close(run);
	unlink(helper);
	return 0;
}

static void contains(const char *path, const char *want)
{
	char got[100] = "";
	FILE *f = fopen(path, "r");
	expect(f != NULL, path);
	got[fread(got, 1, sizeof got - 1, f)] = 0;
	fclose(f);
	if (strcmp(got, want) != 0)
		fprintf(stderr, "%s has %s, want %s\n", path, got, want);
	expect(strcmp(got, want) == 0, path);
}

static FILE *opened(const char *path, const char *mode, const char *text)
{
	FILE *f = cairn_fopen(run, path, mode);
	check(f ? CAIRN_OK : CAIRN_ERROR, CAIRN_OK, path);
	expect(fputs(text, f) >= 0, "puts");
	return f;
}

static int files(char *dir)
{
	int x = 1;
	FILE *sub, *late, *same;
	*strrchr(dir, '/') = 0;
	expect(chdir(dir) == 0, "chdir");
	dir += strlen(dir) + 1; /* a relative path */
	same = fopen("out", "w");
	expect(same && fputs("not of the run", same) >= 0 && fclose(same) == 0, "a file of the same name");
	for (int i = 0; i < 2; i++) {
		start(dir);
		check(cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
		check(cairn_restore(run), i ? CAIRN_RESTORED : CAIRN_OK, "restore");
		if (i)
			contains("sub/out", "saved ");
		expect(i || mkdir("sub", 0777) == 0, "mkdir");
		expect(chdir("sub") == 0, "chdir");
		sub = opened("out", "w", i ? "again " : "saved ");
		late = opened("late", "a", i ? "again " : "saved ");
		if (!i)
			kill_helper(); /* the next one works where the first did */
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		expect(fputs("lost", sub) >= 0 && fflush(sub) == 0, "puts");
		expect(fputs("lost", late) >= 0 && fflush(late) == 0, "puts");
		expect(cairn_fclose(run, sub) == 0 && cairn_fclose(run, late) == 0, "fclose");
		if (i) {
			contains("out", "saved again lost");
			contains("late", "saved again lost");
			expect(unlink("out") == 0 && unlink("late") == 0, "unlink");
			check(cairn_checkpoint(run), CAIRN_OK, "checkpoint without the files");
			fclose(opened("out", "w", "new "));
			fclose(opened("out", "w", "newer"));
			contains("out", "newer");
		}
		expect(chdir("..") == 0, "chdir");
		contains("out", "not of the run");
		check(cairn_close(run), CAIRN_OK, "close");
	}
	return 0;
}

static void refused(const char *path)
{
	expect(cairn_fopen(run, path, "wx") == NULL && strstr(cairn_error(run), "exists") != NULL, path);
}

static int again(char *dir)
{
	int x = 1;
	FILE *held, *plain, *f;
	*strrchr(dir, '/') = 0;
	expect(chdir(dir) == 0, "chdir");
	dir += strlen(dir) + 1;
	f = fopen("foreign", "w");
	expect(f && fputs("not of the run", f) >= 0 && fclose(f) == 0, "a file of somebody else");
	for (int life = 0; life < 3; life++) {
		start(dir);
		check(cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
		check(cairn_restore(run), life ? CAIRN_RESTORED : CAIRN_OK, "restore");
		if (life == 0) {
			held = opened("held", "wx", "saved ");
			plain = opened("plain", "w+", "saved ");
			expect(cairn_fclose(run, opened("closed", "wx", "closed")) == 0, "fclose");
			refused("closed");
			check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
			expect(fputs("lost", held) >= 0 && fclose(held) == 0 && fputs("lost", plain) >= 0 && fclose(plain) == 0, "puts");
			fclose(opened("future", "wx", "lost")); /* made after the checkpoint */
		} else if (life == 1) {
			check(cairn_checkpoint(run), CAIRN_OK, "checkpoint before the files are opened");
		} else {
			kill_helper();
			check(cairn_point(run), CAIRN_NOTSAVED, "point with another helper");
			held = opened("held", "wx", "again ");
			plain = opened("plain", "w+", "again ");
			kill_helper();
			check(cairn_point(run), CAIRN_NOTSAVED, "point with another helper");
			fclose(opened("future", "wx", "new"));
			refused("future");
			refused("closed");
			refused("foreign");
			check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
			fclose(held);
			fclose(plain);
			f = opened("plain", "w+", "emptied"); /* the run has opened it before */
			fclose(f);
		}
		check(cairn_close(run), CAIRN_OK, "close");
	}
	contains("held", "saved again ");
	contains("plain", "emptied");
	contains("future", "new");
	contains("closed", "closed");
	contains("foreign", "not of the run");
	return 0;
}

static int finished(const char *dir)
{
	struct rlimit none = {0, RLIM_INFINITY}, as_before;
	char path[4096];
	int x = 1;
	FILE *f;
	snprintf(path, sizeof path, "%s.out", dir);
	signal(SIGXFSZ, SIG_IGN);
	for (int life = 0; life < 2; life++) {
		start(dir);
		check(cairn_protect(run, "x", &x, CAIRN_INT, 0, NULL), CAIRN_OK, "protect");
		f = opened(path, "w", "result");
		check(cairn_restore(run), CAIRN_OK, "restore");
		if (life) {
			check(end(), 0, "end");
			contains(path, "result"); /* the stream is open still */
			fclose(f);
			break;
		}
		expect(getrlimit(RLIMIT_FSIZE, &as_before) == 0 && setrlimit(RLIMIT_FSIZE, &none) == 0, "a limit");
		check(cairn_finish(run, 0), CAIRN_ERROR, "finish when the file cannot be written");
		expect(strstr(cairn_error(run), path) != NULL, cairn_error(run));
		expect(setrlimit(RLIMIT_FSIZE, &as_before) == 0, "no limit");
		check(cairn_checkpoint(run), CAIRN_NOTSAVED, "a checkpoint when output is lost");
		check(cairn_finish(run, 0), CAIRN_ERROR, "finish when output is lost");
		fclose(f);
		check(cairn_close(run), CAIRN_OK, "close");
	}
	return 0;
}

/* mirror returns the size of the memory that is shared with the helper. */
static long long mirror(void)
{
	char path[64], to[64];
	struct stat st;
	for (int fd = 0; fd < 1024; fd++) {
		ssize_t n;
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof to - 1);
		to[n < 0 ? 0 : n] = 0;
		if (strstr(to, "cairn-mirror") && fstat(fd, &st) == 0)
			return st.st_size;
	}
	return -1;
}

enum { BLOCKS = 4, BLOCK = 20000, SMALL = 3000 };

/* block gives the variables of a step other names and sizes than those before. */
static void block(int step, int i, int protect, double *large, int *small)
{
	char s[32];
	size_t n = BLOCK - (size_t)(step * 1000 + i * 700) % 9000, k = SMALL - (size_t)(step * 100 + i * 70) % 900;
	snprintf(s, sizeof s, "large_%d_%d", step, i);
	check(protect ? cairn_protect(run, s, large, CAIRN_DOUBLE, 1, &n) : cairn_unprotect(run, s), CAIRN_OK, s);
	snprintf(s, sizeof s, "small_%d_%d", step, i);
	check(protect ? cairn_protect(run, s, small, CAIRN_INT, 1, &k) : cairn_unprotect(run, s), CAIRN_OK, s);
	for (size_t j = 0; protect == 2 && j < n; j++)
		large[j] = step + i + (double)j;
	for (size_t j = 0; protect == 2 && j < k; j++)
		small[j] = step + i + (int)j;
	for (size_t j = 0; protect == 3 && j < n; j++)
		expect(large[j] == step + i + (double)j, "a large block");
	for (size_t j = 0; protect == 3 && j < k; j++)
		expect(small[j] == step + i + (int)j, "a small block");
}

static int blocks(const char *dir, int steps)
{
	static double large[BLOCKS][BLOCK], other[BLOCK];
	static int small[BLOCKS][SMALL];
	size_t n = BLOCK - 30 * 1000 % 9000;
	long long early = 0;
	start(dir);
	check(cairn_restore(run), CAIRN_OK, "restore");
	for (int step = 0; step < steps; step++) {
		for (int i = 0; i < BLOCKS; i++) {
			if (step)
				block(step - 1, i, 0, NULL, NULL);
			block(step, i, 2, large[i], small[i]);
		}
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		if (step == 30)
			early = mirror();
		for (int i = 0; step == 31 && i < 20; i++) { /* of the checkpoint before */
			other[n - 1] = 0;
			check(cairn_read(run, 31, "large_30_0", other, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "read");
			expect(other[0] == 30 && other[n - 1] == 30 + (double)(n - 1), "what was read");
		}
	}
	expect(early > 0 && mirror() <= early + early / 2, "memory is used again");
	check(cairn_close(run), CAIRN_OK, "close");
	memset(large, 0, sizeof large);
	memset(small, 0, sizeof small);
	start(dir);
	for (int i = 0; i < BLOCKS; i++)
		block(steps - 1, i, 1, large[i], small[i]);
	check(cairn_restore(run), CAIRN_RESTORED, "restore");
	for (int i = 0; i < BLOCKS; i++)
		block(steps - 1, i, 3, large[i], small[i]);
	return end();
}

static int pages(const char *dir)
{
	size_t n = (36 << 20) + 1234, edges[] = {0, 4095, 16 << 20, (16 << 20) + 4096, 32 << 20, n - 4096, n - 1}, three = 3;
	unsigned char *a = malloc(n + 3), *want = malloc(n), *u = a + 3, other[3] = {0};
	memset(a, 1, n + 3);
	for (int life = 0; life < 3; life++) {
		start(dir);
		check(cairn_protect(run, "u", u, CAIRN_UINT8, 1, &n), CAIRN_OK, "protect");
		check(cairn_protect(run, "other", other, CAIRN_UINT8, 1, &three), CAIRN_OK, "protect");
		check(cairn_restore(run), life ? CAIRN_RESTORED : CAIRN_OK, "restore");
		expect(life == 0 || memcmp(u, want, n) == 0, "what was restored");
		for (int step = 0; life < 2 && step < 4 + 5 * life; step++) {
			for (size_t i = 0; step == 3 && life == 1 && i < n; i += 512) /* for a while all are copied */
				u[i]++;
			for (size_t i = 0; step != 2 && i < sizeof edges / sizeof *edges; i++)
				u[edges[i]]++;
			for (size_t i = 0; step % 2 == 1 && i < 600; i++) /* more than one call reports */
				u[((size_t)step << 22) + i * 8192]++;
			other[step % 3]++;
			check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		}
		memcpy(want, u, n);
		memset(u, life, n);
		if (life < 2)
			check(cairn_close(run), CAIRN_OK, "close");
	}
	check(end(), 0, "end");
	free(a);
	free(want);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";
	int n = argc > 3 ? atoi(argv[3]) : 0;
	return strcmp(what, "many") == 0 ? many(argv[1], n)
	     : strcmp(what, "vanish") == 0 ? vanish(argv[1], n)
	     : strcmp(what, "fork") == 0 ? forked(argv[1])
	     : strcmp(what, "signals") == 0 ? signals(argv[1])
	     : strcmp(what, "threads") == 0 ? threads(argv[1])
	     : strcmp(what, "alloc") == 0 ? alloc(argv[1], (size_t)n)
	     : strcmp(what, "unsaid") == 0 ? unsaid(argv[1])
	     : strcmp(what, "incomplete") == 0 ? incomplete(argv[1])
	     : strcmp(what, "lost") == 0 ? lost(argv[1])
	     : strcmp(what, "pages") == 0 ? pages(argv[1])
	     : strcmp(what, "files") == 0 ? files(argv[1])
	     : strcmp(what, "finished") == 0 ? finished(argv[1])
	     : strcmp(what, "again") == 0 ? again(argv[1])
	     : strcmp(what, "blocks") == 0 ? blocks(argv[1], n)
	     : 2;
}
