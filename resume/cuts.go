package resume

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/graph"
)

// A cut is a moment at which all goroutines stand still: at a point, in a wait
// that will be repeated, or before they begin. No wait can end, because the
// goroutine that would end it stands still, too. So the state is all frames,
// all channels with what is in them, locked mutexes and counters.
//
// A point at which a checkpoint is due requests a cut, and so does the engine.
// Each goroutine arrives with its frames. The main one takes the checkpoint
// when all have arrived, and releases them. If some do not arrive in time, the
// cut is given up, and all continue.
var cuts cutState

type cutState struct {
	sync.Mutex
	all     map[*routine]bool // goroutines that can be saved
	added   uint64            // how many there have been
	ignored map[*background]bool
	arrived int
	ended   uint64        // number of cuts that have ended
	saving  bool          // all have arrived, and the state is being copied
	kill    bool          // the process kills itself after the checkpoint
	begun   time.Time     // of the cut that is wanted, or of the last one
	took    time.Duration // of the last cut
	failed  int           // how many in a row were given up
	late    string        // why the last one was
	stuck   bool          // the last look found only blocked goroutines
	over    bool          // the program ends, and nothing is saved any more
	paused  bool          // the run knows that goroutines stand still
	held    bool          // no cut is requested
	asked   bool          // one was, meanwhile

	// complete wakes the main goroutine, released all others. With a single
	// condition, each goroutine that arrives would wake all that have arrived.
	complete sync.Cond     // arrived, all or ended has changed
	released chan struct{} // closed when the cut that is wanted ends: unlike a condition, nobody locks to wake up
	wanted   cutFlag

	notBefore atomic.Int64 // points that are counted request no cut before, in nanoseconds
}

// cutFlag is an atomic bool that functions which are inlined can read.
type cutFlag struct{ now uint32 }

func (f *cutFlag) Load() bool { return atomic.LoadUint32(&f.now) != 0 }

func (f *cutFlag) Store(on bool) {
	var v uint32
	if on {
		v = 1
	}
	atomic.StoreUint32(&f.now, v)
}

func init() { cuts.complete.L = &cuts.Mutex }

func (c *cutState) add(g *routine) {
	c.Lock()
	defer c.Unlock()
	if c.all == nil {
		c.all = make(map[*routine]bool)
	}
	c.all[g] = true
	c.added++
	g.number = c.added
}

func (c *cutState) remove(g *routine) {
	c.Lock()
	defer c.Unlock()
	delete(c.all, g)
	c.complete.Signal()
}

func (c *cutState) addBackground(b *background) {
	c.Lock()
	defer c.Unlock()
	if c.ignored == nil {
		c.ignored = make(map[*background]bool)
	}
	c.ignored[b] = true
}

func (c *cutState) removeBackground(b *background) {
	c.Lock()
	defer c.Unlock()
	delete(c.ignored, b)
}

// noteBackground saves the goroutines in the background.
func (c *cutState) noteBackground() {
	c.Lock()
	defer c.Unlock()
	saved.Background = nil
	for b := range c.ignored {
		saved.Background = append(saved.Background, b.savedGoroutine)
	}
	graph.NoteWaiters(len(saved.Waiters) > 0 || len(saved.Background) > 0)
}

// others returns a goroutine besides the main one, or nil.
func (c *cutState) others() *routine {
	c.Lock()
	defer c.Unlock()
	for g := range c.all {
		if g != &mainRoutine {
			return g
		}
	}
	return nil
}

// request makes all goroutines arrive at a cut. It wakes them without the lock,
// which they need next: thousands that wait for it pass it on one by one, and
// that takes many times as long.
func (c *cutState) request() {
	c.Lock()
	if c.asked = c.held; c.held || c.over || c.wanted.Load() || len(c.all) == 0 {
		c.Unlock()
		return
	}
	c.wanted.Store(true)
	if c.paused = run != nil; c.paused {
		run.Pause()
	}
	c.begun, c.stuck, c.released = time.Now(), false, make(chan struct{})
	setDue()
	all, number, waits := slices.Collect(maps.Keys(c.all)), c.ended, c.bareWaits()
	c.Unlock()
	for _, g := range all {
		g.rouse()
	}
	waits.interrupt()
	go c.watch(number)
}

