// Package engine protects one process: it takes the checkpoints that are due at
// its points, restores them, brings its files back, agrees with the other ranks,
// and moves the process to another host. Package cairn is its interface for
// programs; package resume uses it for programs that 'cairn build' made.
package engine

import (
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

// Errors that programs tell apart with errors.Is.
var (
	// ErrStopped is returned by Point after a signal that says save and stop:
	// the state is saved, and the program should end.
	ErrStopped = errors.New("stopped on request")
	// ErrNotSaved is wrapped by errors of Point and Checkpoint that say why a
	// set was not saved. The program is as it was, and so are older sets.
	ErrNotSaved = errors.New("checkpoint not saved")
	// ErrCorrupt is wrapped when sets are damaged.
	ErrCorrupt = ckpt.ErrCorrupt
	// ErrMismatch is wrapped when the program protects other variables or
	// types than the set holds.
	ErrMismatch = errors.New("the program and its checkpoint do not fit")
	// ErrFinished says that the run in the directory has finished: its work is
	// done, and starting over needs consent (Options.Fresh).
	ErrFinished = errors.New("the run has finished")
	// ErrInUse says that another process uses the folder.
	ErrInUse = store.ErrLocked
)

// Compression of blocks in files.
type Compression = ckpt.Compression

// Compressions. Gzip is read by every HDF5 tool, Zstd is faster and smaller.
const (
	None = ckpt.None
	Zstd = ckpt.Zstd
	Gzip = ckpt.Gzip
)

// SignalAction is what a signal makes the next Point do.
type SignalAction int

const (
	SaveAndContinue SignalAction = iota + 1
	SaveAndStop                  // Point returns ErrStopped when the set is safe
)

// Options of a run. Only Dir is needed.
type Options struct {
	// Dir is where sets are kept, one run at a time. All ranks of a run name
	// the same one. It may be empty under 'cairn run', which has a place.
	Dir string

	// Fresh is the consent to start over: Open discards what Dir holds of an
	// earlier run, finished or not. The environment variable CAIRN_FRESH=1 says
	// the same; under 'cairn run', only its flag --fresh does.
	Fresh bool

	// Checkpoints are readable by the current user only, and Dir must be owned
	// by that user, root included, and not be writable by all. GroupReadable lets the
	// group of Dir read what is made in it from now on, and AnyOwner accepts
	// another user's directory. CAIRN_GROUP=1 and CAIRN_ANY_OWNER=1 in the
	// environment say the same.
	GroupReadable, AnyOwner bool

	// When a checkpoint is due. Several may be given; the first that comes
	// due counts. With none, Auto is taken; until a save was measured it
	// assumes that one takes a nanosecond per byte.
	Every       time.Duration // so long after the last one
	EveryPoints int           // so many points after the last one
	Auto        bool          // Young's and Daly's optimum for the measured cost and MTBF
	MTBF        time.Duration // mean time between failures, for Auto; 0: 24 hours
	// Signals that make one due. nil: SIGTERM saves and stops, SIGUSR1 saves;
	// empty: none. The second signal that says stop has its usual effect.
	Signals map[os.Signal]SignalAction

	// SafePoints says that no message crosses any point: sets that are due by
	// EveryPoints are then taken by each rank at the same points without a
	// message exchanged. That is checked before a set counts as saved: one that
	// a message crosses is discarded, and all ranks take another one together.
	SafePoints bool

	Keep        int         // newest sets to keep; 0: 2
	Memory      int64       // bound on memory for copies, in bytes; 0: the size of the state
	Compression Compression // None, Zstd or Gzip
	MaxBases    int         // older files that a differential set may need; 0: 64; negative: full sets only
	NoTracking  bool        // don't let the kernel track written pages (see docs/terms.md, "tracking")

	// OutsideFiles lets Restore change files outside the working directory that
	// the program has not opened, for a checkpoint from elsewhere; see EnvOutside.
	OutsideFiles bool

	Drop    []string             // variables that a set may hold though the program has none of that name
	OnSaved func(CheckpointInfo) // called by Point, Checkpoint or Close when a set is safe; of several at once, for the newest
	OnError func(error)          // called when a set could not be saved; Point then returns nil
	OnDue   func()               // called by any goroutine when Due has become true, or may have
	OnCopy  func() error         // called by Point or Checkpoint before the state is copied; an error: no set
	Log     *slog.Logger         // warnings, such as a damaged set; nil: slog.Default()

	fs           vfs.FS        // for tests
	identity     *identity     // …
	closeTimeout time.Duration // …
}

// CheckpointInfo tells of a set that is safe.
type CheckpointInfo struct {
	Index        uint64
	Reason       string
	StateBytes   int64         // bytes of the state
	WrittenBytes int64         // bytes of the file
	Pause        time.Duration // the program was held
	WriteTime    time.Duration // from when the writer began, until it was safe
}

// Run is a program's connection to its checkpoints. Except for Request, its
// methods are called by one goroutine at a time.
type Run struct {
	opts     Options
	runID    runID
	identity *identity
	peers    *peers // nil: there are no other ranks, and no messages
	dir      *store.Dir
	saver    *ckpt.Saver
	log      *slog.Logger

	roots         []graph.Root
	names         map[string]bool // of those that the program protects
	varOptions    map[string]ProtectOption
	types         []reflect.Type
	collector     graph.Collector
	protectErr    error // a variable was refused
	stateErr      error // why the state is undefined: a Rollback failed
	restoreCalled bool  // Restore was called
	restored      bool  // … and it did not fail
	damaged       map[uint64]bool
	shapes        map[string]string // of Fixed variables before Restore
	files         fileTable
	migration     migration

	observed       bool // Point must tell others about itself
	points         uint64
	reportedPoints atomic.Uint64          // points, for who reports them
	pointsLeft     int                    // points until one is due by count
	wake           atomic.Bool            // Point must look closer
	request        atomic.Pointer[string] // a checkpoint was asked for, by whom
	due            atomic.Bool            // … is due by time
	stop           atomic.Pointer[string] // … and to stop then
	deferredReason string                 // a reason that waits for the writer
	timer          *time.Timer
	dueAt          time.Time // when it fires
	signals        *signalWatch
	outcome        chan ckpt.Result
	current        CheckpointInfo
	uncommitted    map[uint64]CheckpointInfo // sets of which the other ranks have not said yet what became of them
	lastCommitted  uint64                    // the last set that is
	lastErr        error                     // why the last one is not
	pendingErr     error                     // … as long as nobody was told
	failures       int                       // sets in a row that are not
	crossed        bool                      // a message crossed a point at which ranks save alone
	cost           time.Duration             // cost of the last save
	finished       bool
	status         int // … with this exit status
	closed         bool
	handles        bool                   // see ProtectHandles
	onChoose       func(set uint64) error // see SetJournal
	recordedFiles  map[string]bool        // files that were looked at: see vouch
	adopted        bool                   // see Adopt

	reporting chan struct{} // closed to end the reports to a supervisor
}

// Open starts a run. It takes the folder's lock and creates the folder where
// needed; it reads no state yet.
func Open(ctx context.Context, opts Options) (*Run, error) {
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
	}{{"Every", int64(opts.Every)}, {"EveryPoints", int64(opts.EveryPoints)}, {"MTBF", int64(opts.MTBF)}, {"Keep", int64(opts.Keep)}, {"Memory", opts.Memory}} {
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
			opts.Dir = abs // the program may change its working folder
		}
		if opts.identity == nil {
			var err error
			if id, err = findIdentity(ctx, &opts, log); err != nil {
				return nil, err
			}
		}
	}
	opts.readFresh(id)
	if opts.Dir == "" {
		return nil, errors.New("cairn: Options.Dir is empty: name a folder for the checkpoints")
	}
	if opts.Every == 0 && opts.EveryPoints == 0 {
		opts.Auto = true
	}
	if opts.MTBF == 0 {
		opts.MTBF = 24 * time.Hour
	}
	p := &Run{opts: opts, log: log, identity: id, collector: graph.Collector{Remember: true}, names: make(map[string]bool), varOptions: make(map[string]ProtectOption), damaged: make(map[uint64]bool), uncommitted: make(map[uint64]CheckpointInfo), outcome: make(chan ckpt.Result, 1)}
	var err error
	if p.isDestination() { // the process whose place it takes has the lock
		p.dir = store.Open(opts.fs, opts.Dir, id.Rank)
	} else if p.dir, err = store.CreateFor(opts.fs, opts.Dir, id.Rank, vfs.AccessFromEnv().With(opts.GroupReadable, opts.AnyOwner)); err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
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

