//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// statusTime is how long a supervisor may take to answer Status.
const statusTime = 5 * time.Second

// Read returns the state of a run: from its supervisor if it runs and answers
// within 5 s, otherwise from the run directory.
func Read(ctx context.Context, run string) (*control.RunState, error) {
	run, err := filepath.Abs(run)
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	m, err := ask(short, run, &control.Status{})
	for errors.Is(err, errNoAnswer) && short.Err() == nil { // it has just ended, or it is too busy
		select {
		case <-short.Done():
		case <-time.After(20 * time.Millisecond):
		}
		m, err = ask(short, run, &control.Status{})
	}
	if err == nil && m.Run != nil {
		return m.Run, nil
	}
	silent := ctx.Err() == nil && (short.Err() != nil || errors.Is(err, syscall.EAGAIN))
	denied := errors.Is(err, fs.ErrPermission) // other users get what the record has
	if err != nil && !silent && !denied && !errors.Is(err, ErrNotRunning) {
		return nil, err
	}
	rec, rerr := rundir.ReadRecord(run)
	if rerr != nil {
		return nil, rerr
	}
	if rec == nil {
		return nil, fmt.Errorf("%s: %w", run, rundir.ErrNoRun)
	}
	if s := rec.Settled(); denied && s != rundir.Stopped && s != rundir.Finished && s != rundir.Failed {
		return nil, err
	}
	st := &control.RunState{Run: run, State: rec.Settled(), Command: rec.Command, Dir: rec.CheckpointDir, Output: rec.Output, Job: rec.Job.String(), Began: rec.Began, Attempt: rec.Attempt, LostNS: rec.LostNS, Why: rec.Why,
		Quarantined: rec.Quarantined, Last: rec.Last, Unsaved: rec.Unsaved, RolledBack: rec.RolledBack, Tiers: rec.Tiers, Scrub: rec.Scrub, Ranks: []control.RankState{}, Moves: rec.Moves, Settings: rec.Settings}
	switch {
	case st.State == rundir.Interrupted && st.Why == "":
		st.Why = "its supervisor, 'cairn run', was killed; the same command resumes the run"
	case st.State != rundir.Interrupted && st.State != rundir.Finishing:
		st.Ended = rec.Time
	}
	for r := range rec.Ranks {
		st.Ranks = append(st.Ranks, control.RankState{Rank: r, State: "ended"})
	}
	if silent {
		st.State, st.Ended = rundir.Silent, time.Time{}
		st.Why = fmt.Sprintf("its supervisor (process %d on %s) does not answer; it may have been stopped (Ctrl-Z). This is what its record says", rec.Pid, rec.Host)
		for r := range st.Ranks {
			st.Ranks[r].State = "unknown"
		}
	} else {
		for i := range st.Moves {
			rundir.LostMove(&st.Moves[i])
		}
	}
	// A helper may have published a checkpoint after its supervisor was gone.
	if index, at, ok := rundir.NewestCheckpoint(rec.CheckpointDir, rec.Ranks); ok && rec.Local == "" && (st.Last == nil || st.Last.Index < index) {
		st.Last = &control.CheckpointState{Index: index, Time: at}
	} else if !ok && rec.State == rundir.Finished {
		st.Last = nil
	}
	return st, nil
}

// Checkpoint asks a running run for a checkpoint and returns the checkpoint
// when it is committed.
func Checkpoint(ctx context.Context, run, reason string) (*control.CheckpointState, error) {
	m, err := ask(ctx, run, &control.Checkpoint{Reason: reason})
	if err != nil {
		return nil, err
	}
	if m.Run == nil || m.Run.Last == nil {
		return nil, fmt.Errorf("%s: the supervisor named no checkpoint", run)
	}
	return m.Run.Last, nil
}

// Stop lets a running run save and stop, and returns its state when it has.
func Stop(ctx context.Context, run, reason string) (*control.RunState, error) {
	m, err := ask(ctx, run, &control.Stop{Reason: reason})
	if err != nil {
		return nil, err
	}
	if m.Run == nil {
		return nil, fmt.Errorf("%s: the supervisor gave no state", run)
	}
	return m.Run, nil
}

