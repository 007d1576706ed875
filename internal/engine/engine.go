// Package engine protects one process: it takes the checkpoints that are due at
// its points, restores them, brings its files back, agrees with the other
// ranks, and moves the process to another host. Package cairn is its interface
// for programs; package resume uses it for programs that 'cairn build' made.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Errors to test for with errors.Is. Package cairn documents them.
var (
	ErrStopped  = errors.New("stopped on request")
	ErrNotSaved = errors.New("checkpoint not saved")
	ErrCorrupt  = ckpt.ErrCorrupt
	ErrMismatch = errors.New("the program and its checkpoint do not fit")
	ErrFinished = errors.New("the run has finished")
	ErrInUse    = store.ErrLocked
)

// Compression is how blocks are compressed in files.
type Compression = ckpt.Compression

const (
	None = ckpt.None
	Zstd = ckpt.Zstd
	Gzip = ckpt.Gzip
)

// SignalAction is what the next Point does after a signal.
type SignalAction int

const (
	SaveAndContinue SignalAction = iota + 1
	SaveAndStop
)

// Options configure a run. Package cairn documents those that programs set.
type Options struct {
	Dir                     string
	PerHost                 bool // hosts do not share Dir
	Tiers                   string
	Fresh                   bool
	GroupReadable, AnyOwner bool

	Every       time.Duration
	EveryPoints int
	Auto        bool
	MTBF        time.Duration
	Signals     map[os.Signal]SignalAction
	SafePoints  bool

	Keep         int
	DiskLimit    int64
	Memory       int64
	Compression  Compression
	MaxBases     int
	NoTracking   bool
	OutsideFiles bool
	Drop         []string

	OnSaved func(CheckpointInfo)
	OnError func(error)
	// OnDue is called when Due may have become true. Any goroutine may call it.
	OnDue func()
	// Under a supervisor, OnReport is called twice a second. If the program
	// then calls Point or PassPoint, the supervisor sees progress. nil: OnDue
	// is called.
	OnReport func()
	// OnCopy is called before the state is copied. If it returns an error,
	// no checkpoint is taken.
	OnCopy func() error
	Log    *slog.Logger

	Driver *Driver // the program is another process; nil: this one

	fs           vfs.FS        // for tests
	identity     *identity     // …
	closeTimeout time.Duration // …
}

// CheckpointInfo describes a committed checkpoint. It has the fields of
// cairn.CheckpointInfo.
type CheckpointInfo struct {
	Index        uint64
	Reason       string
	StateBytes   int64
	WrittenBytes int64
	Pause        time.Duration
	CopyTime     time.Duration // from the start of the pause until devices had copied everything to the host; 0: the host copied
	WriteTime    time.Duration
}

// Run protects this process. Request may be called by any goroutine; all other
// methods by one goroutine at a time.
type Run struct {
	phase    phase
	opts     Options
	settled  []control.Setting // the options that can be set from outside, and by whom
	runID    runID
	identity *identity
	peers    *peers // nil: there are no other ranks, and no messages
	dir      *store.Dir
	saver    *ckpt.Saver
	log      *slog.Logger

	roots      []graph.Root
	names      map[string]bool // names of the variables that the program protects
	varOptions map[string]ProtectOption
	types      []reflect.Type
	collector  graph.Collector
	protectErr error // why a variable was refused
	stateErr   error // why the state is undefined: a Rollback failed
	damaged    map[uint64]bool
	shapes     map[string]string // of Fixed variables before Restore
	files      fileTable
	migration  migration

	leads          bool // this rank does what only one rank per directory may do
	observed       bool // other ranks or the supervisor must learn of each point
	points         uint64
	loop           atomic.Pointer[control.Loop]
	reportedPoints atomic.Uint64          // points, for the reports to the supervisor
	pauses         atomic.Int32           // number of Pause without Continue
	paused         atomic.Bool            // Pause was called since the last report
	stoodSince     time.Time              // set by StoppedSince
	blocked        atomic.Pointer[string] // see NoteBlocked
	pointsLeft     int                    // points until a checkpoint is due by count
	wake           atomic.Bool            // the next Point has something to do
	request        atomic.Pointer[string] // who requested a checkpoint; nil: nobody
	due            atomic.Bool            // a checkpoint is due by time
	stop           atomic.Pointer[string] // who requested a checkpoint and a stop; nil: nobody
	deferredReason string                 // why a checkpoint is due that waits for the writer
	timer          *control.Alarm
	dueAt          time.Time // when timer fires
	signals        *signalWatch
	outcome        chan ckpt.Result
	current        CheckpointInfo
	uncommitted    map[uint64]CheckpointInfo // checkpoints whose outcome on the other ranks is not known yet
	lastCommitted  uint64                    // index of the newest committed checkpoint
	lastErr        error                     // why the last checkpoint failed
	pendingErr     error                     // lastErr, until Point or Close has returned it
	failures       int                       // failed checkpoints in a row
	crossed        bool                      // a message crossed a point at which ranks save alone
	cost           time.Duration             // pause of the last checkpoint
	began          time.Time                 // when that pause began
	exit           *int                      // exit status, when the work is done
	handles        bool                      // see ProtectHandles
	onChoose       func(index uint64) error  // see SetJournal
	recordedFiles  map[string]bool           // see recordFiles
	adopted        bool                      // see Adopt

	increment increment

	reporting chan struct{} // closed to end the reports to a supervisor

	driven driven
	stored stored
}

