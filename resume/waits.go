package resume

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Waits. These functions stand for operations that may block: those of channels
// and of package sync. They behave as resumable functions with a point. An
// operation that would block waits until it can be done, or until a cut is
// wanted. In the latter case the function unwinds, with a frame that has its
// arguments, and is called again after the cut, or after a restart. Then the
// arguments are zero: a channel that is not nil means that this is the first
// call.

// wait is a wait of a goroutine whose frames can be saved.
type wait struct {
	g *routine
	d int // depth of the function that waits; Checked
}

// beginWait enters a function that waits. ok is false if its callers cannot be
// saved. frame has the operands of a function that continues from its
// frame, or after a bare wait that was interrupted; otherwise it is nil.
func beginWait[T any]() (w wait, ok bool, frame *T) {
	d := Enter()
	if d == -1 {
		return wait{}, false, operands[T]()
	}
	w = wait{own(), d}
	if Resuming(d) {
		frame = Frame[T](d)
		ResumedFast(d)
		return w, true, frame
	}
	return w, true, operands[T]()
}

// interrupted is called when the goroutine was woken. It reports whether the
// function has to return. Otherwise it waits again.
func (w wait) interrupted(frame any) bool {
	g := w.g
	if !cuts.wanted.Load() {
		return false
	}
	if w.d != Checked && w.d == g.unwindBase { // the callers have stored their frames
		pointOfMany(g, w.d, w.d-1, []any{frame})
		return false
	}
	if !g.canUnwind() {
		return false
	}
	Unwind(frame)
	return true
}

// Without a run, the functions for channels and locks are the operations
// themselves. This part of them is inlined.

// Recv stands for <-c.
func Recv[T any](c <-chan T) T {
	if run == nil {
		return <-c
	}
	v, _ := recv(c)
	return v
}

// RecvOK stands for v, ok := <-c.
func RecvOK[T any](c <-chan T) (v T, ok bool) {
	if run == nil {
		v, ok = <-c
		return v, ok
	}
	return recv(c)
}

func recv[T any](c <-chan T) (T, bool) {
	if c != nil {
		select {
		case v, ok := <-c:
			return v, ok
		default:
		}
	}
	return awaitRecv(c)
}

type recvFrame[T any] struct{ C <-chan T }

func awaitRecv[T any](c <-chan T) (v T, ok bool) {
	w, can, f := beginWait[recvFrame[T]]()
	if f != nil {
		c = f.C
	}
	if !can {
		return recvUnsaved(c)
	}
	if f != nil && w.interrupted(&recvFrame[T]{c}) {
		return v, false
	}
	setPointer(&w.g.channel, *(*unsafe.Pointer)(unsafe.Pointer(&c)))
	for {
		select {
		case v, ok = <-c:
			setPointer(&w.g.channel, nil)
			return v, ok
		case <-w.g.wake:
			if w.interrupted(&recvFrame[T]{c}) {
				return v, false
			}
		}
	}
}

// recvUnsaved receives where the goroutine cannot be saved.
//
//go:noinline
func recvUnsaved[T any](c <-chan T) (v T, ok bool) {
	g := current()
	if g != nil {
		setPointer(&g.unsaved, *(*unsafe.Pointer)(unsafe.Pointer(&c)))
	}
	v, ok = <-c
	if g != nil {
		setPointer(&g.unsaved, nil)
	}
	return v, ok
}

// Sender is a channel that something is sent to.
type Sender[T any] struct{ C chan<- T }

// To returns c as a Sender.
func To[T any](c chan<- T) Sender[T] { return Sender[T]{c} }

// Send stands for c <- v.
func (s Sender[T]) Send(v T) {
	if run == nil {
		s.C <- v
		return
	}
	s.send(v)
}

func (s Sender[T]) send(v T) {
	if s.C != nil {
		select {
		case s.C <- v:
			return
		default:
		}
	}
	awaitSend(s.C, v)
}

type sendFrame[T any] struct {
	C chan<- T
	V T
}

func awaitSend[T any](c chan<- T, v T) {
	w, can, f := beginWait[sendFrame[T]]()
	if f != nil {
		c, v = f.C, f.V
	}
	if !can {
		c <- v
		return
	}
	if f != nil && w.interrupted(&sendFrame[T]{c, v}) {
		return
	}
	for {
		select {
		case c <- v:
			return
		case <-w.g.wake:
			if w.interrupted(&sendFrame[T]{c, v}) {
				return
			}
		}
	}
}

// CaseOf is a case of a select statement, before it waits: a RecvCase or a
// SendCase.
type CaseOf interface{ pending() SelectCase }