// Migrate moves ranks of a running run to other hosts and returns how that
// ended. It calls note, if not nil, at every change. If the supervisor is lost
// meanwhile, the state is MoveUnknown. When ctx ends, Migrate returns at once,
// and the supervisor cancels the move unless it is decided; with
// Migration.Cancel, Migrate waits for the outcome.
func Migrate(ctx context.Context, run string, o Migration, note func(*control.MoveState)) (*control.MoveState, error) {
	last := &control.MoveState{Ranks: o.Ranks, From: o.Host, To: o.To}
	if last.Ranks == nil {
		last.Ranks = []int{}
	}
	heard := false
	r := question{off: o.Cancel, note: func(m *control.Answer) {
		if m.Run != nil && len(m.Run.Moves) == 1 {
			last, heard = &m.Run.Moves[0], true
			if note != nil {
				note(last)
			}
		}
	}}
	m, err := r.ask(ctx, run, &control.Migrate{
		Move: control.Move{Ranks: o.Ranks, Chunk: o.Chunk, Rounds: o.Rounds, Files: o.Files},
		Host: o.Host, To: o.To, StartLimit: o.StartLimit, Program: o.Program, Env: o.Env})
	if errors.Is(err, errNoAnswer) {
		lives := supervised(ctx, run)
		if rec, err := rundir.ReadRecord(run); !lives && err == nil && rec != nil && rec.Settled() != rundir.Interrupted { // the run has just ended
			if !heard {
				return last, notRunning(run)
			}
			for i := range rec.Moves {
				if m := &rec.Moves[i]; m.ID == last.ID && m.Over() {
					return m, nil
				}
			}
		}
		last.Time, last.State = time.Now(), control.MoveUnknown
		switch {
		case !lives:
			last.Why = "the supervisor is gone, and the run has stopped; the same 'cairn run' command resumes it"
		case heard:
			last.Why = "the connection to the supervisor was lost; see 'cairn status'"
		default: // the supervisor did not get the request
			return last, err
		}
		return last, nil
	}
	if err != nil {
		return last, err
	}
	if m.Run == nil || len(m.Run.Moves) != 1 {
		return last, fmt.Errorf("%s: the supervisor did not say how the move ended", run)
	}
	return &m.Run.Moves[0], nil
}

// supervised reports whether a supervisor of the run answers.
func supervised(ctx context.Context, run string) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	_, err := ask(ctx, run, &control.Status{})
	return err == nil || ctx.Err() != nil // on a timeout, it may have been stopped by a signal
}

// errNoAnswer says that the supervisor closed the connection without an answer.
var errNoAnswer = errors.New("the supervisor gave no answer")

// question says how a supervisor is asked.
type question struct {
	note func(*control.Answer) // called with the answers before the last one
	off  <-chan struct{}       // closing it cancels the request
}

// ask sends a request to a run's supervisor and returns the answer.
func ask(ctx context.Context, run string, m control.Message) (*control.Answer, error) {
	return question{}.ask(ctx, run, m)
}

func (q question) ask(ctx context.Context, run string, m control.Message) (*control.Answer, error) {
	st, err := os.Stat(run)
	if err != nil {
		return nil, fmt.Errorf("%w; name the directory that 'cairn run' made", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s: %w; name the directory that 'cairn run' made", run, rundir.ErrNoRun)
	}
	conn, err := rundir.Dial(ctx, run)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, notRunning(run)
	case err != nil:
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c := control.New(conn)
	if err := c.Send(m); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s: %w: %w", run, errNoAnswer, err)
	}
	if q.off != nil {
		answered := make(chan struct{})
		defer close(answered)
		go func() {
			select {
			case <-q.off:
				c.Send(&control.Cancel{}) // if this fails, the reader reports it
			case <-answered:
			}
		}()
	}
	answer, err := recvAnswer(c)
	for err == nil && answer.More {
		if q.note != nil {
			q.note(answer)
		}
		answer, err = recvAnswer(c)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", run, errNoAnswer, err)
	case answer.Error != "":
		return nil, fmt.Errorf("%s: %s", run, answer.Error)
	}
	return answer, nil
}

func recvAnswer(c *control.Conn) (*control.Answer, error) {
	m, err := c.Recv()
	if err != nil {
		return nil, err
	}
	answer, ok := m.(*control.Answer)
	if !ok {
		return nil, fmt.Errorf("%w: %s instead of an answer", control.ErrMalformed, m.Kind())
	}
	return answer, nil
}

// notRunning returns an error that says why no supervisor of a run answers.
func notRunning(run string) error {
	rec, err := rundir.ReadRecord(run)
	switch {
	case err != nil:
		return err
	case rec == nil:
		return fmt.Errorf("%s: %w; name the directory that 'cairn run' made", run, rundir.ErrNoRun)
	}
	const again = "the same 'cairn run' command resumes it"
	what, own := "", ""
	switch own, _ = os.Hostname(); {
	case rec.State == rundir.Finishing:
		what = "its ranks have finished, but their end is not complete; the same 'cairn run' command completes it"
	case rec.State == rundir.Finished:
		what = "it has finished; the same 'cairn run' command starts it afresh"
	case rec.State == rundir.Stopped:
		what = "it was stopped; " + again
	case rec.State == rundir.Failed:
		what = fmt.Sprintf("it has failed (%s); %s", rec.Why, again)
	case rec.Host == own:
		what = fmt.Sprintf("its supervisor (process %d) is gone; %s", rec.Pid, again)
	default:
		what = fmt.Sprintf("process %d on %s has it; use cairn there, or, if that is gone: %s", rec.Pid, rec.Host, again)
	}
	return fmt.Errorf("%s: %w: %s", run, ErrNotRunning, what)
}