// phase is how far a run has come:
//
//	open ──Restore──▶ restoring ──▶ running
//	  └───────────────────┴────────────┴──Close──▶ closed
//
// A run whose Restore has failed stays in restoring.
type phase uint8

const (
	phaseOpen phase = iota
	phaseRestoring
	phaseRunning
	phaseClosed
)

// Open opens the run in a directory. It creates the directory if necessary and
// locks it, and reads no state. With a context made by WithRun, Open returns
// the run of the context instead.
func Open(ctx context.Context, opts Options) (_ *Run, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p, ok := ctx.Value(runKey{}).(*Run); ok {
		return p, nil
	}
	switch opts.Compression {
	case None, Zstd, Gzip:
	default:
		return nil, fmt.Errorf("cairn: no compression %q; there is None, Zstd and Gzip", opts.Compression)
	}
	for _, o := range []struct {
		name  string
		value int64
	}{{"Every", int64(opts.Every)}, {"EveryPoints", int64(opts.EveryPoints)}, {"MTBF", int64(opts.MTBF)}, {"Keep", int64(opts.Keep)}, {"Memory", opts.Memory}, {"DiskLimit", opts.DiskLimit}} {
		if o.value < 0 {
			return nil, fmt.Errorf("cairn: Options.%s is negative", o.name)
		}
	}
	log := opts.Log
	if log == nil {
		log = slog.Default()
	}
	id := opts.identity
	if id == nil {
		id = singleIdentity()
	}
	if opts.fs == nil {
		opts.fs, _ = vfs.Of(ctx)
	}
	if opts.fs == nil {
		opts.fs = vfs.OS()
		if opts.Dir != "" {
			abs, err := filepath.Abs(opts.Dir)
			if err != nil {
				return nil, fmt.Errorf("cairn: %w", err)
			}
			opts.Dir = abs // the program may change its working directory
		}
		if opts.identity == nil {
			if id, err = findIdentity(ctx, &opts, log); err != nil {
				return nil, err
			}
			defer func() {
				if err != nil {
					id.leaveTiers()
				}
			}()
		}
	}
	settled, err := opts.settle(id.Settings)
	if err != nil {
		return nil, err
	}
	opts.readFresh(id)
	saveEvery := opts.adaptToDriver(id)
	if opts.Dir == "" {
		return nil, errors.New("cairn: Options.Dir is empty: name a directory for the checkpoints")
	}
	if opts.Every == 0 && opts.EveryPoints == 0 && opts.Driver == nil {
		opts.Auto = true
	}
	opts.MTBF = cmp.Or(opts.MTBF, 24*time.Hour)
	p := &Run{opts: opts, settled: settled, leads: id.Rank == 0, driven: driven{saveEvery: saveEvery}, log: log, identity: id, collector: graph.Collector{Remember: true}, names: make(map[string]bool), varOptions: make(map[string]ProtectOption), damaged: make(map[uint64]bool), uncommitted: make(map[uint64]CheckpointInfo), outcome: make(chan ckpt.Result, 1)}
	if p.isDestination() { // its source has the lock
		p.dir = store.Open(opts.fs, opts.Dir, id.Rank)
	} else if p.dir, err = p.opts.createDir(ctx, id.Rank, id.Size); err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	if p.opts.PerHost {
		p.dir.PerHost()
	}
	if st, err := os.Stat(opts.Dir); err == nil && p.realFiles() {
		p.files.dirInode = control.Inode(st)
	}
	if err := p.join(ctx); err != nil {
		p.dir.Close()
		return nil, err
	}
	return p, nil
}

