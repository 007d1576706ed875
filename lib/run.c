/* A run: opening, points, and when a checkpoint is due. */
#include "internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Signals that came; a run compares them with what it has seen. */
static volatile sig_atomic_t saves, stops;

static const uint32_t never = 0;
static uint32_t asked; /* counts signals and requests: the next point looks closer */

static void ask(void) { __atomic_fetch_add(&asked, 1, __ATOMIC_SEQ_CST); }
static void on_save(int sig) { (void)sig, saves = saves + 1, ask(); }
static void on_stop(int sig) { (void)sig, stops = stops + 1, ask(); }

double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

cairn_status fail(cairn_run *r, cairn_status code, const char *format, ...)
{
	va_list args;
	char *text;
	if (!r)
		return code;
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	free(r->err);
	r->err = text, r->failed_once = 1;
	return code;
}

const char *cairn_error(const cairn_run *r) { return r && r->err ? r->err : r && !r->failed_once ? "no error" : "out of memory"; }
int cairn_rank(const cairn_run *r) { return r->rank; }
int cairn_ranks(const cairn_run *r) { return r->size; }

cairn_status cairn_open(cairn_run **run, const char *dir, const cairn_options *options) { return cairn_open_comm(run, dir, options, NULL); }

static char *copied(const char *s) { return s ? strdup(s) : NULL; }

cairn_status ranks_max(cairn_run *r, uint64_t *v, int n)
{
	return r->comm.max(r->comm.context, v, n) ? fail(r, CAIRN_ERROR, "the ranks cannot agree: the communicator failed") : CAIRN_OK;
}

/* agree makes what fails on one rank fail on all: a rank that continues alone would wait for the others. */
static cairn_status agree(cairn_run *r, cairn_status rc, const char *other)
{
	uint64_t v[2] = {0, rc == CAIRN_NOHELPER ? 2 : rc < 0};
	if (r->comm.size <= 1)
		return rc;
	if (ranks_max(r, v, 2) < 0) /* as in helper.c, gather */
		return CAIRN_ERROR;
	if (v[1] == 2 && (rc >= 0 || rc == CAIRN_NOTSAVED))
		return fail(r, CAIRN_NOHELPER, "another rank has lost its helper: the ranks have to be started again");
	return v[1] && rc >= 0 ? fail(r, r->restored ? CAIRN_NOTSAVED : CAIRN_ERROR, "%s", other) : rc;
}

cairn_status cairn_open_comm(cairn_run **run, const char *dir, const cairn_options *options, const cairn_comm *comm)
{
	cairn_run *r = calloc(1, sizeof *r);
	cairn_status rc;
	if (!(*run = r)) {
		uint64_t failed[2] = {0, 1};
		if (comm && comm->size > 1 && comm->max)
			comm->max(comm->context, failed, 2); /* the others wait */
		return CAIRN_NOMEMORY;
	}
	r->sock = r->mirror = r->pagefd = r->pagemap = -1;
	r->uffd = -2;
	r->pid = getpid();
	r->size = r->look = r->left = r->step = 1;
	r->wake = r->asked = &never;
	if (comm)
		r->comm.context = comm->context, r->comm.close = comm->close;
	r->saves_seen = (uint64_t)saves, r->stops_seen = (uint64_t)stops;
	if (options) {
		if (options->struct_size < sizeof(size_t) || options->struct_size > sizeof *options)
			return fail(r, CAIRN_ARGUMENT, "options that CAIRN_OPTIONS has not initialized, or those of a newer cairn.h than the library's");
		memcpy(&r->opts, options, options->struct_size);
	}
	r->dir = copied(dir);
	r->cwd = getcwd(NULL, 0);
	r->opts.compression = copied(r->opts.compression);
	r->opts.helper = copied(r->opts.helper);
	r->opts.tiers = copied(r->opts.tiers ? r->opts.tiers : getenv("CAIRN_TIERS"));
	if (comm && comm->size > 1) {
		if (comm->rank < 0 || comm->rank >= comm->size || !comm->gather || !comm->max)
			return fail(r, CAIRN_ARGUMENT, "rank %d of %d, or a communicator without functions", comm->rank, comm->size);
		r->comm = *comm;
	}
	rc = helper_start(r);
	if (r->comm.size <= 1 && r->page) /* several ranks look at the same points */
		r->wake = &r->page->wake, r->asked = &asked;
	if (r->comm.size > 1 && !r->refused) { /* all ranks have a run, or none */
		rc = agree(r, rc, "another rank could not open the run; see its message");
		if (rc >= 0) {
			uint64_t v[2] = {r->every_points, ~r->every_points};
			if ((rc = ranks_max(r, v, 2)) >= 0 && v[0] != ~v[1])
				rc = fail(r, CAIRN_ARGUMENT, "the ranks have different every_points");
		}
	}
	r->opened = rc >= 0;
	return rc;
}

