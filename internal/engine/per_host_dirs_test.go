package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/vfs"
)

// hostsOf gives each two ranks a host, and each host a directory below root.
func hostsOf(root string) func(r int, o *Options) {
	return func(r int, o *Options) {
		host := string(rune('a' + r/2))
		o.Dir, o.PerHost, o.identity.Host = filepath.Join(root, host), true, host
	}
}

// copyTree copies a directory. Hard links become copies.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	os.Chmod(to, 0o700)
}

// TestPerHost_OwnFilesOnly stops a run of four ranks on two hosts again and
// again, and checks that each host has the files of its own ranks only.
func TestPerHost_OwnFilesOnly(t *testing.T) {
	const n, steps = 4, 40
	root := t.TempDir()
	from, sum := make([]int, n), make([]int, n)
	opts := Options{EveryPoints: 5}
	for _, at := range []int{7, 15, 23} {
		mustStop(t, newCrew(n, mem.Options{}).runWith(opts, counting(steps, stopAt(at), from, sum), hostsOf(root)))
		if at > 7 && slices.Min(from) == 0 {
			t.Fatalf("ranks began at steps %v", from)
		}
	}
	for r := range n {
		host, other := filepath.Join(root, string(rune('a'+r/2))), filepath.Join(root, string(rune('b'-r/2)))
		d := store.Open(vfs.OS(), host, r)
		d.PerHost()
		l, err := d.Line()
		have, herr := d.Committed()
		if err != nil || herr != nil || l.Index == 0 || have[0] != l.Index {
			t.Errorf("rank %d on %s: line %+v (%v), checkpoints %v (%v)", r, host, l, err, have, herr)
		}
		if have, err := store.Open(vfs.OS(), other, r).Committed(); err != nil || len(have) > 0 {
			t.Errorf("host %s has checkpoints %v of rank %d (%v)", other, have, r, err)
		}
	}
	mustEnd(t, newCrew(n, mem.Options{}).runWith(opts, counting(steps, nil, from, sum), hostsOf(root)))
	for r := range n {
		if want := n*steps*(steps-1)/2 + steps*(0+1+2+3); sum[r] != want {
			t.Errorf("rank %d: %d, want %d", r, sum[r], want)
		}
	}
}

// TestPerHost_DirectoryChanged changes the directory of one host between two
// starts: it is gone, blank, an older copy, or has lost a file. A run either
// refuses, on all ranks and without a change, or resumes on all ranks from one
// checkpoint.
func TestPerHost_DirectoryChanged(t *testing.T) {
	const n, steps = 4, 60
	for _, host := range []string{"a", "b"} {
		for _, c := range []struct {
			name  string
			harm  func(t *testing.T, dir, old string)
			wrong string // what the error says; "": it resumes
		}{
			{"gone", func(t *testing.T, dir, old string) { os.RemoveAll(dir) }, "is blank"},
			{"only its identity", func(t *testing.T, dir, old string) { // as after a crash in Clear
				if err := store.Clear(vfs.OS(), dir); err != nil {
					t.Fatal(err)
				}
			}, "is an older copy"},
			{"older copy", func(t *testing.T, dir, old string) {
				os.RemoveAll(dir)
				copyTree(t, old, dir)
			}, "is an older copy"},
			{"lost file", func(t *testing.T, dir, old string) {
				names, _ := filepath.Glob(filepath.Join(newest(t, dir), "rank-????.h5"))
				if err := os.Remove(names[0]); err != nil {
					t.Fatal(err)
				}
			}, ""},
			{"unchanged", func(t *testing.T, dir, old string) {}, ""},
		} {
			t.Run(c.name+" on "+host, func(t *testing.T) {
				root := t.TempDir()
				from, sum := make([]int, n), make([]int, n)
				opts := Options{EveryPoints: 5, Keep: 20} // so that older checkpoints would fit
				start := func(at int) []error {
					return newCrew(n, mem.Options{}).runWith(opts, counting(steps, stopAt(at), from, sum), hostsOf(root))
				}
				mustStop(t, start(12))
				dir, old := filepath.Join(root, host), filepath.Join(root, "old")
				copyTree(t, dir, old)
				mustStop(t, start(33))
				c.harm(t, dir, old)
				before := listTree(t, root)
				errs := start(50)
				if c.wrong == "" {
					mustStop(t, errs)
					if from[0] < 20 || slices.Min(from) != slices.Max(from) {
						t.Errorf("ranks began at steps %v", from)
					}
					return
				}
				for r, err := range errs {
					if err == nil || !strings.Contains(err.Error(), c.wrong) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "CAIRN_FRESH=1") {
						t.Errorf("rank %d: %v; want %q and the directory %s", r, err, c.wrong, dir)
					}
				}
				if after := listTree(t, root); c.name != "gone" && !slices.Equal(before, after) {
					t.Errorf("files changed:\n%v\n%v", before, after)
				}
			})
		}
	}
}

