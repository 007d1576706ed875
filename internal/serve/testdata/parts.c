/*
 * A program for the tests of libcairn: checkpoints whose variables are added one
 * after the other, and then changed.
 *
 *     parts DIR save     saves such checkpoints, and ends without cairn_finish
 *     parts DIR restore  prints what the newest one holds
 */
#include <cairn.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000000 };

static void check(cairn_run *run, int rc, int want, const char *what)
{
	if (rc == want || (want == CAIRN_OK && rc >= 0))
		return;
	fprintf(stderr, "%s: %d: %s\n", what, rc, cairn_error(run));
	exit(3);
}

static double sum(const double *a)
{
	double s = 0;
	for (int i = 1; i < N; i++)
		s += a[i] * (i % 1000);
	return s;
}

int main(int argc, char **argv)
{
	double *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
	int c = 0, saving = argc > 2 && strcmp(argv[2], "save") == 0;
	cairn_run *run;
	size_t n = N, more = N + 5;
	if (argc < 3)
		return 2;
	check(run, cairn_open(&run, argv[1], NULL), CAIRN_OK, "open");
	check(run, cairn_protect(run, "a", a, CAIRN_DOUBLE, 1, &n), CAIRN_OK, "a");
	check(run, cairn_protect(run, "b", b, CAIRN_DOUBLE, 1, saving ? &n : &more), CAIRN_OK, "b");
	check(run, cairn_protect(run, "c", &c, CAIRN_INT, 0, NULL), CAIRN_OK, "c");
	b = realloc(b, more * sizeof *b);
	check(run, cairn_protect(run, "b", b, CAIRN_DOUBLE, 1, saving ? &n : &more), CAIRN_OK, "b");
	check(run, cairn_restore(run), saving ? CAIRN_OK : CAIRN_RESTORED, "restore");
	if (!saving) {
		printf("%.17g %g %g %g %g %d\n", sum(a), a[0], a[N - 1], b[0], b[N + 4], c);
		return cairn_close(run) < 0;
	}
	check(run, cairn_add(run, "a"), CAIRN_ARGUMENT, "add before begin");
	check(run, cairn_commit(run), CAIRN_ARGUMENT, "commit before begin");
	for (int i = 1; i <= 8; i++) { /* after some, only written pages are copied */
		a[0] = a[N - 1] = b[0] = i, c = i;
		for (int k = 0; k < 20; k++)
			a[(i * 7919 + k * 104729) % N] += i + k;
		check(run, cairn_begin(run), CAIRN_OK, "begin");
		check(run, cairn_begin(run), CAIRN_ARGUMENT, "begin twice");
		check(run, cairn_save(run), CAIRN_ARGUMENT, "save when one was begun");
		check(run, cairn_add(run, "x"), CAIRN_ARGUMENT, "add what is not there");
		check(run, cairn_add(run, "a"), CAIRN_OK, "add a");
		check(run, cairn_add(run, "b"), CAIRN_OK, "add b");
		a[0] = b[0] = -1; /* not in this one */
		c = 10 * i;       /* as it is at the commit */
		cairn_request(run);
		check(run, cairn_point(run), CAIRN_OK, "a point in between");
		if (i == 8) { /* its copy is of another size: it is copied at the commit */
			b[N + 4] = 7;
			check(run, cairn_protect(run, "b", b, CAIRN_DOUBLE, 1, &more), CAIRN_OK, "b grows");
		}
		if (i == 8)
			printf("%.17g", sum(a));
		check(run, cairn_commit(run), CAIRN_OK, "commit");
		a[N - 1] = -2;
		check(run, cairn_wait(run), CAIRN_OK, "wait");
	}
	free(a);
	free(b);
	return cairn_close(run) < 0;
}
