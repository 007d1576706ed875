//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
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

// TestTiers_EndNotCopiedToNewTier gives the command of a run that has finished
// with a second tier, which has nothing of it. The end is not copied there, and
// Cairn says so, also if the start that brought it was killed.
func TestTiers_EndNotCopiedToNewTier(t *testing.T) {
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
		must(t, w.text(), "WARNING: s3=", " does not say that the run has finished", "this start has only brought the end from where it is")
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

// TestTiers_FromPlaceTwiceAtOnce starts a run twice from its place, with two
// new run directories, so that both find the same start there. Only one may
// have the run. The same command for the other one looks at the place again.
func TestTiers_FromPlaceTwiceAtOnce(t *testing.T) {
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
			must(t, b.text(), "was to resume the run on shared=", "--from")
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

// TestTiers_FinishedCommands gives commands the directory of a run that has
// finished, and its places on tiers, which have only the end. They say so.
func TestTiers_FinishedCommands(t *testing.T) {
	t.Parallel()
	server := s3test.New()
	t.Cleanup(server.Close)
	env := s3Access(server)
	shared, place := sharedDir(t), "s3://"+s3test.Bucket+"/sim"
	w := wandersTo(t, 5, env, "--tiers", "local="+filepath.Join(t.TempDir(), "local")+",shared="+shared+":every=1,s3="+place+":every=1")
	w.reachesStep(5)
	tells := func(want int, args []string, parts ...string) {
		t.Helper()
		out, code := cairnToolIn(t, env, args...)
		if code != want {
			t.Errorf("cairn %v: exit status %d:\n%s", args, code, out)
		}
		if strings.Contains(out, "s3:/b") || strings.Contains(out, fmt.Sprint(tier.EndIndex)) {
			t.Errorf("cairn %v:\n%s", args, out)
		}
		must(t, out, parts...)
	}
	if out, code := cairnTool(t, "checkpoint", w.run()); code != 0 {
		t.Fatalf("cairn checkpoint: %s", out)
	}
	w.awaits("checkpoint 1 is on s3=")
	tells(0, []string{"inspect", place}, place+"/ckpt-00000001/rank-0000.h5")
	tells(0, []string{"diff", place + "@1", place}, place+"/ckpt-00000001\n")
	w.lets(60)
	w.finishes()
	for _, at := range []string{place, one(t, shared, "run-*")} {
		for _, args := range [][]string{{"inspect", at}, {"diff", at, at}, {"export", at, filepath.Join(t.TempDir(), "x.h5")}} {
			tells(3, args, "has finished with status 0, at ", "cairn run -n 2 --from "+at+" PROGRAM")
		}
		tells(3, []string{"inspect", at + "@1"}, "there is no such checkpoint at "+at+"@1; the run there has finished")
		tells(2, []string{"gc", at}, at+" is a place on a tier", "cairn gc --tier s3 --keep 1 RUN")
		tells(2, []string{"repair", at}, at+" is a place on a tier", "name the run directory")
		tells(2, []string{"pin", at}, at+" is a place on a tier", "name the run directory")
		tells(0, []string{"list", at}, "has finished with status 0, at ")
		tells(0, []string{"verify", at}, at+": the end of the run checked, 0 damaged")
	}
	for _, command := range []string{"list", "verify"} {
		tells(0, []string{command, w.run()}, "the run has finished with status 0, at ", "the end of the run, with its output and its files, is on shared="+shared+", s3="+place)
		tells(0, []string{command, "--json", w.run()}, `"finished"`, `"tier": "s3=`+place)
	}
	for _, command := range []string{"inspect", "pin", "gc"} {
		tells(3, []string{command, w.run()}, "the run has finished with status 0, at ")
	}
	tells(3, []string{"verify", w.run() + "@1"}, "the run has finished with status 0, at ")
}

// TestTiers_EndDiskFull brings the end of a run to a disk that is full, and to
// one that cannot be written. Cairn says what to do. Then the same command
// completes it.
func TestTiers_EndDiskFull(t *testing.T) {
	t.Parallel()
	shared, mount := sharedDir(t), t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=128k,mode=0700"); err != nil {
		t.Skipf("a file system cannot be mounted: %v; be root", err)
	}
	t.Cleanup(func() { syscall.Unmount(mount, syscall.MNT_DETACH) })
	remount := func(flags uintptr, data string) {
		t.Helper()
		if err := syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_REMOUNT|flags, data); err != nil {
			t.Fatal(err)
		}
	}
	r := newRun(t, "/bin/sh", "-c", "seq 60000")
	r.start("--tiers", "local="+filepath.Join(t.TempDir(), "local")+",shared="+shared).finishes()
	want := r.output()
	x := newRun(t, r.command...)
	again := func() *supervisor {
		return x.start("--from", one(t, shared, "run-*"), "--local", filepath.Join(mount, "local"))
	}
	full := again()
	if code := full.ends(); code == 0 {
		t.Fatalf("it finishes:\n%s", full.text())
	}
	must(t, full.text(), "no space left on device", "nothing is lost: make room there, and give the same command again")
	remount(syscall.MS_RDONLY, "")
	still := again()
	if code := still.ends(); code == 0 {
		t.Fatalf("it finishes:\n%s", still.text())
	}
	must(t, still.text(), "read-only file system", "make it writable, and give the same command again")
	remount(0, "size=8m")
	s := again()
	s.finishes()
	must(t, s.text(), "the run has finished, at ")
	sameOutput(t, x.output(), want)
}

