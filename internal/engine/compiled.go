package engine

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/mpi"
)

// A program that 'cairn build' has made restartable has one run, which its run
// time (package resume) opens before main begins. What the program itself calls
// Open for is that run: it is lent to the program, which may use all of it but
// not end it.

// handleName and worldName are the variables by which pointers to the run and
// to its communicator are restored as what they were.
const (
	handleName = reserved + "run"
	worldName  = reserved + "world"
)

// ProtectHandles makes the run itself, and the communicator of all its ranks, part of
// the state: what points to them before a restart does so after it. It is for
// package resume, and called before Restore.
func (p *Run) ProtectHandles() {
	p.handles = true
	world := p.World()
	p.roots = append(p.roots, graph.Root{Name: handleName, Ptr: p}, graph.Root{Name: worldName, Ptr: world})
}

// SyncAlso names files and directories, by absolute paths, that the program has
// changed: they are made durable before the checkpoint is published that is
// about to be copied. It is for package resume, and called by OnCopy.
func (p *Run) SyncAlso(paths []string) { p.saver.SyncAlso(paths) }

// CairnState says that a run has no state but what it is. A run is restored
// only in programs that 'cairn build' made; in others it can't be protected.
func (p *Run) CairnState(c *graph.Coder) error {
	if !p.handles {
		return fmt.Errorf("a run can't be saved by itself: keep the *cairn.Run out of protected variables")
	}
	return nil
}

// Adopt changes the run to what a program says in its own call of Open, and from
// then on lets Finish and Close do nothing, until Release is called. It is for
// package resume.
//
// The folder, what the command line of 'cairn run' says, and Keep, Memory,
// Compression, MaxBases and NoTracking stay as they are. All ranks call it; with
// again, which is for one that was restored, they do not wait for each other.
func (p *Run) Adopt(o Options, again bool) error {
	p.adopted = true
	if o.Dir != "" && p.identity.Rank == 0 && !again {
		if abs, err := filepath.Abs(o.Dir); err == nil && abs != p.opts.Dir {
			p.log.Info("cairn: the folder that the program names is not used", "folder", abs, "used", p.opts.Dir)
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
	own := p.opts.EveryPoints == 0 && p.opts.Every == 0 // nobody else has said when
	if own {
		p.opts.Every, p.opts.EveryPoints = o.Every, o.EveryPoints
		p.opts.Auto = o.Auto || o.Every == 0 && o.EveryPoints == 0
		if o.MTBF > 0 {
			p.opts.MTBF = o.MTBF
		}
	}
	p.opts.SafePoints = p.opts.SafePoints || o.SafePoints
	if p.identity.Size > 1 && p.peers.node != nil {
		if err := p.peers.replan(again); err != nil {
			return fmt.Errorf("cairn: %w", err)
		}
	}
	if own && p.restored && !(again && p.isDestination()) { // there it is known when
		p.schedule()
	}
	return nil
}

// Release takes back what was lent: Finish and Close end the run. It reports
// whether all ranks are there, as far as is known.
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

// SetSafePoints says before Restore what Options.SafePoints says.
func (p *Run) SetSafePoints() { p.opts.SafePoints = true }

// replan lets coordination follow changed options.
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
	return t.world.Barrier() // nobody comes to a point before all know
}

// IsDestination reports whether this process is to take the place of a running one,
// which has the run's files until Restore returns. It is for package resume.
func (p *Run) IsDestination() bool { return p.isDestination() }

// SetJournal says that somebody else brings the files of a run of several ranks
// back to what they were: Restore opens and positions them, and does not change
// them. choose is called by Restore with the checkpoint that it is about to load,
// on all ranks. It is for package resume, and called before Restore.
func (p *Run) SetJournal(choose func(index uint64) error) {
	p.onChoose = choose
	p.files.journaled = p.identity.Size > 1
}

// callOnChoose calls choose.
func (p *Run) callOnChoose(index uint64) error {
	if p.onChoose == nil {
		return nil
	}
	return p.onChoose(index)
}

// gathered is how many bytes a rank can tell the others by Allgather.
const gathered = 2 << 10

// Allgather tells all ranks something, and returns what each of them tells. It is for
// package resume, and called before Restore on all ranks.
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

// Host tells hosts apart: ranks that have the same one see the same files.
func (p *Run) Host() string { return p.identity.Host }