type runKey struct{}

// WithRun returns a context with which Open returns p and ignores its options.
func WithRun(ctx context.Context, p *Run) context.Context {
	return context.WithValue(ctx, runKey{}, p)
}

// join finds out the state of the run, and connects this process with the other
// ranks and the supervisor. The directory is open.
func (p *Run) join(ctx context.Context) error {
	if err := p.checkDirectory(ctx); err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	indices, err := p.dir.Committed()
	lost, lerr := p.dir.Lost()
	if err := errors.Join(err, lerr); err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	p.files.resuming = len(indices)+len(lost) > 0 || p.isDestination()
	p.files.formerDirs, p.files.workDir = p.identity.FormerDirs, p.identity.WorkDir
	p.wakePoint() // the first Point checks that the run can be used
	if p.identity.Output {
		if err := p.files.adoptOutput(); err != nil {
			return fmt.Errorf("cairn: %w", err)
		}
	}
	if p.identity.Size > 1 {
		if p.peers, err = connectPeers(ctx, p, p.identity); err != nil {
			return err
		}
		p.peers.protect()
	}
	p.observed = p.identity.Size > 1 || p.identity.supervisor != nil
	if p.identity.supervisor != nil {
		p.identity.supervisor.attach(p)
		p.reporting = make(chan struct{})
		go p.report(p.reporting)
	}
	if p.isDestination() {
		return p.awaitSource(ctx)
	}
	return nil
}

// ProtectOption qualifies a protected variable; see package cairn.
type ProtectOption uint8

const (
	Optional ProtectOption = 1 << iota
	Fixed
)

// Protect makes *v part of the state; see cairn.Protect.
func Protect[T any](p *Run, name string, v *T, how ...ProtectOption) error {
	err := p.protect(name, v, how)
	if err != nil {
		err = fmt.Errorf("cairn: variable %.100q: %w", name, err)
		if p.protectErr == nil {
			p.protectErr = err
		}
	}
	return err
}

func (p *Run) protect(name string, v any, how []ProtectOption) error {
	if p.phase >= phaseRunning && p.opts.Driver == nil {
		return errors.New("protected after Restore: protect all variables before it")
	}
	if err := checkName(name); err != nil {
		return err
	}
	if reflect.ValueOf(v).IsNil() {
		return errors.New("nil pointer: pass the address of the variable")
	}
	if p.names[name] {
		return errors.New("a variable of that name is protected already")
	}
	root := graph.Root{Name: name, Ptr: v}
	if err := p.checkRoot(root); err != nil {
		return err
	}
	for _, h := range how {
		if _, ok := v.(shaped); h&Fixed != 0 && !ok && reflect.TypeOf(v).Elem().Kind() != reflect.Slice {
			return errors.New("Fixed is for slices and arrays of devices; protect the slices inside as variables of their own to fix their lengths")
		}
		p.varOptions[name] |= h
	}
	p.roots = append(p.roots, root)
	p.names[name] = true
	return nil
}

// checkRoot reports why the value of a variable cannot be saved.
func (p *Run) checkRoot(root graph.Root) error {
	if isNumber(reflect.TypeOf(root.Ptr).Elem()) { // there may be very many
		return nil
	}
	if img, err := graph.Outline([]graph.Root{root}, p.env()); err == nil {
		if err := ckpt.Check(img); err != nil {
			return fmt.Errorf("it does not fit into an HDF5 file: %w", err)
		}
	} else if err := graph.Check(root, p.env()); err != nil && !deferrable(err) { // other errors may need the other roots
		return withRemedy(err)
	}
	return nil
}

// isNumber reports whether a type is a built-in number type or bool. All values
// of such a type can be saved.
func isNumber(t reflect.Type) bool {
	return t.PkgPath() == "" && t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
}

// deferrable reports whether a value that cannot be saved is an error only when
// a checkpoint is taken. A compiled program protects all package variables with
// their initial values: it runs, and Point reports those that cannot be saved.
func deferrable(err error) bool {
	var u *graph.UnsupportedError
	return graph.SavesWholeProgram() && errors.As(err, &u)
}

// withRemedy adds what to do about a value that cannot be saved.
func withRemedy(err error) error {
	var u *graph.UnsupportedError
	if !errors.As(err, &u) {
		return err
	}
	switch u.Type {
	case "os.File", "*os.File":
		return fmt.Errorf("%w; open it with Run.OpenFile, or hand it over with Run.ProtectFile", err)
	case "sync.Mutex", "sync.RWMutex", "sync.WaitGroup":
		return fmt.Errorf("%w; it must not be in use when it is saved", err)
	}
	return fmt.Errorf("%w; give the type that holds it a CairnState method that leaves it out, and set it again after Restore", err)
}

