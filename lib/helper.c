/* The helper process, which writes and reads checkpoints, and talking to it. */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static cairn_status lost(cairn_run *r, const char *why)
{
	if (r->sock >= 0)
		close(r->sock);
	r->sock = -1;
	if (r->helper > 0 && waitpid(r->helper, NULL, WNOHANG) == r->helper)
		r->helper = 0;
	return fail(r, CAIRN_NOHELPER, "the helper process is gone (%s); older checkpoints are intact", why);
}

static const char anchor; /* an address of the library */

/* find returns the path of the cairn command; "cairn" stands for PATH. */
static const char *find(cairn_run *r, char *buf, size_t n)
{
	Dl_info info;
	const char *env = getenv("CAIRN_HELPER"), *slash;
	if (r->opts.helper)
		return r->opts.helper;
	if (env && *env)
		return env;
	if (dladdr(&anchor, &info) && info.dli_fname && (slash = strrchr(info.dli_fname, '/'))) {
		static const char *const places[] = {"cairn", "../bin/cairn"};
		for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
			snprintf(buf, n, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, places[i]);
			if (access(buf, X_OK) == 0)
				return buf;
		}
	}
	return "cairn";
}

/*
 * disconnect leaves the connections to 'cairn run', and the tiers, to the first helper: neither
 * another one nor a program that this one starts acts as the rank. The variables
 * are emptied where they are: other threads may call getenv, and unsetenv would
 * move others.
 */
static void disconnect(void)
{
	char *values[] = {getenv("CAIRN_CONTROL"), getenv("CAIRN_WRITER")}, *tiers = getenv("CAIRN_TIERS");
	for (int i = 0; i < 2; i++)
		if (values[i] && *values[i]) {
			close(atoi(values[i]));
			*values[i] = 0;
		}
	if (tiers)
		*tiers = 0; /* a program that this one starts has a run of its own */
}

static cairn_status spawn(cairn_run *r)
{
	static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2}; /* by the helper, when it has begun */
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	char buf[PATH_MAX], fd[16];
	const char *path = find(r, buf, sizeof buf), *control;
	char *argv[] = {(char *)"cairn", (char *)"serve", fd, NULL};
	int pair[2], rc;
	posix_spawnattr_t attr;
	posix_spawn_file_actions_t actions;
	sigset_t mask, all;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return fail(r, CAIRN_NOHELPER, "cannot make a socket for the helper process: %s", strerror(errno));
	/* A number that is not that of a standard stream which the program has closed. */
	r->sock = fcntl(pair[0], F_DUPFD_CLOEXEC, 64);
	close(pair[0]);
	if (r->sock < 0) {
		close(pair[1]);
		return fail(r, CAIRN_NOHELPER, "cannot make a descriptor for the helper process: %s; it needs one above 63 (see ulimit -n)", strerror(errno));
	}
	snprintf(fd, sizeof fd, "%d", r->sock);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pair[1], r->sock); /* in the helper, its end has this number */
	if (r->cwd)
		posix_spawn_file_actions_addchdir_np(&actions, r->cwd);
	posix_spawnattr_init(&attr);
	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		sigaddset(&mask, ignored[i]);
	sigfillset(&all);
	posix_spawnattr_setsigmask(&attr, &mask);
	posix_spawnattr_setsigdefault(&attr, &all);
	rc = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID; /* a signal to the program's group is not for the helper */
	posix_spawnattr_setflags(&attr, (short)rc);
	pthread_mutex_lock(&one); /* another thread may open a run, too */
	control = getenv("CAIRN_CONTROL");
	r->supervised = control && *control;
	rc = posix_spawnp(&r->helper, path, &actions, &attr, argv, environ);
	if (rc == 0)
		disconnect();
	pthread_mutex_unlock(&one);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	close(pair[1]);
	if (rc == 0)
		return CAIRN_OK;
	close(r->sock);
	r->sock = -1, r->helper = 0;
	return fail(r, CAIRN_NOHELPER, "cannot start the helper %s: %s; install the cairn command, or name it in CAIRN_HELPER", path, strerror(rc));
}

/* memory makes memory that the helper shares. */
static int memory(cairn_run *r, const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		fail(r, CAIRN_NOMEMORY, "cannot make shared memory: %s", strerror(errno));
	else
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK); /* memory that is mapped stays */
	return fd;
}

