/*
 * What checkpoints cost, beside the raw operations that they cannot do without:
 *
 *     make -C lib bench [MIB=1024] [DIR=DIRECTORY]
 *
 * Each round measures the raw operation, too, so that a machine which is slower
 * for a while is so for both. A line has the median of the times, and that of the
 * rounds' ratios, with the bound that it is to keep. DIR must be on the disk to
 * measure.
 */
#define _GNU_SOURCE
#include <cairn.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, THREADS = 8, CHUNK = 4 << 20 };

static size_t bytes;
static char *data, *copy, *raw; /* raw is what O_DIRECT reads into */
static cairn_run *run;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, run ? cairn_error(run) : strerror(errno));
	exit(1);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(const double *t)
{
	double sorted[ROUNDS];
	memcpy(sorted, t, sizeof sorted);
	qsort(sorted, ROUNDS, sizeof *sorted, ascending);
	return sorted[ROUNDS / 2];
}

/* limit ends a line with the bound of what was measured; 0: it has none. */
static void limit(double got, double bound)
{
	if (bound > 0)
		printf("   (bound %g%s)", bound, got > bound ? ", missed" : "");
	printf("\n");
	fflush(stdout);
}

/* show prints what was measured, and how it compares with raw operations; NULL: it is one. */
static void show(const char *what, const double *t, const double *raw, const char *of, double bound)
{
	double ratio[ROUNDS];
	printf("%-38s %9.1f ms %7.2f GB/s", what, 1e3 * median(t), (double)bytes / median(t) / 1e9);
	for (int i = 0; raw && i < ROUNDS; i++)
		ratio[i] = t[i] / raw[i];
	if (raw)
		printf("   %5.2f x %s", median(ratio), of);
	limit(raw ? median(ratio) : 0, bound);
}

static size_t next;

static void *copier(void *unused)
{
	size_t i;
	(void)unused;
	while ((i = __atomic_fetch_add(&next, CHUNK, __ATOMIC_RELAXED)) < bytes)
		memcpy(copy + i, data + i, bytes - i < CHUNK ? bytes - i : CHUNK);
	return NULL;
}

/* parallel_copy is memcpy with as many threads as libcairn takes. */
static double parallel_copy(void)
{
	pthread_t t[THREADS];
	double began = now();
	cpu_set_t set;
	int n = 0, most = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	next = 0;
	while (n < most - 1 && n < THREADS - 1 && pthread_create(&t[n], NULL, copier, NULL) == 0)
		n++;
	copier(NULL);
	while (n > 0)
		pthread_join(t[--n], NULL);
	return now() - began;
}

/* direct writes or reads a file, past the page cache. */
static double direct(const char *dir, int write_it)
{
	char path[4096];
	double began;
	int fd;
	snprintf(path, sizeof path, "%s/raw", dir);
	check(fd = open(path, (write_it ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | O_DIRECT, 0600), "O_DIRECT");
	began = now();
	for (size_t at = 0; at < bytes; at += CHUNK) {
		ssize_t n = write_it ? write(fd, data + at, CHUNK) : read(fd, raw + at, CHUNK);
		check(n == CHUNK ? 0 : -1, path);
	}
	if (write_it)
		check(fdatasync(fd), "fdatasync");
	began = now() - began;
	close(fd);
	return began;
}

static void change(int step, int percent)
{
	for (size_t at = 0; at < bytes; at += 4096)
		if ((int)(at / 4096 % 100) < percent) {
			if (percent == 100)
				for (size_t i = 0; i < 4096; i += 8)
					*(double *)(data + at + i) += step + (double)i;
			else
				*(double *)(data + at) += step;
		}
}

static void start(const char *dir)
{
	cairn_options o = CAIRN_OPTIONS;
	size_t n = bytes / sizeof(double);
	o.every = 1e6;
	check(cairn_open(&run, dir, &o), "open");
	check(cairn_protect(run, "u", data, CAIRN_DOUBLE, 1, &n), "protect");
}

/* forget drops the files of a directory from the page cache. */
static void forget(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	while (d && (e = readdir(d))) {
		char path[4096];
		int fd;
		if (*e->d_name == '.')
			continue;
		snprintf(path, sizeof path, "%.2000s/%.1000s", dir, e->d_name);
		if (e->d_type == DT_DIR)
			forget(path);
		else if ((fd = open(path, O_RDONLY)) >= 0) {
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			close(fd);
		}
	}
	if (d)
		closedir(d);
}

/* saves measures checkpoints of which so many per cent of the pages have changed. */
static void saves(const char *dir, int percent)
{
	double copying[ROUNDS], writing[ROUNDS], pause[ROUNDS], durable[ROUNDS];
	char what[64];
	for (int i = -8; i < ROUNDS; i++) { /* the first show what changes */
		int k = i < 0 ? 0 : i;
		double began;
		change(i + 10, percent);
		if (i >= 0) {
			copying[k] = parallel_copy();
			writing[k] = direct(dir, 1);
		}
		began = now();
		check(cairn_save(run), "save");
		pause[k] = now() - began;
		check(cairn_wait(run), "wait");
		durable[k] = now() - began;
	}
	if (percent == 100) {
		show("memcpy, parallel", copying, NULL, "", 0);
		show("O_DIRECT write, durable", writing, NULL, "", 0);
	}
	snprintf(what, sizeof what, "pause, %d %% of the pages changed", percent);
	show(what, pause, copying, "memcpy", percent == 100 ? 1.15 : 0.1);
	snprintf(what, sizeof what, "durable, %d %% of the pages changed", percent);
	show(what, durable, writing, "write", percent == 100 ? 1.15 : 0);
}

/* restores measures restarts. */
static void restores(const char *dir, const char *ckpt)
{
	double reading[ROUNDS], restoring[ROUNDS];
	memcpy(copy, data, bytes);
	for (int i = 0; i < ROUNDS; i++) {
		double began;
		memset(data, 0, bytes);
		start(ckpt);
		forget(ckpt);
		reading[i] = direct(dir, 0);
		began = now();
		check(cairn_restore(run) == CAIRN_RESTORED ? 0 : -1, "restore");
		restoring[i] = now() - began;
		check(cairn_close(run), "close");
		if (memcmp(copy, data, bytes) != 0)
			check(-1, "the restored values");
	}
	show("O_DIRECT read", reading, NULL, "", 0);
	show("restore", restoring, reading, "read", 1.2);
}

int main(int argc, char **argv)
{
	const char *dir = argc > 2 ? argv[2] : ".";
	char ckpt[4096];
	double began, point;
	long points = 100000000;
	bytes = (size_t)(argc > 1 ? atol(argv[1]) : 1024) << 20;
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	raw = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED || copy == MAP_FAILED || raw == MAP_FAILED)
		return perror("memory"), 1;
	snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
	change(1, 100);
	parallel_copy();
	memcpy(raw, data, bytes);
	start(ckpt);
	check(cairn_restore(run), "restore");
	check(cairn_checkpoint(run), "the first checkpoint");
	saves(dir, 100);
	saves(dir, 1);
	began = now();
	for (long i = 0; i < points; i++)
		check(cairn_point(run), "point");
	point = 1e9 * (now() - began) / (double)points;
	printf("%-38s %9.1f ns", "a point that saves nothing", point);
	limit(point, 20);
	change(3, 100); /* all in one file */
	check(cairn_checkpoint(run), "the last checkpoint");
	check(cairn_close(run), "close");
	restores(dir, ckpt);
	return 0;
}
