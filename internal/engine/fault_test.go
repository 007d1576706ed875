package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// versioned is a state in which every part shows its version, so that a mixture
// is detected. Most versions change only a part of the grid, so that
// checkpoints are differential.
type versioned struct {
	version int
	grid    []float64 // several blocks
	names   map[string]int
}

func newVersioned() *versioned { return &versioned{grid: make([]float64, 40_000)} }

func (v *versioned) advance() {
	v.version++
	n := len(v.grid)
	if v.version%4 != 1 {
		n /= 4
	}
	for i := range v.grid[:n] {
		v.grid[i] = float64(v.version)
	}
	v.names = map[string]int{"version": v.version}
}

// check reports whether v is exactly the state of its version.
func (v *versioned) check() error {
	want := newVersioned()
	for range v.version {
		want.advance()
	}
	for i := range want.grid {
		if v.grid[i] != want.grid[i] {
			return fmt.Errorf("version %d, but grid[%d] = %v, not %v", v.version, i, v.grid[i], want.grid[i])
		}
	}
	if v.names["version"] != v.version {
		return fmt.Errorf("version %d, but names say %v", v.version, v.names)
	}
	return nil
}

// openOn starts a run on a file system and protects v.
func openOn(fsys vfs.FS, v *versioned, c Compression) (*Run, error) {
	p, err := Open(ctx, Options{Dir: "/run/ckpt", Every: time.Hour, Signals: map[os.Signal]SignalAction{}, Compression: c, fs: fsys})
	if err != nil {
		return nil, err
	}
	Protect(p, "version", &v.version)
	Protect(p, "grid", &v.grid)
	Protect(p, "names", &v.names)
	return p, nil
}

// scenario saves versions 1 to 5 and records the last one that was reported
// safe. Errors are expected: the program continues.
func scenario(fsys vfs.FS, c Compression, safe *atomic.Int64) error {
	v := newVersioned()
	p, err := openOn(fsys, v, c)
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	var errs []error
	for range 5 {
		v.advance()
		if err := p.Checkpoint(ctx); err != nil {
			if !errors.Is(err, ErrNotSaved) {
				return fmt.Errorf("not an ErrNotSaved: %w", err)
			}
			errs = append(errs, err)
		} else {
			safe.Store(int64(v.version))
		}
	}
	return errors.Join(append(errs, p.Close())...)
}

// resumed restores the state from a file system and checks it.
func resumed(fsys vfs.FS, atLeast int64) error {
	v := newVersioned()
	p, err := openOn(fsys, v, None)
	if err != nil {
		return err
	}
	defer p.Close()
	ok, err := p.Restore(ctx)
	if err != nil {
		return err
	}
	if !ok && atLeast > 0 {
		return fmt.Errorf("nothing to restore, but version %d was safe", atLeast)
	}
	if !ok {
		return nil
	}
	if int64(v.version) < atLeast {
		return fmt.Errorf("restored version %d, but %d was safe", v.version, atLeast)
	}
	if err := v.check(); err != nil {
		return err
	}
	v.advance() // and it can continue
	return p.Checkpoint(ctx)
}

var errInjected = errors.New("injected fault")

// TestRun_EveryOperationFails fails the i-th file operation, for every i.
func TestRun_EveryOperationFails(t *testing.T) {
	for _, c := range []Compression{None, Zstd} {
		if c == Zstd && os.Getenv("CAIRN_LONG") == "" {
			break
		}
		for i := int64(0); ; i++ {
			var n, failed atomic.Int64
			disk := newDisk(t)
			fsys := vfstest.Hook(disk, func(op, name string) error {
				if n.Add(1)-1 == i {
					failed.Store(1)
					return fmt.Errorf("%w (%s)", errInjected, op)
				}
				return nil
			})
			var safe atomic.Int64
			err := scenario(fsys, c, &safe)
			if failed.Load() == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if i < 50 {
					t.Fatalf("only %d operations: the hook does not see them", i)
				}
				break
			}
			if err != nil && !errors.Is(err, errInjected) {
				t.Fatalf("operation %d: %v", i, err)
			}
			if err := resumed(disk, safe.Load()); err != nil {
				t.Fatalf("operation %d failed (reported: %v); then: %v", i, err, err)
			}
		}
	}
}

func newDisk(t *testing.T) *vfstest.Mem {
	m := vfstest.NewMem()
	if err := m.Mkdir("/run"); err != nil {
		t.Fatal(err)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRun_CrashAtEveryOperation cuts the power before every file operation,
// with what was not synced lost, kept in part, or torn.
func TestRun_CrashAtEveryOperation(t *testing.T) {
	disk := newDisk(t)
	var safe atomic.Int64
	var mu sync.Mutex
	n, links := 0, 0
	fsys := vfstest.Hook(disk, func(op, name string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "link" {
			links++
		}
		least := safe.Load()
		for i, l := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
			if i != n%3 && os.Getenv("CAIRN_LONG") == "" {
				continue
			}
			if err := resumed(disk.Crash(l), least); err != nil {
				t.Errorf("crash %d, before %s %s, loss %v: %v", n, op, name, l, err)
			}
		}
		n++
		return nil
	})
	if err := scenario(fsys, None, &safe); err != nil {
		t.Fatal(err)
	}
	if n < 50 || links == 0 {
		t.Fatalf("only %d crashes, %d of them before a link", n, links)
	}
	for _, l := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
		if err := resumed(disk.Crash(l), 5); err != nil {
			t.Error(err)
		}
	}
}
