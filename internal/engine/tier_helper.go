package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
)

// tierHelper is the process that keeps the checkpoints of this one on storage
// tiers. A program that 'cairn run' has not started starts it: only the cairn
// command can reach tiers. To this process it is the supervisor, but it starts
// and ends no program.
type tierHelper struct {
	process *os.Process
	conn    *net.UnixConn
	notes   *control.Conn // over conn
	ended   chan struct{} // closed when the process has ended
	env     string        // EnvTiers before Open
}

// tiersOf returns the policy of a program that was not started by 'cairn run'.
func tiersOf(opts *Options) string {
	if opts.Tiers != "" {
		return opts.Tiers
	}
	return os.Getenv(control.EnvTiers)
}

// joinTiers starts the tier helper, and returns the identity that it gives this
// process.
func joinTiers(ctx context.Context, opts *Options, tiers string, log *slog.Logger) (*identity, error) {
	_, size, _, err := launched()
	if err != nil {
		return nil, err
	}
	if d := opts.Driver; size > 1 || d != nil && d.Ranks > 1 {
		return nil, fmt.Errorf("cairn: tiers of several ranks need a supervisor: start the program with 'cairn run -n N --tiers %q', or unset Options.Tiers and %s", tiers, control.EnvTiers)
	}
	fresh := *opts
	fresh.readFresh(singleIdentity())
	ask := &control.OpenTiers{Pid: os.Getpid(), Run: opts.Dir, Tiers: tiers, Fresh: fresh.Fresh, Group: opts.GroupReadable, AnyOwner: opts.AnyOwner}
	if opts.PerHost {
		ask.Run, ask.Local = "", opts.Dir
	}
	if opts.Driver != nil {
		ask.Pid = opts.Driver.Pid
	}
	if ask.Program, err = programOf(ask.Pid); err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	h, err := startTierHelper(opts)
	if err != nil {
		return nil, fmt.Errorf("cairn: tiers need the cairn command: %w; install it, or name it in %s", err, control.EnvHelper)
	}
	// A program that this one starts has its own run.
	h.env = os.Getenv(control.EnvTiers)
	os.Unsetenv(control.EnvTiers)
	s, err := h.open(ctx, ask, opts, log)
	if err != nil {
		h.conn.Close()
		<-h.ended
		h.restoreEnv()
		return nil, err
	}
	go h.log(log)
	return s, nil
}

// programOf returns the path and the arguments of a process.
func programOf(pid int) ([]string, error) {
	if pid == os.Getpid() {
		path, err := os.Executable()
		return append([]string{path}, os.Args[1:]...), err
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	return append([]string{path}, args[1:]...), err
}

// helperPath returns the path of the cairn command.
func helperPath() (string, error) {
	if path := os.Getenv(control.EnvHelper); path != "" {
		return path, nil
	}
	if path, err := os.Executable(); err == nil && filepath.Base(path) == "cairn" && len(os.Args) > 1 && os.Args[1] == "serve" { // the helper of a C program
		return path, nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, "cairn")
		if st, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errors.New("there is no cairn in PATH")
}

// startTierHelper starts the process.
func startTierHelper(opts *Options) (*tierHelper, error) {
	path, err := helperPath()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	mine, theirs, err := control.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	h := &tierHelper{conn: mine, notes: control.New(mine), ended: make(chan struct{})}
	env := os.Environ()
	if opts.OutsideFiles {
		env = append(env, EnvOutside+"=1")
	}
	h.process, err = os.StartProcess(path, []string{"cairn", "_tiers"}, &os.ProcAttr{Env: env, Files: []*os.File{theirs, null, null}, Sys: ownSession()})
	if err != nil {
		mine.Close()
		return nil, err
	}
	go func() {
		h.process.Wait()
		close(h.ended)
	}()
	return h, nil
}

// open asks for the run, and returns when this process can join it: the helper
// has then brought what the tiers have to the host.
func (h *tierHelper) open(ctx context.Context, ask *control.OpenTiers, opts *Options, log *slog.Logger) (*identity, error) {
	defer context.AfterFunc(ctx, func() { h.conn.Close() })()
	if err := h.notes.Send(ask); err != nil {
		return nil, fmt.Errorf("cairn: the tier helper has ended: %w", err)
	}
	m, err := h.notes.Recv()
	for note(m, log) {
		m, err = h.notes.Recv()
	}
	answer, ok := m.(*control.TiersOpened)
	var files []*os.File
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil || !ok:
		return nil, fmt.Errorf("cairn: the tier helper (the cairn command) has ended, or is of another version: %w", errors.Join(err, control.ErrMalformed))
	case answer.Finished:
		return nil, &FinishedError{ask.Run, answer.Status, answer.Time}
	case answer.InUse:
		return nil, fmt.Errorf("cairn: %w: %s", ErrInUse, answer.Error)
	case answer.Error != "":
		return nil, fmt.Errorf("cairn: %s", answer.Error)
	}
	if files, err = control.ReceiveFiles(h.conn, 2); err != nil {
		return nil, fmt.Errorf("cairn: the tier helper has ended: %w", err)
	}
	conn, writer, err := control.Sockets(files[0], files[1])
	if err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	w, err := control.Join(conn, "", false, "")
	if err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	opts.Dir, opts.PerHost = w.Dir, w.PerHost
	return &identity{Welcome: *w, writer: writer, supervisor: supervised(conn), tiers: h, driven: opts.Driver != nil}, nil
}

// log passes what the helper reports to the program's log, until the helper
// ends.
func (h *tierHelper) log(log *slog.Logger) {
	for {
		m, err := h.notes.Recv()
		if err != nil {
			return
		}
		note(m, log)
	}
}

// note logs what the helper reports. It returns false for any other message.
func note(m control.Message, log *slog.Logger) bool {
	n, ok := m.(*control.TierNote)
	if ok && n.Warning {
		log.Warn("cairn: " + n.Text)
	} else if ok {
		log.Info("cairn: " + n.Text)
	}
	return ok
}

// leaveTiers ends the connection with the tier helper. It returns when the
// helper has done what the end of the program needs: the last checkpoint is on
// the tiers, or a finished run is removed from them.
func (s *identity) leaveTiers() {
	h := s.tiers
	if h == nil {
		return
	}
	s.supervisor.conn.Close()
	s.writer.Close()
	h.conn.CloseWrite()
	<-h.ended
	h.conn.Close()
	h.restoreEnv()
}

// restoreEnv lets this process open a run again.
func (h *tierHelper) restoreEnv() {
	if h.env != "" {
		os.Setenv(control.EnvTiers, h.env)
	}
}

// refuseRunDir refuses a directory that is the run directory of a run with
// tiers, whose checkpoints are elsewhere: without the tiers the program would
// start from the beginning.
func refuseRunDir(opts *Options) error {
	if opts.Dir == "" || opts.PerHost {
		return nil
	}
	var rec struct {
		State  string `json:"state"`
		Policy string `json:"policy"`
	}
	err := store.ReadRecord(opts.fs, filepath.Join(opts.Dir, "run.json"), &rec)
	if err != nil || rec.Policy == "" || rec.State == "finished" { // or it is none
		return nil
	}
	return fmt.Errorf("cairn: %s is the directory of a run that keeps its checkpoints on tiers (%s): set Options.Tiers, or %s, to resume it, or name another directory to start over", opts.Dir, rec.Policy, control.EnvTiers)
}
