//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
)

// wandersTo starts a new run of wander that does a number of steps.
func wandersTo(t *testing.T, step int, env []string, flags ...string) *wanderer {
	t.Helper()
	limit := filepath.Join(t.TempDir(), "limit")
	w := &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-limit", limit), ranks: 2, limit: limit}
	w.lets(step)
	w.again(env, flags...)
	return w
}

// elsewhere gives the command of a run with another run directory.
func (w *wanderer) elsewhere(env []string, flags ...string) *wanderer {
	w.runOf.t.Helper()
	x := &wanderer{runOf: newRun(w.runOf.t, w.command...), ranks: w.ranks, limit: w.limit}
	x.again(env, flags...)
	return x
}

// again gives the command of a run, perhaps with other flags.
func (w *wanderer) again(env []string, flags ...string) {
	w.runOf.t.Helper()
	w.supervisor = w.startIn(append(env, "CAIRN_OUTSIDE_FILES=1"), append([]string{"-n", fmt.Sprint(w.ranks), "--every", "1h", "--grace", "1s"}, flags...)...)
}

// TestTiers_EndBrought gives the command of a run that has finished with a
// second tier, which has nothing of it. The end is not copied there, and Cairn
// says so, also if the start that brought it was killed.
func TestTiers_EndBrought(t *testing.T) {
	t.Parallel()
	server := s3test.New()
	t.Cleanup(server.Close)
	shared, local := sharedDir(t), filepath.Join(t.TempDir(), "local")
	tiers := "local=" + local + ",shared=" + shared
	w := wandersTo(t, 60, nil, "--tiers", tiers)
	w.finishes()
	want := w.output()
	removes(t, w.run())
	removes(t, local)
	both := []string{"--tiers", tiers + ",s3=s3://" + s3test.Bucket + "/sim"}
	w.again(append(s3Access(server), "CAIRN_STEP=finish.recorded=kill"), both...)
	w.ends()
	for range 2 {
		w.again(s3Access(server), both...)
		w.finishes()
		must(t, w.text(), "WARNING: that the run has finished is not on s3=", "this start has only brought the end from where it is")
		sameOutput(t, w.output(), want)
		removes(t, w.run())
		removes(t, local)
	}
}

// awaitsStep waits until a program has logged that it reached a step.
func awaitsStep(t *testing.T, w *wanderer, log, step string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // no event tells of a line in a file
		if text, _ := os.ReadFile(log); strings.Contains(string(text), step+" ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it does not reach %s:\n%s", step, w.text())
		}
	}
}

// TestTiers_FromAtOnce starts a run twice from its place, with two new run
// directories, so that both find the same start there. Only one may have the
// run. The same command for the other one looks at the place again.
func TestTiers_FromAtOnce(t *testing.T) {
	t.Parallel()
	want := undisturbed(t, 2, program(t, "wander"), "-size", "2000")
	for _, finished := range []bool{false, true} {
		t.Run(fmt.Sprintf("finished=%t", finished), func(t *testing.T) {
			t.Parallel()
			shared := sharedDir(t)
			a := wandersTo(t, 5, nil, "--tiers", "local="+filepath.Join(t.TempDir(), "local")+",shared="+shared+":every=1")
			a.reachesStep(5)
			a.stopsRun()
			from := []string{"--from", one(t, shared, "run-*"), "--tiers", "shared=" + shared + ":every=1"}
			log := filepath.Join(t.TempDir(), "steps")
			b := a.elsewhere([]string{"CAIRN_STEP=start.claim=stop", "CAIRN_STEP_LOG=" + log}, from...)
			awaitsStep(t, b, log, "start.claim")
			a.lets(8)
			c := a.elsewhere(nil, from...)
			c.reachesStep(8)
			b.cmd.Process.Signal(syscall.SIGCONT)
			if code := b.ends(); code != 1 {
				t.Fatalf("the second one ends with %d:\n%s", code, b.text())
			}
			must(t, b.text(), "another supervisor has started this run", "the same command looks there again")
			b.again(nil, "--tiers", "local="+filepath.Join(b.run(), "local")+","+from[3]) // without --from it finds nothing in its own name, and begins nothing
			if code := b.ends(); code == 0 {
				t.Fatalf("without --from it ends with %d:\n%s", code, b.text())
			}
			must(t, b.text(), "was to have the run on shared=", "--from")
			if finished {
				a.lets(60)
				c.finishes()
				sameOutput(t, c.output(), want)
			} else {
				c.stopsRun()
				a.lets(60)
			}
			b.again(nil, from...)
			if finished {
				b.awaits("the run has finished, at ")
			} else {
				b.awaits("restored checkpoint 2")
			}
			b.finishes()
			sameOutput(t, b.output(), want)
		})
	}
}