func checkName(name string) error {
	if name == "" || len(name) > 200 {
		return errors.New("a name has 1 to 200 bytes")
	}
	if name == "." || name == ".." {
		return errors.New("this means a directory: choose another name")
	}
	if strings.HasPrefix(name, reserved) {
		return fmt.Errorf("names that begin with %q are Cairn's own", reserved)
	}
	for _, r := range name {
		if r == '/' || r < ' ' || r == '\uFFFD' {
			return fmt.Errorf("a name cannot contain %q", r)
		}
	}
	return nil
}

// Register makes the type T known to the run; see cairn.Register.
func Register[T any](p *Run) { p.types = append(p.types, reflect.TypeFor[T]()) }

func (p *Run) env() *graph.Env {
	env := &graph.Env{FileID: p.files.id, FileOf: p.files.file, Types: p.types}
	if p.peers != nil {
		env.Run = p.peers.engine
	}
	return env
}

// Dir returns the directory of the checkpoints.
func (p *Run) Dir() string { return p.opts.Dir }

// Request makes a checkpoint due at the next Point. Any goroutine may call it.
func (p *Run) Request() { p.requestBy("request") }

func (p *Run) requestBy(reason string) {
	if p.identity.Size > 1 && p.opts.Driver == nil {
		p.peers.request(reason, false)
		return
	}
	p.request.Store(&reason)
	p.wakePoint()
}

// wakePoint makes the next Point look for something to do.
func (p *Run) wakePoint() {
	p.wake.Store(true)
	if p.opts.OnDue != nil {
		p.opts.OnDue()
	}
}

// Due reports whether the next Point may do more than count; see cairn.Run.Due.
// Options.OnDue is called when it becomes true.
func (p *Run) Due() bool {
	return !p.increment.begun && (p.wake.Load() || p.pointsLeft == 1 || p.identity.Size > 1)
}

// PassPoint counts a point at which the program does not call Point because Due
// returned false.
func (p *Run) PassPoint() {
	p.points++
	p.pointsLeft--
	if p.observed {
		p.reportedPoints.Store(p.points)
	}
}

// CountsPoints reports whether the program must call Point or PassPoint at
// every point, because checkpoints are due by the number of points.
func (p *Run) CountsPoints() bool { return p.opts.EveryPoints > 0 || p.identity.Size > 1 }

// requestStop makes the next Point save and return ErrStopped.
func (p *Run) requestStop(by string) {
	if p.identity.Size > 1 && p.opts.Driver == nil {
		p.peers.request(by, true)
		return
	}
	p.stop.Store(&by)
	p.wakePoint()
}

// Close waits for the writer and ends the run; see cairn.Run.Close.
func (p *Run) Close() error {
	if p.phase == phaseClosed || p.adopted {
		return nil
	}
	known := !p.isDestination() || p.phase == phaseRunning // the other ranks know this process
	p.phase = phaseClosed
	p.closeStored()
	p.wakePoint()
	p.migration.end(errors.New("the program has ended"))
	p.migration.spawning.Lock()   // wait until the MPI library starts no process
	p.migration.spawning.Unlock() //nolint:staticcheck // nothing to do in between
	if p.timer != nil {
		p.timer.Close()
	}
	if p.signals != nil {
		p.signals.stop()
	}
	if p.saver != nil && p.saver.Busy() {
		p.collect(<-p.outcome)
	}
	p.recordUnrecorded()
	err, all := error(nil), true
	if p.identity.Size > 1 {
		p.driven.ending.Store(true)
		p.peers.engine.Wake()
		p.peers.writing.Wait()
		if known {
			all, err = p.peers.close(p.exit != nil)
		} else {
			all, err = false, p.peers.abort()
		}
		if err != nil {
			err = fmt.Errorf("cairn: %w", err)
		}
	}
	if p.saver != nil {
		p.saver.Close()
	}
	err = errors.Join(err, p.takeError())
	if p.reporting != nil {
		close(p.reporting)
		p.reportOnce()
	}
	if p.exit != nil && all {
		err = errors.Join(err, p.finish())
	}
	err = errors.Join(err, p.dir.Close())
	p.identity.leaveTiers()
	return err
}