// firstLook is the least time before watch looks at a cut that is not complete.
// With many goroutines it waits for lookEach per goroutine, because to look at
// all of them takes longer.
const (
	firstLook = 5 * time.Millisecond
	lookEach  = 20 * time.Microsecond
)

// patience is how long goroutines may take to arrive. A goroutine that computes
// without a point makes the others wait.
func (c *cutState) patience() time.Duration {
	if killAll || len(killAt) > 0 {
		return 10 * time.Second
	}
	return min(time.Second<<min(c.failed, 6), time.Minute)
}

// watch gives up the cut if not all goroutines arrive in time.
func (c *cutState) watch(number uint64) {
	c.Lock()
	after := max(firstLook, min(lookEach*time.Duration(len(c.all)), time.Second/2))
	c.Unlock()
	for ; ; after = min(2*after, max(100*time.Millisecond, after)) {
		c.urge(number, after)
		c.Lock()
		over := c.ended != number || c.saving
		missing := c.missing()
		c.Unlock()
		if over {
			return
		}
		looked := time.Now()
		late, blocked := whyLate(missing)
		after = max(after, 5*time.Since(looked))
		c.Lock()
		if c.ended != number || c.saving {
			c.Unlock()
			return
		}
		for _, g := range missing { // one that has arrived meanwhile was on its way
			blocked = blocked && !g.arrived
		}
		if waited := time.Since(c.begun); blocked && c.stuck || waited > c.patience() {
			c.giveUp(late, blocked && c.stuck, waited)
			c.Unlock()
			return
		}
		c.stuck = blocked
		c.Unlock()
	}
}

// urge waits for some time. Meanwhile it interrupts goroutines that had found
// no cut wanted, and began to wait when it was.
func (c *cutState) urge(number uint64, d time.Duration) {
	const first = 50 * time.Microsecond
	for pause := first; d > 0; pause *= 2 {
		if !plainWaits {
			pause = d
		}
		pause = min(pause, d)
		d -= pause
		<-time.After(pause)
		c.Lock()
		var waits bareWaits
		if c.ended == number && !c.saving {
			waits = c.bareWaits()
		}
		c.Unlock()
		waits.interrupt()
	}
}

// missing returns the goroutines that have not arrived, by the addresses of
// their control blocks.
func (c *cutState) missing() map[string]*routine {
	list := make(map[string]*routine)
	for g := range c.all {
		if !g.arrived {
			list[fmt.Sprintf("%p", g)] = g
		}
	}
	return list
}

// giveUp ends a cut without a checkpoint. One of the next points tries again.
func (c *cutState) giveUp(late string, lasting bool, waited time.Duration) {
	c.failed++
	c.late = late
	c.end()
	if severalRanks() { // stopOthers returns why
		c.notBefore.Store(time.Now().Add(time.Millisecond + 20*waited).UnixNano())
		return
	}
	atomic.StoreUint32(&due, 0)
	noteBlocked(late, lasting)
	pause := time.Millisecond + 20*waited
	if c.kill || countEach.Load() {
		c.notBefore.Store(time.Now().Add(pause).UnixNano())
		setDue()
	} else {
		time.AfterFunc(pause, onDue)
	}
}

// tooEarly reports whether a cut was given up a short time ago.
func (c *cutState) tooEarly() bool {
	at := c.notBefore.Load()
	return at != 0 && time.Now().UnixNano() < at
}

// end lets all goroutines continue.
func (c *cutState) end() {
	c.wanted.Store(false)
	if c.paused {
		run.Continue()
		c.paused = false
	}
	c.arrived, c.saving = 0, false
	c.took = time.Since(c.begun)
	c.ended++
	for g := range c.all {
		g.arrived = false
	}
	c.complete.Signal()
	close(c.released)
}

// since returns since when goroutines stand still for a checkpoint that the
// main one has begun at a time.
func (c *cutState) since(begun time.Time) time.Time {
	c.Lock()
	defer c.Unlock()
	if c.wanted.Load() {
		return c.begun
	}
	return begun
}

