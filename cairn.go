// Package cairn makes long-running programs restartable. A program names the
// variables that make up its state, and calls Point at places where their
// values fit together. Cairn saves them when a checkpoint is due (after a time,
// for example), and restores them when the program is started again.
//
//	o := cairn.Options{Dir: "ckpt", Every: 10 * time.Minute}
//	run, err := cairn.Open(ctx, o)
//	if err != nil {
//		return err
//	}
//	defer run.Close()
//
//	step, grid := 0, newGrid()
//	cairn.Protect(run, "step", &step)
//	cairn.Protect(run, "grid", &grid)
//	if _, err := run.Restore(ctx); err != nil { // (false, nil) on a first start
//		return err
//	}
//	for ; step < steps; step++ {
//		if err := run.Point(ctx); err != nil { // saves only when one is due
//			return err
//		}
//		relax(grid)
//	}
//	run.Finish()
//
// # What Cairn guarantees
//
// A restored run computes the result of an uninterrupted one. This includes
// what the program appends to files that it opens with Run.OpenFile, but not
// data that it overwrites there.
//
// No single crash destroys a checkpoint once it is committed.
//
// Cairn detects damage, reports it, and restores an older checkpoint. If no
// checkpoint can be loaded, Restore returns an error; the run never starts from
// the beginning by itself.
//
// A checkpoint can be restored on any machine, whatever its byte order, by any
// build of the program that protects the same variables.
//
// # What the program must do
//
// Protect all variables before Restore, under the same names at every start.
//
// While Point runs, let no other goroutine change protected variables.
//
// End when a method returns an error, unless its documentation says that the
// program may continue.
//
// Take pointers into protected values only after Restore; see Protect.
//
// Call Finish when the work is done, and only then. Without it, the next start
// resumes from the last checkpoint.
//
// # Several ranks
//
// 'cairn run -n 8 PROGRAM' starts eight processes, the ranks of one run. They
// exchange messages through Run.World (package mpi) and take their checkpoints
// together. Package device has arrays that are stored on GPUs.
package cairn

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/cairnrun/cairn/internal/engine"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/mpi"
)

// Errors to test for with errors.Is.
var (
	// ErrStopped is returned by Point after a signal or request to save and
	// stop. The state is saved unless the error also wraps ErrNotSaved. The
	// program should end.
	ErrStopped = engine.ErrStopped
	// ErrNotSaved is wrapped by the errors of Point, Checkpoint and Commit when
	// a checkpoint failed. The program's state and older checkpoints are
	// intact: the program may continue.
	ErrNotSaved = engine.ErrNotSaved
	// ErrCorrupt is wrapped by errors about damaged checkpoints.
	ErrCorrupt = engine.ErrCorrupt
	// ErrMismatch is wrapped by the error of Restore when the program protects
	// other variables or types than the checkpoint holds.
	ErrMismatch = engine.ErrMismatch
	// ErrRollback is wrapped by the errors of Point, Checkpoint, Commit and the
	// operations of package mpi when another rank rolls back. Call
	// Run.Rollback, or end the program: then all ranks are restarted.
	ErrRollback = engine.ErrRollback
	// ErrFinished is wrapped by the error of Open when the run in the
	// directory has finished. Options.Fresh starts over.
	ErrFinished = engine.ErrFinished
	// ErrInUse is wrapped by the error of Open when another process uses the
	// directory.
	ErrInUse = engine.ErrInUse
)

// Compression is how blocks are compressed in checkpoint files.
type Compression string

const (
	None Compression = ""     // store blocks as they are
	Zstd Compression = "zstd" // fast; HDF5 tools need a plugin to read it
	Gzip Compression = "gzip" // slower and larger; every HDF5 tool reads it
)

// SignalAction is what the next Point does after a signal.
type SignalAction int

const (
	SaveAndContinue SignalAction = iota + 1 // save a checkpoint
	SaveAndStop                             // save a checkpoint, commit it, and return ErrStopped
)

