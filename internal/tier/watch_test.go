package tier_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
)

// TestWatch_Conformance checks the wrapper on a tier that never hangs.
func TestWatch_Conformance(t *testing.T) {
	tiertest.Run(t, tiertest.Options{Open: func(t *testing.T) tier.Tier {
		return tier.NewWatch("x", time.Hour).Tier(tiertest.NewMem())
	}})
}

// ops are all operations of a tier. It has the object "a".
var ops = map[string]func(ctx context.Context, m tier.Tier) error{
	"put":    func(ctx context.Context, m tier.Tier) error { return m.Put(ctx, "b", tier.BytesSource([]byte("b"))) },
	"create": func(ctx context.Context, m tier.Tier) error { return m.Create(ctx, "c", []byte("c")) },
	"stat": func(ctx context.Context, m tier.Tier) error {
		_, err := m.Stat(ctx, "a")
		return err
	},
	"get": func(ctx context.Context, m tier.Tier) error {
		_, err := m.Get(ctx, "a", 0, -1)
		return err
	},
	"list": func(ctx context.Context, m tier.Tier) error {
		for _, err := range m.List(ctx, "") {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"remove": func(ctx context.Context, m tier.Tier) error { return m.Remove(ctx, "d") },
	"sweep":  func(ctx context.Context, m tier.Tier) error { return m.Sweep(ctx, "", time.Time{}) },
}

// TestWatch_Hangs shows that every operation ends after the time that is
// allowed, also if the tier never answers, and that a tier that answers again
// works again.
func TestWatch_Hangs(t *testing.T) {
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := make(chan bool)
				inner := tiertest.NewMem()
				if err := inner.Create(t.Context(), "a", []byte("a")); err != nil {
					t.Fatal(err)
				}
				m := tier.NewWatch("the disk", time.Minute).Tier(tiertest.Faulty(inner, func(op, name string) tiertest.Fault {
					<-back
					return tiertest.None
				}))
				start := time.Now()
				for range 8 {
					if err := op(t.Context(), m); err == nil || !strings.Contains(err.Error(), "the disk has not answered for 1m0s") {
						t.Fatalf("error %v", err)
					}
				}
				if took := time.Since(start); took != 8*time.Minute {
					t.Fatalf("8 tries took %v", took)
				}
				if err := op(t.Context(), m); err == nil || time.Since(start) != 8*time.Minute {
					t.Fatalf("with 8 that hang: %v after %v", err, time.Since(start))
				}
				close(back)
				synctest.Wait()
				if err := op(t.Context(), m); err != nil {
					t.Fatalf("it answers again: %v", err)
				}
			})
		})
	}
}

// countingTier counts the readers that are open.
type countingTier struct {
	tier.Tier
	back chan bool
	open atomic.Int32
}

type countedReader struct {
	io.ReadCloser
	open *atomic.Int32
}

func (c *countingTier) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	<-c.back
	r, err := c.Tier.Get(ctx, name, offset, n)
	if err == nil {
		c.open.Add(1)
	}
	return countedReader{r, &c.open}, err
}

func (r countedReader) Close() error {
	r.open.Add(-1)
	return r.ReadCloser.Close()
}

// TestWatch_LateGet checks that what Get opens too late is closed.
func TestWatch_LateGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &countingTier{Tier: tiertest.NewMem(), back: make(chan bool)}
		if err := inner.Create(t.Context(), "a", []byte("a")); err != nil {
			t.Fatal(err)
		}
		m := tier.NewWatch("x", time.Minute).Tier(inner)
		if _, err := m.Get(t.Context(), "a", 0, -1); err == nil {
			t.Fatal("a Get that hangs does not fail")
		}
		close(inner.back)
		synctest.Wait()
		if n := inner.open.Load(); n != 0 {
			t.Errorf("%d readers stay open", n)
		}
		r, err := m.Get(t.Context(), "a", 0, -1)
		if err != nil || inner.open.Load() != 1 {
			t.Fatalf("it answers again: %v, %d readers are open", err, inner.open.Load())
		}
		if err := r.Close(); err != nil || inner.open.Load() != 0 {
			t.Errorf("%v, %d readers are open", err, inner.open.Load())
		}
	})
}

// pausing waits before each piece of a source.
type pausing struct {
	io.ReaderAt
	d time.Duration
}

func (p pausing) ReadAt(b []byte, off int64) (int, error) {
	time.Sleep(p.d)
	return p.ReaderAt.ReadAt(b, off)
}

// TestWatch_SlowSource shows that a tier does not hang while it waits for the
// bytes of an object.
func TestWatch_SlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := tier.NewWatch("x", time.Minute).Tier(tiertest.NewMem())
		src := tier.BytesSource(tiertest.Pattern(1, 100))
		src.ReaderAt = pausing{src.ReaderAt, time.Hour}
		if err := m.Put(t.Context(), "a", src); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(tiertest.Content(t, m, "a"), tiertest.Pattern(1, 100)) {
			t.Error("another content")
		}
	})
}

// hangingReads is a tier of which reads stop after some bytes.
type hangingReads struct {
	tier.Tier
	back chan bool
}

type hangingReader struct {
	io.ReadCloser
	back chan bool
	n    int
}

func (h *hangingReads) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	r, err := h.Tier.Get(ctx, name, offset, n)
	return &hangingReader{r, h.back, 10}, err
}

func (h *hangingReader) Read(p []byte) (int, error) {
	if h.n == 0 {
		<-h.back
		for i := range p {
			p[i] = 0xee // too late
		}
		return len(p), nil
	}
	n, err := h.ReadCloser.Read(p[:min(h.n, len(p))])
	h.n -= n
	return n, err
}

// TestWatch_ReadHangs shows that a read that hangs fails, and that what it
// reads when it returns after all is not in the buffer of the caller.
func TestWatch_ReadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &hangingReads{tiertest.NewMem(), make(chan bool)}
		if err := inner.Put(t.Context(), "a", tier.BytesSource(make([]byte, 20))); err != nil {
			t.Fatal(err)
		}
		r, err := tier.NewWatch("x", time.Minute).Tier(inner).Get(t.Context(), "a", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 20)
		n, err := io.ReadFull(r, p)
		if n != 10 || err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if _, again := r.Read(p[10:]); again == nil {
			t.Error("a second read does not fail")
		}
		close(inner.back)
		synctest.Wait()
		if !bytes.Equal(p, make([]byte, 20)) {
			t.Errorf("the buffer has %x", p)
		}
	})
}
