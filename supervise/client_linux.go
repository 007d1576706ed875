package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// statusTime is how long a supervisor has to tell of its run.
const statusTime = 5 * time.Second

// Read returns what is known of a run: from its supervisor if it runs and
// answers within 5 s, else from its folder.
func Read(ctx context.Context, run string) (*State, error) {
	run, err := filepath.Abs(run)
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	m, err := ask(short, run, &control.Message{Kind: control.Status}, nil)
	if err == nil && m.Run != nil {
		return m.Run, nil
	}
	silent := ctx.Err() == nil && (short.Err() != nil || errors.Is(err, syscall.EAGAIN))
	if err != nil && !silent && !errors.Is(err, ErrNotRunning) {
		return nil, err
	}
	rec, err := readRecord(run)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, fmt.Errorf("%s: %w", run, ErrNoRun)
	}
	st := &State{Run: run, State: rec.settled(), Command: rec.Command, Dir: rec.Sets, Attempt: rec.Attempt, Why: rec.Why,
		Aside: rec.Aside, Last: rec.Last, Ranks: []control.RankState{}}
	for r := range rec.Ranks {
		st.Ranks = append(st.Ranks, control.RankState{Rank: r, State: "ended"})
	}
	if silent {
		st.State = Silent
		st.Why = fmt.Sprintf("its supervisor (process %d on %s) does not answer; it may have been stopped (Ctrl-Z). This is what its record says", rec.Pid, rec.Host)
		for r := range st.Ranks {
			st.Ranks[r].State = "unknown"
		}
	}
	// A helper may have published a set after its supervisor was gone.
	if set, at, ok := newestSet(rec.Sets, rec.Ranks); ok && (st.Last == nil || st.Last.Set < set) {
		st.Last = &SetState{Set: set, Time: at}
	} else if !ok {
		st.Last = nil
	}
	return st, nil
}

// Checkpoint asks a running run for a checkpoint and returns the set when it
// is committed.
func Checkpoint(ctx context.Context, run, reason string) (*SetState, error) {
	m, err := ask(ctx, run, &control.Message{Kind: control.Checkpoint, Reason: reason}, nil)
	if err != nil {
		return nil, err
	}
	if m.Run == nil || m.Run.Last == nil {
		return nil, fmt.Errorf("%s: the supervisor named no set", run)
	}
	return m.Run.Last, nil
}

// Stop lets a running run save and stop, and returns its state when it has.
func Stop(ctx context.Context, run, reason string) (*State, error) {
	m, err := ask(ctx, run, &control.Message{Kind: control.Stop, Reason: reason}, nil)
	if err != nil {
		return nil, err
	}
	if m.Run == nil {
		return nil, fmt.Errorf("%s: the supervisor gave no state", run)
	}
	return m.Run, nil
}

// Migrate moves ranks of a running run to another host and returns how that
// ended. Until it is decided, the end of ctx calls it off. note, if not nil, is
// told how far it is.
func Migrate(ctx context.Context, run string, o Migration, note func(*MoveState)) (*MoveState, error) {
	var last *MoveState
	m, err := ask(ctx, run, &control.Message{Kind: control.Migrate, Host: o.Host, To: o.To,
		Move: &control.Move{Ranks: o.Ranks, Chunk: o.Chunk, Rounds: o.Rounds, Files: o.Files, Sequential: o.Sequential, Program: o.Program, Env: o.Env}}, func(m *control.Message) {
		if m.Run != nil && len(m.Run.Moves) == 1 {
			last = &m.Run.Moves[0]
			if note != nil {
				note(last)
			}
		}
	})
	if err != nil {
		return last, err
	}
	if m.Run == nil || len(m.Run.Moves) != 1 {
		return last, fmt.Errorf("%s: the supervisor did not say how the move ended", run)
	}
	return &m.Run.Moves[0], nil
}

// ask sends a request to a run's supervisor and returns the answer. note is
// told what comes before it.
func ask(ctx context.Context, run string, m *control.Message, note func(*control.Message)) (*control.Message, error) {
	st, err := os.Stat(run)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s: %w; name the folder that 'cairn run' made", run, ErrNoRun)
	}
	var conn net.Conn
	err = inFolder(run, func(short string) (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "unix", filepath.Join(short, socketName))
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%s: %w; if it runs on another one, use cairn there", run, ErrNotRunning)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", filepath.Join(run, socketName), err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c := control.New(conn)
	if err := c.Send(m); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s: the supervisor hung up: %w", run, err)
	}
	answer, err := c.Recv()
	for err == nil && answer.Busy {
		if note != nil {
			note(answer)
		}
		answer, err = c.Recv()
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%s: the supervisor gave no answer: %w", run, err)
	case answer.Error != "":
		return nil, fmt.Errorf("%s: %s", run, answer.Error)
	}
	return answer, nil
}