// listTree lists the files below a directory, without locks.
func listTree(t *testing.T, root string) (out []string) {
	t.Helper()
	filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), "lock") {
			out = append(out, path)
		}
		return err
	})
	return out
}

// TestPerHost_FirstCheckpoint loses a host before the first checkpoint was
// complete: nothing was committed, but other ranks have saved their parts.
func TestPerHost_FirstCheckpoint(t *testing.T) {
	all := []hostDir{{Host: "a x", Dir: "/d", Known: true, Have: []uint64{1}}, {Host: "b x", Dir: "/d", Known: true}}
	if err := compareDirectories(all, 0, "--fresh"); err != nil {
		t.Errorf("an incomplete first checkpoint: %v", err)
	}
	all[1].Known = false
	err := compareDirectories(all, 0, "--fresh")
	if err == nil || !strings.Contains(err.Error(), "the checkpoint directory of rank 1 on b, /d, is blank: that of rank 0 has checkpoints") {
		t.Errorf("a blank directory: %v", err)
	}
	all[0].Have = nil
	if err := compareDirectories(all, 0, "--fresh"); err != nil {
		t.Errorf("no checkpoint anywhere: %v", err)
	}
	if err := compareDirectories(all, 3, "--fresh"); err == nil || !strings.Contains(err.Error(), "the supervisor knows that checkpoint 3 was complete") {
		t.Errorf("all directories are blank: %v", err)
	}
}

// TestPerHost_Finish finishes a run: no host has checkpoints any more, and each
// knows that the run has finished, even if one of them was killed in between.
func TestPerHost_Finish(t *testing.T) {
	const n, steps = 4, 20
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			root := t.TempDir()
			from, sum := make([]int, n), make([]int, n)
			opts := Options{EveryPoints: 5}
			program := counting(steps, nil, from, sum)
			mustEnd(t, newCrew(n, mem.Options{}).runWith(opts, func(p *Run) error {
				err := program(p)
				if p.Finish(); killed && p.leads && p.Rank() > 0 {
					p.leads = false // as if it were killed right before
				}
				return err
			}, hostsOf(root)))
			errs := newCrew(n, mem.Options{}).runWith(opts, program, hostsOf(root))
			for r, err := range errs {
				if !errors.Is(err, ErrFinished) {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			for _, host := range []string{"a", "b"} {
				d := store.Open(vfs.OS(), filepath.Join(root, host), 0)
				end, err := d.End()
				left, herr := store.Holds(vfs.OS(), d.Path())
				if err != nil || end == nil || herr != nil || left {
					t.Errorf("host %s: end %+v (%v), checkpoints left: %v (%v)", host, end, err, left, herr)
				}
			}
			opts.Fresh = true
			mustEnd(t, newCrew(n, mem.Options{}).runWith(opts, program, hostsOf(root)))
			if slices.Max(from) > 0 {
				t.Errorf("with Fresh, ranks began at steps %v", from)
			}
		})
	}
}
