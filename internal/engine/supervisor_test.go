package engine

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// TestPoint_HelperGone: a run of one rank whose helper is gone does not
// continue, because it is about to be started again.
func TestPoint_HelperGone(t *testing.T) {
	ctx := context.Background()
	mine, theirs := net.Pipe()
	go func() { // the helper, until it ends
		c := control.New(theirs)
		for {
			m, err := c.Recv()
			if _, ok := m.(*control.Restored); err != nil || ok {
				c.Close()
				return
			}
		}
	}()
	s := singleIdentity()
	s.supervisor = supervised(control.New(mine))
	p, err := Open(ctx, Options{Dir: t.TempDir(), identity: s, EveryPoints: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := 0
	Protect(p, "x", &x)
	if _, err := p.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	for err == nil { // until it is noticed
		err = p.Point(ctx)
	}
	if !errors.Is(err, errUnsupervised) {
		t.Error(err)
	}
	if err := p.Point(ctx); !errors.Is(err, errUnsupervised) {
		t.Errorf("the next point: %v", err)
	}
}
