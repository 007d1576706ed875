/*
 * What fti.c and veloc.c share: configuration files of lines "key = value" with
 * comments after # or ;, and "[section]". Sections and keys have no case.
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

#endif
