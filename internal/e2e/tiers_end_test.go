//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
)

// endSteps are the steps of the end of a run with tiers. From the one that is
// marked on, a tier says that the run has finished.
var endSteps = []struct {
	name string
	told bool
}{
	{"finish.begin", false}, {"finish.recorded", false}, {"end.commit", false}, {"end.uploaded", true}, {"end.kept", true},
	{"finish.output", true}, {"finish.discarded", true}, {"finish.shown", true},
}

// TestTiers_EndKilled kills the supervisor at each step of the end of a run.
// The same command completes it, and does not start the ranks again once the
// end was recorded. If everything but the tier is lost, it resumes the run, or
// says that it has finished: it never begins anew. An object store fails at
// every third request.
func TestTiers_EndKilled(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	want := undisturbed(t, 2, program(t, "wander"), "-size", "2000")
	for _, step := range endSteps {
		for _, kind := range []string{"shared", "s3"} {
			for _, lost := range []string{"", " and lost"} {
				t.Run(step.name+lost+" on "+kind, func(t *testing.T) {
					t.Parallel()
					killedAtEnd(t, step.name, step.told, lost != "", kind, want)
				})
			}
		}
	}
}

// killedAtEnd is one case of TestTiers_EndKilled: the run that is killed at a
// step had a tier of a kind; told says that the tier knows of the end by then,
// and lost that everything else is lost.
func killedAtEnd(t *testing.T, step string, told, lost bool, kind, want string) {
	limit := filepath.Join(t.TempDir(), "limit")
	w := &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-limit", limit), ranks: 2, limit: limit}
	shared := filepath.Join(t.TempDir(), "gpfs")
	local := filepath.Join(t.TempDir(), "local")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	place, access := "shared="+shared, []string(nil)
	if kind == "s3" {
		server := s3test.New()
		t.Cleanup(server.Close)
		var calls atomic.Int64
		server.Fault = func(op, _ string) s3test.Fault {
			return map[int64]s3test.Fault{1: s3test.ResetAfter, 4: s3test.Error500After, 7: s3test.SlowDown, 9: s3test.Truncate}[calls.Add(1)%11]
		}
		place, access = "s3=s3://"+s3test.Bucket+"/sim", s3Access(server)
	}
	start := func(env ...string) {
		w.supervisor = w.startIn(append(env, access...), "-n", "2", "--every", "1h", "--grace", "1s", "--tiers", "local="+local+", "+place+":every=1")
	}
	w.lets(5)
	start("CAIRN_STEP=" + step + "=kill")
	w.reachesStep(5)
	if out, code := cairnTool(t, "checkpoint", w.run()); code != 0 {
		t.Fatalf("cairn checkpoint: %s", out)
	}
	w.awaits("checkpoint 1 is on " + kind + "=")
	w.lets(60)
	w.ends()
	if ws := w.supervisor.cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() {
		t.Fatalf("it was not killed: %v\n%s", w.supervisor.cmd.ProcessState, w.text())
	}
	if lost {
		removes(t, w.run())
		removes(t, local)
	}
	start()
	if _, ok := w.seesWithin(3*patience, 0, "finished"); !ok { // it may wait for ranks of the last start
		t.Fatalf("it does not finish:\n%s", w.text())
	}
	w.finishes()
	sameOutput(t, w.output(), want)
	started := strings.Contains("\n"+w.text(), "\ncairn: started")
	switch {
	case step != "finish.begin" && !lost, told:
		if started || !strings.Contains(w.text(), "finished") {
			t.Errorf("it has started ranks that have finished:\n%s", w.text())
		}
	case started:
		must(t, w.text(), "restored checkpoint")
	}
	removes(t, w.run())
	removes(t, local)
	start()
	w.finishes()
	sameOutput(t, w.output(), want)
	must(t, w.text(), "the run has finished, at ", "nothing is computed")
}

