package tiertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
)

// Mem is a tier in memory. Its clock stands still until Advance is called.
type Mem struct {
	mu      sync.Mutex
	objects map[string]object
	now     time.Time
}

type object struct {
	data     []byte
	modified time.Time
}

// NewMem returns an empty tier.
func NewMem() *Mem {
	return &Mem{objects: make(map[string]object), now: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}
}

// Advance lets time pass.
func (m *Mem) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

// Clone returns a copy of the tier and its content.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{objects: maps.Clone(m.objects), now: m.now}
}

// Names returns the names of all objects, in order.
func (m *Mem) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.objects))
}

// Change replaces the content of an object by what f returns.
func (m *Mem) Change(name string, f func(data []byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[name]
	o.data = f(bytes.Clone(o.data))
	m.objects[name] = o
}

func (m *Mem) String() string { return "memory" }

// check begins an operation on an object.
func (m *Mem) check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return tier.CheckName(name)
}

func (m *Mem) Put(ctx context.Context, name string, src tier.Source) error {
	if err := m.check(ctx, name); err != nil {
		return err
	}
	data := make([]byte, src.Size)
	if n, err := src.ReadAt(data, 0); n < len(data) {
		return err
	}
	return m.Create(ctx, name, data)
}

func (m *Mem) Create(ctx context.Context, name string, data []byte) error {
	if err := m.check(ctx, name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.objects[name]; ok {
		if !bytes.Equal(o.data, data) {
			return fmt.Errorf("%s: %w", name, tier.ErrExists)
		}
		return nil
	}
	m.objects[name] = object{bytes.Clone(data), m.now}
	return nil
}

func (m *Mem) get(ctx context.Context, name string) (object, error) {
	if err := m.check(ctx, name); err != nil {
		return object{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return object{}, fmt.Errorf("%s: %w", name, tier.ErrNotExist)
	}
	return o, nil
}

func (m *Mem) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	o, err := m.get(ctx, name)
	if err != nil {
		return nil, err
	}
	size := int64(len(o.data))
	if n < 0 {
		n = size - offset
	}
	if offset < 0 || n < 0 || offset > size-n {
		return nil, fmt.Errorf("%s: %w: it is too short", name, tier.ErrDamaged)
	}
	return io.NopCloser(ctxReader{ctx, bytes.NewReader(o.data[offset : offset+n])}), nil
}

type ctxReader struct {
	ctx context.Context
	io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

func (m *Mem) Stat(ctx context.Context, name string) (tier.Info, error) {
	o, err := m.get(ctx, name)
	return tier.Info{Name: name, Size: int64(len(o.data)), Modified: o.modified}, err
}

func (m *Mem) List(ctx context.Context, prefix string) iter.Seq2[tier.Info, error] {
	return func(yield func(tier.Info, error) bool) {
		err := ctx.Err()
		if err == nil {
			err = tier.CheckPrefix(prefix)
		}
		if err != nil {
			yield(tier.Info{}, err)
			return
		}
		for _, name := range m.Names() {
			if info, err := m.Stat(ctx, name); strings.HasPrefix(name, prefix) && err == nil && !yield(info, nil) {
				return
			}
		}
	}
}

func (m *Mem) Remove(ctx context.Context, name string) error {
	if err := m.check(ctx, name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

func (m *Mem) Sweep(ctx context.Context, prefix string, before time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return tier.CheckPrefix(prefix)
}
