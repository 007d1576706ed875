package tier

import (
	"context"
	"io"
	"sync"
	"time"
)

// Limiter bounds how many bytes per second pass through it. Several tiers may
// share one.
type Limiter struct {
	rate float64 // bytes per second

	mu   sync.Mutex
	free time.Time // when everything that was let through so far has passed
}

// burst is how far ahead of the rate a limiter lets a caller be.
const burst = 50 * time.Millisecond

// limitPiece is how many bytes a limiter lets through at once.
const limitPiece = 128 << 10

// NewLimiter returns a limiter of bytesPerSecond, which is positive.
func NewLimiter(bytesPerSecond int64) *Limiter { return &Limiter{rate: float64(bytesPerSecond)} }

// Wait waits until n more bytes may pass.
func (l *Limiter) Wait(ctx context.Context, n int) error {
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	wait := l.free.Sub(now) - burst
	l.mu.Unlock()
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Limit returns t; l limits the bytes per second of its Put and Get.
func Limit(t Tier, l *Limiter) Tier { return &limited{t, l} }

type limited struct {
	Tier
	l *Limiter
}

func (t *limited) Put(ctx context.Context, name string, src Source) error {
	src.ReaderAt = &limitedReaderAt{ctx, t.l, src.ReaderAt}
	return t.Tier.Put(ctx, name, src)
}

func (t *limited) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	r, err := t.Tier.Get(ctx, name, offset, n)
	if err != nil {
		return nil, err
	}
	return &limitedReader{ctx, t.l, r}, nil
}

// LimitReaderAt returns r; l limits the bytes per second that are read.
func LimitReaderAt(ctx context.Context, r io.ReaderAt, l *Limiter) io.ReaderAt {
	return &limitedReaderAt{ctx, l, r}
}

type limitedReaderAt struct {
	ctx context.Context
	l   *Limiter
	r   io.ReaderAt
}

func (r *limitedReaderAt) ReadAt(p []byte, off int64) (done int, err error) {
	for done < len(p) && err == nil {
		piece := p[done:min(done+limitPiece, len(p))]
		if err := r.l.Wait(r.ctx, len(piece)); err != nil {
			return done, err
		}
		var n int
		n, err = r.r.ReadAt(piece, off+int64(done))
		done += n
		if err == io.EOF && done == len(p) {
			err = nil
		}
	}
	return done, err
}

type limitedReader struct {
	ctx context.Context
	l   *Limiter
	io.ReadCloser
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), limitPiece)])
	if werr := r.l.Wait(r.ctx, n); werr != nil {
		return n, werr
	}
	return n, err
}
