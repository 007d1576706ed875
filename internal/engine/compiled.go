package engine

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/mpi"
)

// What package resume needs. A program that 'cairn build' made has one run,
// which package resume opens before main. If the program itself calls
// cairn.Open, it gets that run: the run adopts the program's options, and the
// program may use it, but not end it.

// handleName and worldName are the variables that stand for the run and for its
// communicator in checkpoints.
const (
	handleName = reserved + "run"
	worldName  = reserved + "world"
)

// ProtectHandles makes the run and the communicator of all ranks part of the
// state: a pointer to them points to them again after a restart. Call it before
// Restore.
func (p *Run) ProtectHandles() {
	p.handles = true
	world := p.World()
	p.roots = append(p.roots, graph.Root{Name: handleName, Ptr: p}, graph.Root{Name: worldName, Ptr: world})
}

// NewestSaved returns the index of this rank's newest checkpoint, 0 if it has
// none. Any goroutine may call it.
func (p *Run) NewestSaved() (uint64, error) {
	indices, err := p.dir.Committed()
	if err != nil || len(indices) == 0 {
		return 0, err
	}
	return indices[0], nil
}

// SyncAlso names files and directories, by absolute paths, that the program has
// changed. They are made durable before the checkpoint that is about to be
// copied is committed. OnCopy calls it.
func (p *Run) SyncAlso(paths []string) { p.saver.SyncAlso(paths) }

// CairnState saves nothing: a restored pointer to a run points to the run of
// the process. Only compiled programs can have it in their state.
func (p *Run) CairnState(c *graph.Coder) error {
	if !p.handles {
		return fmt.Errorf("a run cannot be saved: keep the *cairn.Run out of protected variables")
	}
	return nil
}

// Adopt gives the run the options of the program's own call of Open. Finish and
// Close do nothing from then on, until Release.
//
// Adopt takes over Signals, SafePoints, OnSaved, OnError and Log. It takes over
// Every, EveryPoints, Auto and MTBF unless 'cairn run' or the environment sets
// Every or EveryPoints, and not MTBF if they set it. Other options do not
// change. All ranks call Adopt. If again is set (after a restore), ranks do not
// synchronize.
func (p *Run) Adopt(o Options, again bool) error {
	p.adopted = true
	if o.Dir != "" && p.identity.Rank == 0 && !again {
		if abs, err := filepath.Abs(o.Dir); err == nil && abs != p.opts.Dir {
			p.log.Info("cairn: the directory that the program names is not used", "directory", abs, "used", p.opts.Dir)
		}
	}
	p.opts.OnSaved, p.opts.OnError = o.OnSaved, o.OnError
	if o.Log != nil {
		p.log = o.Log
	}
	if o.Signals != nil {
		p.opts.Signals = o.Signals
		if p.signals != nil {
			p.signals.stop()
			p.signals = watchSignals(p)
		}
	}
	own := !p.setOutside("every", "every-points")
	if own {
		p.opts.Every, p.opts.EveryPoints = o.Every, o.EveryPoints
		p.opts.Auto = o.Auto || o.Every == 0 && o.EveryPoints == 0
		if o.MTBF > 0 && !p.setOutside("mtbf") {
			p.opts.MTBF = o.MTBF
		}
	}
	p.opts.SafePoints = p.opts.SafePoints || o.SafePoints
	if p.identity.Size > 1 && p.peers.node != nil {
		if err := p.peers.replan(again); err != nil {
			return fmt.Errorf("cairn: %w", err)
		}
	}
	if own && p.phase == phaseRunning && !(again && p.isDestination()) { // a destination has the time from its source
		p.schedule()
	}
	return nil
}

// Release ends what Adopt began: from then on, Finish and Close end the run.
// Release reports whether all ranks are connected.
func (p *Run) Release() bool {
	p.adopted = false
	if p.identity.Size == 1 {
		return true
	}
	e := p.peers.engine
	e.Lock()
	defer e.Unlock()
	return e.Err() == nil
}

// SetSafePoints sets Options.SafePoints. Call it before Restore.
func (p *Run) SetSafePoints() { p.opts.SafePoints = true }

// replan applies changed options to the coordination.
func (t *peers) replan(again bool) error {
	p, e := t.run, t.engine
	mine := plan{0, uint64(p.opts.EveryPoints), p.opts.SafePoints}
	if !again {
		if _, err := t.samePlan(mine); err != nil {
			return err
		}
	}
	e.Lock()
	t.nextCheck.Store(0)
	t.node.Plan(mine.Every, mine.Spatial)
	t.act()
	e.Unlock()
	if again {
		return nil
	}
	return t.world.Barrier() // no rank reaches a point before all have the new options
}

// IsDestination reports whether this process takes over a running rank, which
// owns the run's files until Restore returns.
func (p *Run) IsDestination() bool { return p.isDestination() }

// SetJournal says that the caller restores files: Restore opens and positions
// them, and in a run of several ranks does not change them. Restore calls
// choose on all ranks with the index of the checkpoint that it is about to
// load. Call SetJournal before Restore.
func (p *Run) SetJournal(choose func(index uint64) error) {
	p.onChoose = choose
	p.files.journaled = p.identity.Size > 1
}

// callOnChoose calls the function of SetJournal.
func (p *Run) callOnChoose(index uint64) error {
	if p.onChoose == nil {
		return nil
	}
	return p.onChoose(index)
}

// gathered bounds the size of what a rank passes to Allgather, in bytes.
const gathered = 2 << 10

// Allgather gives every rank's bytes to all ranks. All ranks call it, before
// Restore.
func (p *Run) Allgather(mine []byte) ([][]byte, error) {
	type slot struct {
		Len  int32
		Text [gathered]byte
	}
	if len(mine) > gathered {
		return nil, fmt.Errorf("cairn: %d bytes are too many to tell all ranks", len(mine))
	}
	if p.peers == nil {
		return nil, errors.New("cairn: there are no other ranks")
	}
	s := slot{Len: int32(len(mine))}
	copy(s.Text[:], mine)
	all := make([]slot, p.identity.Size)
	if err := mpi.Allgather(p.peers.world, []slot{s}, all); err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	out := make([][]byte, len(all))
	for r := range all {
		out[r] = all[r].Text[:max(0, min(int(all[r].Len), gathered))]
	}
	return out, nil
}

// Host identifies the host: ranks with the same Host see the same files.
func (p *Run) Host() string { return p.identity.Host }
