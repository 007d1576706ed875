//go:build unix

package engine

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestAttend_RankLostWhileWriting loses one of two driven ranks while the other
// one writes: that one's program is told when nothing reads its variables any
// more.
func TestAttend_RankLostWhileWriting(t *testing.T) {
	writing, waiting, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(writing) })
	var holds atomic.Bool
	disk := vfstest.Hook(vfstest.NewMem(), func(op, name string) error {
		if op == "write" && holds.Load() && strings.HasSuffix(name, "rank-0001.tmp") {
			begun()
			<-release
		}
		return nil
	})
	opts := Options{Dir: "/run", fs: disk, Driver: &Driver{}}
	errs := newCrew(2, mem.Options{}).run(opts, func(p *Run) error {
		state := counted(100_000)
		Protect(p, "state", &state)
		if _, err := p.Restore(t.Context()); err != nil {
			return err
		}
		drive := func(points uint64) error {
			return p.Drive(t.Context(), Drive{Points: points, Reason: "call"}, func(uint64) {})
		}
		if err := drive(1); err != nil {
			return err
		}
		for a := p.Attend(); a.Committed < 1; a = p.Attend() {
			if a.Err != nil {
				return a.Err
			}
		}
		holds.Store(true)
		state[0] = -1
		if err := drive(2); err != nil {
			return err
		}
		if p.Rank() == 0 {
			<-waiting // Drive of the other rank would note the loss
			return errKilled
		}
		<-writing
		close(waiting)
		for known := false; !known; { // the other rank is gone
			p.peers.engine.Lock()
			known = len(p.peers.outcomes) > 0
			p.peers.engine.Unlock()
		}
		if a := p.Attend(); a.Err != nil || a.Committed != 1 {
			t.Errorf("it was told %+v while its variables were being written", a)
		}
		close(release)
		for {
			if err := p.Attend().Err; err != nil {
				if !errors.Is(err, coord.ErrLost) || p.saver.Busy() {
					t.Errorf("it was told %v", err)
				}
				return nil
			}
		}
	})
	if errs[0] != errKilled || errs[1] != nil {
		t.Error(errs)
	}
}