// TestTiers_FromFinishedRefused names the run directory of a run that has
// finished as what is to be resumed.
func TestTiers_FromFinishedRefused(t *testing.T) {
	t.Parallel()
	shared := sharedDir(t)
	for _, tiers := range []string{"", "local=" + filepath.Join(t.TempDir(), "local") + ",shared=" + shared} {
		var flags []string
		if tiers != "" {
			flags = []string{"--tiers", tiers}
		}
		w := wandersTo(t, 60, nil, flags...)
		w.finishes()
		x := w.elsewhere(nil, "--from", w.run())
		if code := x.ends(); code == 0 {
			t.Errorf("it begins:\n%s", x.text())
		}
		must(t, x.text(), w.run()+": the run has finished with status 0, at ", "there is nothing to resume: its output is in "+filepath.Join(w.run(), "output"), "; without --from, a new run begins")
		w.again(nil, "--from", w.run())
		if code := w.ends(); code == 0 {
			t.Errorf("it begins:\n%s", w.text())
		}
		must(t, w.text(), "there is nothing to resume")
		if tiers != "" {
			must(t, x.text(), "with --from "+one(t, shared, "run-*")+", its output and its files are put back")
		}
	}
}

// TestTiers_EndNotDeleted ends a run while an object store deletes nothing.
// Cairn says what it waits for, and a stop ends that.
func TestTiers_EndNotDeleted(t *testing.T) {
	t.Parallel()
	server := s3test.New()
	t.Cleanup(server.Close)
	server.Fault = func(op, key string) s3test.Fault {
		if op == "DeleteObject" && strings.Contains(key, "/checkpoints/") {
			return s3test.SlowDown
		}
		return s3test.None
	}
	w := wandersTo(t, 5, s3Access(server), "--tiers", "local="+filepath.Join(t.TempDir(), "local")+",s3=s3://"+s3test.Bucket+"/sim:every=1")
	w.reachesStep(5)
	if out, code := cairnTool(t, "checkpoint", w.run()); code != 0 {
		t.Fatalf("cairn checkpoint: %s", out)
	}
	w.awaits("checkpoint 1 is on s3=")
	w.lets(60)
	w.awaits("the checkpoints of the finished run are being removed from s3=")
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.finishes()
	must(t, w.text(), "could not all be removed from s3=")
}

