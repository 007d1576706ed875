package tiertest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
)

// Fault is what goes wrong with one operation.
type Fault int

const (
	// None lets it pass.
	None Fault = iota
	// Fail does nothing and returns a temporary error.
	Fail
	// FailAfter does it and returns a temporary error: the answer was lost.
	FailAfter
	// Refuse does nothing and returns a permanent error.
	Refuse
	// Cut does half of it: Put reads half of the source; readers and lists end
	// early, with a temporary error.
	Cut
	// Lie does nothing, or half of it, and reports success.
	Lie
	// Hang waits until the context is done.
	Hang
)

// Faults are all faults but None.
var Faults = []Fault{Fail, FailAfter, Refuse, Cut, Lie, Hang}

func (f Fault) String() string {
	return [...]string{"none", "fail", "fail after", "refuse", "cut", "lie", "hang"}[f]
}

// Faulty returns t with faults. It calls decide before every operation ("put",
// "create", "get", "stat", "list", "remove", "sweep"), perhaps concurrently, to
// choose what goes wrong.
func Faulty(t tier.Tier, decide func(op, name string) Fault) tier.Tier { return &faulty{t, decide} }

type faulty struct {
	tier.Tier
	decide func(op, name string) Fault
}

// do runs an operation, or what decide chooses instead.
func (f *faulty) do(ctx context.Context, op, name string, whole, half func() error) error {
	fault := f.decide(op, name)
	if half == nil && fault == Cut {
		fault = Fail
	}
	temporary := fmt.Errorf("%s %s: injected: %w", op, name, tier.ErrTemporary)
	switch fault {
	case Fail:
		return temporary
	case FailAfter:
		if err := whole(); err != nil {
			return err
		}
		return temporary
	case Refuse:
		return fmt.Errorf("%s %s: injected: refused", op, name)
	case Cut:
		if err := half(); err != nil {
			return err
		}
		return temporary
	case Lie:
		return nil
	case Hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return whole()
}

func (f *faulty) Put(ctx context.Context, name string, src tier.Source) error {
	return f.do(ctx, "put", name, func() error { return f.Tier.Put(ctx, name, src) }, func() error {
		_, err := src.ReadAt(make([]byte, src.Size/2), 0)
		return err
	})
}

func (f *faulty) Create(ctx context.Context, name string, data []byte) error {
	return f.do(ctx, "create", name, func() error { return f.Tier.Create(ctx, name, data) }, nil)
}

func (f *faulty) Remove(ctx context.Context, name string) error {
	return f.do(ctx, "remove", name, func() error { return f.Tier.Remove(ctx, name) }, nil)
}

func (f *faulty) Sweep(ctx context.Context, prefix string, before time.Time) error {
	return f.do(ctx, "sweep", prefix, func() error { return f.Tier.Sweep(ctx, prefix, before) }, nil)
}

// Stat lies by denying the object.
func (f *faulty) Stat(ctx context.Context, name string) (info tier.Info, err error) {
	err = f.do(ctx, "stat", name, func() (err error) {
		info, err = f.Tier.Stat(ctx, name)
		return err
	}, nil)
	if err == nil && info.Name == "" {
		err = fmt.Errorf("stat %s: injected: %w", name, tier.ErrNotExist)
	}
	return info, err
}

// List lies by leaving out every second name.
func (f *faulty) List(ctx context.Context, prefix string) iter.Seq2[tier.Info, error] {
	return func(yield func(tier.Info, error) bool) {
		var all []tier.Info
		collect := func() error {
			for info, err := range f.Tier.List(ctx, prefix) {
				if err != nil {
					return err
				}
				all = append(all, info)
			}
			return nil
		}
		lied := true
		err := f.do(ctx, "list", prefix, func() error {
			lied = false
			return collect()
		}, func() error {
			err := collect()
			all = all[:len(all)/2]
			return err
		})
		if err == nil && lied {
			err = collect()
			for i := 0; i < len(all); i++ {
				all = append(all[:i], all[i+1:]...)
			}
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(tier.Info{}, err)
		}
	}
}

// Get lies by changing a byte in the middle.
func (f *faulty) Get(ctx context.Context, name string, offset, n int64) (r io.ReadCloser, err error) {
	whole := func() error {
		r, err = f.Tier.Get(ctx, name, offset, n)
		return err
	}
	half := false
	err = f.do(ctx, "get", name, whole, func() error {
		half = true
		return whole()
	})
	switch {
	case err == nil && r == nil: // a lie
		if err = whole(); err == nil {
			r = &changed{r, (n + 1) / 2}
		}
	case half && r != nil:
		return &cut{r, n / 2, err}, nil
	case err != nil && r != nil:
		r.Close()
		r = nil
	}
	return r, err
}

// cut ends after n bytes with an error.
type cut struct {
	io.ReadCloser
	n   int64
	err error
}

func (c *cut) Read(p []byte) (int, error) {
	if c.n <= 0 {
		return 0, c.err
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.n)])
	c.n -= int64(n)
	return n, err
}

// changed flips a bit of byte n, counted from 1.
type changed struct {
	io.ReadCloser
	n int64
}

func (c *changed) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.n > 0 && c.n <= int64(n) {
		p[c.n-1] ^= 4
	}
	c.n -= int64(n)
	return n, err
}
