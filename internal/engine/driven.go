package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Driver says that the program is another process, which tells this one when to
// save: see package serve. The program counts its points and decides at which
// of them it saves; with several ranks, all decide alike.
type Driver struct {
	Pid         int // of the program
	Rank, Ranks int // Ranks 0: the supervisor knows, or there is one rank
	// Exchange sends the bytes of each rank to all ranks.
	Exchange func(ctx context.Context, mine []byte) ([][]byte, error)
	// Running says that the program runs already, with its values: it has
	// lost its previous helper. Restore then changes nothing.
	Running bool
	// Tracker says what the program has written since the last Drive.
	Tracker ckpt.Tracker
	// Stable reports whether memory is the program's: it stays as it is
	// from Drive until Attend tells what became of the checkpoint.
	Stable func(p []byte) bool
	// Loading is called before a checkpoint's values are read into memory, and
	// Checked when parts of it hold these values. Restore may fail later, or
	// read an older checkpoint: then it calls Loading again. Each may be nil.
	Loading func(ctx context.Context) error
	Checked func(p []byte)
	// Ready waits until the program has copied memory to where this process
	// reads it. The program may do that after Drive was called. nil: it has
	// copied everything before.
	Ready func(p []byte) error
}

// identity returns the identity of a program without a supervisor.
func (d *Driver) identity(ctx context.Context) (*identity, error) {
	s := singleIdentity()
	if s.driven = true; d.Ranks <= 1 {
		return s, nil
	}
	s.Rank, s.Size, s.exchange = d.Rank, d.Ranks, d.Exchange
	return s, s.agreeOnSecret(ctx)
}

// fits compares the program's ranks with those of 'cairn run': a checkpoint's
// files belong to the ranks of 'cairn run'.
func (d *Driver) fits(w *control.Welcome) error {
	switch {
	case d.Ranks <= 1 && w.Size > 1:
		return errors.New("cairn: a run of several ranks needs a communicator: call cairn_open_mpi")
	case max(d.Ranks, 1) != w.Size:
		return fmt.Errorf("cairn: the communicator has %d ranks, and 'cairn run' supervises %d: open the run with a communicator of all ranks, as MPI_COMM_WORLD is, or start the program without 'cairn run'", d.Ranks, w.Size)
	case d.Ranks > 1 && d.Rank != w.Rank:
		return fmt.Errorf("cairn: this is rank %d of the communicator, and rank %d for 'cairn run': open the run with a communicator that numbers the ranks as MPI_COMM_WORLD does, or start the program without 'cairn run'", d.Rank, w.Rank)
	}
	return nil
}

// driven is the state of a run whose program is another process.
type driven struct {
	saveEvery int         // points after which the program saves
	save      *drivenSave // under way; nil: none
	stopping  uint64      // the program stops with this checkpoint; 0: it does not
	abandoned bool        // the program is gone
	ending    atomic.Bool // Close was called; for other goroutines

	empty map[string]ckpt.EmptyArray // variables without elements
}

// drivenSave is a call of Drive.
type drivenSave struct {
	Drive
	recorded func(index uint64)
}

// adaptToDriver changes the options for a driven run, and returns after how
// many points the program saves. With several ranks, a checkpoint is due at
// every Drive.
func (o *Options) adaptToDriver(s *identity) (every int) {
	if o.Driver == nil {
		return 0
	}
	every = o.EveryPoints
	o.EveryPoints = 0
	if o.Every == 0 && every == 0 {
		o.Auto = true
	}
	if s.Size > 1 {
		o.EveryPoints, o.SafePoints = 1, true
	}
	return every
}

// Drive is what the program says at a point that saves.
type Drive struct {
	Points uint64 // points passed, with this one
	Reason string
	Stop   bool                 // it stops when the checkpoint is durable
	Pause  func() time.Duration // for which the program was paused; called when Ready has returned for all memory
}

