//go:build linux

package helper

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// TestHelper_LateDestination starts a destination on a host whose ranks have
// just ended. It is cancelled, or not, before the launch is done.
func TestHelper_LateDestination(t *testing.T) {
	for _, off := range []bool{false, true} {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		h := &helper{name: "x", up: control.NewSendQueue(control.New(ours), 100), fork: make(chan func()), gone: make(chan struct{})}
		go h.forker()
		lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
		if err != nil {
			t.Fatal(err)
		}
		h.lock = lock
		said := control.New(theirs)
		next := func() control.Message {
			t.Helper()
			m, err := said.Recv()
			if err != nil {
				t.Fatalf("off %v: %v", off, err)
			}
			return m
		}
		start := func(number uint64) *control.Start {
			return &control.Start{Launch: "l", Number: number, Ranks: []int{2}, Command: []string{"/bin/true"}, Dir: "/", Output: t.TempDir(), OutputOffsets: make([][2]int64, 1)}
		}
		l := h.open(start(1))
		l.over = true // over, but not done
		s := start(2)
		s.Welcome.Move = &control.Move{ID: 7}
		h.handle(&control.StartDestination{Start: *s})
		process := control.Process{Rank: 2, ByMove: 7}
		if off {
			h.handle(&control.KillDestination{Process: process})
		}
		if len(h.late) != 1 {
			t.Fatalf("%d wait", len(h.late))
		}
		close(l.done)
		h.startLate()
		if !off {
			if _, ok := next().(*control.FromRank).Carried.Message.(*control.Running); !ok {
				t.Error("it does not run")
			}
		}
		m := next().(*control.FromRank)
		if e, ok := m.Carried.Message.(*control.Exited); !ok || m.Process != process || (e.Error != "") != off {
			t.Errorf("%+v", m)
		}
		if m, ok := next().(*control.Drained); !ok || m.Number != 2 || m.Launch != "l" {
			t.Errorf("%+v", m)
		}
		close(h.fork)
	}
}
