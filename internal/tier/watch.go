package tier

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// Watch runs operations that may hang: on a file system whose server is gone, a
// system call does not return, whatever the context says. An operation fails if
// nothing moves for a time; it stays behind in the background until it returns.
// If mostHung are left behind, others fail at once.
type Watch struct {
	what string // what is operated on
	most time.Duration
	hung atomic.Int32 // operations that were left behind
}

// mostHung bounds the operations that are left behind. Each keeps a thread.
const mostHung = 8

// NewWatch returns a Watch. Errors name the place as what says. An operation
// fails when it has made no progress for the time most.
func NewWatch(what string, most time.Duration) *Watch { return &Watch{what: what, most: most} }

// Do runs f, and fails if f takes longer than the watch allows.
func (w *Watch) Do(f func() error) error { return w.do(nil, f) }

// Tier returns t with its operations watched. The time in which Put waits for
// its source does not count.
func (w *Watch) Tier(t Tier) Tier {
	return &watched{around{t, func(_ context.Context, f func() error) error { return w.do(nil, f) }}, w}
}

func (w *Watch) stalled() error {
	return fmt.Errorf("%s has not answered for %s; if it is on a network file system, check that the server is up", w.what, w.most)
}

// do runs f, and fails if f has not returned, and m has not changed, for a
// time.
func (w *Watch) do(m *movement, f func() error) error {
	if w.hung.Load() >= mostHung {
		return w.stalled()
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(w.most)
	defer timer.Stop()
	for seen := m.count(); ; {
		select {
		case err := <-done:
			return err
		case <-timer.C:
		}
		if now := m.count(); now != seen || m.outside() {
			seen = now
			timer.Reset(w.most)
			continue
		}
		w.hung.Add(1)
		go func() {
			<-done
			w.hung.Add(-1)
		}()
		return w.stalled()
	}
}

type watched struct {
	around
	w *Watch
}

// movement is what an operation reads from its source. While it waits for the
// source, it does not wait for the tier.
type movement struct {
	io.ReaderAt
	reads   atomic.Int64
	waiting atomic.Int32
}

func (m *movement) count() int64 {
	if m == nil {
		return 0
	}
	return m.reads.Load()
}

func (m *movement) outside() bool { return m != nil && m.waiting.Load() > 0 }

func (m *movement) ReadAt(p []byte, off int64) (int, error) {
	m.waiting.Add(1)
	n, err := m.ReaderAt.ReadAt(p, off)
	m.reads.Add(1)
	m.waiting.Add(-1)
	return n, err
}

func (t *watched) Put(ctx context.Context, name string, src Source) error {
	m := &movement{ReaderAt: src.ReaderAt}
	src.ReaderAt = m
	return t.w.do(m, func() error { return t.Tier.Put(ctx, name, src) })
}

// List counts each object as progress.
func (t *watched) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	m := new(movement)
	return whole(t.Tier.List(ctx, prefix), func(f func() error) error { return t.w.do(m, f) }, func() { m.reads.Add(1) })
}

func (t *watched) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	var mu sync.Mutex
	var r io.ReadCloser
	late := false // nobody waits for r any more
	err := t.w.do(nil, func() error {
		got, err := t.Tier.Get(ctx, name, offset, n)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && late {
			return got.Close()
		}
		r = got
		return err
	})
	if err != nil {
		mu.Lock()
		defer mu.Unlock()
		late = true
		return nil, err
	}
	return &watchedReader{w: t.w, r: r}, nil
}

// watchedReader reads through a buffer of its own: a Read that hangs may still
// write to it when the caller uses its own again.
type watchedReader struct {
	w    *Watch
	r    io.ReadCloser
	buf  []byte
	hung bool
}

// stallPiece is how much a watchedReader reads at a time.
const stallPiece = 1 << 20

func (r *watchedReader) Read(p []byte) (int, error) {
	if r.hung {
		return 0, r.w.stalled()
	}
	if want := min(len(p), stallPiece); len(r.buf) < want {
		r.buf = make([]byte, want)
	}
	buf := r.buf[:min(len(p), len(r.buf))]
	var n int
	var err error
	if hung := r.w.do(nil, func() error {
		n, err = r.r.Read(buf)
		return nil
	}); hung != nil {
		r.hung = true
		return 0, hung
	}
	return copy(p, buf[:n]), err
}

func (r *watchedReader) Close() error { return r.w.do(nil, r.r.Close) }
