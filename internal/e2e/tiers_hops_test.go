//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
)

// TestTiers_MovedByObjectStore moves a run from one place to the next by an
// object store: each time, its own directory, the local one and the working
// directory have other names. The program writes to files in the working
// directory. Nobody allows changes outside of it: no place of an earlier start
// is asked for, and none is changed. When the run has finished, the last place
// is lost, and the same command brings back what was there.
func TestTiers_MovedByObjectStore(t *testing.T) {
	t.Parallel()
	const n, hops = 2, 3
	server := s3test.New()
	t.Cleanup(server.Close)
	place := "s3://" + s3test.Bucket + "/sim"
	limit := filepath.Join(t.TempDir(), "limit")
	input := ""
	for i := range 60 {
		input += fmt.Sprintf("%04d\n", i)
	}
	start := func(top string, step int, flags ...string) *wanderer {
		t.Helper()
		work := filepath.Join(top, "work")
		if err := os.MkdirAll(work, 0o700); err != nil {
			t.Fatal(err)
		}
		for r := range n {
			if err := os.WriteFile(filepath.Join(work, fmt.Sprintf("input-%d.txt", r)), []byte(input), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w := &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-data", ".", "-limit", limit), ranks: n, limit: limit}
		w.root = top
		w.lets(step)
		argv := []string{"env", "-C", work, build(t, "./cmd/cairn", runtime.GOARCH), "run", "--run", w.run(), "-o", w.out(), "-n", fmt.Sprint(n), "--every", "1h"}
		argv = append(append(argv, flags...), append([]string{w.command[0], "--"}, w.command[1:]...)...)
		w.supervisor = begin(t, w.run(), s3Access(server), argv...)
		return w
	}
	plain := start(t.TempDir(), 60)
	plain.finishes()
	want := filesIn(t, filepath.Join(plain.root, "work"))
	if len(want) != 3*n {
		t.Fatalf("an undisturbed run writes %v", want)
	}

	var w *wanderer
	var flags []string
	left := make(map[string]map[string]string) // by working directory
	for hop := range hops {
		top := t.TempDir()
		flags = []string{"--tiers", "local=" + filepath.Join(top, "local") + ",s3=" + place + ":every=1"}
		if hop > 0 {
			flags = []string{"--local", filepath.Join(top, "local"), "--from", place}
		}
		if hop == hops-1 {
			w = start(top, 60, flags...)
			w.awaits(fmt.Sprintf("restored checkpoint %d", hop))
			w.finishes()
			break
		}
		w = start(top, 5*hop+5, flags...)
		w.reachesStep(5*hop + 5)
		w.stopsRun()
		left[filepath.Join(top, "work")] = filesIn(t, filepath.Join(top, "work"))
	}
	finished := func() {
		t.Helper()
		sameOutput(t, w.output(), plain.output())
		if got := filesIn(t, filepath.Join(w.root, "work")); !maps.Equal(got, want) {
			t.Errorf("it has written %v", got)
		}
	}
	finished()
	removes(t, w.root)
	w = start(w.root, 60, flags...)
	w.finishes()
	must(t, w.text(), "the run has finished, at ", "nothing is computed")
	finished()
	for dir, files := range left {
		if got := filesIn(t, dir); !maps.Equal(got, files) {
			t.Errorf("%s was changed: %v", dir, got)
		}
	}
}