// TestTiers_EndHostsLost loses the run directory of a run that has finished,
// and as many hosts as its tiers promise to bear, at once. The same command
// says that it has finished, and gives its output. CAIRN_SEED chooses the
// hosts.
func TestTiers_EndHostsLost(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const ranks = 4
	want := undisturbed(t, ranks, program(t, "wander"), "-size", "2000")
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CAIRN_SEED"); text != "" {
		fmt.Sscan(text, &seed)
	}
	t.Logf("seed %d", seed)
	for i, c := range hostTiers {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Log(c.policy)
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			w := wanderOn(t, 4, ranks, "-size", "2000")
			policy := strings.ReplaceAll(c.policy, "SHARED", sharedDir(t))
			flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + "," + policy, "--grace", "1s"}
			if rng.IntN(2) == 0 { // otherwise no checkpoint is taken
				w.lets(5)
				w.begins("1 1 1 1", flags...)
				w.reachesStep(5)
				w.saves()
			}
			w.lets(60)
			if w.supervisor == nil {
				w.begins("1 1 1 1", flags...)
			}
			w.finishes()
			sameOutput(t, w.output(), want)
			for round := range 2 { // what was lost is not copied again: the second round loses no host
				lost := ""
				if round == 0 {
					for _, i := range rng.Perm(4)[:c.losses] {
						w.loses(w.net.Hosts[i])
						w.newDisk(t, w.net.Hosts[i])
						lost += " " + w.net.Hosts[i]
					}
				}
				removes(t, w.run())
				w.begins("1 1 1 1", flags...)
				if code := w.ends(); code != 0 || strings.Contains("\n"+w.text(), "\ncairn: started") || !strings.Contains(w.text(), "the run has finished, at ") {
					t.Fatalf("without%s, and the run directory: exit status %d:\n%s", lost, code, w.text())
				}
				sameOutput(t, w.output(), want)
			}
			removes(t, w.run())
			w.command = append(slices.Clone(w.command), "-size", "1000")
			w.refusesWith(flags, "1 1 1 1", "has finished, at ", "and was started as wander")
		})
	}
}

// TestTiers_EndOvertaken stops the supervisor of a run while it brings the end
// of the run to a tier. Another one starts the run from there. Only one of the
// two has the run: the first one says that it has lost it, and removes nothing,
// or the second one gives the end of the first. What the tier says then is what
// one of them has said.
func TestTiers_EndOvertaken(t *testing.T) {
	t.Parallel()
	want := undisturbed(t, 2, program(t, "wander"), "-size", "2000")
	for _, c := range []struct {
		step, from string
		told       bool // the tier has the end
	}{
		{"end.commit", "", false}, {"end.committed", "", true}, {"end.uploaded", "", true}, {"finish.output", "", true},
		{"end.committed", "@1", false}, {"finish.output", "@1", true},
	} {
		t.Run(c.step+c.from, func(t *testing.T) {
			if c.step != "end.commit" {
				onlyLong(t)
			}
			t.Parallel()
			shared, limit := sharedDir(t), filepath.Join(t.TempDir(), "limit")
			begin := func(step int, env []string, flags ...string) *wanderer {
				w := &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-limit", limit), ranks: 2, limit: limit}
				w.lets(step)
				w.supervisor = w.startIn(append(env, "CAIRN_OUTSIDE_FILES=1"), append([]string{"-n", "2", "--every", "1h", "--grace", "1s", "--local", filepath.Join(t.TempDir(), "local")}, flags...)...)
				return w
			}
			log := filepath.Join(t.TempDir(), "steps")
			a := begin(5, []string{"CAIRN_STEP=" + c.step + "=stop", "CAIRN_STEP_LOG=" + log}, "--tiers", "shared="+shared+":every=1")
			a.reachesStep(5)
			if out, code := cairnTool(t, "checkpoint", a.run()); code != 0 {
				t.Fatalf("cairn checkpoint: %s", out)
			}
			a.awaits("checkpoint 1 is on shared=")
			a.lets(60)
			for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				if text, _ := os.ReadFile(log); strings.Contains(string(text), c.step+" ") {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("it does not reach %s:\n%s", c.step, a.text())
				}
			}
			place := one(t, shared, "run-*")
			b := begin(8, nil, "--from", place+c.from)
			if c.told && c.from == "" {
				b.awaits("the run has finished, at ")
			} else {
				b.awaits("restored checkpoint 1")
				b.reachesStep(8)
			}
			a.cmd.Process.Signal(syscall.SIGCONT)
			code := a.ends()
			if c.told && code != 0 {
				t.Errorf("the first one ends with %d, and the tier had its end:\n%s", code, a.text())
			}
			if !c.told {
				if must(t, a.text(), "another supervisor has started this run"); code != 1 {
					t.Errorf("the first one ends with %d:\n%s", code, a.text())
				}
			}
			if !c.told || c.from != "" {
				if out, code := cairnTool(t, "list", place); code != 0 || !strings.Contains(out, "\n1           2 ") {
					t.Errorf("the checkpoint of the second one is gone: %d: %s", code, out)
				}
			}
			b.lets(60)
			b.finishes()
			sameOutput(t, b.output(), want)
			x := begin(60, nil, "--from", place)
			x.finishes()
			sameOutput(t, x.output(), want)
			must(t, x.text(), "the run has finished, at ")
		})
	}
}