cairn_status helper_start(cairn_run *r)
{
	cairn_status rc;
	int fds[2];
	char *text;
	uint32_t version, order = 0x01020304;
	if (r->pagefd < 0) {
		if ((r->pagefd = memory(r, "cairn-page")) < 0 || (r->mirror = memory(r, "cairn-mirror")) < 0)
			return CAIRN_NOMEMORY;
		if (ftruncate(r->pagefd, PAGE_BYTES) < 0 ||
		    (r->page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->pagefd, 0)) == MAP_FAILED) {
			r->page = NULL;
			return fail(r, CAIRN_NOMEMORY, "cannot map shared memory: %s", strerror(errno));
		}
	}
	if ((rc = spawn(r)) < 0)
		return rc;
	r->out.len = 0;
	put_u32(&r->out, WIRE_MAGIC);
	put_u32(&r->out, WIRE_VERSION);
	put_bytes(&r->out, &order, 4);
	put_u32(&r->out, (uint32_t)r->pid);
	put_u32(&r->out, (uint32_t)r->comm.rank);
	put_u32(&r->out, (uint32_t)r->comm.size);
	put_str(&r->out, CAIRN_VERSION);
	put_str(&r->out, r->dir);
	put_f64(&r->out, r->opts.every);
	put_u64(&r->out, r->opts.every_points);
	put_f64(&r->out, r->opts.mtbf);
	put_u32(&r->out, (uint32_t)r->opts.keep);
	put_u32(&r->out, (uint32_t)r->opts.max_bases);
	put_u64(&r->out, r->opts.memory);
	put_str(&r->out, r->opts.compression);
	put_str(&r->out, r->opts.tiers);
	put_u32(&r->out, (r->opts.fresh && !r->restored ? 1u : 0) | (r->opts.group ? 2u : 0) | (r->opts.any_owner ? 4u : 0) | (r->restored ? 8u : 0));
	fds[0] = r->pagefd, fds[1] = r->mirror;
	if ((rc = helper_send(r, MSG_HELLO, fds, 2)) < 0 || (rc = helper_ask(r, 0)) < 0)
		return rc;
	version = get_u32(&r->in);
	text = get_str(&r->in);
	r->rank = (int)get_u32(&r->in);
	r->size = (int)get_u32(&r->in);
	r->every_points = get_u64(&r->in);
	r->last = get_u64(&r->in);
	r->resuming = (int)get_u32(&r->in);
	if (version != WIRE_VERSION || !text || strcmp(text, CAIRN_VERSION) != 0)
		rc = fail(r, CAIRN_NOHELPER, "the helper is cairn %s, and the library is of version %s: install both from the same release", text ? text : "?", CAIRN_VERSION);
	else if (r->in.bad)
		rc = lost(r, "its greeting is damaged");
	free(text);
	return rc;
}