// Options configure a run. Dir or Local is required, except with Tiers and
// under 'cairn run'.
type Options struct {
	// Dir is the directory for the checkpoints. It belongs to one run at a
	// time; all ranks of a run name the same one. Under 'cairn run' it may be
	// empty: the run directory is used.
	Dir string

	// Local names a directory on each host in place of Dir, if hosts do not
	// share it: each rank saves to the disk of its own host. A run of several
	// ranks can be resumed if every rank finds its files again, on the same
	// host or brought by 'cairn run --local'. If one host's directory is blank
	// or old, Open refuses. See docs/tiers.md.
	Local string

	// Tiers says where checkpoints are kept besides the disk of this host, as
	// 'cairn run --tiers' does: "shared=/gpfs/me:every=4, s3=s3://bucket/sim".
	// Open starts a process of the cairn command (CAIRN_HELPER, or in PATH).
	// This process copies checkpoints to the tiers in the background, and
	// reports to Log if a tier fails. If this host has lost the run, the
	// process brings the run back from the tiers. With Tiers, Dir is the run
	// directory (default: PROGRAM.cairn), which 'cairn list' and 'cairn status'
	// take; checkpoints are first saved to Dir/local, or to Local, or to the
	// local tier that Tiers names. Close waits until the tiers have the last
	// checkpoint (at most for 60 s, or the time that CAIRN_GRACE gives), or
	// until a finished run is removed from them. CAIRN_TIERS in the environment
	// has the same meaning. The tiers partner and rs, and programs of several
	// ranks, need 'cairn run'; its flag --tiers overrides this option. See
	// docs/tiers.md.
	Tiers string

	// Fresh starts over: Open discards what Dir holds of an earlier run,
	// finished or not. CAIRN_FRESH=1 in the environment does the same. Under
	// 'cairn run', only its flag --fresh counts.
	Fresh bool

	// GroupReadable lets the group of Dir read the files that this run
	// creates. Without it, only the current user can. CAIRN_GROUP=1 in the
	// environment does the same.
	GroupReadable bool

	// AnyOwner accepts a Dir that another user owns or that everybody may
	// write to. Without it, Open refuses such a directory, also for root.
	// CAIRN_ANY_OWNER=1 in the environment does the same.
	AnyOwner bool

	// Every makes a checkpoint due when this time has passed since the previous
	// one. EveryPoints makes it due after this number of points. Auto makes it
	// due at Young's and Daly's optimum for the measured cost of a checkpoint
	// and the mean time between failures, MTBF (default: 24 hours). If several
	// are set, the earliest counts. If none is set, Auto is. Between two
	// checkpoints that are due by time, the program gets at least as much time
	// as the first one paused it.
	Every       time.Duration
	EveryPoints int
	Auto        bool
	MTBF        time.Duration

	// Signals make a checkpoint due. If nil, SIGTERM saves and stops, and
	// SIGUSR1 saves and continues. If empty, no signal does. After a signal
	// with SaveAndStop, the next such signal has its usual effect.
	Signals map[os.Signal]SignalAction

	// SafePoints promises that no message crosses a point. Each rank then takes
	// the checkpoints that are due by EveryPoints without talking to the
	// others. Cairn checks the promise before it commits a checkpoint: if a
	// message did cross the point, it discards the checkpoint, and all ranks
	// take another one together.
	SafePoints bool

	// Keep is the number of checkpoints to keep (default: 2). DiskLimit bounds
	// the bytes that the checkpoints of all ranks may take (default: no bound):
	// the oldest ones are removed first, and the newest one never. A checkpoint
	// that is being written comes in addition.
	Keep      int
	DiskLimit int64

	// Memory bounds the memory for copies of changed blocks, in bytes (default:
	// the size of the state).
	Memory int64

	// Compression is None, Zstd or Gzip.
	Compression Compression

	// MaxBases bounds the number of older files that a differential checkpoint
	// may need (default: 64). If negative, all checkpoints are full.
	MaxBases int

	// NoTracking keeps the kernel from tracking written pages. Set it if a
	// device writes to protected memory by itself; see docs/terms.md.
	NoTracking bool

	// OutsideFiles lets Restore change files outside the working directory that
	// the program has not opened itself. Without it, Restore refuses to do that
	// for a checkpoint that comes from another place. CAIRN_OUTSIDE_FILES=1 in
	// the environment does the same.
	OutsideFiles bool

	// Drop names variables that a checkpoint may hold although the program
	// does not protect them any more.
	Drop []string

	// OnSaved is called by Point, Checkpoint or Close when a checkpoint is
	// committed. If several are committed together, it is called for the
	// newest.
	OnSaved func(CheckpointInfo)

	// OnError is called when a checkpoint failed. Point then returns nil
	// instead of the error.
	OnError func(error)

	// Log receives warnings, about damaged checkpoints for example (default:
	// slog.Default()).
	Log *slog.Logger
}

