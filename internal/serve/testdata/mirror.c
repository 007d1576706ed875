/*
 * A program for the tests of libcairn: the helper writes checkpoints from the
 * memory that it shares with the program, and restores them through it. The
 * helper is stopped when it writes (CAIRN_STEP) in the first three.
 *
 *     mirror DIR early    saves again before the first checkpoint is written
 *     mirror DIR begin    … with cairn_begin
 *     mirror DIR lost     … with cairn_begin, when the connection is lost
 *     mirror DIR killed   changes everything then, and is killed; prints what it resumes with
 *     mirror DIR save     saves two checkpoints
 *     mirror DIR read     reads all checkpoints with cairn_read
 *     mirror DIR restore  prints what it has after cairn_restore
 *
 * KILL_COPY=N in the environment: it is killed in the middle of its Nth large copy.
 *
 * The arrays of checkpoint 1 have the value 1 everywhere, and so on. It exits
 * with 0, or with 3 after an error that it has told.
 */
#define _GNU_SOURCE
#include <cairn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1500000 };

static cairn_run *run;
static double u[N], v[N], w[N];
static pid_t stopped;  /* the helper, until the library waits for it */
static int disconnect; /* the library sees the end of the connection */

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
	exit(3);
}

static void resume(void)
{
	if (stopped)
		kill(stopped, SIGCONT);
	stopped = 0;
}

ssize_t __real_recv(int fd, void *p, size_t n, int flags);
pid_t __real_waitpid(pid_t pid, int *status, int options);
void __real_cairn__copy_stream(unsigned char *to, const unsigned char *from, size_t n);

void __wrap_cairn__copy_stream(unsigned char *to, const unsigned char *from, size_t n)
{
	static int copies;
	const char *last = getenv("KILL_COPY");
	if (last && n >= 1 << 20 && __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED) == atoi(last)) {
		__real_cairn__copy_stream(to, from, n / 2);
		raise(SIGKILL);
	}
	__real_cairn__copy_stream(to, from, n);
}

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
	if (disconnect)
		return disconnect = 0;
	resume();
	return __real_recv(fd, p, n, flags);
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	if (options == 0)
		resume();
	return __real_waitpid(pid, status, options);
}

static void fill(double x)
{
	for (int i = 0; i < N; i++)
		u[i] = v[i] = w[i] = x;
}

static void protect(const char *name, double *p)
{
	size_t n = N;
	check(cairn_protect(run, name, p, CAIRN_DOUBLE, 1, &n), CAIRN_OK, name);
}

static void start(const char *dir)
{
	cairn_options o = CAIRN_OPTIONS;
	o.every = 1e6;
	o.keep = 5;
	check(cairn_open(&run, dir, &o), CAIRN_OK, "open");
	protect("u", u);
	protect("v", v);
}

/* stop waits until the helper has stopped. */
static void stop(void)
{
	char path[64];
	int pid = 0, status;
	FILE *f;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	expect((f = fopen(path, "r")) && fscanf(f, "%d", &pid) == 1, "there is a helper");
	fclose(f);
	expect(__real_waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "the helper stops when it writes");
	stopped = pid;
}

/* print says which values an array has. */
static void print(const double *p)
{
	double least = p[0], most = p[0];
	for (int i = 0; i < N; i++) {
		least = p[i] < least ? p[i] : least;
		most = p[i] > most ? p[i] : most;
	}
	printf(" %g", least);
	if (least < most)
		printf("..%g", most);
}

static int early(const char *dir, const char *what)
{
	int rc;
	start(dir);
	if ((rc = cairn_restore(run)) == CAIRN_RESTORED && strcmp(what, "killed") == 0) {
		print(u);
		print(v);
		puts("");
		check(cairn_finish(run, 0), CAIRN_OK, "finish");
		return cairn_close(run) < 0;
	}
	check(rc, CAIRN_OK, "restore");
	fill(1);
	check(cairn_save(run), CAIRN_OK, "save");
	stop();
	fill(2);
	if (strcmp(what, "killed") == 0)
		raise(SIGKILL);
	cairn_request(run);
	for (int i = 0; i < 1000; i++)
		check(cairn_point(run), CAIRN_OK, "a point");
	expect(stopped && cairn_last(run) == 0, "points do not wait for the helper");
	check(cairn_unprotect(run, "v"), CAIRN_OK, "unprotect"); /* its copy is being written, too */
	protect("w", w);
	if (strcmp(what, "early") == 0) {
		check(cairn_save(run), CAIRN_OK, "the next save");
	} else {
		disconnect = strcmp(what, "lost") == 0;
		check(cairn_begin(run), CAIRN_OK, "begin");
		check(cairn_add(run, "u"), CAIRN_OK, "add");
		for (int i = 0; i < N; i++)
			u[i] = 3;
		check(cairn_commit(run), strcmp(what, "lost") == 0 ? CAIRN_NOTSAVED : CAIRN_OK, "commit"); /* it tells of the helper */
	}
	expect(!stopped, "the next save waits for the helper");
	fill(4);
	check(cairn_wait(run), CAIRN_OK, "wait");
	return cairn_close(run) < 0;
}

static int save(const char *dir)
{
	start(dir);
	check(cairn_restore(run), CAIRN_OK, "restore");
	for (int i = 1; i <= 2; i++) {
		fill(i);
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	}
	return cairn_close(run) < 0;
}

static int restore(const char *dir)
{
	int rc;
	start(dir);
	fill(-1);
	rc = cairn_restore(run);
	printf("%d:", rc);
	print(u);
	print(v);
	puts("");
	cairn_close(run);
	return 0;
}

static int read_all(const char *dir)
{
	uint64_t list[8];
	int n, rc;
	start(dir);
	check(cairn_resume(run), CAIRN_RESTORED, "resume");
	check(n = cairn_checkpoints(run, 8, list), CAIRN_OK, "checkpoints");
	for (int i = n - 1; i >= 0; i--) {
		const char *names[] = {"u", "v", "w"};
		double *to[] = {u, v, w};
		size_t size = N;
		fill(-1);
		printf("checkpoint %d:", (int)list[i]);
		for (int k = 0; k < 3; k++) {
			if ((rc = cairn_read(run, list[i], names[k], to[k], CAIRN_DOUBLE, 1, &size)) != CAIRN_OK)
				printf(" %d", rc);
			print(to[k]);
		}
		puts("");
	}
	return cairn_close(run) < 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "early";
	return strcmp(what, "save") == 0 ? save(argv[1])
	     : strcmp(what, "read") == 0 ? read_all(argv[1])
	     : strcmp(what, "restore") == 0 ? restore(argv[1])
	     : early(argv[1], what);
}