// hold defers requests of cuts until it is called with false.
func (c *cutState) hold(on bool) {
	c.Lock()
	again := c.asked && !on
	c.held, c.asked = on, c.asked && on
	c.Unlock()
	if again {
		onDue()
	}
}

// number returns the number of cuts that were requested.
func (c *cutState) number() uint64 {
	c.Lock()
	defer c.Unlock()
	if c.wanted.Load() {
		return c.ended + 1
	}
	return c.ended
}

// close ends the cut that is wanted, and allows no other: the program ends.
func (c *cutState) close() {
	c.Lock()
	defer c.Unlock()
	c.over = true
	if c.wanted.Load() {
		c.end()
	}
}

// arrive stops the goroutine while a cut is wanted. frames are those of its
// functions, nil if it has not begun.
func (g *routine) arrive(frames []any) {
	c := &cuts
	if !c.wanted.Load() {
		return
	}
	c.Lock()
	if !c.wanted.Load() {
		c.Unlock()
		return
	}
	number, released := c.ended, c.released
	g.Frames, g.arrived, g.begins = frames, true, frames == nil
	if c.arrived++; c.arrived >= len(c.all) {
		c.complete.Signal()
	}
	if g == &mainRoutine {
		for c.ended == number && c.arrived < len(c.all) {
			c.complete.Wait()
		}
		if c.ended == number {
			c.saving = true
			c.Unlock()
			saveAll()
			c.Lock()
			c.failed = 0
			c.end()
		}
	}
	c.Unlock()
	<-released
	g.Frames, g.begins = nil, false
}

// stopOthers makes all other goroutines arrive at a cut while the main one is
// at a point with other ranks, or returns why they do not. The caller has
// locked mu and calls releaseOthers later.
func (c *cutState) stopOthers() string {
	if !several || c.others() == nil {
		return ""
	}
	mu.Unlock() // they may need it on their way
	defer mu.Lock()
	if !c.tooEarly() {
		c.request()
	}
	c.Lock()
	defer c.Unlock()
	if !c.wanted.Load() {
		return cmp.Or(c.late, "the program ends")
	}
	number := c.ended
	mainRoutine.arrived = true
	c.arrived++
	for c.ended == number && c.arrived < len(c.all) {
		c.complete.Wait()
	}
	if c.ended != number {
		return c.late
	}
	c.saving, c.failed = true, 0
	return ""
}

// releaseOthers lets the goroutines that stopOthers has stopped continue.
func (c *cutState) releaseOthers() {
	c.Lock()
	defer c.Unlock()
	if c.wanted.Load() {
		c.end()
	}
}

// noteGoroutines saves the goroutines that have arrived, in the order in which
// they were started: so the names of their variables (main.worker[2].sum) stay
// the same from checkpoint to checkpoint, and few blocks change.
func (c *cutState) noteGoroutines() {
	list := make([]*routine, 0, len(c.all))
	for g := range c.all {
		if g != &mainRoutine {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *routine) int { return cmp.Compare(a.number, b.number) })
	saved.Goroutines = nil
	for _, g := range list {
		saved.Goroutines = append(saved.Goroutines, g.savedGoroutine)
	}
}

// pointOfMany is a point of one of several goroutines, with the frames from
// depth d on. last is the depth of the program's last function on the stack.
func pointOfMany(g *routine, d, last int, frames []any) {
	if severalRanks() && !cuts.wanted.Load() || stackMismatch(last) != "" { // ranks agree at points of the main goroutine
		return
	}
	if n := d + 1; n < len(g.stack) { // calls that have returned do not need their memory any more
		clear(g.stack[n:])
		g.stack = g.stack[:n]
	}
	arrive := func() {
		g.arrive(append(append(make([]any, 0, d+len(frames)), g.stack[:d]...), frames...))
	}
	if severalRanks() {
		arrive()
		return
	}
	mu.Lock()
	if closed {
		atomic.StoreUint32(&due, 0)
		mu.Unlock()
		return
	}
	if !cuts.wanted.Load() {
		atomic.StoreUint32(&due, 0)
		points++
		cuts.kill = killsHere()
		if !cuts.kill && (!run.Due() || cuts.tooEarly()) {
			run.PassPoint()
			if countEach.Load() {
				setDue()
			}
			mu.Unlock()
			return
		}
		cuts.request()
	}
	mu.Unlock()
	arrive()
}