// TestTiers_EndRepaired damages the end of a run on a tier in several ways, and
// repairs it from another one.
func TestTiers_EndRepaired(t *testing.T) {
	t.Parallel()
	server := s3test.New()
	t.Cleanup(server.Close)
	env := s3Access(server)
	shared, place := sharedDir(t), "s3://"+s3test.Bucket+"/sim"
	w := wandersTo(t, 60, env, "--tiers", "local="+filepath.Join(t.TempDir(), "local")+",shared="+shared+",s3="+place)
	w.finishes()
	tells := func(want int, command string, arg string, parts ...string) {
		t.Helper()
		out, code := cairnToolIn(t, env, command, arg)
		if code != want || strings.Contains(out, "checkpoint "+fmt.Sprint(tier.EndIndex)) {
			t.Errorf("cairn %s: exit status %d:\n%s", command, code, out)
		}
		must(t, out, parts...)
	}
	flip := func(data []byte) []byte {
		data[len(data)/2] ^= 1
		return data
	}
	onS3 := func(part string) {
		t.Helper()
		n := 0
		for _, key := range server.Keys() {
			if strings.Contains(key, part) {
				server.Change(key, flip)
				n++
			}
		}
		if n == 0 {
			t.Fatalf("the object store has no %s: %v", part, server.Keys())
		}
	}
	end := fmt.Sprintf("/checkpoints/%d.json", tier.EndIndex)
	tells(0, "repair", w.run(), "the end of the run looked at, 0 repaired, 0 cannot be repaired")
	for _, part := range []string{"/files/", "/parts/", end, "/attempts/"} {
		onS3(part)
		tells(0, "repair", w.run(), "s3="+place+": repaired: ", " repaired, 0 cannot be repaired")
		tells(0, "verify", place, "the end of the run checked, 0 damaged")
	}
	removes(t, one(t, shared, "run-*", "*", end))
	tells(0, "repair", w.run(), "shared="+shared+": repaired: the end of the run, from s3="+place)
	tells(0, "verify", one(t, shared, "run-*"), "the end of the run checked, 0 damaged")
	removes(t, one(t, shared, "run-*", "*", "parts"))
	onS3("/files/")
	tells(1, "repair", w.run(), "s3="+place+": cannot be repaired: of the end of the run, rank ", "shared="+shared+": cannot be repaired: the end of the run: ")
}

// TestTiers_EndOnLyingStore ends a run while an object store confirms writes
// and keeps half of them, or others. What such a store admits by its checksums
// is written again. What it hides is found when the end is read: then the same
// command on a blank machine refuses, and names the object.
func TestTiers_EndOnLyingStore(t *testing.T) {
	t.Parallel()
	for _, hidden := range []bool{false, true} {
		t.Run(fmt.Sprintf("hidden=%t", hidden), func(t *testing.T) {
			t.Parallel()
			server := s3test.New()
			t.Cleanup(server.Close)
			server.IgnoreChecksums = hidden
			var writes atomic.Int64
			ends := make(chan bool)
			server.Fault = func(op, key string) s3test.Fault {
				select {
				case <-ends:
				default:
					return s3test.None
				}
				switch {
				case hidden && op == "PutObject" && strings.Contains(key, "/files/"):
					writes.Add(1)
					return s3test.Flip
				case !hidden && op == "PutObject":
					return []s3test.Fault{s3test.Short, s3test.Flip, s3test.None}[writes.Add(1)%3]
				}
				return s3test.None
			}
			local := filepath.Join(t.TempDir(), "local")
			w := wandersTo(t, 5, s3Access(server), "--tiers", "local="+local+",s3=s3://"+s3test.Bucket+"/sim:every=1")
			w.reachesStep(5)
			close(ends)
			w.lets(60)
			w.finishes()
			if n := writes.Load(); n < 3 && !hidden || n == 0 {
				t.Fatalf("the store has lied %d times", n)
			}
			want := w.output()
			removes(t, w.run())
			removes(t, local)
			w.again(s3Access(server), "--tiers", "local="+local+",s3=s3://"+s3test.Bucket+"/sim:every=1")
			if !hidden {
				w.finishes()
				must(t, w.text(), "the run has finished, at ", "nothing is computed")
				sameOutput(t, w.output(), want)
				return
			}
			if code := w.ends(); code == 0 {
				t.Errorf("it gives what the store has:\n%s", w.text())
			}
			must(t, w.text(), "its files and its output cannot be fetched", "/files/")
		})
	}
}