cairn_status own_run(cairn_run *r)
{
	if (r && r->pid != getpid())
		return fail(r, CAIRN_ARGUMENT, "a forked process must not use its parent's run");
	return r && r->opened ? CAIRN_OK : CAIRN_ARGUMENT; /* cairn_error still says why it is not */
}

/* usable refuses calls that are out of order. */
static cairn_status usable(cairn_run *r, int restored)
{
	if (own_run(r) < 0)
		return CAIRN_ARGUMENT;
	if (r->finished)
		return fail(r, CAIRN_ARGUMENT, "the run is finished");
	if (restored != r->restored)
		return fail(r, CAIRN_ARGUMENT, restored ? "call cairn_restore before the first point" : "cairn_restore is called once");
	return CAIRN_OK;
}

static cairn_status damaged(cairn_run *r) { return fail(r, CAIRN_NOHELPER, "the helper's answer is damaged"); }

static int stored(cairn_run *r, int restored, uint64_t index, const char *name, cairn_type *type, int max, size_t *dims)
{
	cairn_status rc = usable(r, restored);
	cairn_type t;
	int n;
	if (rc < 0)
		return rc;
	r->out.len = 0;
	put_u64(&r->out, index);
	put_str(&r->out, name);
	if ((rc = helper_ask(r, MSG_STORED)) < 0)
		return rc;
	t = (cairn_type)get_u32(&r->in);
	if (type)
		*type = t;
	n = (int)get_u32(&r->in);
	for (int i = 0; i < n && !r->in.bad; i++) {
		uint64_t d = get_u64(&r->in);
		if (i < max && dims)
			dims[i] = (size_t)d;
	}
	return r->in.bad || n < 0 ? damaged(r) : n;
}

int cairn_stored(cairn_run *r, const char *name, cairn_type *type, int max, size_t *dims) { return stored(r, 0, 0, name, type, max, dims); }
int cairn_stored_in(cairn_run *r, uint64_t index, const char *name, cairn_type *type, int max, size_t *dims) { return stored(r, 1, index, name, type, max, dims); }

int cairn_variables(cairn_run *r, uint64_t index, const cairn_variable **list)
{
	cairn_status rc = usable(r, r && r->restored);
	struct text *in = r ? &r->in : NULL;
	size_t n, left, *dims;
	cairn_variable *v;
	char *name;
	if (rc < 0)
		return rc;
	r->out.len = 0;
	put_u64(&r->out, index);
	if ((rc = helper_ask(r, MSG_VARIABLES)) < 0)
		return rc;
	n = get_u32(in);
	left = in->len - in->at;
	if (in->bad || n > left / 12) /* each has three numbers at least */
		return damaged(r);
	free(r->listed);
	r->listed = v = malloc((n + 1) * sizeof *v + left / 8 * sizeof *dims + left + n);
	if (!v)
		return fail(r, CAIRN_NOMEMORY, "out of memory for a list of %zu variables", n);
	dims = (size_t *)(v + n + 1), name = (char *)(dims + left / 8);
	for (size_t i = 0; i < n; i++) {
		size_t bytes = get_u32(in);
		if (in->bad || bytes > in->len - in->at)
			return damaged(r);
		v[i].name = memcpy(name, in->p + in->at, bytes);
		name[bytes] = 0;
		name += bytes + 1, in->at += bytes;
		v[i].type = (cairn_type)get_u32(in), v[i].ndim = (int)get_u32(in), v[i].dims = dims;
		if (in->bad || v[i].ndim < 0 || (size_t)v[i].ndim > (in->len - in->at) / 8)
			return damaged(r);
		for (int k = 0; k < v[i].ndim; k++)
			*dims++ = (size_t)get_u64(in);
	}
	*list = v;
	return (int)n;
}

