/*
 * A program for the tests of libcairn: a restore that exchanges parts of the
 * mirror with variables while the rest is read, and saves without memory.
 *
 *     shared DIR save     saves two checkpoints of variables that share memory
 *     shared DIR restore  says what cairn_restore returns, and what they have then
 *     shared DIR many N   saves N small variables, or restores them; says how
 *                         many parts the helper has sent meanwhile
 *     shared DIR failing  lets each allocation of a save fail, and looks at the
 *                         next checkpoint; says how many failed
 *
 * It exits with 0, or with 3 after an error that it has told.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <sys/socket.h>

enum { COMMON = 12 << 20, LARGE = 8 << 20 };

static cairn_run *run;
static unsigned char common[COMMON], last[LARGE];
static long x;
static int parts;             /* messages of kind MSG_CHECKED */
static int failing, failed;   /* the realloc that fails, counted from now; FAIL_MEMORY=N in the environment: the Nth of cairn_restore */

static void check(int rc, int want, const char *what)
{
	if (rc == want || (want == CAIRN_OK && rc >= 0))
		return;
	fprintf(stderr, "%s: %d: %s\n", what, rc, cairn_error(run));
	exit(3);
}

void *__real_realloc(void *p, size_t n);

void *__wrap_realloc(void *p, size_t n)
{
	return failing && --failing == 0 ? failed = 1, NULL : __real_realloc(p, n);
}

ssize_t __real_recv(int fd, void *p, size_t n, int flags);

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
	ssize_t k = __real_recv(fd, p, n, flags);
	parts += n == 8 && k == 8 && ((unsigned char *)p)[0] == MSG_CHECKED; /* the head of a message */
	return k;
}

static void protect(const char *name, void *p, size_t n)
{
	check(cairn_protect(run, name, p, CAIRN_UINT8, 1, &n), CAIRN_OK, name);
}

static void start(const char *dir)
{
	cairn_options o = CAIRN_OPTIONS;
	o.every = 1e6;
	o.keep = 5;
	check(cairn_open(&run, dir, &o), CAIRN_OK, "open");
}

/* fill gives each byte a value of its place and of n. */
static void fill(int n)
{
	for (size_t i = 0; i < COMMON; i++)
		common[i] = (unsigned char)(i / 4096 * 7 + i + (size_t)n * 31);
	memset(last, n, LARGE);
	x = 111 * n;
}

/* has reports whether all variables have the values that fill(n) gives. */
static int has(int n)
{
	for (size_t i = 0; i < COMMON; i++)
		if (common[i] != (unsigned char)(i / 4096 * 7 + i + (size_t)n * 31))
			return 0;
	for (size_t i = 0; i < LARGE; i++)
		if (last[i] != n)
			return 0;
	return x == 111 * n;
}

/* share protects variables that share memory in all ways, small and large, and one that is read after them. */
static void share(const char *dir)
{
	static const struct { size_t at, n; } list[] = {
		{0, LARGE}, {0, LARGE}, {4096, LARGE}, {1234567, LARGE}, {COMMON - LARGE, LARGE}, {3 << 20, 1 << 20}, {(3 << 20) + 1, 100000}, {0, COMMON}, {3 << 20, 100}, {(3 << 20) + 50, 100},
	};
	char name[] = "part 0";
	size_t one = 1;
	start(dir);
	check(cairn_protect(run, "a", &x, CAIRN_LONG, 1, &one), CAIRN_OK, "a");
	check(cairn_protect(run, "b", &x, CAIRN_LONG, 1, &one), CAIRN_OK, "b");
	for (size_t i = 0; i < sizeof list / sizeof *list; i++, name[5]++)
		protect(name, common + list[i].at, list[i].n);
	protect("z", last, LARGE);
}

static int save(const char *dir)
{
	share(dir);
	check(cairn_restore(run), CAIRN_OK, "restore");
	for (int i = 1; i <= 2; i++) {
		fill(i);
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	}
	return cairn_close(run) < 0;
}

static int restore(const char *dir)
{
	int rc, values = -1;
	share(dir);
	fill(5);
	failing = getenv("FAIL_MEMORY") ? atoi(getenv("FAIL_MEMORY")) : 0;
	rc = cairn_restore(run);
	failing = 0;
	for (int i = 1; i <= 5; i++)
		if (has(i))
			values = i;
	printf("%d: %d%s\n", rc, values, failed ? " failed" : "");
	if (parts < 10 && !failed)
		fprintf(stderr, "the helper has sent only %d parts\n", parts);
	cairn_close(run);
	return parts < 10 && !failed ? 3 : 0;
}

static int many(const char *dir, size_t n)
{
	int64_t *all = malloc(n * sizeof *all);
	char name[32];
	int rc;
	start(dir);
	for (size_t i = 0; i < n; i++) {
		all[i] = -1;
		snprintf(name, sizeof name, "v%zu", i * 7919 % n); /* not in the order of the file */
		check(cairn_protect(run, name, &all[i], CAIRN_INT64, 0, NULL), CAIRN_OK, name);
	}
	check(rc = cairn_restore(run), CAIRN_OK, "restore");
	for (size_t i = 0; i < n; i++) {
		if (rc == CAIRN_RESTORED && all[i] != (int64_t)i)
			check(-1, CAIRN_OK, "a value");
		all[i] = (int64_t)i;
	}
	printf("%d: %d parts\n", rc, parts);
	if (rc != CAIRN_RESTORED)
		check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
	free(all);
	return cairn_close(run) < 0;
}

/* change gives a page of common other bytes, each time in another block; the kernel tells libcairn which. */
static void change(void)
{
	static size_t page;
	common[page++ * ((1 << 20) + 4096) % COMMON]++;
}

static int without_memory(const char *dir)
{
	static unsigned char held[COMMON];
	size_t bytes = COMMON;
	int n = 0;
	start(dir);
	protect("common", common, COMMON);
	check(cairn_restore(run), CAIRN_OK, "restore");
	do {
		check(cairn_unprotect(run, "common"), CAIRN_OK, "unprotect"); /* what has failed is not tracked again */
		protect("common", common, COMMON);
		for (int i = 0; i < 2; i++, change())
			check(cairn_checkpoint(run), CAIRN_OK, "checkpoint");
		failed = 0, failing = ++n;
		if (cairn_checkpoint(run) < 0 && !failed)
			check(-1, CAIRN_OK, "checkpoint with memory");
		failing = 0;
		change();
		check(cairn_checkpoint(run), CAIRN_OK, "the next checkpoint");
		check(cairn_read(run, 0, "common", held, CAIRN_UINT8, 1, &bytes), CAIRN_OK, "read");
		if (memcmp(held, common, COMMON) != 0)
			check(-1, CAIRN_OK, "what the next checkpoint holds");
	} while (failed);
	printf("%d\n", n - 1);
	return cairn_close(run) < 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";
	return strcmp(what, "save") == 0 ? save(argv[1])
	     : strcmp(what, "restore") == 0 ? restore(argv[1])
	     : strcmp(what, "failing") == 0 ? without_memory(argv[1])
	     : many(argv[1], strtoul(argv[3], NULL, 10));
}
