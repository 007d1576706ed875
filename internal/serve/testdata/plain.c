/*
 * A program for the tests of libcairn: it computes a sequence with state of
 * several types, appends a line to a file at some steps, and prints a digest.
 *
 *     plain DIR STEPS CELLS EVERY [OUT]
 *
 * With PLAIN_NARROW=1 it has no long double, which differs between machines.
 */
#include <cairn.h>
#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct particle {
	double at[3];
	int id;
	float mass;
	char kind;
};

static void check(cairn_run *run, int rc, const char *what)
{
	if (rc < 0) {
		fprintf(stderr, "%s: %d: %s\n", what, rc, cairn_error(run));
		exit(3);
	}
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	int steps = atoi(argv[2]), rc, step = 0;
	size_t n = (size_t)atol(argv[3]), rows = n / 100, extra_n = 1;
	double *u = calloc(n, sizeof *u), *extra = calloc(1, sizeof *extra), sum = 0;
	struct particle p[5] = {{{0}}};
	long counter = 0;
	bool odd = false, narrow = getenv("PLAIN_NARROW") != NULL;
	long double wide = 1;
	double complex z = 1;
	unsigned char bytes[7] = {0};
	cairn_options o = CAIRN_OPTIONS;
	cairn_run *run;
	cairn_type particle;
	cairn_field fields[] = {
		{"at", CAIRN_DOUBLE, offsetof(struct particle, at), 1, {3}},
		{"id", CAIRN_INT, offsetof(struct particle, id), 0, {0}},
		{"mass", CAIRN_FLOAT, offsetof(struct particle, mass), 0, {0}},
		{"kind", CAIRN_CHAR, offsetof(struct particle, kind), 0, {0}},
	};
	FILE *out = NULL;
	o.every_points = (uint64_t)atol(argv[4]);
	check(NULL, 0, "");
	if (cairn_open(&run, argv[1], &o) < 0) {
		fprintf(stderr, "open: %s\n", cairn_error(run));
		return 3;
	}
	check(run, cairn_struct(run, "particle", sizeof *p, 4, fields, &particle), "struct");
	check(run, cairn_protect(run, "step", &step, CAIRN_INT, 0, NULL), "step");
	check(run, cairn_protect(run, "u", u, CAIRN_DOUBLE, 2, (size_t[]){rows, 100}), "u");
	check(run, cairn_protect(run, "particles", p, particle, 1, (size_t[]){5}), "particles");
	check(run, cairn_protect(run, "counter", &counter, CAIRN_LONG, 0, NULL), "counter");
	check(run, cairn_protect(run, "odd", &odd, CAIRN_BOOL, 0, NULL), "odd");
	if (!narrow)
		check(run, cairn_protect(run, "wide", &wide, CAIRN_LONG_DOUBLE, 0, NULL), "wide");
	check(run, cairn_protect(run, "z", &z, CAIRN_COMPLEX_DOUBLE, 0, NULL), "z");
	check(run, cairn_protect(run, "bytes", bytes, getenv("PLAIN_BYTES") ? CAIRN_BYTES : CAIRN_UINT8, 1, (size_t[]){sizeof bytes}), "bytes");
	{
		const cairn_variable *list;
		rc = cairn_variables(run, 0, &list);
		for (int i = 0; i < rc; i++)
			if (!list[i].name || list[i].ndim < 0 || (list[i].ndim > 0 && !list[i].dims))
				return 3;
		if (getenv("PLAIN_LIST"))
			for (int i = 0; i < rc; i++) {
				printf("%s %d", list[i].name, list[i].type);
				for (int k = 0; k < list[i].ndim; k++)
					printf(" %zu", list[i].dims[k]);
				printf("\n");
			}
	}
	/* an array whose size changes */
	rc = cairn_stored(run, "extra", NULL, 1, &extra_n);
	if (rc < 0)
		extra_n = 1;
	extra = realloc(extra, extra_n * sizeof *extra);
	if (!extra)
		return 3;
	extra[0] = 0;
	check(run, cairn_protect(run, "extra", extra, CAIRN_DOUBLE, 1, &extra_n), "extra");
	if (argc > 5 && !(out = cairn_fopen(run, argv[5], "w")))
		check(run, -1, "fopen");
	rc = cairn_restore(run);
	check(run, rc, "restore");
	fprintf(stderr, "%s at step %d\n", rc == CAIRN_RESTORED ? "restored" : "started", step);
	for (; step < steps; step++) {
		rc = cairn_point(run);
		if (rc == CAIRN_STOPPED) {
			cairn_close(run);
			return 9;
		}
		if (rc < 0)
			fprintf(stderr, "point: %d: %s\n", rc, cairn_error(run));
		for (size_t i = (size_t)step % 7; i < n; i += 7)
			u[i] += sin((double)(i + (size_t)step));
		for (int i = 0; i < 5; i++) {
			p[i].at[step % 3] += i + step;
			p[i].id = step * i;
			p[i].mass += 0.5f;
			p[i].kind = (char)('a' + step % 26);
		}
		counter += step;
		odd = step & 1;
		wide *= narrow ? 1 : 1.0000001L;
		z *= cexp(0.01 * I);
		bytes[step % 7]++;
		if (step % 10 == 0) {
			extra_n += 10000;
			extra = realloc(extra, extra_n * sizeof *extra);
			for (size_t i = extra_n - 10000; i < extra_n; i++)
				extra[i] = step + (double)i;
			check(run, cairn_protect(run, "extra", extra, CAIRN_DOUBLE, 1, &extra_n), "extra");
		}
		if (out && step % 3 == 0)
			fprintf(out, "step %d\n", step);
	}
	for (size_t i = 0; i < n; i++)
		sum += u[i] * (double)(i % 1000 + 1);
	for (size_t i = 0; i < extra_n; i++)
		sum += extra[i] * (double)(i % 100);
	for (int i = 0; i < 5; i++)
		sum += p[i].at[0] + p[i].at[1] * 3 + p[i].at[2] * 7 + p[i].id + p[i].mass + p[i].kind;
	printf("%.17g %ld %d %.20Lg %.17g %.17g %d %zu\n", sum, counter, odd, wide, creal(z), cimag(z), bytes[3], extra_n);
	fflush(stdout); /* the result is out before the run has finished */
	if (out)
		cairn_fclose(run, out);
	check(run, cairn_finish(run, 0), "finish");
	rc = cairn_close(run);
	free(u);
	free(extra);
	return rc < 0;
}
