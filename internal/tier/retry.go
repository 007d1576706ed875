package tier

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"time"
)

// Retry says how often and when an operation is repeated after ErrTemporary.
// The zero value has useful defaults.
type Retry struct {
	Tries int           // at most so many; 0: 8
	First time.Duration // before the first repetition; it doubles each time; 0: 200 ms
	Max   time.Duration // at most so long; 0: 20 s
}

func (r Retry) withDefaults() Retry {
	return Retry{cmp.Or(r.Tries, 8), cmp.Or(r.First, 200*time.Millisecond), cmp.Or(r.Max, 20*time.Second)}
}

// Do calls f until it succeeds, fails with another error than ErrTemporary, was
// called Tries times, or ctx is done. Between two calls it waits for a random
// time, so that many hosts do not call a busy store at the same moment.
func (r Retry) Do(ctx context.Context, f func() error) error {
	r = r.withDefaults()
	wait := r.First
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f()
		if err == nil || !errors.Is(err, ErrTemporary) || try == r.Tries {
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
		wait = min(2*wait, r.Max)
	}
}

// Retrying returns t with each operation repeated as r says. A reader of Get
// that fails continues where it was.
func Retrying(t Tier, r Retry) Tier { return &retrying{around{t, r.Do}} }

// around is a tier whose operations are run by do: repeated, or watched.
type around struct {
	Tier
	do func(ctx context.Context, f func() error) error
}

func (t *around) Put(ctx context.Context, name string, src Source) error {
	return t.do(ctx, func() error { return t.Tier.Put(ctx, name, src) })
}

func (t *around) Create(ctx context.Context, name string, data []byte) error {
	return t.do(ctx, func() error { return t.Tier.Create(ctx, name, data) })
}

func (t *around) Stat(ctx context.Context, name string) (Info, error) {
	var info Info
	err := t.do(ctx, func() (err error) {
		info, err = t.Tier.Stat(ctx, name)
		return err
	})
	if err != nil { // f may still run
		return Info{}, err
	}
	return info, nil
}

func (t *around) Remove(ctx context.Context, name string) error {
	return t.do(ctx, func() error { return t.Tier.Remove(ctx, name) })
}

func (t *around) Sweep(ctx context.Context, prefix string, before time.Time) error {
	return t.do(ctx, func() error { return t.Tier.Sweep(ctx, prefix, before) })
}

func (t *around) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return whole(t.Tier.List(ctx, prefix), func(f func() error) error { return t.do(ctx, f) }, func() {})
}

// whole returns a list that is read by one operation, which do runs. It calls
// each for each object.
func whole(list iter.Seq2[Info, error], do func(func() error) error, each func()) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var all []Info
		err := do(func() error {
			all = all[:0]
			for info, err := range list {
				if err != nil {
					return err
				}
				all = append(all, info)
				each()
			}
			return nil
		})
		if err != nil {
			yield(Info{}, err)
			return
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

type retrying struct{ around }

func (t *retrying) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	if n < 0 {
		// The end must be known, to continue after a failure.
		info, err := t.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		n = max(info.Size-offset, 0)
	}
	g := &retryingReader{t: t, ctx: ctx, name: name, offset: offset, n: n}
	if err := t.do(ctx, g.open); err != nil {
		return nil, err
	}
	return g, nil
}

// retryingReader reads n bytes from offset on, with as many calls of Get as
// needed. Each call of Read has all tries.
type retryingReader struct {
	t         *retrying
	ctx       context.Context
	name      string
	offset, n int64
	r         io.ReadCloser // nil after a failure
}

func (g *retryingReader) open() (err error) {
	g.r, err = g.t.Tier.Get(g.ctx, g.name, g.offset, g.n)
	return err
}

func (g *retryingReader) Read(p []byte) (n int, err error) {
	if g.n == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), g.n)]
	err = g.t.do(g.ctx, func() error {
		if g.r == nil {
			if err := g.open(); err != nil {
				g.r = nil
				return err
			}
		}
		var err error
		n, err = g.r.Read(p)
		if n > 0 {
			return nil // the next Read gets the error again
		}
		if err == io.EOF {
			err = errors.Join(ErrTemporary, io.ErrUnexpectedEOF)
		}
		if err != nil {
			g.r.Close()
			g.r = nil
		}
		return err
	})
	g.offset += int64(n)
	g.n -= int64(n)
	return n, err
}

func (g *retryingReader) Close() error {
	if g.r == nil {
		return nil
	}
	return g.r.Close()
}