// Drive saves the state. It calls recorded with the index of the checkpoint
// when the program may change its files again. The variables are written from
// where they are: they may change when Attend tells what became of the
// checkpoint, or when Drive returns an error.
func (p *Run) Drive(ctx context.Context, d Drive, recorded func(index uint64)) (err error) {
	if err := p.ready(); err != nil {
		return err
	}
	if err := p.awaitWriter(ctx); err != nil {
		return err
	}
	p.closeStored() // its checkpoint may be removed
	p.driven.save = &drivenSave{d, recorded}
	defer func() {
		p.driven.save = nil
		if err != nil { // another rank may have failed
			p.awaitWriter(context.WithoutCancel(ctx))
		}
	}()
	p.points = d.Points
	p.reportedPoints.Store(p.points)
	p.request.Store(nil)
	p.due.Store(false)
	if d.Stop {
		p.driven.stopping = p.saver.Next()
	}
	if p.identity.Size > 1 {
		p.peers.nothingDue()
		return p.pointTogether(ctx)
	}
	if err := p.save(ctx, d.Reason); err != nil {
		p.fail(err)
	}
	return p.takeError()
}

// Abandon says that the program is gone. Close then waits for the checkpoint
// under way, and not for other ranks to end: their launcher may wait for this
// process.
func (p *Run) Abandon() { p.driven.abandoned = true }

// Attention is what a driven program is told.
type Attention struct {
	Due       bool   // a checkpoint is due by time, or was requested
	Stop      bool   // … and the program should stop after it
	Committed uint64 // the newest checkpoint that all ranks have
	Err       error  // why a checkpoint was not saved
}

// Attend notes the outcomes of checkpoints, and returns what is due. Call it
// after Options.OnDue was called. While this rank's part of a checkpoint is
// being written, Attend reports nothing about that checkpoint, even if another
// rank has failed: otherwise the program would change the variables.
func (p *Run) Attend() (a Attention) {
	if p.phase != phaseRunning {
		return a
	}
	p.wake.Store(false)
	select {
	case r := <-p.outcome:
		p.collect(r)
	default:
	}
	if !p.saver.Busy() {
		a.Err = p.failure()
	}
	a.Due = p.due.Load() || p.request.Load() != nil || p.deferredReason != ""
	a.Stop = p.stop.Load() != nil
	a.Committed = p.lastCommitted
	if s := p.driven.stopping; s > 0 && (p.lastCommitted >= s || a.Err != nil) {
		p.driven.stopping = 0
		p.stop.Store(nil)
		p.identity.supervisor.send(&control.Stopped{Index: p.lastCommitted, Error: errorText(a.Err)})
	}
	return a
}

// failure notes the outcomes of checkpoints. It returns why one was not saved,
// or why there will be no more.
func (p *Run) failure() (err error) {
	if p.identity.Size > 1 {
		p.peers.engine.Lock()
		err = p.peers.takeOutcomes()
		p.peers.engine.Unlock()
	} else {
		err = p.takeError()
	}
	if p.peers != nil && err == nil && errors.Is(p.peers.noMore, coord.ErrLost) && p.current.Index > p.lastCommitted {
		err = fmt.Errorf("cairn: %w: %w", ErrNotSaved, p.peers.noMore)
	}
	return cmp.Or(err, p.usable())
}

// progress moves messages between the ranks while the program computes, because
// the points of a driven program do not. It ends when the run is closed.
func (p *Run) progress() {
	e := p.peers.engine
	e.Lock()
	defer e.Unlock()
	e.Serve(p.driven.ending.Load)
}

// ProtectValue is Protect for a pointer whose type is known at run time only.
// A driven program may protect variables at any time.
func (p *Run) ProtectValue(name string, v any, options ...ProtectOption) error {
	if err := p.protect(name, v, options); err != nil {
		return fmt.Errorf("cairn: variable %.100q: %w", name, err)
	}
	if t := reflect.TypeOf(v).Elem(); t.Size() == 0 {
		e := ckpt.EmptyArray{Name: name}
		for ; t.Kind() == reflect.Array; t = t.Elem() {
			e.Dims = append(e.Dims, uint64(t.Len()))
		}
		e.Go = t.String()
		if p.driven.empty == nil {
			p.driven.empty = make(map[string]ckpt.EmptyArray)
		}
		p.driven.empty[name] = e
	}
	return nil
}

// emptyArrays returns the variables without elements, ordered by name.
func (d *driven) emptyArrays() []ckpt.EmptyArray {
	return slices.SortedFunc(maps.Values(d.empty), func(a, b ckpt.EmptyArray) int { return cmp.Compare(a.Name, b.Name) })
}