// join joins the run that the folder is open for.
func (p *Run) join(ctx context.Context) error {
	if err := p.checkEnded(); err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	indices, err := p.dir.Committed()
	lost, lerr := p.dir.Lost()
	if err := errors.Join(err, lerr); err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	p.files.resuming = len(indices)+len(lost) > 0 || p.isDestination()
	p.files.formerDirs, p.files.workDir = p.identity.FormerDirs, p.identity.WorkDir
	p.wakePoint() // the first Point looks whether all is as it should be
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

// ProtectOption qualifies a protected variable.
type ProtectOption uint8

const (
	// Optional accepts that a set does not hold the variable, as those of an
	// older program: it keeps the value it has.
	Optional ProtectOption = 1 << iota
	// Fixed demands that a slice (or a slice of slices) has in the set the
	// lengths that it has in the program when Restore is called, and an array
	// of a device (device.Array) its dimensions.
	Fixed
)

// Protect makes *v part of the state under a name that the files show. It
// refuses values that can't be saved, with the path to the field; that error
// comes again from Restore, so that it need not be looked at here. All
// variables are protected before Restore.
//
// Restore assigns to *v. What *v refers to (the target of a pointer, the rows
// of a slice of slices, a map) is then new memory: whatever took a reference
// before Restore still has the old. So protect an object itself
// (Protect(p, "sim", sim) where sim is a *Sim), which keeps its address, or
// take references after Restore. Likewise, a pointer to a package variable
// that is not protected is restored as a pointer to a copy; only the error
// values of the standard library, such as io.EOF, stay themselves.
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
	if p.restored {
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
	if img, err := graph.Outline([]graph.Root{root}, p.env()); err == nil {
		if err := ckpt.Check(img); err != nil {
			return fmt.Errorf("it does not fit into an HDF5 file: %w", err)
		}
	} else if err := graph.Check(root, p.env()); err != nil && !deferrable(err) { // else it needs the other roots
		return withRemedy(err)
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

// deferrable says that a value which can't be saved now matters only when it is saved.
// A compiled program protects all package variables as their initialisers leave
// them: it runs, and Point tells of those that can't be saved.
func deferrable(err error) bool {
	var u *graph.UnsupportedError
	return graph.IsWhole() && errors.As(err, &u)
}

// withRemedy adds to an error about a value that can't be saved what to do.
func withRemedy(err error) error {
	var u *graph.UnsupportedError
	if !errors.As(err, &u) {
		return err
	}
	switch u.Type {
	case "os.File", "*os.File":
		return fmt.Errorf("%w; open it with Run.OpenFile, or hand it over with Run.File", err)
	case "sync.Mutex", "sync.RWMutex", "sync.WaitGroup":
		return fmt.Errorf("%w; it must be at rest when it is saved", err)
	}
	return fmt.Errorf("%w; leave it out by a CairnState method of the type that holds it, and make it again after Restore", err)
}

func checkName(name string) error {
	if name == "" || len(name) > 200 {
		return errors.New("a name has 1 to 200 bytes")
	}
	if name == "." || name == ".." {
		return errors.New("not a name")
	}
	if strings.HasPrefix(name, reserved) {
		return fmt.Errorf("names that begin with %q are Cairn's own", reserved)
	}
	for _, r := range name {
		if r == '/' || r < ' ' || r == '\uFFFD' {
			return fmt.Errorf("a name can't hold %q", r)
		}
	}
	return nil
}

// Register makes the type T known to the run. It is needed only for a type
// that is held in an interface and that Cairn can't find by its name; the
// error that asks for it says so.
func Register[T any](p *Run) { p.types = append(p.types, reflect.TypeFor[T]()) }

func (p *Run) env() *graph.Env {
	env := &graph.Env{FileID: p.files.id, FileOf: p.files.file, Types: p.types}
	if p.peers != nil {
		env.Run = p.peers.engine
	}
	return env
}

// Dir is where the sets are kept.
func (p *Run) Dir() string { return p.opts.Dir }

// Request makes a checkpoint due at the next Point. Any goroutine may call it.
func (p *Run) Request() { p.requestBy("request") }

func (p *Run) requestBy(reason string) {
	if p.identity.Size > 1 {
		p.peers.request(reason, false)
		return
	}
	p.request.Store(&reason)
	p.wakePoint()
}

// wakePoint makes the next Point look closer.
func (p *Run) wakePoint() {
	p.wake.Store(true)
	if p.opts.OnDue != nil {
		p.opts.OnDue()
	}
}

// Due reports whether the next Point will do more than count. A program that
// has something to prepare for a checkpoint looks here before it calls Point,
// or is told by Options.OnDue. In a run of several ranks, Point says it all.
func (p *Run) Due() bool { return p.wake.Load() || p.pointsLeft == 1 || p.identity.Size > 1 }

// PassPoint counts a point at which the program does not call Point, because
// nothing was Due when it looked.
func (p *Run) PassPoint() {
	p.points++
	p.pointsLeft--
	if p.observed {
		p.reportedPoints.Store(p.points)
	}
}

// CountsPoints reports whether checkpoints are due by the number of points, so that
// Point or PassPoint must be called at each of them.
func (p *Run) CountsPoints() bool { return p.opts.EveryPoints > 0 || p.identity.Size > 1 }

// requestStop makes the next Point save and return ErrStopped.
func (p *Run) requestStop(by string) {
	if p.identity.Size > 1 {
		p.peers.request(by, true)
		return
	}
	p.stop.Store(&by)
	p.wakePoint()
}

// Close waits until a set being written is safe, and ends the run; it saves
// none by itself (see Checkpoint). It returns why the last set could not be
// saved, if no Point said so.
func (p *Run) Close() error {
	if p.closed || p.adopted {
		return nil
	}
	p.closed = true
	p.wakePoint()
	p.migration.end(errors.New("the program has ended"))
	p.migration.spawning.Lock()   // wait until the last one is over
	p.migration.spawning.Unlock() //nolint:staticcheck // nothing to do in between
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.signals != nil {
		p.signals.stop()
	}
	if p.saver != nil && p.saver.Busy() {
		p.collect(<-p.outcome)
	}
	err, all := error(nil), true
	if p.identity.Size > 1 {
		p.peers.writing.Wait()
		all, err = p.peers.close(p.finished)
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
	if p.finished && all {
		err = errors.Join(err, p.finish())
	}
	return errors.Join(err, p.dir.Close())
}
