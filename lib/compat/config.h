/*
 * What fti.c and veloc.c share: configuration files of lines "key = value" with
 * comments after # or ;, and "[section]", where sections and keys have no case;
 * and hash tables.
 */
#ifndef CAIRN_COMPAT_CONFIG_H
#define CAIRN_COMPAT_CONFIG_H

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct setting {
	char key[64], value[1024]; /* key: "section:key", in small letters */
	int line;
};

struct config {
	const char *path;
	struct setting *list;
	int n;
	char error[1400];
};

static char *config_trim(char *s)
{
	size_t n;
	while (isspace((unsigned char)*s))
		s++;
	for (n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]);)
		s[--n] = 0;
	return s;
}

/* config_value takes quotes and a comment off what stands after "=". */
static char *config_value(char *s)
{
	char *end;
	s = config_trim(s);
	if ((*s == '"' || *s == '\'') && (end = strchr(s + 1, *s))) {
		*end = 0;
		return s + 1;
	}
	s[strcspn(s, "#;")] = 0;
	return config_trim(s);
}

/* config_load reads a file. It returns -1 and sets c->error if it cannot. */
static int config_load(struct config *c, const char *path)
{
	char line[4096], section[32] = "";
	FILE *f;
	memset(c, 0, sizeof *c);
	c->path = path ? path : "";
	if (!path || !(f = fopen(path, "r"))) {
		snprintf(c->error, sizeof c->error, "cannot read the configuration file %.1000s: %s", c->path, path ? strerror(errno) : "no path was given");
		return -1;
	}
	for (int n = 1; fgets(line, sizeof line, f); n++) {
		char *s = config_trim(line), *eq, *end;
		struct setting *more;
		size_t i;
		if (!*s || *s == '#' || *s == ';')
			continue;
		if (*s == '[' && (end = strchr(s, ']'))) {
			*end = 0;
			snprintf(section, sizeof section, "%.30s", config_trim(s + 1));
			continue;
		}
		if (!(eq = strchr(s, '='))) {
			snprintf(c->error, sizeof c->error, "%.1000s, line %d: \"%.100s\" is neither \"key = value\" nor \"[section]\"", c->path, n, s);
			fclose(f);
			return -1;
		}
		*eq = 0;
		more = (struct setting *)realloc(c->list, (size_t)(c->n + 1) * sizeof *more);
		if (!more) {
			snprintf(c->error, sizeof c->error, "%.1000s: out of memory", c->path);
			fclose(f);
			return -1;
		}
		c->list = more;
		more += c->n++;
		more->line = n;
		snprintf(more->key, sizeof more->key, "%s%s%.30s", section, *section ? ":" : "", config_trim(s));
		for (i = 0; more->key[i]; i++)
			more->key[i] = (char)tolower((unsigned char)more->key[i]);
		snprintf(more->value, sizeof more->value, "%.1000s", config_value(eq + 1));
	}
	fclose(f);
	return 0;
}

/* config_find returns a setting with a value; the last one counts. */
static const struct setting *config_find(const struct config *c, const char *key)
{
	for (int i = c->n - 1; i >= 0; i--)
		if (strcmp(c->list[i].key, key) == 0 && *c->list[i].value)
			return &c->list[i];
	return NULL;
}

static const char *config_text(const struct config *c, const char *key, const char *otherwise)
{
	const struct setting *s = config_find(c, key);
	return s ? s->value : otherwise;
}

/*
 * table finds the entries 0 to n - 1 of an array by a hash. The entries of a
 * bucket are a list: for (i = table_first(t, hash); i >= 0; i = t->entry[i].next).
 */
struct table {
	int *bucket; /* its first entry; -1: none */
	struct table_entry *entry;
	unsigned size; /* of both; 0 or a power of two */
};

struct table_entry {
	unsigned hash;
	int next;
};

static inline unsigned table_hash(const char *name, int id)
{
	unsigned h = (unsigned)id * 2654435761u;
	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h ^ h >> 15;
}

static inline int *table_bucket(const struct table *t, unsigned hash) { return &t->bucket[hash & (t->size - 1)]; }
static inline int table_first(const struct table *t, unsigned hash) { return t->size ? *table_bucket(t, hash) : -1; }

static inline void table_link(struct table *t, int i, unsigned hash)
{
	int *bucket = table_bucket(t, hash);
	t->entry[i].hash = hash, t->entry[i].next = *bucket;
	*bucket = i;
}

static inline void table_unlink(struct table *t, int i)
{
	int *at = table_bucket(t, t->entry[i].hash);
	while (*at != i)
		at = &t->entry[*at].next;
	*at = t->entry[i].next;
}

/* table_room makes room for entry n, the next one. It returns -1 without memory. */
static inline int table_room(struct table *t, int n)
{
	unsigned size = t->size ? 2 * t->size : 64;
	struct table_entry *entry;
	int *bucket;
	if ((unsigned)n < t->size)
		return 0;
	if (!(entry = (struct table_entry *)realloc(t->entry, size * sizeof *entry)))
		return -1;
	t->entry = entry;
	if (!(bucket = (int *)realloc(t->bucket, size * sizeof *bucket)))
		return -1;
	t->bucket = bucket, t->size = size;
	memset(bucket, -1, size * sizeof *bucket);
	for (int i = 0; i < n; i++)
		table_link(t, i, entry[i].hash);
	return 0;
}

static inline void table_free(struct table *t)
{
	free(t->bucket);
	free(t->entry);
	memset(t, 0, sizeof *t);
}

/* grown returns an array with room for entry n, the next one. */
static inline void *grown(void *array, int n, size_t bytes)
{
	return n & (n - 1) ? array : realloc(array, (n ? 2 * (size_t)n : 1) * bytes);
}

#endif
