/*
 * The part of module cairn that reads array descriptors of Fortran. It is
 * compiled with the program, because descriptors differ among compilers.
 */
#include <ISO_Fortran_binding.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cairn.h>

/* cairn_f_run is type(cairn_run) of module cairn. */
struct cairn_f_run {
	cairn_run *run;
	void *files;
	void (*finalize)(void);
};

/* element_type returns Cairn's type of an element; *n > 0: it is an array of so many. */
static cairn_type element_type(const CFI_cdesc_t *d, size_t *n)
{
	static const struct { CFI_type_t fortran; cairn_type cairn; size_t bytes; } types[] = {
		{CFI_type_int8_t, CAIRN_INT8, 1}, {CFI_type_int16_t, CAIRN_INT16, 2},
		{CFI_type_int32_t, CAIRN_INT32, 4}, {CFI_type_int64_t, CAIRN_INT64, 8},
		{CFI_type_float, CAIRN_FLOAT, 4}, {CFI_type_double, CAIRN_DOUBLE, 8},
		{CFI_type_float_Complex, CAIRN_COMPLEX_FLOAT, 8}, {CFI_type_double_Complex, CAIRN_COMPLEX_DOUBLE, 16},
		{CFI_type_long_double, CAIRN_LONG_DOUBLE, sizeof(long double)},
		{CFI_type_long_double_Complex, CAIRN_COMPLEX_LONG_DOUBLE, 2 * sizeof(long double)},
		{CFI_type_Bool, CAIRN_BOOL, 1},
#ifdef CFI_type_extended_double /* of flang, whose logicals have the types int_least */
		{CFI_type_int_least16_t, CAIRN_INT16, 2}, {CFI_type_int_least32_t, CAIRN_INT32, 4}, {CFI_type_int_least64_t, CAIRN_INT64, 8},
		{CFI_type_extended_double, CAIRN_LONG_DOUBLE, sizeof(long double)},
		{CFI_type_extended_double_Complex, CAIRN_COMPLEX_LONG_DOUBLE, 2 * sizeof(long double)},
#endif
	};
	*n = 0;
	if (d->type == CFI_type_char) {
		*n = d->elem_len;
		return CAIRN_UINT8;
	}
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (d->type == types[i].fortran && d->elem_len == types[i].bytes)
			return types[i].cairn;
#ifdef CFI_type_extended_double
	if (d->type == CFI_type_char32_t) {
		*n = d->elem_len / 4;
		return CAIRN_UINT32;
	}
	if (d->type == CFI_type_int128_t || d->type == CFI_type_float128 || d->type == CFI_type_float128_Complex) { /* no such type in C */
		*n = d->elem_len;
		return CAIRN_BYTES;
	}
#endif
#ifdef CFI_type_Logical /* of gfortran: logicals of all kinds are integers */
	if ((d->type & CFI_type_mask) == CFI_type_Logical)
		return d->elem_len == 2 ? CAIRN_INT16 : d->elem_len == 4 ? CAIRN_INT32 : d->elem_len == 8 ? CAIRN_INT64 : 0;
	if (d->type == CFI_type_ucs4_char) {
		*n = d->elem_len / 4;
		return CAIRN_UINT32;
	}
	if (d->type > 0 && (d->type & CFI_type_mask) <= CFI_type_Complex) { /* 16 bytes wide: no such type in C */
		*n = d->elem_len;
		return CAIRN_BYTES;
	}
#endif
	return 0;
}

static cairn_status protect(cairn_run *run, const char *name, const CFI_cdesc_t *d, int bytes, char *text, size_t room)
{
	size_t dims[CFI_MAX_RANK + 1], n = d->elem_len;
	cairn_type type = bytes ? CAIRN_BYTES : element_type(d, &n);
	int ndim = d->rank;
	if (!type)
		return snprintf(text, room, "variable \"%.100s\" is of a derived type, or an address: protect its components, or its bytes with cairn_protect_bytes if it has no pointer and no allocatable component", name), CAIRN_ARGUMENT;
	if (!d->base_addr)
		return snprintf(text, room, "variable \"%.100s\" is not allocated, or a pointer that is not associated", name), CAIRN_ARGUMENT;
	for (int i = 0; i < ndim; i++) { /* the first dimension of Fortran is the last one of C */
		if (d->dim[i].extent < 0)
			return snprintf(text, room, "variable \"%.100s\" is an assumed-size array, so that its size is not known: pass a section, such as u(1:n)", name), CAIRN_ARGUMENT;
		dims[ndim - 1 - i] = (size_t)d->dim[i].extent;
	}
	if (ndim > 0 && !CFI_is_contiguous(d))
		return snprintf(text, room, "variable \"%.100s\" is not contiguous in memory: it is a section with gaps, or a component of an array of a derived type; protect the whole array, or a contiguous copy", name), CAIRN_ARGUMENT;
	if (n || bytes || d->type == CFI_type_char)
		dims[ndim++] = n;
	return cairn_protect(run, name, d->base_addr, type, ndim, dims);
}

/* trimmed returns a copy of a Fortran text as C has it. */
static char *trimmed(const CFI_cdesc_t *text)
{
	size_t n = text->elem_len;
	const char *s = text->base_addr;
	char *copy;
	while (n && s[n - 1] == ' ')
		n--;
	if ((copy = malloc(n + 1))) {
		memcpy(copy, s, n);
		copy[n] = 0;
	}
	return copy;
}

static void protect_and_report(const struct cairn_f_run *r, const CFI_cdesc_t *name, const CFI_cdesc_t *data, int *stat, CFI_cdesc_t *errmsg, int bytes)
{
	char own[400] = "", *c_name = trimmed(name);
	const char *text;
	const size_t one = 1;
	cairn_status rc = CAIRN_NOMEMORY;
	if (!r->run)
		rc = CAIRN_ARGUMENT, snprintf(own, sizeof own, "the run is not open: call cairn_open before cairn_protect");
	else if (c_name && (rc = protect(r->run, c_name, data, bytes, own, sizeof own)) < 0 && *own)
		cairn_protect(r->run, c_name, NULL, CAIRN_BYTES, 1, &one); /* fails, so that nothing is saved without this variable */
	free(c_name);
	text = *own ? own : cairn_error(r->run);
	if (stat)
		*stat = rc;
	if (rc >= 0)
		return;
	if (errmsg) {
		size_t n = strlen(text);
		memset(errmsg->base_addr, ' ', errmsg->elem_len);
		memcpy(errmsg->base_addr, text, n < errmsg->elem_len ? n : errmsg->elem_len);
	}
	if (!stat) {
		fprintf(stderr, "cairn: %s\n", text);
		exit(1);
	}
}

void cairn_f_protect(const struct cairn_f_run *r, const CFI_cdesc_t *name, const CFI_cdesc_t *data, int *stat, CFI_cdesc_t *errmsg)
{
	protect_and_report(r, name, data, stat, errmsg, 0);
}

void cairn_f_protect_bytes(const struct cairn_f_run *r, const CFI_cdesc_t *name, const CFI_cdesc_t *data, int *stat, CFI_cdesc_t *errmsg)
{
	protect_and_report(r, name, data, stat, errmsg, 1);
}
