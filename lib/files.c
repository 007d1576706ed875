/* Files of the program that belong to its state. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* open_still reports whether a descriptor is the file that it was. */
static int open_still(const struct file *f)
{
	struct stat st;
	return fstat(f->fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

/* tell hands a file to the helper, which shares its position. */
static cairn_status tell(cairn_run *r, const struct file *f, int truncate)
{
	struct stat st;
	int flags = fcntl(f->fd, F_GETFL);
	uint32_t claimed;
	cairn_status rc;
	if (flags < 0 || fstat(f->fd, &st) < 0)
		return fail(r, CAIRN_ARGUMENT, "file %s: %s", f->path, strerror(errno));
	r->out.len = 0;
	put_u32(&r->out, f->id);
	put_str(&r->out, f->path);
	put_u32(&r->out, (uint32_t)((flags & O_ACCMODE) == O_RDONLY ? 0 : (flags & O_ACCMODE) == O_WRONLY ? 1 : 2) | (flags & O_APPEND ? 4u : 0u) | (truncate ? 8u : 0u));
	put_u32(&r->out, (uint32_t)(st.st_mode & 07777));
	rc = helper_send(r, MSG_FILE, &f->fd, 1);
	if (rc < 0 || (rc = helper_ask(r, 0)) < 0)
		return rc;
	if ((claimed = get_u32(&r->in)))
		put_u32(&r->claimed, claimed);
	return r->claimed.bad ? fail(r, CAIRN_NOMEMORY, "file %s: out of memory", f->path) : CAIRN_OK;
}

cairn_status files_unclaimed(cairn_run *r)
{
	r->unclaimed.len = r->claimed.len = 0;
	put_bytes(&r->unclaimed, r->in.p + r->in.at, r->in.len - r->in.at);
	return r->unclaimed.bad ? fail(r, CAIRN_NOMEMORY, "out of memory for a list of files") : CAIRN_OK;
}

void files_give(cairn_run *r)
{
	put_u32(&r->out, (uint32_t)(r->claimed.len / 4));
	put_bytes(&r->out, r->claimed.p, r->claimed.len);
	put_bytes(&r->out, r->unclaimed.p, r->unclaimed.len);
}

/*
 * makes_again asks whether a file that must be new may be opened as it is: the
 * run has made it before, and makes it again after a restart.
 */
static cairn_status makes_again(cairn_run *r, const char *path, int flags, int *again)
{
	cairn_status rc;
	char *dir = *path == '/' ? strdup("") : getcwd(NULL, 0);
	if (!dir)
		return fail(r, CAIRN_ERROR, "file %s: %s", path, strerror(errno));
	r->out.len = 0;
	put_str(&r->out, dir); /* the helper joins them */
	put_str(&r->out, path);
	put_u32(&r->out, flags & O_RDWR ? 2 : 1);
	free(dir);
	if ((rc = helper_ask(r, MSG_MAKE)) >= 0)
		*again = get_u32(&r->in) == 1;
	return rc;
}

/* position makes a stream follow its descriptor, which the helper has positioned. */
static void position(const struct file *f)
{
	off_t at = f->stream ? lseek(f->fd, 0, SEEK_CUR) : -1;
	if (at >= 0)
		fseeko(f->stream, at, SEEK_SET);
}

static cairn_status add(cairn_run *r, int fd, FILE *stream, const char *path, int truncate)
{
	struct file *f;
	struct stat st;
	cairn_status rc = own_run(r);
	if (rc < 0)
		return rc;
	if (!path || fd < 0)
		return fail(r, CAIRN_ARGUMENT, "a file needs a path, and a stream or a descriptor");
	if (fstat(fd, &st) < 0)
		return fail(r, CAIRN_ARGUMENT, "file %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(r, CAIRN_ARGUMENT, "file %s is not a regular file: a restart cannot position it", path);
	f = realloc(r->files, (r->nfiles + 1) * sizeof *f);
	if (f)
		r->files = f, f += r->nfiles;
	if (!f || !(f->path = strdup(path)))
		return fail(r, CAIRN_NOMEMORY, "file %s: out of memory", path);
	if (stream)
		fflush(stream);
	for (size_t i = 0; i < r->nfiles; i++) /* closed, and its number used again */
		if (r->files[i].fd == fd)
			r->files[i].fd = -1, r->files[i].stream = NULL;
	f->id = ++r->next_file, f->fd = fd, f->stream = stream, f->dev = st.st_dev, f->ino = st.st_ino;
	if ((rc = tell(r, f, truncate)) < 0) {
		free(f->path);
		return rc;
	}
	r->nfiles++;
	if (r->restored && r->resuming)
		position(f); /* the checkpoint may hold it */
	return rc;
}

cairn_status files_tell(cairn_run *r)
{
	cairn_status rc = CAIRN_OK;
	for (size_t i = 0; rc >= 0 && i < r->nfiles; i++)
		if (open_still(&r->files[i]))
			rc = tell(r, &r->files[i], 0);
	return rc;
}

cairn_status cairn_protect_fd(cairn_run *r, int fd, const char *path) { return add(r, fd, NULL, path, 0); }
cairn_status cairn_protect_stream(cairn_run *r, FILE *stream, const char *path) { return add(r, stream ? fileno(stream) : -1, stream, path, 0); }

FILE *cairn_fopen(cairn_run *r, const char *path, const char *mode)
{
	/* After a restart, a file that the checkpoint holds may not be truncated. */
	int fd, flags = 0, truncate = 0, again = 0;
	FILE *f;
	if (own_run(r) < 0)
		return NULL;
	if (!path || !mode || !strchr("rwa", *mode))
		return fail(r, CAIRN_ARGUMENT, "a file needs a path and a mode as fopen has"), NULL;
	if (*mode == 'w') {
		truncate = r->resuming; /* unless the checkpoint holds it */
		flags = (strchr(mode, '+') ? O_RDWR : O_WRONLY) | O_CREAT | O_CLOEXEC | (truncate ? 0 : O_TRUNC);
		if (strchr(mode, 'x')) {
			if (r->restored && makes_again(r, path, flags, &again) < 0)
				return NULL;
			flags |= again || (!r->restored && r->resuming) ? 0 : O_EXCL;
		}
		fd = open(path, flags, 0666);
		f = fd < 0 ? NULL : fdopen(fd, strchr(mode, '+') ? "r+" : "w");
		if (!f && fd >= 0)
			close(fd);
	} else {
		f = fopen(path, mode);
	}
	if (!f)
		return fail(r, CAIRN_ERROR, "file %s: %s", path, strerror(errno)), NULL;
	if (add(r, fileno(f), f, path, truncate) >= 0)
		return f;
	fclose(f);
	return NULL;
}

int cairn_fclose(cairn_run *r, FILE *stream)
{
	for (size_t i = 0; r && i < r->nfiles; i++)
		if (r->files[i].stream == stream)
			r->files[i].stream = NULL, r->files[i].fd = -1;
	return fclose(stream);
}

/* flush writes what is in a stream's buffer. When that has failed once, now or before, output is lost: C drops the buffer. */
static cairn_status flush(cairn_run *r, FILE *f, const char *path)
{
	return errno = EIO, fflush(f) == 0 && !ferror(f) ? CAIRN_OK : fail(r, CAIRN_NOTSAVED, "nothing is saved: %s could not be written (%s), so that output is missing; end the program and start it again", path, strerror(errno));
}

cairn_status files_flush(cairn_run *r)
{
	cairn_status rc = r->supervised ? flush(r, stdout, "standard output") : CAIRN_OK; /* 'cairn run' makes it part of the state */
	for (size_t i = 0; rc >= 0 && i < r->nfiles; i++)
		if (!open_still(&r->files[i]))
			put_u32(&r->out, r->files[i].id); /* the caller sends it */
		else if (r->files[i].stream)
			rc = flush(r, r->files[i].stream, r->files[i].path);
	return rc;
}

void files_told(cairn_run *r)
{
	size_t n = 0;
	for (size_t i = 0; i < r->nfiles; i++)
		if (open_still(&r->files[i]))
			r->files[n++] = r->files[i];
		else
			free(r->files[i].path);
	r->nfiles = n;
}

void files_sync(cairn_run *r)
{
	for (size_t i = 0; i < r->nfiles; i++)
		position(&r->files[i]);
}