int cairn_checkpoints(cairn_run *r, int max, uint64_t *indices)
{
	cairn_status rc = usable(r, 1);
	int n;
	if (rc < 0)
		return rc;
	r->out.len = 0;
	if ((rc = helper_ask(r, MSG_LIST)) < 0)
		return rc;
	n = (int)get_u32(&r->in);
	for (int i = 0; i < n && i < max; i++)
		indices[i] = get_u64(&r->in);
	return r->in.bad || n < 0 ? damaged(r) : n;
}

static const struct { int sig; void (*handler)(int); int flags; } signals[] = {{SIGUSR1, on_save, SA_RESTART}, {SIGTERM, on_stop, SA_RESTART | (int)SA_RESETHAND}};

/* take_signals installs handlers where the program has none. Schedulers signal
 * all processes of a job, some twice: a supervisor kills a program that does not
 * stop in time, so only a program without one ends at the second signal. */
static void take_signals(cairn_run *r)
{
	for (int i = 0; !r->opts.no_signals && i < 2; i++) {
		struct sigaction old, act = {0};
		act.sa_handler = signals[i].handler, act.sa_flags = signals[i].flags & ~(r->supervised ? (int)SA_RESETHAND : 0);
		sigemptyset(&act.sa_mask);
		if (sigaction(signals[i].sig, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL && sigaction(signals[i].sig, &act, NULL) == 0)
			r->signals |= 1 << i;
	}
}

static void leave_signals(cairn_run *r)
{
	struct sigaction old;
	for (int i = 0; i < 2; i++)
		if (r->signals & 1 << i && sigaction(signals[i].sig, NULL, &old) == 0 && old.sa_handler == signals[i].handler)
			signal(signals[i].sig, SIG_DFL);
}

static cairn_status restore(cairn_run *r, int load)
{
	static const char other[] = "another rank could not restore; see its message";
	cairn_status rc = usable(r, 0);
	uint32_t yes = 0;
	if (rc < 0)
		return rc;
	if ((rc = vars_complete(r)) >= 0)
		rc = vars_tell(r);
	if ((rc = agree(r, rc, other)) < 0)
		return rc;
	r->out.len = 0;
	put_u32(&r->out, !load);
	files_give(r);
	if ((rc = helper_ask(r, MSG_RESTORE)) >= 0) {
		yes = get_u32(&r->in);
		r->last = get_u64(&r->in);
		r->points = get_u64(&r->in);
		for (size_t i = 0; i < r->nvars; i++)
			r->vars[i]->fresh = !yes || !load;
		if (r->in.bad)
			rc = damaged(r);
		else if ((rc = files_unclaimed(r)) >= 0 && yes && load)
			rc = copy_in(r);
	}
	if (rc < 0 || !yes)
		copy_undo(r);
	r->checked.len = 0;
	if (!r->refused) /* else the others know */
		rc = agree(r, rc, other);
	if (rc < 0)
		return rc;
	if (yes)
		files_sync(r);
	r->restored = 1;
	r->left = r->step = 1;
	take_signals(r);
	return yes ? CAIRN_RESTORED : CAIRN_OK;
}

cairn_status cairn_restore(cairn_run *r) { return restore(r, 1); }
cairn_status cairn_resume(cairn_run *r) { return restore(r, 0); }

/*
 * adapt chooses how many points are between two looks: about fifty a second. No
 * wake reaches several ranks, whose points may become slower: they look as
 * often as costs one per cent of their time, if that is more.
 */
static void adapt(cairn_run *r, uint64_t passed)
{
	double t = now(), took = t - r->looked, want, apart = 0.02, most = r->comm.size > 1 ? 256 : 1 << 24;
	if (r->comm.size > 1 && 100 * r->cost < apart)
		apart = 100 * r->cost > 0.001 ? 100 * r->cost : 0.001;
	if (r->looked > 0 && passed > 0) {
		if (most > 2.0 * (double)r->look)
			most = 2.0 * (double)r->look;
		want = took > 0 ? (double)passed * apart / took : most;
		r->look = want < 1 ? 1 : (uint64_t)(want < most ? want : most);
	}
	r->looked = t;
}

/* arm sets when the next look is: on all ranks alike. */
static void arm(cairn_run *r)
{
	r->left = r->look;
	if (r->every_points && r->since < r->every_points && r->every_points - r->since < r->left)
		r->left = r->every_points - r->since;
	r->step = r->left;
}

/* prepare makes the message that saves, after the copy. */
static cairn_status prepare(cairn_run *r, int why)
{
	cairn_status rc;
	size_t closed, n;
	struct range *changed;
	r->began = now();
	if (r->before && r->before(r->before_context) != 0)
		return fail(r, CAIRN_NOTSAVED, "checkpoint not saved: the function that is called before it failed");
	if (vars_complete(r) < 0)
		return CAIRN_NOTSAVED;
	if ((rc = vars_tell(r)) < 0)
		return rc;
	r->out.len = 0, r->out.bad = 0;
	put_u64(&r->out, r->points);
	put_u32(&r->out, (uint32_t)why);
	closed = r->out.len;
	put_u32(&r->out, 0);
	if ((rc = files_flush(r)) >= 0)
		rc = copy_out(r, NULL);
	if (rc >= 0 && !r->out.bad) {
		struct text count = {r->out.p + closed, 0, 4, 0, 0};
		put_u32(&count, (uint32_t)((r->out.len - closed - 4) / 4));
	}
	r->page->paused = (uint64_t)(1e9 * (now() - r->began));
	changed = (struct range *)(void *)r->changed.p, n = r->changed.len / sizeof *changed;
	put_u32(&r->out, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		put_u64(&r->out, changed[i].lo);
		put_u64(&r->out, changed[i].hi);
	}
	if (rc >= 0 && r->out.bad) /* now: the ranks have not agreed yet, and r->changed is kept */
		rc = fail(r, CAIRN_NOTSAVED, "checkpoint not saved: out of memory for a message");
	return rc;
}

/* save takes a checkpoint, on all ranks or on none. */
static cairn_status save(cairn_run *r, int why, int wait)
{
	cairn_status rc = r->sock >= 0 ? prepare(r, why) : fail(r, CAIRN_NOHELPER, "the helper process is gone"), frozen;
	r->since = 0;
	if ((rc = agree(r, rc, "checkpoint not saved: another rank could not prepare it")) < 0)
		return copy_later(r), rc; /* the mirror then holds what r->changed says */
	rc = helper_send(r, MSG_SAVE, NULL, 0);
	copy_later(r);
	rc = rc < 0 ? rc : helper_ask(r, 0);
	r->changed.len = 0;
	frozen = gpu_frozen(r); /* the helper has recorded files meanwhile */
	if (rc >= 0) {
		files_told(r);
		r->saving = get_u64(&r->in);
		if (r->in.bad)
			rc = damaged(r);
		else if (frozen < 0)
			rc = frozen;
		else if (wait) {
			free(r->unsaid); /* this one counts */
			r->unsaid = NULL;
			rc = said(r, helper_news(r, 1));
		}
	}
	return agree(r, rc, "checkpoint not saved: another rank could not save it");
}

/*
 * revive starts another helper after one was lost, and leaves that to be said. It
 * tries at once, and if that fails again after 1, 2, 4 … 60 seconds. 'cairn run'
 * speaks with one helper of a process only.
 */
static cairn_status revive(cairn_run *r)
{
	cairn_status rc;
	char *was;
	if (r->comm.size <= 1 && !r->supervised && now() < r->retry)
		return CAIRN_NOHELPER; /* the error says that it is gone */
	was = r->err ? strdup(r->err) : NULL;
	helper_end(r);
	r->saving = 0;
	__atomic_store_n(&r->page->wake, 0, __ATOMIC_RELAXED);
	vars_forget(r);
	if (r->comm.size > 1 || r->supervised)
		rc = fail(r, CAIRN_NOHELPER, "%s; end the program%s", was ? was : "the helper is gone", r->supervised ? ": 'cairn run' starts it again" : ", on all ranks, and start it again");
	else
		rc = helper_start(r);
	if (rc >= 0 && (rc = files_tell(r)) >= 0 && (rc = vars_tell(r)) >= 0) {
		put_u32(&r->out, 0);
		files_give(r);
		if ((rc = helper_ask(r, MSG_RESTORE)) >= 0) {
			get_u32(&r->in), get_u64(&r->in), get_u64(&r->in); /* it has its values */
			rc = files_unclaimed(r);
		}
	}
	if (rc < 0)
		helper_end(r); /* it does not know all */
	r->pause = rc >= 0 ? 0 : r->pause < 1 ? 1 : r->pause < 30 ? 2 * r->pause : 60;
	r->retry = now() + r->pause;
	if (rc >= 0) {
		fail(r, CAIRN_NOTSAVED, "%s; another one has been started", was ? was : "the helper was lost");
		free(r->unsaid);
		r->unsaid = strdup(r->err);
	}
	free(was);
	return rc;
}

/* due returns why a checkpoint is due; 0: none is. */
static int due(cairn_run *r)
{
	uint32_t wake = __atomic_load_n(&r->page->wake, __ATOMIC_ACQUIRE);
	int why = (int)(wake & (WHY_TIME | WHY_STOP)) | __atomic_load_n(&r->requested, __ATOMIC_RELAXED);
	if ((uint64_t)saves != r->saves_seen)
		why |= WHY_SIGNAL;
	if ((uint64_t)stops != r->stops_seen)
		why |= WHY_SIGNAL | WHY_STOP;
	if (r->every_points && r->since >= r->every_points)
		why |= WHY_POINTS;
	return why;
}

/* saved is save. If the helper is lost meanwhile, one process gets another one at once, and may continue. */
static cairn_status saved(cairn_run *r, int why, int wait)
{
	cairn_status rc = save(r, why, wait);
	return rc == CAIRN_NOHELPER && r->comm.size <= 1 ? said(r, revive(r)) : rc;
}

/* taken saves at this point. */
static cairn_status taken(cairn_run *r, int why)
{
	cairn_status rc;
	r->saves_seen = (uint64_t)saves;
	__atomic_fetch_and(&r->requested, WHY_STOP, __ATOMIC_RELAXED);
	helper_news(r, 1); /* save finds out if the helper is gone */
	rc = saved(r, why, why & WHY_STOP);
	arm(r);
	if (rc < 0)
		return rc;
	if (why & WHY_STOP) {
		r->stops_seen = (uint64_t)stops, r->stopped = 1;
		__atomic_store_n(&r->requested, 0, __ATOMIC_RELAXED);
		return CAIRN_STOPPED;
	}
	return said(r, CAIRN_SAVED);
}

/* look is the slow part of cairn_point, which would save registers for it if it were inline. */
static __attribute__((noinline)) cairn_status look(cairn_run *r)
{
	cairn_status rc;
	uint64_t passed;
	int why;
	if ((rc = usable(r, 1)) < 0) {
		r->left = r->step = 1;
		return rc;
	}
	r->asked_seen = __atomic_load_n(r->asked, __ATOMIC_SEQ_CST); /* before due sees for what */
	passed = r->step - r->left;
	r->since += passed, r->points += passed;
	r->step = r->left = 0;
	r->stopped = 0;
	if (r->begun) { /* the next checkpoint is the one that was begun */
		r->left = r->step = 1;
		return CAIRN_OK;
	}
	r->page->points = r->points;
	rc = helper_news(r, 0);
	if (rc == CAIRN_NOHELPER)
		rc = revive(r);
	why = due(r);
	adapt(r, passed);
	arm(r);
	if (r->comm.size > 1) { /* all ranks save here, or none */
		uint64_t v[5] = {(uint64_t)why & WHY_STOP, (uint64_t)why & ~(uint64_t)WHY_STOP, r->saving != 0, ~r->look /* the fewest points of all */, rc < 0};
		r->cost = now();
		if (ranks_max(r, v, 5) < 0)
			return CAIRN_ERROR;
		r->cost = now() - r->cost; /* least on the rank that came last, which counts */
		r->look = ~v[3];
		arm(r);
		why = (int)(v[0] | v[1]);
		if (v[4])
			return rc < 0 ? rc : fail(r, CAIRN_NOHELPER, "another rank has lost its helper: the ranks have to be started again");
		if (v[2] && !(why & WHY_STOP))
			why = 0; /* later, when all have written the one before */
	} else if (rc < 0) {
		r->left = r->step = 1; /* each point says it */
		return rc;
	} else if (r->saving && !(why & WHY_STOP)) { /* later, when the one before is written */
		if (why & (WHY_REQUEST | WHY_SIGNAL))
			r->left = r->step = 1;
		why = 0;
	}
	return why ? taken(r, why) : said(r, rc);
}

cairn_status cairn_point(cairn_run *r)
{
	if (--r->left != 0 && !__atomic_load_n(r->wake, __ATOMIC_RELAXED) && __atomic_load_n(r->asked, __ATOMIC_RELAXED) == r->asked_seen)
		return CAIRN_OK;
	return look(r);
}

static cairn_status checkpoint(cairn_run *r, int wait, int commit)
{
	cairn_status rc = usable(r, 1); /* alike on all ranks, but in a forked process */
	if (rc < 0)
		return rc;
	if (r->begun != commit)
		return fail(r, CAIRN_ARGUMENT, commit ? "no checkpoint was begun: call cairn_begin first" : "a checkpoint was begun: call cairn_commit");
	rc = helper_news(r, r->saving != 0);
	if (rc == CAIRN_NOHELPER)
		rc = revive(r);
	r->since += r->step - r->left, r->points += r->step - r->left;
	r->step = r->left;
	r->stopped = 0;
	if (rc >= 0 || r->comm.size > 1) /* with ranks, save tells the others */
		rc = saved(r, WHY_CALL, wait);
	cairn_cancel(r);
	arm(r);
	return said(r, rc);
}

cairn_status cairn_checkpoint(cairn_run *r) { return checkpoint(r, 1, 0); }
cairn_status cairn_save(cairn_run *r) { return checkpoint(r, 0, 0); }
cairn_status cairn_commit(cairn_run *r) { return checkpoint(r, 0, 1); }

void cairn_cancel(cairn_run *r)
{
	for (size_t i = 0; r->begun && i < r->nvars; i++)
		r->vars[i]->added = 0;
	r->begun = 0;
}

cairn_status cairn_begin(cairn_run *r)
{
	cairn_status rc = usable(r, 1);
	if (rc < 0)
		return rc;
	if (r->begun)
		return fail(r, CAIRN_ARGUMENT, "a checkpoint was begun before: call cairn_commit");
	r->begun = 1;
	if (r->saving)
		helper_news(r, 1); /* the mirror must be free; what became of it is told by cairn_commit */
	if (r->sock < 0)
		helper_end(r); /* … the one that was lost may read it still */
	return CAIRN_OK;
}

cairn_status cairn_add(cairn_run *r, const char *name)
{
	cairn_status rc = usable(r, 1);
	struct variable **v = r && name ? vars_find(r, name) : NULL;
	if (rc < 0)
		return rc;
	if (!r->begun || !v)
		return fail(r, CAIRN_ARGUMENT, r->begun ? "no variable \"%.100s\" is protected" : "cannot add \"%.100s\": call cairn_begin first", name ? name : "");
	if ((rc = copy_out(r, *v)) >= 0)
		(*v)->added = 1;
	return rc;
}

cairn_status cairn_wait(cairn_run *r)
{
	cairn_status rc = usable(r, 1);
	if (rc < 0)
		return rc;
	if (r->saving)
		rc = helper_news(r, 1);
	return agree(r, said(r, rc), "checkpoint not saved: another rank could not save it");
}

int cairn_saving(cairn_run *r)
{
	if (r->sock >= 0 && r->saving)
		helper_news(r, 0);
	return r->sock >= 0 && r->saving;
}

void cairn_before_save(cairn_run *r, int (*f)(void *), void *context) { r->before = f, r->before_context = context; }

static void request(cairn_run *r, int why)
{
	__atomic_fetch_or(&r->requested, why, __ATOMIC_RELAXED);
	ask();
}

void cairn_request(cairn_run *r) { request(r, WHY_REQUEST); }
void cairn_request_stop(cairn_run *r) { request(r, WHY_REQUEST | WHY_STOP); }

uint64_t cairn_last(cairn_run *r) { return cairn_saving(r), r->last; }

cairn_status cairn_finish(cairn_run *r, int status)
{
	cairn_status rc = usable(r, 1);
	if (rc < 0)
		return rc;
	if (r->stopped)
		return fail(r, CAIRN_ARGUMENT, "the run was stopped, and has not finished: close it without cairn_finish, and start the program again to resume");
	rc = helper_news(r, r->saving != 0); /* what becomes of it does not matter any more */
	r->retry = 0; /* there is no later time */
	if (rc == CAIRN_NOHELPER && (rc = revive(r)) < 0)
		return rc;
	if (files_flush(r) < 0) /* the helper makes files durable before it records the end */
		return CAIRN_ERROR;
	r->out.len = 0, r->out.bad = 0;
	put_u32(&r->out, (uint32_t)status);
	rc = helper_ask(r, MSG_FINISH);
	r->finished = rc >= 0;
	return rc;
}

cairn_status cairn_close(cairn_run *r)
{
	cairn_status rc = CAIRN_OK;
	if (!r)
		return CAIRN_OK;
	if (r->pid == getpid()) {
		if (r->saving)
			rc = helper_news(r, 1);
		r->out.len = 0, r->out.bad = 0;
		if (r->sock >= 0 && helper_send(r, MSG_BYE, NULL, 0) >= 0) {
			if (helper_end(r) != 0 && rc >= 0)
				rc = CAIRN_ERROR; /* the helper has said why on stderr */
		} else if (r->finished) {
			rc = CAIRN_NOHELPER; /* it has not recorded that */
		}
		if (!r->finished)
			rc = said(r, rc);
	}
	if (r->pid == getpid() && r->comm.close)
		r->comm.close(r->comm.context);
	leave_signals(r);
	gpu_end(r);
	vars_free(r);
	for (size_t i = 0; i < r->nfiles; i++)
		free(r->files[i].path);
	if (r->page)
		munmap(r->page, PAGE_BYTES);
	int fds[] = {r->sock, r->pagefd, r->mirror, r->uffd, r->pagemap};
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	void *mine[] = {r->slabs.p, r->types, r->vars, r->bucket, r->gone_names.p, r->spares.p, r->failed.p, r->changed.p, r->files, r->unclaimed.p, r->claimed.p,
		r->checked.p, r->placed.p, r->in.p, r->out.p, r->listed, r->unsaid, r->err, r->dir, r->cwd, (char *)r->opts.compression, (char *)r->opts.helper, (char *)r->opts.tiers, r};
	for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
		free(mine[i]);
	return rc;
}
