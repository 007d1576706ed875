//go:build linux

package supervise

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A program that names tiers, and that 'cairn run' has not started, starts a
// tier helper: a supervisor of a run with one rank, which runs already.
//
//	program ── tier helper: a supervisor
//	   ║          └─ helper of the host, which has the writer
//	   ╚═══════════════ └─ proxy
//
// In place of the program, the host's helper starts a proxy. The proxy passes
// the sockets that it inherits to the program, by way of the tier helper, and
// ends when the program has ended. So everything but the start and the end of
// the rank is as with 'cairn run'.

// envProxy is where a proxy finds its tier helper.
const envProxy = "CAIRN_PROXY"

// noticeTime is how long a tier helper may take to notice that its program was
// killed.
const noticeTime = 2 * time.Second

// proxied is what a supervisor knows of a program that runs already.
type proxied struct {
	ended bool // the program has ended, or closed its run
	hasty bool // the next start of the program waits for this one's end
}

// ServeProgram keeps the checkpoints of the program at the other end of conn on
// tiers, until it has ended. self is the path of the cairn command.
func ServeProgram(ctx context.Context, conn *net.UnixConn, self string) error {
	defer conn.Close()
	c := control.New(conn)
	c.SetLimit(requestLimit)
	m, err := c.Recv()
	if err != nil {
		return err
	}
	ask, ok := m.(*control.OpenTiers)
	if !ok {
		return fmt.Errorf("%w: no request", control.ErrMalformed)
	}
	t := &tierHelper{ask: ask, self: self, conn: conn, c: c, notes: make(chan *control.TierNote, 256)}
	said := make(chan struct{})
	go func() {
		defer close(said)
		for m := range t.notes {
			t.mu.Lock()
			t.c.Send(m)
			t.mu.Unlock()
		}
	}()
	err = t.run(ctx)
	close(t.notes)
	c.SetWriteDeadline(time.Now().Add(requestTime)) // the program may have been stopped
	<-said
	if err != nil {
		t.answer(&control.TiersOpened{Error: err.Error(), InUse: errors.Is(err, rundir.ErrBusy)})
	}
	return nil
}

// tierHelper serves one program.
type tierHelper struct {
	ask      *control.OpenTiers
	self     string
	conn     *net.UnixConn
	c        *control.Conn
	notes    chan *control.TierNote
	mu       sync.Mutex // of what is sent
	answered bool
}

// answer answers OpenTiers, once.
func (t *tierHelper) answer(m *control.TiersOpened, files ...*os.File) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered {
		return nil
	}
	t.answered = true
	m.Error = strings.ReplaceAll(m.Error, "--fresh", "CAIRN_FRESH=1") // the program has no flags of 'cairn run'
	err := t.c.Send(m)
	if err == nil && len(files) > 0 {
		err = control.SendFiles(t.conn, files...)
	}
	return err
}

// run serves the program. An error is the reason why it cannot.
func (t *tierHelper) run(ctx context.Context) error {
	o, err := t.options()
	if err != nil {
		return err
	}
	name := "@cairn-" + rand.Text()
	proxies, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return err
	}
	defer proxies.Close()
	os.Setenv(envProxy, name)
	s, err := t.supervisor(ctx, o)
	if err != nil {
		return err
	}
	go t.serveProxy(s, proxies)
	go t.watch(s)
	res, err := s.Run(ctx)
	switch {
	case err != nil:
		return err
	case res.State == rundir.Finished: // if the program has joined it, it was answered
		return t.finished()
	default: // it was not answered, or it does not matter
		return errors.New(cmp.Or(res.Why, "the run ended ("+res.State+") before the program could join it"))
	}
}

// watch stops the run if the program ends before it could join it. Nothing else
// would tell: the run may wait for ranks of an earlier start, and its directory
// is in use meanwhile.
func (t *tierHelper) watch(s *Supervisor) {
	for {
		if _, err := t.c.Recv(); err != nil { // it sends nothing more
			break
		}
	}
	t.mu.Lock()
	joined := t.answered
	t.mu.Unlock()
	if !joined {
		s.Stop("the program has ended before it could join the run")
	}
}

// options returns the supervisor's options.
func (t *tierHelper) options() (o Options, err error) {
	ask := t.ask
	o = Options{
		Command: ask.Program, Ranks: 1, Helper: []string{t.self, "_host"}, Proxy: []string{t.self, "_proxy"},
		Run: ask.Run, Local: ask.Local, Tiers: ask.Tiers, Fresh: ask.Fresh, Group: ask.Group, AnyOwner: ask.AnyOwner, Retries: -1, Event: t.event,
	}
	p, err := policy.Parse(o.Tiers)
	if err != nil {
		return o, fmt.Errorf("tiers: %w", err)
	}
	for _, k := range []policy.Kind{policy.Partner, policy.RS} {
		if p.Of(k) != nil {
			return o, fmt.Errorf("tiers: %s keeps copies on other hosts, and this program runs alone on its host: start it with 'cairn run --hosts A,B --tiers …', or leave %s out; local, shared and s3 work without 'cairn run'", k, k)
		}
	}
	if o.Run == "" {
		o.Run = defaultRun(ask.Program)
	}
	if o.Run, err = filepath.Abs(o.Run); err != nil {
		return o, err
	}
	t.ask.Run = o.Run
	here, err := store.Holds(vfs.OS(), o.Run)
	if err != nil {
		return o, err
	}
	if here {
		return o, fmt.Errorf("%s has checkpoints of a run without tiers: to continue that run, unset Options.Tiers; to start over with tiers, name another directory", o.Run)
	}
	if p.Of(policy.Local) == nil && o.Local == "" {
		o.Local = filepath.Join(o.Run, "local")
	}
	return o, nil
}

