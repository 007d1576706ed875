//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// killedAt runs a program that 'cairn build' made, kills a rank at some of its
// points, and compares the output.
func killedAt(t *testing.T, made []string, kills, want string, env []string, flags ...string) {
	t.Helper()
	r := newRun(t, made...)
	s := r.startIn(append(env, "CAIRN_KILL_AT="+kills), flags...)
	s.finishes()
	if n, kills := strings.Count(s.text(), "restored checkpoint"), strings.Count(kills, ",")+1; n != kills {
		t.Errorf("%d starts from a checkpoint after %d kills:\n%s", n, kills, s.text())
	}
	sameOutput(t, r.output(), want)
}

// TestCompiled_RanksWithWorkers kills ranks of a program whose goroutines
// compute while the main ones exchange messages.
func TestCompiled_RanksWithWorkers(t *testing.T) {
	t.Parallel()
	made, said := cairnBuilds(t, "./internal/e2e/testdata/crew")
	must(t, said, "2 points") // a comment puts one into the workers' loop
	want := undisturbed(t, 3, program(t, "crew"))
	for i, v := range []struct{ transport, kills, rank, threads string }{
		{"shm", "3,40,149", "1", "2"}, {"tcp", "1,2,77,150", "0", "1"}, {"shm", "10,20,30,99,100", "2", "8"},
	} {
		if i > 0 && !stressed() {
			break
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			killedAt(t, []string{made}, v.kills, want, []string{"CAIRN_KILL_RANK=" + v.rank, "GOMAXPROCS=" + v.threads}, "-n", "3", "--transport", v.transport)
		})
	}
	if !stressed() {
		return
	}
	t.Run("messages in goroutines", func(t *testing.T) { // a checkpoint is not possible at each point
		args := []string{"-apart", "3", "-size", "3000", "-steps", "150"}
		r := newRun(t, append([]string{made}, args...)...)
		s := r.start("-n", "2", "--every", "100ms")
		killed, from, on := 0, 0, true
		for on && killed < 5 {
			if from, on = s.sees(from, "committed"); !on {
				break
			}
			if st := s.state(); st != nil && len(st.Ranks) == 2 && syscall.Kill(st.Ranks[killed%2].Pid, syscall.SIGKILL) == nil {
				killed++
				from, on = s.sees(from, "restored checkpoint")
			}
		}
		s.finishes()
		if killed < 3 {
			t.Errorf("only %d kills:\n%s", killed, s.text())
		}
		sameOutput(t, r.output(), undisturbed(t, 2, append([]string{program(t, "crew")}, args...)...))
	})
}

// TestCompiled_DevicesInGoroutines kills a program whose goroutines launch
// kernels.
func TestCompiled_DevicesInGoroutines(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/lanes")
	var want string
	for i, pl := range found(t) {
		if i == 0 {
			r := newRun(t, program(t, "lanes"))
			r.startIn(pl.env()).finishes()
			want = r.output()
		}
		t.Run(pl.name, func(t *testing.T) {
			killedAt(t, []string{made}, "10,300,900,1500", want, pl.env())
		})
	}
}

// TestCompiled_DeadlockNotHidden takes checkpoints of a program in a deadlock.
// They must not hide it, and are no progress.
func TestCompiled_DeadlockNotHidden(t *testing.T) {
	t.Parallel()
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/asleep")
	s := newRun(t, made).start("--every", "20ms", "--retries", "1")
	if code := s.ends(); code != 2 {
		t.Errorf("exit status %d:\n%s", code, s.text())
	}
	must(t, s.text(), "all goroutines are asleep - deadlock!", "2 failures in a row without progress")
}