// CheckpointInfo describes a committed checkpoint.
type CheckpointInfo struct {
	Index        uint64        // its number
	Reason       string        // why it was taken: "time", "points", "call", …
	StateBytes   int64         // size of the state
	WrittenBytes int64         // size of this rank's file
	Pause        time.Duration // until the program's next statement, and its next kernel, could run
	CopyTime     time.Duration // from the start of the pause until devices had copied everything to the host; 0: the host copied
	WriteTime    time.Duration // time that writing took while the program continued
}

// Run is a program's connection to its checkpoints. Request may be called by
// any goroutine; all other methods by one goroutine at a time.
type Run struct{ run *engine.Run }

// Open starts a run, or continues the one in Options.Dir. It creates the
// directory if necessary, and locks it. It reads no state yet: call Protect for
// all variables, then Restore.
func Open(ctx context.Context, opts Options) (*Run, error) {
	if opts.Local != "" && opts.Dir != "" {
		return nil, errors.New("cairn: Options.Dir and Options.Local are both set: name a directory that all hosts share, or one on each host")
	}
	o := engine.Options{
		Dir: cmp.Or(opts.Local, opts.Dir), PerHost: opts.Local != "", Tiers: opts.Tiers, Fresh: opts.Fresh, GroupReadable: opts.GroupReadable, AnyOwner: opts.AnyOwner,
		Every: opts.Every, EveryPoints: opts.EveryPoints, Auto: opts.Auto, MTBF: opts.MTBF, SafePoints: opts.SafePoints,
		Keep: opts.Keep, DiskLimit: opts.DiskLimit, Memory: opts.Memory, Compression: engine.Compression(opts.Compression),
		MaxBases: opts.MaxBases, NoTracking: opts.NoTracking, OutsideFiles: opts.OutsideFiles,
		Drop: opts.Drop, OnError: opts.OnError, Log: opts.Log,
	}
	if opts.Signals != nil {
		o.Signals = make(map[os.Signal]engine.SignalAction, len(opts.Signals))
		for s, a := range opts.Signals {
			o.Signals[s] = engine.SignalAction(a)
		}
	}
	if f := opts.OnSaved; f != nil {
		o.OnSaved = func(c engine.CheckpointInfo) { f(CheckpointInfo(c)) }
	}
	run, err := engine.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Run{run}, nil
}

// ProtectOption qualifies a protected variable.
type ProtectOption uint8

const (
	// Optional accepts a checkpoint that does not hold the variable, because an
	// older version of the program saved it. The variable keeps its value.
	Optional ProtectOption = 1 << iota
	// Fixed requires that a slice (or a slice of slices) has the same lengths
	// in the checkpoint as in the program when it calls Restore, and that a
	// device.Array has the same dimensions.
	Fixed
)

// Protect makes *v part of the state. The name identifies the variable in
// checkpoints. Protect returns an error for a value that cannot be saved and
// names the field; Restore returns that error again, so that callers need not
// check it here.
//
// Restore assigns to *v. What *v refers to (the target of a pointer, the rows
// of a slice of slices, a map) is then new memory: a reference taken before
// Restore still points to the old memory. Protect an object itself
// (Protect(run, "sim", sim) where sim is a *Sim), which keeps its address, or
// take references after Restore. A pointer to a package variable that is not
// protected is restored as a pointer to a copy, except for error values of the
// standard library, such as io.EOF.
func Protect[T any](r *Run, name string, v *T, options ...ProtectOption) error {
	var how engine.ProtectOption
	for _, o := range options {
		how |= engine.ProtectOption(o)
	}
	return engine.Protect(r.run, name, v, how)
}