// Unprotect takes variables of a driven program out of the state.
func (p *Run) Unprotect(names map[string]bool) {
	if len(names) == 0 {
		return
	}
	p.roots = slices.DeleteFunc(p.roots, func(r graph.Root) bool { return names[r.Name] })
	for name := range names {
		delete(p.names, name)
		delete(p.varOptions, name)
		delete(p.driven.empty, name)
	}
}

// Resuming reports whether there are checkpoints to restore.
func (p *Run) Resuming() bool { return p.files.resuming }

// ProtectProgramFile is ProtectFile for a file of the program. truncate says
// that the program wants it empty, unless the checkpoint holds it. If Restore
// has opened the file, it belongs to the program from now on, and claimed is
// the ID of its entry. For any other file, claimed is -1.
func (p *Run) ProtectProgramFile(f *os.File, flag int, truncate bool) (claimed int, err error) {
	st, err := f.Stat()
	if err != nil {
		return -1, err
	}
	name := programPath(f, st)
	if o := p.files.unclaimed(name, flag); o != nil {
		off, err := o.f.Seek(0, io.SeekCurrent)
		if err == nil && off <= st.Size() {
			_, err = f.Seek(off, io.SeekStart)
		}
		if err != nil {
			return -1, err
		}
		o.f.Close()
		o.f, o.unclaimed = f, false
		return o.entry.ID, nil
	}
	if truncate && !p.files.resuming {
		if err := f.Truncate(0); err != nil {
			return -1, err
		}
	}
	return -1, p.files.add(f, name, flag, st.Mode().Perm(), truncate && p.files.resuming)
}

// programPath is the path of a file of the program. If the program has another
// working directory than this process, this path differs from the one that the
// program gave.
func programPath(f *os.File, st os.FileInfo) string {
	same := func(path string) bool {
		other, err := os.Stat(path)
		return err == nil && os.SameFile(st, other)
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if same(f.Name()) || err != nil || !same(path) {
		return f.Name()
	}
	if dir, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}

// Committed returns the index of the newest checkpoint that all ranks have.
func (p *Run) Committed() uint64 { return p.lastCommitted }

// Points returns how many points the program had passed at the last Drive or
// Restore.
func (p *Run) Points() uint64 { return p.points }

// EveryPoints returns after how many points a checkpoint is due; 0: none is.
func (p *Run) EveryPoints() uint64 { return uint64(p.driven.saveEvery) }

// createDir makes the directory and takes its lock. An earlier helper may hold
// the lock of a driven run, because it still writes the last checkpoint of a
// program that has ended: createDir waits for it.
func (o *Options) createDir(ctx context.Context, rank, ranks int) (*store.Dir, error) {
	for began := time.Now(); ; {
		dir, err := store.CreateFor(o.fs, o.Dir, rank, vfs.AccessFromEnv().With(o.GroupReadable, o.AnyOwner))
		if o.Driver == nil {
			return dir, err
		}
		if err == nil {
			dir.SetHolder(processName(o.Driver.Pid))
			return dir, nil
		}
		if !errors.Is(err, ErrInUse) {
			return nil, err
		}
		pid, where, _ := strings.Cut(store.Holder(o.Dir, rank), " ")
		n, perr := strconv.Atoi(pid)
		if perr != nil || !strings.HasSuffix(where, processSpace()) {
			return nil, err // the holder is not known
		}
		if processName(n) == pid+" "+where && (ranks <= 1 || time.Since(began) > dying) {
			return nil, err // it is alive
		}
		select {
		case <-time.After(10 * time.Millisecond): // the system does not report the release of a lock
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// dying is how long a launcher that lost a rank may take to end the others.
const dying = 15 * time.Second

// processName returns a name that no other process with the same ID has: it
// includes the start time and the PID namespace. For a process that has ended,
// it returns an empty string.
func processName(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name of the program, in parentheses, may contain parentheses.
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	if err != nil || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fmt.Sprintf("%d %s %s", pid, fields[19], processSpace())
}

// processSpace identifies the PID namespace of this process.
func processSpace() string {
	space, _ := os.Readlink("/proc/self/ns/pid")
	return machineID() + " " + space
}

// remedy says what the user can do about variables that do not fit: inGo for a
// Go program, and the functions of libcairn for other programs.
func (p *Run) remedy(inGo string) string {
	if p.opts.Driver == nil {
		return inGo
	}
	return "start the program that saved it, or start over with " + EnvFresh + "=1 in the environment; a C program can load the variables that fit with cairn_resume and cairn_read"
}
