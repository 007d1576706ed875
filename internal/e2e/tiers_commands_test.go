//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// killedEverywhere runs a command again and again, and kills the process that
// reaches the first, the second, … step of those with a prefix: the command
// itself, or a helper of it. Before each time, begin makes the state it finds;
// after each, the command is given again, undisturbed, and check looks at the
// outcome. It returns how many steps there were. CAIRN_STEP_BY=5 takes every
// fifth step.
func killedEverywhere(t *testing.T, prefix string, begin func(), check func(), args ...string) (n int) {
	t.Helper()
	by := 1
	if n, err := strconv.Atoi(os.Getenv("CAIRN_STEP_BY")); err == nil && n > 0 {
		by = n
	}
	for n = 1; ; n += by {
		begin()
		log := filepath.Join(t.TempDir(), "steps")
		out, code := cairnToolIn(t, []string{"CAIRN_STEP_LOG=" + log, fmt.Sprintf("CAIRN_STEP=%s*#%d=kill", prefix, n)}, args...)
		reached := len(steps(t, log, prefix)) >= n
		if !reached && code != 0 {
			t.Fatalf("cairn %v: exit status %d, and it was not killed: %s", args, code, out)
		}
		again, code := cairnTool(t, args...)
		if code != 0 {
			t.Fatalf("cairn %v, killed at step %d: %s\nthe second time: exit status %d: %s", args, n, out, code, again)
		}
		check()
		if t.Failed() {
			t.Fatalf("cairn %v, killed at step %d: %s\nthe second time: %s", args, n, out, again)
		}
		if !reached {
			return n - by
		}
	}
}

// TestTiers_CommandsKilled kills 'cairn repair', 'cairn gc' and 'cairn copy',
// and their helpers, at every step. Given again, they complete, and nothing is
// lost.
func TestTiers_CommandsKilled(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 3, n, "-size", "2000")
	shared := sharedDir(t)
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",partner,rs=2+1:every=1,shared=" + shared + ":every=1"}
	w.lets(5)
	w.begins("1 1 1", flags...)
	w.reachesStep(5)
	w.saves()
	for _, on := range []string{"partner=1", "rs=2+1", "shared=" + shared} {
		w.awaits("checkpoint 1 is on " + on)
	}
	w.goes(7)
	w.stops()
	must(t, w.text(), "checkpoint 2 is on partner=1", "checkpoint 2 is on rs=2+1", "checkpoint 2 is on shared="+shared)
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	all := append(slices.Clone(w.net.Hosts), "")
	at := func(host string) string {
		if host == "" {
			return shared
		}
		return filepath.Join(w.disks, host)
	}
	was := t.TempDir()
	for i, host := range all {
		tool(t, "cp", "-a", at(host), filepath.Join(was, fmt.Sprint(i)))
	}
	asBefore := func() {
		t.Helper()
		for i, host := range all {
			removes(t, at(host))
			tool(t, "cp", "-a", filepath.Join(was, fmt.Sprint(i)), at(host))
		}
	}
	object := func(pattern string) string { return one(t, shared, "run-*", "*", pattern) }
	whole := func() {
		t.Helper()
		w.tells(0, "repair", "0 repaired, 0 cannot be repaired") // it reads everything
		w.tells(0, "list", "2           ", "local, partner=1, rs=2+1, shared="+shared, "all hosts")
	}
	steps := killedEverywhere(t, "tier.", func() {
		asBefore()
		vfstest.Rot(t, filepath.Join(w.disk(a), "ckpt", "ckpt-00000002", "rank-0000.h5"))
		removes(t, filepath.Join(w.disk(b), "ckpt", "ckpt-00000002"))
		removes(t, filepath.Join(w.disk(b), "kept"))
		vfstest.Rot(t, object("files/rank-0001-00000002-*"))
		vfstest.Rot(t, object("checkpoints/00000002.json"))
		vfstest.Rot(t, object("attempts/*.json"))
	}, whole, "repair", w.run())
	t.Logf("repair: killed up to step %d", steps)
	if steps < 10 {
		t.Errorf("repair has %d steps", steps)
	}
	// The parts of a checkpoint are damaged: hosts upload it again.
	steps = killedEverywhere(t, "tier.", func() {
		asBefore()
		removes(t, object("parts"))
	}, whole, "repair", w.run())
	t.Logf("repair of parts: killed up to step %d", steps)
	place := filepath.Join(filepath.Dir(shared), "copy", "sim")
	from := one(t, shared, "run-*")
	asBefore()
	tool(t, "mkdir", filepath.Dir(place))
	steps = killedEverywhere(t, "tier.", func() { removes(t, place) }, func() {
		tool(t, "diff", "-r", shared, filepath.Join(was, "3"))
		if left, _ := filepath.Glob(filepath.Join(place, "*", "checkpoints", "*.json")); len(left) != 1 {
			t.Errorf("checkpoints of the copy: %v", left)
		}
	}, "copy", from+"@2", place)
	t.Logf("copy: killed up to step %d", steps)
	steps = killedEverywhere(t, "tier.", asBefore, whole, "gc", "--tier", "shared", "--keep", "1", w.run())
	t.Logf("gc: killed up to step %d", steps)
	w.lets(60)
	c := &wanderer{runOf: newRun(t, w.command...), ranks: n, limit: w.limit}
	c.supervisor = c.start("-n", fmt.Sprint(n), "--every", "1h", "--from", place)
	c.awaits("restored checkpoint 2")
	c.finishes()
	sameOutput(t, c.output(), want)
	w.begins("1 1 1", flags...)
	w.awaits("restored checkpoint 2")
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestTiers_ScrubKilled kills a helper at every step of the repair of what has
// rotted, while a run is running. The run restarts by itself, and has what is
// damaged from elsewhere.
func TestTiers_ScrubKilled(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	for _, step := range []string{"scrub.staged", "scrub.exchange", "scrub.exchanged"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := wanderOn(t, 2, n, "-size", "2000")
			log := filepath.Join(t.TempDir(), "steps")
			w.env = []string{"CAIRN_STEP_LOG=" + log, "CAIRN_STEP=" + step + "=kill"}
			w.lets(5)
			tiers := ",partner"
			if step == "scrub.staged" {
				tiers = ",shared=" + sharedDir(t)
			}
			w.begins("1 1", "--tiers", "local="+filepath.Join(w.local, "me")+tiers+",scrub=1m")
			w.reachesStep(5)
			w.saves()
			w.awaits("checkpoint 1 is on " + tiers[1:8])
			a := w.net.Hosts[0]
			file := filepath.Join(w.disk(a), "ckpt", "ckpt-00000001", "rank-0000.h5")
			rots(t, file)
			w.awaits("restored checkpoint 1")
			awaitSteps(t, log, step, 1)
			w.tells(0, "verify")
			w.lets(60)
			w.finishes()
			sameOutput(t, w.output(), want)
			if _, err := os.Stat(file); err == nil {
				t.Errorf("the finished run has left %s", file)
			}
		})
	}
}