// saveAll takes the checkpoint of a cut.
func saveAll() {
	mu.Lock()
	defer mu.Unlock()
	if closed {
		return
	}
	atomic.StoreUint32(&due, 0)
	cuts.noteGoroutines()
	take("", mainRoutine.Frames, cuts.kill)
	saved.Goroutines = nil
}

// noteFrames tells the frames of waits that the state is about to be saved.
func (c *cutState) noteFrames() {
	c.Lock()
	defer c.Unlock()
	for g := range c.all {
		if n := len(g.Frames); n > 0 {
			if f, ok := g.Frames[n-1].(interface{ saving() }); ok {
				f.saving()
			}
		}
	}
}

// startRestored starts the goroutines of the restored checkpoint.
func startRestored() {
	var list []*routine
	for _, s := range saved.Goroutines {
		g := &routine{savedGoroutine: s, stack: s.Frames, wake: make(chan struct{}, 1)}
		g.Frames = nil
		g.reusable = len(g.stack)
		cuts.add(g)
		list = append(list, g)
	}
	for _, g := range append(list, &mainRoutine) {
		if n := len(g.stack); n > 0 {
			if f, ok := g.stack[n-1].(interface{ restored() }); ok {
				f.restored()
			}
		}
	}
	for _, g := range list {
		g.launch()
	}
	for _, b := range saved.Background {
		StartBackground(b.At, b.F)
	}
	saved.Goroutines, saved.Background = nil, nil
}

// whyLate says which of the missing goroutines is the reason, and whether all
// of them are blocked. A goroutine that is about to arrive is not blocked.
func whyLate(missing map[string]*routine) (why string, blocked bool) {
	if len(missing) == 0 {
		return "", false
	}
	blocked = true
	for _, t := range traces(stackTraces()) {
		g := missing[t.routine]
		if t.isMain {
			g = missing[fmt.Sprintf("%p", &mainRoutine)]
		}
		if g == nil {
			continue
		}
		if t.messages && severalRanks() { // while ranks are paused, no message is sent
			t.blocked = true
		}
		blocked = blocked && t.blocked
		if why != "" && !t.blocked {
			continue
		}
		who := g.name()
		does := "computes without a point"
		switch {
		case t.messages:
			does = "sends or receives a message"
		case t.blocked:
			does = "waits for " + waitsFor(t.state, t.inner)
		}
		if t.at != "" {
			does += " at " + t.at
		}
		if !t.blocked && !t.messages {
			does += "; put //cairn:point before the loop there"
		}
		if t.blocked {
			does += ", where it cannot be saved"
			if g != &mainRoutine && !t.messages {
				does += "; if it does not matter for the result, put //cairn:background before the go statement"
			}
		}
		why = who + " " + does
	}
	if why == "" {
		return "a goroutine does not reach a point", false
	}
	return why, blocked
}

// name says for the user which goroutine it is.
func (g *routine) name() string {
	if g == &mainRoutine {
		return "the main goroutine"
	}
	return "the goroutine that is started at " + g.At
}

// waitsFor says what a goroutine in a state of the Go runtime waits for. inner
// is its innermost function.
func waitsFor(state, inner string) string {
	inner, _ = strings.CutPrefix(inner, ownPackage)
	switch {
	case strings.HasPrefix(inner, "lockFor("):
		return "a mutex"
	case strings.HasPrefix(inner, "wait.join("), strings.HasPrefix(inner, "wait.poll("):
		return "a sync.WaitGroup"
	case strings.HasPrefix(inner, "ticketFor("):
		return "a sync.Cond"
	case state == "IO wait":
		return "a network connection, a pipe or a terminal"
	case strings.HasPrefix(state, "chan receive"), strings.HasPrefix(state, "chan send"), strings.HasPrefix(state, "select"):
		return "a channel"
	case state == "sync.Mutex.Lock", state == "sync.RWMutex.Lock", state == "sync.RWMutex.RLock":
		return "a mutex"
	case state == "sync.WaitGroup.Wait", state == "sync.Cond.Wait":
		return "a " + strings.TrimSuffix(state, ".Wait")
	}
	return "something (" + state + ")"
}