// Register makes the type T known to the run. A program needs it only for a
// type that is stored in an interface and that Cairn cannot find by its name.
// If such a type is not registered, the error of Restore says so.
func Register[T any](r *Run) { engine.Register[T](r.run) }

// Coder saves or restores the fields of a value whose type has a CairnState
// method; see Field.
type Coder graph.Coder

// Restoring reports whether Field restores values; otherwise it saves them.
func (c *Coder) Restoring() bool { return (*graph.Coder)(c).Restoring() }

// Field saves *v under a name, or restores it. A type that Cairn cannot save by
// itself calls Field in its CairnState method, for both directions:
//
//	func (m *Model) CairnState(c *cairn.Coder) error {
//		cairn.Field(c, "weights", &m.weights)
//		if c.Restoring() {
//			m.cache = newCache(m.weights)
//		}
//		return nil
//	}
func Field[T any](c *Coder, name string, v *T) { graph.Field((*graph.Coder)(c), name, v) }

// stater is implemented by types that describe their own state.
type stater interface{ CairnState(*Coder) error }

func init() {
	graph.Describe(func(v stater, c *graph.Coder) error { return v.CairnState((*Coder)(c)) })
}

// Restore loads the newest intact checkpoint into the protected variables, and
// reopens and positions the run's files. It returns false if there is no
// checkpoint. Call it once, after all calls of Protect and before the first
// Point.
//
// Restore reports a damaged checkpoint to Options.Log and takes an older one.
// It returns an error if there are checkpoints and none can be loaded, and if a
// checkpoint does not fit the variables that the program protects. After an
// error the values of the variables are undefined: the program must end.
func (r *Run) Restore(ctx context.Context) (bool, error) { return r.run.Restore(ctx) }

// Point is a place where a checkpoint may be taken. No other goroutine may
// change protected variables while it runs. If no checkpoint is due, Point
// returns at once. Otherwise it returns when the state is copied; compressing
// and writing it continue in the background, and later changes of the program
// do not reach that checkpoint.
//
// Point returns an error that wraps ErrStopped after a signal with SaveAndStop:
// the program should end. It returns an error that wraps ErrNotSaved if a
// checkpoint failed: the program may continue, and the next checkpoint is due
// after ten seconds, then after twice as long, up to the usual interval. It
// returns an error that wraps both if the checkpoint before a stop failed.
//
// Point does not look at ctx unless a checkpoint is due. It saves and stops on
// a signal even if the same signal has canceled ctx.
//
// In a run of several ranks, a due point waits for the other ranks. If ctx ends
// meanwhile, this rank has left the run: its sends and receives fail from then
// on.
func (r *Run) Point(ctx context.Context) error { return r.run.Point(ctx) }

// Checkpoint saves now, and returns when the checkpoint is committed. In a run
// of several ranks it requests a checkpoint of all ranks, and returns when all
// ranks have committed it. All ranks should call Checkpoint at the same place,
// which counts as a point.
func (r *Run) Checkpoint(ctx context.Context) error { return r.run.Checkpoint(ctx) }

// Begin, Add and Commit take a checkpoint of variables that become ready one
// after the other, so that copying them is spread over the program's work.
// Begin waits until the previous checkpoint is written. Between Begin and
// Commit, Point saves nothing and returns nil, and Checkpoint returns an error.
//
// In a run of several ranks, all ranks call Begin and Commit, at the same
// places. Each adds what it wants.
func (r *Run) Begin(ctx context.Context) error { return r.run.Begin(ctx) }

// Add copies protected variables, by their names, with all that they refer to.
// The checkpoint holds them as they are now, and the program may change them as
// soon as Add returns. Each variable may be added once.
//
// Variables that share memory, by slices of one array or by pointers for
// example, must be added in one call. With two calls, the checkpoint would hold
// this memory as it was at two different times: the second Add returns an error
// that names both variables, or Commit does if one of them was not added.
// Variables may share strings and values in interfaces, which nothing changes.
//
// Add refuses variables that refer to files, because Commit saves the positions
// of files, and variables with pending receives. Commit copies them.
//
// After an error nothing was copied: add the variables differently, or not at
// all, or call Cancel.
func (r *Run) Add(names ...string) error { return r.run.Add(names...) }