cairn_status helper_send(cairn_run *r, int kind, const int *fds, int nfds)
{
	unsigned char head[8], control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct text h = {head, 0, sizeof head, 0, 0};
	struct iovec left[] = {{head, sizeof head}, {r->out.p, r->out.len}};
	struct msghdr m = {0};
	cairn_status rc = CAIRN_OK;
	put_u32(&h, (uint32_t)kind), put_u32(&h, (uint32_t)r->out.len);
	if (r->out.bad)
		rc = fail(r, CAIRN_NOMEMORY, "out of memory for a message to the helper");
	else if (r->sock < 0)
		rc = lost(r, "it was lost before");
	m.msg_iov = left, m.msg_iovlen = 2;
	if (nfds) {
		struct cmsghdr *c;
		m.msg_control = control, m.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	while (rc >= 0 && left[0].iov_len + left[1].iov_len > 0) {
		ssize_t n = sendmsg(r->sock, &m, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			rc = lost(r, strerror(errno));
		for (int i = 0; n > 0 && i < 2; i++) {
			size_t sent = (size_t)n < left[i].iov_len ? (size_t)n : left[i].iov_len;
			left[i].iov_base = (char *)left[i].iov_base + sent, left[i].iov_len -= sent, n -= (ssize_t)sent;
			m.msg_control = NULL, m.msg_controllen = 0;
		}
	}
	r->out.len = 0;
	return rc;
}

static int receive_all(int fd, void *p, size_t n)
{
	for (char *c = p; n > 0;) {
		ssize_t k = recv(fd, c, n, 0);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		c += k, n -= (size_t)k;
	}
	return 0;
}

/* receive reads a message into r->in and returns its kind, or an error. */
static int receive(cairn_run *r)
{
	unsigned char head[8];
	struct text h = {head, 8, 8, 0, 0};
	uint32_t kind, n;
	if (r->sock < 0)
		return lost(r, "it was lost before");
	if (receive_all(r->sock, head, 8) < 0)
		return lost(r, "it ended, or was killed");
	kind = get_u32(&h), n = get_u32(&h);
	if (n > WIRE_MAX)
		return lost(r, "it sends nonsense");
	r->in.len = r->in.at = 0, r->in.bad = 0;
	if (n > r->in.cap) {
		unsigned char *p = realloc(r->in.p, n);
		if (!p)
			return lost(r, "out of memory for its message");
		r->in.p = p, r->in.cap = n;
	}
	if (receive_all(r->sock, r->in.p, n) < 0)
		return lost(r, "it ended, or was killed");
	r->in.len = n;
	return (int)kind;
}

/* settle takes the largest of v among all ranks, and fails if a rank has failed: v[1]. */
static cairn_status settle(cairn_run *r, uint64_t v[2])
{
	cairn_status rc = ranks_max(r, v, 2);
	if (rc < 0 || !v[1])
		return rc;
	r->refused = 1;
	return fail(r, CAIRN_ERROR, "another rank could not open the run; see its message");
}

/* gather does for the helper what only the program can: talk to other ranks. */
static cairn_status gather(cairn_run *r)
{
	uint64_t v[2] = {r->in.len, 0}, most;
	unsigned char *mine, *all; /* all follows mine in memory */
	cairn_status rc;
	if (!r->comm.gather)
		return lost(r, "it asks for other ranks, and there are none");
	if ((rc = settle(r, v)) < 0)
		return rc;
	if ((most = v[0]) > INT_MAX / 2 - 8)
		return lost(r, "it sends nonsense");
	mine = calloc((size_t)r->comm.size + 1, most + 8);
	v[1] = !mine;
	if ((rc = settle(r, v)) < 0 && !mine)
		rc = fail(r, CAIRN_NOMEMORY, "out of memory for an exchange between ranks");
	r->out.len = 0;
	if (rc >= 0) {
		struct text t = {mine, 0, most + 8, 0, 0};
		all = mine + most + 8;
		put_u64(&t, r->in.len);
		put_bytes(&t, r->in.p, r->in.len);
		if (r->comm.gather(r->comm.context, mine, (int)(most + 8), all))
			rc = fail(r, CAIRN_ERROR, "the ranks cannot agree: the communicator failed");
		for (int i = 0; rc == CAIRN_OK && i < r->comm.size; i++) {
			struct text one = {all + (size_t)i * (most + 8), most + 8, most + 8, 0, 0};
			uint64_t n = get_u64(&one);
			put_u32(&r->out, (uint32_t)n);
			put_bytes(&r->out, one.p + 8, n <= most ? n : 0);
		}
	}
	free(mine);
	return rc < 0 ? rc : helper_send(r, MSG_GATHERED, NULL, 0);
}

/* news takes in what became of a checkpoint. */
static void news(cairn_run *r)
{
	uint64_t index = get_u64(&r->in);
	char *text = get_str(&r->in);
	if (index >= r->saving)
		r->saving = 0;
	if (text && *text) {
		free(r->unsaid);
		r->unsaid = text;
		return;
	}
	if (index > r->last)
		r->last = index;
	free(text);
}

cairn_status said(cairn_run *r, cairn_status rc)
{
	if (rc < 0 || !r->unsaid)
		return rc;
	fail(r, CAIRN_NOTSAVED, "%s", r->unsaid);
	free(r->unsaid);
	r->unsaid = NULL;
	return CAIRN_NOTSAVED;
}

cairn_status helper_ask(cairn_run *r, int kind)
{
	cairn_status rc = kind ? helper_send(r, kind, NULL, 0) : CAIRN_OK;
	while (rc >= 0) {
		int got = receive(r);
		if (got < 0)
			return (cairn_status)got;
		switch (got) {
		case MSG_WELCOME:
		case MSG_DONE:
			return CAIRN_OK;
		case MSG_FAILED: {
			int code = (int)get_u32(&r->in);
			char *text = get_str(&r->in);
			rc = fail(r, code < 0 ? (cairn_status)code : CAIRN_ERROR, "%s", text ? text : "");
			free(text);
			return rc;
		}
		case MSG_GATHER:
			rc = gather(r);
			break;
		case MSG_NEWS:
			news(r);
			break;
		case MSG_CHECKED:
			if (r->restored || (rc = copy_checked(r)) == CAIRN_NOMEMORY)
				return lost(r, "it sends nonsense, or memory is short");
			break;
		default:
			return lost(r, "it sends nonsense");
		}
	}
	return rc;
}

cairn_status helper_news(cairn_run *r, int wait)
{
	struct pollfd p = {r->sock, POLLIN, 0};
	if (r->sock < 0)
		return lost(r, "it was lost before");
	while (wait ? r->saving != 0 : poll(&p, 1, 0) > 0) {
		int got = receive(r);
		if (got < 0)
			return (cairn_status)got;
		if (got != MSG_NEWS)
			return lost(r, "it sends nonsense");
		news(r);
	}
	return CAIRN_OK;
}

int helper_end(cairn_run *r)
{
	int status = 0;
	if (r->sock >= 0)
		close(r->sock);
	r->sock = -1;
	if (r->helper > 0)
		while (waitpid(r->helper, &status, 0) < 0 && errno == EINTR)
			;
	r->helper = 0;
	return status;
}
