package p2p

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/mem"
	fabric "github.com/cairnrun/cairn/internal/transport/mem"
)

// slowMemory is memory of a device that stores nothing before finish is closed.
type slowMemory struct {
	mem.Parts
	data    []byte
	storing chan struct{} // closed when a store has begun
	finish  chan struct{}
}

func (m *slowMemory) Len() int                     { return len(m.data) }
func (m *slowMemory) Elem() reflect.Type           { return reflect.TypeFor[byte]() }
func (m *slowMemory) Direct(bool) ([]byte, error)  { return nil, nil }
func (m *slowMemory) Slot(n int) (mem.Slot, error) { return &slowSlot{m, make([]byte, n)}, nil }
func (m *slowMemory) Stored(int)                   {}

type slowSlot struct {
	m     *slowMemory
	bytes []byte
}

func (s *slowSlot) Bytes() []byte       { return s.bytes }
func (s *slowSlot) Load(int, int) error { return nil }
func (s *slowSlot) Free()               {}
func (s *slowSlot) Drop()               {}
func (s *slowSlot) Store(off, n int) error {
	close(s.m.storing)
	<-s.m.finish
	copy(s.m.data[off:], s.bytes[:n])
	return nil
}

// blockedWatcher is told when the program waits.
type blockedWatcher struct {
	watcher
	e     *Engine
	waits []bool
	now   chan struct{}
}

func (w *blockedWatcher) Blocked() {
	_, blocked := w.e.BlockedOn()
	w.waits = append(w.waits, blocked)
	if w.now != nil && len(w.e.waiters) > 0 {
		close(w.now)
		w.now = nil
	}
}

// TestBlockedOn_NotWhileStoring receives a message that has arrived into memory
// of a slow device. The message counts as received, but its receiver is not
// blocked: ranks that took it for blocked would see a deadlock.
func TestBlockedOn_NotWhileStoring(t *testing.T) {
	_, es := world(t, 2, fabric.Options{})
	want := pattern(100, 1)
	if err := es[0].Send(0, 1, 5, want); err != nil {
		t.Fatal(err)
	}
	e := es[1]
	for received := uint64(0); received == 0; e.Poll() {
		e.Lock()
		_, received = e.Totals()
		e.Unlock()
	}
	waits := make(chan struct{})
	w := &blockedWatcher{e: e, now: waits, watcher: watcher{arrived: map[int]int{}}}
	e.Lock()
	e.observer = w
	e.Unlock()
	m := &slowMemory{data: make([]byte, len(want)), storing: make(chan struct{}), finish: make(chan struct{})}
	r := e.IrecvMemory(0, 0, 5, &Memory{Parts: m})
	done := make(chan error, 1)
	go func() {
		_, err := e.Wait(r)
		done <- err
	}()
	<-m.storing
	<-waits
	close(m.finish)
	if err := <-done; err != nil || !bytes.Equal(m.data, want) {
		t.Errorf("%v, received %q", err, m.data)
	}
	e.Lock()
	defer e.Unlock()
	if len(w.waits) == 0 || slices.Contains(w.waits, true) {
		t.Errorf("blocked: %v", w.waits)
	}
}
