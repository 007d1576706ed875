package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/transport/mem"
)

// TestRanksAppendToOneFile_Killed: ranks append to one file in turn. A rank
// that is copied later has seen what another wrote after its own copy; a
// restart cuts that off, and nothing else.
func TestRanksAppendToOneFile_Killed(t *testing.T) {
	const n, steps = 3, 12
	want := ""
	for i := range steps {
		for r := range n {
			want += fmt.Sprintf("%d.%d\n", i, r)
		}
	}
	for _, spatial := range []bool{true, false} {
		for killed := 4; killed < 8; killed++ {
			out := filepath.Join(t.TempDir(), "out")
			opts := Options{Dir: t.TempDir(), EveryPoints: 3, SafePoints: spatial}
			program := func(die bool) func(p *Run) error {
				return func(p *Run) error {
					ctx, w, step := context.Background(), p.World(), 0
					Protect(p, "step", &step)
					f, err := p.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
					if err != nil {
						return err
					}
					defer f.Close()
					if _, err := p.Restore(ctx); err != nil {
						return err
					}
					for ; step < steps; step++ {
						if err := p.Point(ctx); err != nil {
							return err
						}
						for r := range n {
							if r == p.Rank() {
								if _, err := fmt.Fprintf(f, "%d.%d\n", step, r); err != nil {
									return err
								}
							}
							if err := w.Barrier(); err != nil {
								return err
							}
						}
						if die && step == killed {
							return errKilled
						}
					}
					p.Finish()
					return nil
				}
			}
			for r, err := range newCrew(n, mem.Options{}).run(opts, program(true)) {
				if err == nil {
					t.Fatalf("rank %d was not killed", r)
				}
			}
			for r, err := range newCrew(n, mem.Options{}).run(opts, program(false)) {
				if err != nil {
					t.Fatalf("rank %d: %v", r, err)
				}
			}
			if got, err := os.ReadFile(out); err != nil || string(got) != want {
				t.Fatalf("spatial %v, killed in step %d: %v\n%q\nwant\n%q", spatial, killed, err, got, want)
			}
		}
	}
}

// TestShareSizes_DifferentMoments compares sizes of one file that ranks have
// recorded at different moments.
func TestShareSizes_DifferentMoments(t *testing.T) {
	for _, c := range []struct {
		name  string
		flag  int
		files [2]struct{ size, off int64 }
		want  int64
	}{
		{"the second has seen what the first wrote after its copy", os.O_APPEND, [2]struct{ size, off int64 }{{100, 80}, {110, 100}}, 100},
		{"the second wrote before its own copy", os.O_APPEND, [2]struct{ size, off int64 }{{100, 100}, {120, 120}}, 120},
		{"a rank writes elsewhere", 0, [2]struct{ size, off int64 }{{100, 0}, {120, 0}}, 120},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(out, make([]byte, 200), 0o644); err != nil {
				t.Fatal(err)
			}
			for r, err := range newCrew(2, mem.Options{}).run(Options{Dir: t.TempDir()}, func(p *Run) error {
				f, err := p.OpenFile(out, os.O_WRONLY|c.flag, 0)
				if err != nil {
					return err
				}
				defer f.Close()
				o := p.files.open[0]
				o.entry.Size, o.entry.Offset = c.files[p.Rank()].size, c.files[p.Rank()].off
				p.files.saved = p.files.open
				if err := p.peers.shareSizes(); err != nil {
					return err
				}
				if o.entry.Size != c.want {
					return fmt.Errorf("size %d, want %d", o.entry.Size, c.want)
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestRestore_OutsideFilesUnchanged: a checkpoint that was copied from
// elsewhere does not change files outside the working directory, unless the
// user allows it.
func TestRestore_OutsideFilesUnchanged(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	for _, dir := range []string{"work", "victim"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(base, "work"))
	precious := filepath.Join(base, "victim", "precious")
	open := func(dir string, opts Options) (*Run, *int) {
		opts.Dir = dir
		p, err := Open(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		n := new(int)
		Protect(p, "n", n)
		return p, n
	}
	p, n := open("ck", Options{})
	if _, err := p.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	f, err := p.OpenFile("../victim/precious", os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	*n = 7
	if err := p.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	const text = "not to be lost"
	if err := os.WriteFile(precious, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS("copied", os.DirFS("ck")); err != nil {
		t.Fatal(err)
	}
	p, _ = open("copied", Options{})
	_, err = p.Restore(ctx)
	if err == nil || !strings.Contains(err.Error(), precious) || !strings.Contains(err.Error(), EnvOutside) {
		t.Errorf("a checkpoint from elsewhere: %v", err)
	}
	p.Close()
	if got, err := os.ReadFile(precious); err != nil || string(got) != text {
		t.Fatalf("%v: %q", err, got)
	}
	for _, c := range []struct {
		dir  string
		opts Options
	}{{"copied", Options{OutsideFiles: true}}, {"ck", Options{}}} { // the second is the run's own
		if err := os.WriteFile(precious, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		p, n = open(c.dir, c.opts)
		if ok, err := p.Restore(ctx); !ok || err != nil || *n != 7 {
			t.Errorf("%s: %v %v %d", c.dir, ok, err, *n)
		}
		p.Close()
		if got, err := os.ReadFile(precious); err != nil || len(got) > 0 {
			t.Errorf("%s: %v: %q", c.dir, err, got)
		}
	}
}

// TestRestore_OtherWorkingDirectory: a program that changes its working
// directory, and is started in another one, gets back the files that it wrote.
func TestRestore_OtherWorkingDirectory(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	for _, dir := range []string{"start", "data"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, saved := range []bool{false, true} {
		t.Chdir(filepath.Join(base, "start"))
		p, err := Open(ctx, Options{Dir: filepath.Join(base, "ck")})
		if err != nil {
			t.Fatal(err)
		}
		n := new(int)
		Protect(p, "n", n)
		if ok, err := p.Restore(ctx); ok != saved || err != nil {
			t.Fatal(ok, err)
		}
		if saved {
			p.Close()
			break
		}
		t.Chdir(filepath.Join(base, "data"))
		f, err := p.OpenFile(filepath.Join(base, "data", "out"), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Checkpoint(ctx), f.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
