//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// saved is a run that was stopped with two checkpoints, which are damaged then.
type saved struct {
	*runOf
	kept   []uint64 // its checkpoints, the newest first
	want   string
	backup string
}

const plate = "-n 64 -steps 4000 -check 500"

func savedRun(t *testing.T) *saved {
	t.Helper()
	command := append([]string{program(t, "heat")}, strings.Fields(plate)...)
	s := &saved{runOf: newRun(t, command...), want: undisturbed(t, 4, command...)}
	sup := s.start("-n", "4", "--every-points", "100")
	sup.awaits("checkpoint 2 committed")
	sup.stops()
	var err error
	if s.kept, err = store.Open(vfs.OS(), s.checkpoints(), 0).Committed(); err != nil || len(s.kept) < 2 {
		t.Fatalf("checkpoints %v, %v:\n%s", s.kept, err, sup.text())
	}
	return s
}

// again restores the run's directory as it was when it was stopped.
func (s *saved) again(t *testing.T) {
	t.Helper()
	if s.backup == "" {
		s.backup = t.TempDir()
		tool(t, "cp", "-a", s.run(), s.out(), s.backup)
		return
	}
	if err := os.RemoveAll(s.run()); err != nil {
		t.Fatal(err)
	}
	tool(t, "cp", "-a", filepath.Join(s.backup, "run"), filepath.Join(s.backup, "out.txt"), s.root)
}

func (s *saved) file(index uint64, rank int) string {
	return filepath.Join(s.checkpoints(), fmt.Sprintf("ckpt-%08d", index), fmt.Sprintf("rank-%04d.h5", rank))
}

// flip changes a bit in the middle of a file, in the data.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// spoil changes the beginning of a file, so that it is not recognized.
func spoil(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("spoiled!"), 0)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestRanks_Damage damages one rank's part of a checkpoint. All ranks must skip
// this checkpoint, with one line that says so. If there is no other one, the
// run is refused. It must never continue from a mixture, and never start from
// the beginning.
func TestRanks_Damage(t *testing.T) {
	t.Parallel()
	s := savedRun(t)
	newest, older := s.kept[0], s.kept[1]
	s.again(t)
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, path string)
		line   string
	}{
		{"flip", flip, "skipping a damaged checkpoint"},
		{"spoil", spoil, "skipping a damaged checkpoint"},
		{"remove", remove, "skipping a checkpoint that has lost a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.again(t)
			s.t = t
			c.damage(t, s.file(newest, 2))
			sup := s.start("-n", "4", "--every-points", "100")
			sup.finishes()
			oneLine(t, sup.text(), c.line, fmt.Sprintf("checkpoint=%d rank=2 ", newest), "next=")
			must(t, sup.text(), fmt.Sprintf("restored checkpoint %d", older))
			sameOutput(t, s.output(), s.want)

			s.again(t)
			for _, index := range s.kept {
				c.damage(t, s.file(index, 2))
			}
			before := files(t, s.checkpoints())
			sup = s.start("-n", "4", "--retries", "0")
			if code := sup.ends(); code != 1 {
				t.Fatalf("exit status %d:\n%s", code, sup.text())
			}
			oneLine(t, sup.text(), "[0] heat: cairn: no checkpoint in", "rank 2", fmt.Sprint(newest), "to start over, move that directory away")
			if strings.Contains(sup.text(), "restored") {
				t.Errorf("something was restored:\n%s", sup.text())
			}
			if after := files(t, s.checkpoints()); !slices.Equal(before, after) {
				t.Errorf("the checkpoints were touched: %v, then %v", before, after)
			}
		})
	}
}

// files returns the names of the checkpoints' files.
func files(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "ckpt-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// TestRanks_OtherNumberRefused restores a run with another number of ranks.
func TestRanks_OtherNumberRefused(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	s := savedRun(t)
	before := files(t, s.checkpoints())
	sup := s.start("-n", "3")
	if code := sup.ends(); code != 3 {
		t.Fatalf("exit status %d:\n%s", code, sup.text())
	}
	oneLine(t, sup.text(), "it has 4 ranks, not 3", "give the same command to resume", "--fresh", "--run")
	for _, n := range []int{1, 3, 5} {
		// Another run with the same checkpoint directory.
		cmd := append([]string{build(t, "./cmd/cairn", runtime.GOARCH), "run", "--run", t.TempDir(), "--dir", s.checkpoints(), "--retries", "0",
			"-n", strconv.Itoa(n), s.command[0], "--"}, s.command[1:]...)
		sup := begin(t, s.run(), nil, cmd...)
		if code := sup.ends(); code != 1 {
			t.Fatalf("%d ranks: exit status %d:\n%s", n, code, sup.text())
		}
		for line := range strings.Lines(sup.text()) {
			if strings.Contains(line, "heat: cairn:") {
				must(t, line, "saved by a run of 4 ranks", fmt.Sprintf("this one has %d", n), fmt.Sprint(s.kept[0]), "start as many")
			}
		}
		must(t, sup.text(), "heat: cairn:")
	}
	if after := files(t, s.checkpoints()); !slices.Equal(before, after) {
		t.Errorf("the checkpoints were touched: %v, then %v", before, after)
	}
	sup = s.start("-n", "4")
	sup.finishes()
	must(t, sup.text(), fmt.Sprintf("restored checkpoint %d", s.kept[0]))
	sameOutput(t, s.output(), s.want)
}
