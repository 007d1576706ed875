//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

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
