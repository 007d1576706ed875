//go:build linux && (amd64 || arm64) && !static

package mpilib

import (
	"context"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

// driven is a driver whose MPI makes progress while its rank does something
// else. The ranks of the suite wait for each other through files, and do not
// poll meanwhile; see "Progress" in the package comment.
type driven struct {
	*Driver
	mu   sync.Mutex // held during every call of MPI
	stop chan struct{}
	wg   sync.WaitGroup
}

func drive(d *Driver) *driven {
	v := &driven{Driver: d, stop: make(chan struct{})}
	v.wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-v.stop:
				return
			case <-tick.C:
				v.mu.Lock()
				v.progress()
				v.mu.Unlock()
			}
		}
	})
	return v
}

// progress lets MPI continue with what it has begun, and tells no handler
// anything. It does not block.
func (v *driven) progress() {
	if !v.closed && !v.stuck {
		v.lib.probe(idleTag, v.comm)
	}
}

func (v *driven) Connect(ctx context.Context, addresses [][]byte, h transport.Handler) (transport.Link, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l, err := v.Driver.Connect(ctx, addresses, h)
	if err != nil {
		return nil, err
	}
	return &drivenLink{Link: l, v: v}, nil
}

func (v *driven) Close() error {
	close(v.stop)
	v.wg.Wait()
	return v.Driver.Close()
}

// drivenLink holds the lock during calls. The handler calls Send from inside
// Poll, which holds the lock already.
type drivenLink struct {
	transport.Link
	v      *driven
	inside bool
}

func (l *drivenLink) Send(peer int, h *transport.Header, payload []byte, token any) bool {
	if !l.inside {
		l.v.mu.Lock()
		defer l.v.mu.Unlock()
	}
	return l.Link.Send(peer, h, payload, token)
}

func (l *drivenLink) Poll() bool {
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	l.inside = true
	defer func() { l.inside = false }()
	return l.Link.Poll()
}

func (l *drivenLink) Close(ctx context.Context) error {
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	return l.Link.Close(ctx)
}