// trace is what a stack trace says about a goroutine that can be saved.
type trace struct {
	id      string
	routine string // the address of its control block, or ""
	isMain  bool
	state   string
	blocked bool
	inner   string // the innermost function that is not of the runtime or of package sync
	at      string // the innermost place that is the program's
	// messages says that the program has called package mpi there.
	messages bool
}

// stackTraces returns the stack traces of all goroutines. The first is the
// caller's.
func stackTraces() string {
	buf := make([]byte, max(64<<10, tracesSize.Load()))
	k := runtime.Stack(buf, true)
	for k == len(buf) && k < 64<<20 {
		buf = make([]byte, 4*k)
		k = runtime.Stack(buf, true)
	}
	tracesSize.Store(int64(k + k/8))
	return string(buf[:k])
}

// tracesSize is how many bytes the stack traces of all goroutines take: each
// try with too few stops all goroutines for nothing.
var tracesSize atomic.Int64

// traces reads stack traces.
func traces(text string) (list []trace) {
	for s := range strings.SplitSeq(text, "\n\n") {
		head, stack, _ := strings.Cut(strings.TrimSpace(s), "\n")
		id, state, _ := strings.Cut(strings.TrimPrefix(head, "goroutine "), " ")
		t := trace{id: id}
		t.state, _, _ = strings.Cut(strings.Trim(state, "[]:"), ",")
		switch t.state {
		case "running", "runnable", "sleep", "syscall":
		default:
			t.blocked = true
		}
		t.isMain = id == "1"
		function, inner := "", true // inner: no function but those of the runtime and of package sync was seen
		for line := range strings.SplitSeq(stack, "\n") {
			if rest, ok := strings.CutPrefix(line, routineMain+"("); ok {
				t.routine = strings.TrimRight(rest, "?)")
			}
			place, ok := strings.CutPrefix(line, "\t")
			if !ok {
				function = line
				if inner && !strings.HasPrefix(line, "runtime.") && !strings.HasPrefix(line, "sync.") && !strings.HasPrefix(line, "internal/") && !strings.HasPrefix(line, "reflect.") {
					inner = false
					t.inner = line
					t.blocked = t.blocked && !arriving(line)
				}
				continue
			}
			place, _, _ = strings.Cut(place, " +0x")
			if pkg := cairnPackage(function); pkg != "" { // what it calls is not of interest
				t.at, t.messages = "", t.messages || pkg == "mpi"
			} else if t.at == "" && !strings.HasPrefix(function, "created by ") && !strings.HasPrefix(function, ownPackage) && !standard(function) {
				t.at = place
			}
		}
		list = append(list, t)
	}
	return list
}

// cairnPackage returns the package of Cairn that a function in a stack trace
// belongs to, if it is one that programs call.
func cairnPackage(function string) string {
	rest, ok := strings.CutPrefix(function, "github.com/cairnrun/cairn/")
	for _, pkg := range []string{"mpi", "device", "internal"} {
		if ok && (strings.HasPrefix(rest, pkg+".") || strings.HasPrefix(rest, pkg+"/")) {
			return pkg
		}
	}
	return ""
}

// arriving reports whether a goroutine that is blocked in a function of this
// package is about to arrive at a cut, or to start.
func arriving(function string) bool {
	return strings.HasPrefix(function, ownPackage) && (strings.Contains(function, "cutState)") || strings.Contains(function, "routine") || strings.Contains(function, "pointOfMany") || strings.Contains(function, "Queues)"))
}

// standard reports whether a function in a stack trace is one of the standard
// library.
func standard(function string) bool {
	first := function[:strings.IndexAny(function+".", "./")]
	return slices.Contains(standardRoots, first)
}

// standardRoots are the first elements of the paths of packages of the standard
// library that wait or call functions of the program.
var standardRoots = []string{"runtime", "sync", "internal", "time", "os", "net", "io", "bufio", "fmt", "syscall", "context", "reflect",
	"sort", "slices", "maps", "iter", "strings", "bytes", "encoding", "compress", "crypto", "log", "path", "text", "regexp", "hash", "math", "cairnrt"}