// Commit copies the variables that were not added, and begins to write the
// checkpoint. It returns when the program may change all its variables, and
// returns the errors that Point does. In a run of several ranks it counts as a
// point. The copies that Add has made take memory, in addition to
// Options.Memory. Cairn uses this memory again for later checkpoints, and frees
// it when the run is closed.
func (r *Run) Commit(ctx context.Context) error { return r.run.Commit(ctx) }

// Cancel discards what was added since Begin. Without Begin it does nothing.
func (r *Run) Cancel() { r.run.Cancel() }

// Request makes a checkpoint due at the next Point. Any goroutine may call it.
func (r *Run) Request() { r.run.Request() }

// Due reports whether the next Point may take a checkpoint. A program that has
// to prepare for a checkpoint calls Due before it calls Point. Between Begin
// and Commit, Due returns false. Otherwise, in a run of several ranks, it
// returns true.
func (r *Run) Due() bool { return r.run.Due() }

// Rollback restores the newest checkpoint in the running program, after a
// device was lost (see package device) or something else has spoiled the state.
// Nothing else may use the protected variables meanwhile. Files of the run are
// put back as well; files that were opened after the checkpoint get the content
// that they had when they were opened, and stay open. Rollback returns false if
// there is no checkpoint: the files are then as they were after Restore, and
// the program sets up its initial values again, or ends.
//
// After an error the values of the variables are undefined. The run saves
// nothing until another Rollback succeeds.
//
// In a run of several ranks all ranks roll back together, in their running
// processes, to the newest checkpoint that all have. One rank calls Rollback.
// On the other ranks, Point and the operations of package mpi return an error
// that wraps ErrRollback, even if they are waiting. These ranks then call
// Rollback, too. Messages that were sent since the checkpoint are dropped, and
// those that were in flight at the checkpoint come again. If Rollback returns
// an error, because a rank has ended, dies, moves to another host or cannot
// load its part, the program ends with it, and 'cairn run' restarts all ranks.
func (r *Run) Rollback(ctx context.Context) (bool, error) { return r.run.Rollback(ctx) }

// OpenFile opens a data file as os.OpenFile does, and makes it part of the
// state: checkpoints hold its path, mode, offset and size. A restart positions
// the file where it was. If the file is open for writing, the restart also
// truncates it to its size at the checkpoint, so that output is neither
// duplicated nor lost. A restart does not undo what was overwritten in place.
//
// Call OpenFile before Restore, on every start: it does not truncate an
// existing file whose content a checkpoint determines, or that the program had
// closed at the checkpoint. After Restore, OpenFile returns a file that was
// open in the checkpoint as it is, and does not open it again. With O_EXCL, it
// also opens a file that the run has made after the checkpoint, and empties it:
// the program makes it again. Protected values may hold the *os.File. A
// relative name is relative to the working directory, also after a restart.
func (r *Run) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return r.run.OpenFile(name, flag, perm)
}

// ProtectFile makes a file part of the state that the program has opened
// itself, with the given flags; see OpenFile.
func (r *Run) ProtectFile(f *os.File, flag int) error { return r.run.ProtectFile(f, flag) }

// World returns the communicator of all ranks of the run. In a program that
// runs alone it has one rank; if World is called before Restore, messages of
// that rank to itself are part of the state.
func (r *Run) World() *mpi.Comm { return r.run.World() }

// Rank returns the number of this process among the ranks of the run, from 0.
func (r *Run) Rank() int { return r.run.Rank() }

// Ranks returns the number of ranks of the run.
func (r *Run) Ranks() int { return r.run.Ranks() }

// Dir returns the directory of the checkpoints.
func (r *Run) Dir() string { return r.run.Dir() }

// Finish marks the work as done: Close records that, and then removes the
// checkpoints. The next Open returns ErrFinished unless Options.Fresh is set.
func (r *Run) Finish() { r.run.Finish() }

// Close waits until a checkpoint that is being written is committed, and ends
// the run. It saves nothing by itself; see Checkpoint. It returns the error of
// the last checkpoint if no Point has returned it.
func (r *Run) Close() error { return r.run.Close() }
