package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// finishing saves versions 1 to 3 and finishes. safe is the last version that
// was reported saved. finished says whether Close reported that the run is
// finished. begun is set when the run begins to finish; other tests cover the
// time before that.
func finishing(fsys vfs.FS, safe *atomic.Int64, begun, finished *atomic.Bool) error {
	v := newVersioned()
	p, err := openOn(fsys, v, None)
	if err != nil {
		return err
	}
	if _, err := p.Restore(ctx); err != nil {
		return errors.Join(err, p.Close())
	}
	var errs []error
	for range 3 {
		v.advance()
		if err := p.Checkpoint(ctx); err != nil {
			errs = append(errs, err)
		} else {
			safe.Store(int64(v.version))
		}
	}
	p.FinishWith(7)
	begun.Store(true)
	err = p.Close()
	finished.Store(err == nil)
	return errors.Join(append(errs, err)...)
}

// again is the next start. It must find the run finished, or resume from what
// was saved. It may begin a new run only if nothing was ever saved.
func again(fsys vfs.FS, safe int64, finished bool) error {
	p, err := openOn(fsys, newVersioned(), None)
	var f *FinishedError
	if errors.As(err, &f) {
		if f.Status != 7 {
			return fmt.Errorf("finished with status %d, not 7", f.Status)
		}
		if there, err := store.Holds(fsys, "/run/ckpt"); err != nil || there {
			return fmt.Errorf("checkpoints of the finished run are left (%v, %w)", there, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.Close()
	if finished {
		return errors.New("the run has finished, and is started again")
	}
	return resumed(fsys, safe)
}

// TestFinish_CrashAtEveryOperation cuts the power before every operation of a
// run that finishes.
func TestFinish_CrashAtEveryOperation(t *testing.T) {
	disk := newDisk(t)
	var safe atomic.Int64
	var begun, finished atomic.Bool
	var mu sync.Mutex
	n := 0
	fsys := vfstest.Hook(disk, func(op, name string) error {
		mu.Lock()
		defer mu.Unlock()
		if !begun.Load() {
			return nil
		}
		n++
		for _, l := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
			if err := again(disk.Crash(l), safe.Load(), finished.Load()); err != nil {
				t.Errorf("crash %d, before %s %s, loss %v: %v", n, op, name, l, err)
			}
		}
		return nil
	})
	if err := finishing(fsys, &safe, &begun, &finished); err != nil {
		t.Fatal(err)
	}
	for _, l := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
		if err := again(disk.Crash(l), 3, true); err != nil {
			t.Error(err)
		}
	}
	if n < 15 {
		t.Fatalf("only %d operations", n)
	}
}

// TestFinish_EveryOperationFails fails every operation of a run that
// finishes: a Close that reports an error leaves a run that resumes.
func TestFinish_EveryOperationFails(t *testing.T) {
	for i := int64(0); ; i++ {
		var n, failed, safe atomic.Int64
		var begun, finished atomic.Bool
		disk := newDisk(t)
		fsys := vfstest.Hook(disk, func(op, name string) error {
			if begun.Load() && n.Add(1)-1 == i {
				failed.Store(1)
				return fmt.Errorf("%w (%s)", errInjected, op)
			}
			return nil
		})
		err := finishing(fsys, &safe, &begun, &finished)
		if failed.Load() == 0 {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if err := again(disk, safe.Load(), finished.Load()); err != nil {
			t.Fatalf("operation %d failed (reported: %v); then: %v", i, err, err)
		}
	}
}

// TestFresh_CrashAtEveryOperation cuts the power while Options.Fresh discards
// an earlier run that has not finished. The next start resumes all of it or
// begins anew; it never finds a part of it.
func TestFresh_CrashAtEveryOperation(t *testing.T) {
	disk := newDisk(t)
	var safe atomic.Int64
	if err := scenario(disk, None, &safe); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"/run/ckpt/journal.json": "{}\n", "/run/ckpt/other": "not Cairn's"} {
		if err := vfs.Replace(disk, name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	next := func(fsys vfs.FS) error {
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
		_, journal := fsys.Stat("/run/ckpt/journal.json")
		if ok && (v.version != 5 || journal != nil) {
			return fmt.Errorf("version %d of 5 was resumed; its journal: %v", v.version, journal)
		}
		if _, err := fsys.Stat("/run/ckpt/other"); err != nil {
			return err
		}
		return v.check()
	}
	n := 0
	fsys := vfstest.Hook(disk, func(op, name string) error {
		n++
		for _, l := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
			if err := next(disk.Crash(l)); err != nil {
				t.Errorf("crash %d, before %s %s, loss %v: %v", n, op, name, l, err)
			}
		}
		return nil
	})
	p, err := Open(ctx, Options{Dir: "/run/ckpt", Every: time.Hour, Fresh: true, Signals: map[os.Signal]SignalAction{}, fs: fsys})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if there, err := store.Holds(disk, "/run/ckpt"); err != nil || there {
		t.Errorf("something is left of the run that was discarded (%v)", err)
	}
	if n < 10 {
		t.Fatalf("only %d operations", n)
	}
}

// TestOpen_Finished: without Options.Fresh, a program that has finished is not
// started again, and its files stay as they are.
func TestOpen_Finished(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	work := func(fresh bool) error {
		p, err := Open(ctx, Options{Dir: filepath.Join(dir, "ckpt"), Every: time.Hour, Fresh: fresh, Signals: map[os.Signal]SignalAction{}})
		if err != nil {
			return err
		}
		defer p.Close()
		f, err := p.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		i := 0
		Protect(p, "i", &i)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		fmt.Fprintln(f, "done")
		if err := p.Checkpoint(ctx); err != nil {
			return err
		}
		p.Finish()
		return p.Close()
	}
	content := func() string {
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := work(false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, []byte("kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := work(false); !errors.Is(err, ErrFinished) {
		t.Errorf("a finished run was opened: %v", err)
	}
	if got := content(); got != "kept\n" {
		t.Errorf("the finished run's file was changed: %q", got)
	}
	if err := work(true); err != nil {
		t.Errorf("with consent: %v", err)
	}
	if got := content(); got != "done\n" {
		t.Errorf("with consent the program wrote %q", got)
	}
	t.Setenv(EnvFresh, "1")
	if err := work(false); err != nil {
		t.Errorf("with %s=1: %v", EnvFresh, err)
	}
	os.Unsetenv(EnvFresh)
	// A damaged record still says that a run has ended.
	if err := os.Truncate(filepath.Join(dir, "ckpt", "end"), 0); err != nil {
		t.Fatal(err)
	}
	if err := work(false); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a damaged record: %v", err)
	}
}