// supervisor returns a supervisor that has the run directory. If the program
// has just ended, and its tier helper still has the directory, supervisor waits
// until it is free.
func (t *tierHelper) supervisor(ctx context.Context, o Options) (*Supervisor, error) {
	for began := time.Now(); ; {
		if err := t.finished(); err != nil && !o.Fresh {
			return nil, err
		}
		s, err := New(o)
		if !errors.Is(err, rundir.ErrBusy) {
			return s, err
		}
		state, rerr := client.Read(ctx, o.Run)
		if ended := rerr == nil && state.ProgramEnded; ended {
			// It does not wait for tiers any more. What they lack comes from
			// this run.
			client.Stop(ctx, o.Run, "the program was started again")
		} else if time.Since(began) > noticeTime {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(busyEvery): // no event tells of a lock
		}
	}
}

// finishedRun says that the run has finished.
type finishedRun struct{ rec *rundir.Record }

func (finishedRun) Error() string { return "the run has finished" }

// finished returns an error if the run has finished, and answers the program.
func (t *tierHelper) finished() error {
	rec, err := rundir.ReadRecord(t.ask.Run)
	if err != nil || rec == nil || rec.State != rundir.Finished {
		return nil // New says what is wrong
	}
	t.answer(&control.TiersOpened{Finished: true, Status: rec.Status, Time: rec.Time})
	return finishedRun{rec}
}

// event tells the program what its log should have.
func (t *tierHelper) event(e Event) {
	m := &control.TierNote{Text: e.Text}
	switch e.Kind {
	case events.Tier:
		if e.Index > 0 { // it got a checkpoint
			return
		}
		m.Text, m.Warning = "tier "+e.Text, e.Tier.Failing != nil
	case events.Warning, events.Failure:
		m.Warning = true
	case events.Note:
	default:
		return
	}
	select {
	case t.notes <- m:
	default: // the program does not read
	}
}

// serveProxy passes the sockets of the proxy to the program, and ends the proxy
// when the program has ended.
func (t *tierHelper) serveProxy(s *Supervisor, proxies *net.UnixListener) {
	var proxy *net.UnixConn
	for proxy == nil {
		c, err := proxies.AcceptUnix()
		if err != nil {
			return
		}
		if sameUser(c) {
			proxy = c
		} else {
			c.Close()
		}
	}
	defer proxy.Close()
	files, err := control.ReceiveFiles(proxy, 2)
	if err != nil {
		return
	}
	err = t.answer(&control.TiersOpened{}, files...)
	for _, f := range files {
		f.Close()
	}
	if err == nil {
		io.Copy(io.Discard, t.conn) // until its end
	}
	s.post(func() { s.proxied.ended = true })
}

// RunProxy is the proxy. It returns when the program has ended.
func RunProxy() error {
	var files []*os.File
	for _, name := range []string{control.EnvControl, control.EnvWriter} {
		fd, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: os.Getenv(envProxy), Net: "unix"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := control.SendFiles(c, files...); err != nil {
		return err
	}
	for _, f := range files { // they end with the program
		f.Close()
	}
	io.Copy(io.Discard, c)
	return nil
}

// startsProxy makes an order to start the rank one to start its proxy. The
// program has its own output.
func (s *Supervisor) startsProxy(m *control.Start) {
	if s.o.Proxy != nil {
		m.Command, m.Welcome.Output = s.o.Proxy, false
	}
}

// helloOfTiers handles the part of Hello that is about tiers. It reports
// whether the program can run.
func (s *Supervisor) helloOfTiers(r *rank, m *control.Hello) bool {
	if s.o.Proxy != nil {
		r.Pid = m.Pid
	}
	if m.Tiers == "" || s.policy != nil {
		return true
	}
	s.fail(r.Rank, &failure{status: 1, fatal: true, why: fmt.Sprintf("the program keeps its checkpoints on tiers (Options.Tiers): give 'cairn run' the same, --tiers %s", control.ShellCommand([]string{m.Tiers}))})
	s.kill("")
	return false
}

// programEnded handles the end of a proxy.
func (s *Supervisor) programEnded(r *rank) {
	if s.o.Proxy != nil && !r.done {
		s.a.stopped = true
		s.programEnds("the program has ended before its work was done")
	}
}

// programEnds begins the end of a run whose program stops or has ended by
// itself: the last checkpoint is due on all tiers.
func (s *Supervisor) programEnds(why string) {
	if s.o.Proxy == nil || s.stopping {
		return
	}
	s.stopRequest = stopRequest{stopping: true, stopAt: time.Now(), stopGrace: s.o.Grace}
	s.why = why
	if s.last != nil && s.local != nil {
		s.uploadCheckpoint(s.last.Index)
	}
}

// loadable reports whether the program can load what it is going to restore. A
// program that 'cairn run' has not started has one attempt: so its file is read
// before.
func (s *Supervisor) loadable(ctx context.Context) bool {
	l := s.local
	if s.o.Proxy == nil || l.restores == 0 {
		return true
	}
	why := ""
	s.askHosts(ctx, func(h *host) control.Message {
		if h.files == nil || h.files.ID != l.at[0] {
			return nil
		}
		return &control.VerifyPart{Index: l.restores}
	}, func(h *host, m control.Message) {
		if x, ok := m.(*control.PartVerified); ok {
			if why = x.Error; len(x.Damage) > 0 {
				why = x.Damage[0].Block + ": " + x.Damage[0].Reason
			}
		}
	})
	if why == "" || s.stopping || s.killed {
		return true
	}
	s.say("WARNING: checkpoint %d cannot be loaded: %s", l.restores, why)
	l.damaged[copyOf{l.at[0], 0, l.restores}] = why
	return false
}