// SelectCase is a case of a select statement that waits.
type SelectCase interface {
	try() bool
	operation() reflect.SelectCase
	receivesFrom() unsafe.Pointer // the channel; nil: none
	received(v reflect.Value, ok bool)
}

// RecvCase is a case that receives V and OK from C.
type RecvCase[T any] struct {
	C  <-chan T
	V  T
	OK bool
}

// CaseRecv returns the case <-c.
func CaseRecv[T any](c <-chan T) RecvCase[T] { return RecvCase[T]{C: c} }

// Channel returns the channel, for Selecting.
func (c RecvCase[T]) Channel() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&c.C)) }

func (c RecvCase[T]) pending() SelectCase { return &c }

// Selected is the case that Select has chosen. It is the zero value if the
// program's function has received the value itself.
type Selected struct{ c SelectCase }

// Received returns what was received by a case that was chosen.
func Received[T any](s Selected, c RecvCase[T]) T {
	if s.c == nil {
		return c.V
	}
	return s.c.(*RecvCase[T]).V
}

// ReceivedOK is Received that also returns whether the channel was open.
func ReceivedOK[T any](s Selected, c RecvCase[T]) (T, bool) {
	if s.c == nil {
		return c.V, c.OK
	}
	p := s.c.(*RecvCase[T])
	return p.V, p.OK
}

func (c *RecvCase[T]) try() bool {
	select {
	case c.V, c.OK = <-c.C:
		return true
	default:
		return false
	}
}

func (c *RecvCase[T]) operation() reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c.C)}
}

func (c *RecvCase[T]) receivesFrom() unsafe.Pointer { return c.Channel() }

func (c *RecvCase[T]) received(v reflect.Value, ok bool) {
	reflect.ValueOf(&c.V).Elem().Set(v)
	c.OK = ok
}

// SendCase is a case that sends V to C.
type SendCase[T any] struct {
	C chan<- T
	V T
}

// Case returns the case c <- v.
func (s Sender[T]) Case(v T) SendCase[T] { return SendCase[T]{s.C, v} }

// Channel returns the channel, for Selecting.
func (c SendCase[T]) Channel() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&c.C)) }

func (c SendCase[T]) pending() SelectCase { return &c }

func (c *SendCase[T]) try() bool {
	select {
	case c.C <- c.V:
		return true
	default:
		return false
	}
}

func (c *SendCase[T]) operation() reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectSend, Chan: reflect.ValueOf(c.C), Send: reflect.ValueOf(&c.V).Elem()}
}

func (c *SendCase[T]) receivesFrom() unsafe.Pointer { return nil }

func (c *SendCase[T]) received(reflect.Value, bool) {}

// Alone reports whether there is no run. Then functions that are not saved wait
// with the program's own select statements.
func Alone() bool { return run == nil }

// Select stands for a select statement without a default. It returns the index
// of the case that was chosen, and the case.
func Select(list ...CaseOf) (int, Selected) {
	cases := pendingCases(list)
	if i := tryCases(cases); i >= 0 {
		return i, Selected{cases[i]}
	}
	return selectAny(cases)
}

func pendingCases(list []CaseOf) []SelectCase {
	cases := make([]SelectCase, len(list))
	for i, c := range list {
		cases[i] = c.pending()
	}
	return cases
}

// tryCases returns a case that does not block, or -1.
func tryCases(cases []SelectCase) int {
	if n := len(cases); n > 0 {
		first := rand.IntN(n)
		for i := range n {
			if k := (first + i) % n; cases[k].try() {
				return k
			}
		}
	}
	return -1
}

type selectFrame struct{ Cases []SelectCase }

func selectAny(cases []SelectCase) (int, Selected) {
	w, can, f := beginWait[selectFrame]()
	if f != nil {
		cases = f.Cases
	}
	if !can {
		i := awaitCases(nil, cases)
		return i, Selected{cases[i]}
	}
	if f != nil && w.interrupted(&selectFrame{cases}) {
		return -1, Selected{}
	}
	for {
		if i := awaitCases(w.g, cases); i >= 0 {
			return i, Selected{cases[i]}
		}
		if w.interrupted(&selectFrame{cases}) {
			return -1, Selected{}
		}
	}
}

