/* Messages as bytes: little-endian numbers, texts with their length. */
#include "internal.h"

void put_bytes(struct text *t, const void *p, size_t n)
{
	if (t->bad)
		return;
	if (t->len + n > t->cap) {
		size_t cap = t->cap ? t->cap : 256;
		unsigned char *q;
		while (cap < t->len + n)
			cap *= 2;
		if ((t->bad = !(q = realloc(t->p, cap))))
			return;
		t->p = q, t->cap = cap;
	}
	if (n)
		memcpy(t->p + t->len, p, n);
	t->len += n;
}

static void put_number(struct text *t, uint64_t v, int bytes)
{
	unsigned char b[8];
	for (int i = 0; i < bytes; i++)
		b[i] = (unsigned char)(v >> 8 * i);
	put_bytes(t, b, bytes);
}

void put_u32(struct text *t, uint32_t v) { put_number(t, v, 4); }
void put_u64(struct text *t, uint64_t v) { put_number(t, v, 8); }

void put_f64(struct text *t, double v)
{
	uint64_t u;
	memcpy(&u, &v, 8);
	put_u64(t, u);
}

void put_str(struct text *t, const char *s)
{
	size_t n = s ? strlen(s) : 0;
	put_u32(t, (uint32_t)n);
	put_bytes(t, s, n);
}

static uint64_t get_number(struct text *t, int bytes)
{
	uint64_t v = 0;
	if (t->bad || t->len - t->at < (size_t)bytes)
		return t->bad = 1, 0;
	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)t->p[t->at++] << 8 * i;
	return v;
}

uint32_t get_u32(struct text *t) { return (uint32_t)get_number(t, 4); }
uint64_t get_u64(struct text *t) { return get_number(t, 8); }

char *get_str(struct text *t)
{
	size_t n = get_u32(t);
	char *s;
	if (t->bad || t->len - t->at < n)
		return t->bad = 1, NULL;
	t->bad = !(s = strndup((const char *)t->p + t->at, n));
	t->at += n;
	return s;
}

void add_range(struct text *t, uint64_t lo, uint64_t hi)
{
	struct range next = {lo, hi}, *last = t->len ? (struct range *)(void *)(t->p + t->len) - 1 : NULL;
	if (last && last->hi == lo)
		last->hi = hi;
	else
		put_bytes(t, &next, sizeof next);
}