// awaitCases waits for one of the cases. It returns -1 if a cut is wanted and g
// is not nil.
func awaitCases(g *routine, cases []SelectCase) int {
	list := make([]reflect.SelectCase, len(cases), len(cases)+1)
	for i, c := range cases {
		list[i] = c.operation()
	}
	if g != nil {
		setPointer(&g.selects, unsafe.Pointer(&selectFrame{cases}))
		list = append(list, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(g.wake)})
	}
	for {
		i, v, ok := reflect.Select(list)
		if i == len(cases) && !cuts.wanted.Load() {
			continue
		}
		if g != nil {
			setPointer(&g.selects, nil)
		}
		if i == len(cases) {
			return -1
		}
		if list[i].Dir == reflect.SelectRecv {
			cases[i].received(v, ok)
		}
		return i
	}
}

// Sleep stands for time.Sleep. After a restart it sleeps for what was left.
func Sleep(d time.Duration) {
	if run == nil {
		time.Sleep(d)
		return
	}
	w, can, f := beginWait[sleepFrame]()
	if !can {
		time.Sleep(d)
		return
	}
	if f != nil {
		d = f.Remaining
	}
	until := time.Now().Add(d)
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return
		case <-w.g.wake:
			if w.interrupted(&sleepFrame{time.Until(until)}) {
				return
			}
		}
	}
}

type sleepFrame struct{ Remaining time.Duration }

// joining is a wait for something that no select can wait for, on a goroutine
// of its own. That goroutine keeps waiting while the state is saved.
type joining struct {
	what any
	done chan struct{}
}

// join waits until f returns, or until the function has to return. again says
// that it was interrupted before.
func (w wait) join(what, frame any, again bool, f func()) {
	j := w.g.joining
	if !again || j == nil || j.what != what {
		j = &joining{what, make(chan struct{})}
		w.g.joining = j
		go func() {
			f()
			close(j.done)
		}()
	}
	for {
		select {
		case <-j.done:
			w.g.joining = nil
			return
		case <-w.g.wake:
			if w.interrupted(frame) {
				return
			}
		}
	}
}

// WaitGroup stands for wg.Wait().
func WaitGroup(wg *sync.WaitGroup) {
	if run == nil || wg != nil && waitGroupCount(wg) == 0 {
		wg.Wait()
		return
	}
	w, can, f := beginWait[waitGroupFrame]()
	if !can || !waitGroupsKnown() {
		wg.Wait()
		return
	}
	if f != nil {
		wg = f.G
	}
	if raceDetector {
		w.poll(wg)
		return
	}
	w.join(wg, &waitGroupFrame{wg}, f != nil, wg.Wait)
}

// poll waits for a group as join does, on this goroutine. The goroutine of join
// counts itself in the group, perhaps while the state is copied. That does no
// harm, because a restored group has that count corrected, but the race
// detector reports it.
func (w wait) poll(wg *sync.WaitGroup) {
	for waitGroupCount(wg) != 0 {
		select {
		case <-time.After(100 * time.Microsecond):
		case <-w.g.wake:
			if w.interrupted(&waitGroupFrame{wg}) {
				return
			}
		}
	}
	wg.Wait()
}

type waitGroupFrame struct{ G *sync.WaitGroup }

// restored corrects the group of a checkpoint: the goroutine that waited for it
// is not there.
func (f *waitGroupFrame) restored() {
	state, sema := waitGroupWords(f.G)
	*state &^= 1<<32 - 1
	*sema = 0
}

// waitGroupWords returns the counters of a group: its upper half is that of
// tasks, its lower half that of waiting goroutines; and the semaphore.
func waitGroupWords(wg *sync.WaitGroup) (state *uint64, sema *uint32) {
	p := unsafe.Pointer(wg)
	return (*uint64)(p), (*uint32)(unsafe.Add(p, 8))
}

func waitGroupCount(wg *sync.WaitGroup) uint64 {
	state, _ := waitGroupWords(wg)
	return atomic.LoadUint64(state) >> 32
}

// waitGroupsKnown verifies the layout of groups.
var waitGroupsKnown = sync.OnceValue(func() bool {
	t := reflect.TypeFor[sync.WaitGroup]()
	state, ok1 := t.FieldByName("state")
	sema, ok2 := t.FieldByName("sema")
	if !ok1 || !ok2 || state.Offset != 0 || state.Type.Size() != 8 || sema.Offset != 8 || sema.Type.Kind() != reflect.Uint32 {
		return false
	}
	wg := new(sync.WaitGroup)
	wg.Add(3)
	wg.Done()
	return waitGroupCount(wg) == 2
})

// Ranged returns a channel that a loop ranges over.
func Ranged[T any](c <-chan T) <-chan T { return c }

// RangedOld is Ranged with the variable that all iterations share, as they do
// before Go 1.22.
func RangedOld[T any](c <-chan T) (_ <-chan T, v T) { return c, v }
