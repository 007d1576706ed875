//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTiers_RunDirectoryLost loses the run directory of a run whose checkpoints
// are on its hosts only. The same command resumes the run: also if there is
// room for all ranks on a blank host, where it could begin anew.
func TestTiers_RunDirectoryLost(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 3, n, "-size", "2000")
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",partner"}
	w.lets(5)
	w.begins("1 1", flags...)
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on partner=1")
	w.goes(7)
	w.stops()
	must(t, w.text(), "checkpoint 2 is on partner=1")
	removes(t, w.run())
	w.ranks = n + 1
	w.refusesWith(flags, "1 1 3", "the run directory is new, and the run on the hosts", "has 2 ranks, not 3: give -n 2")
	removes(t, w.run())
	w.ranks = n
	w.lets(60)
	w.begins("1 1 2", flags...)
	w.awaits("this run directory is new; the run on the hosts")
	w.awaits("restored checkpoint 2")
	w.finishes()
	sameOutput(t, w.output(), want)
	must(t, w.text(), "the end of the run is on partner=1")
	for _, pattern := range []string{"kept/*/files/*.h5", "ckpt/*/*.h5"} {
		if left, _ := filepath.Glob(filepath.Join(w.disks, "*", "me", "run-*", pattern)); len(left) > 0 {
			t.Errorf("the finished run has left checkpoints: %v", left)
		}
	}
	// Now it has finished, and is not computed again, though the host of a rank
	// is lost, too.
	removes(t, w.run())
	w.loses(w.net.Hosts[1])
	w.begins("1 1 2", flags...)
	w.finishes()
	must(t, w.text(), "this run directory is new, and hosts have the run", "the run has finished, at ", "nothing is computed")
	if strings.Contains("\n"+w.text(), "\ncairn: started") {
		t.Errorf("a run that has finished is started again:\n%s", w.text())
	}
	sameOutput(t, w.output(), want)
}

// TestTiers_HoldersLeft loses the host that has all ranks, with its disk and
// the run directory. The hosts that are left have only copies or shards. They
// know the run, and the same command resumes it.
func TestTiers_HoldersLeft(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	for _, tier := range []string{"partner", "rs=2+1:every=1"} {
		t.Run(tier, func(t *testing.T) {
			if tier != "partner" {
				onlyLong(t)
			}
			t.Parallel()
			w := wanderOn(t, 3, n, "-size", "2000")
			flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + "," + tier}
			w.lets(5)
			w.begins("2 2 2", flags...)
			w.reachesStep(5)
			w.saves()
			w.awaits("checkpoint 1 is on " + strings.Split(tier, ":")[0])
			if known, _ := filepath.Glob(filepath.Join(w.disks, "*", "me", "run-*", "attempt")); len(known) != 3 {
				t.Errorf("the start is recorded in %v only", known)
			}
			if !stressed() { // a start waits a minute for ranks on a lost host
				w.lets(60)
				w.finishes()
				return
			}
			w.goes(7)
			w.stops()
			removes(t, w.run())
			w.loses(w.net.Hosts[0])
			w.newDisk(t, w.net.Hosts[0])
			w.lets(60)
			w.begins("2 2 2", append(flags, "--grace", "1s")...)
			if _, ok := w.seesWithin(3*patience, 0, "restored checkpoint 2"); !ok { // it waits for ranks on the lost host
				t.Fatalf("it does not resume:\n%s", w.text())
			}
			must(t, w.text(), "this run directory is new; the run on the hosts")
			w.finishes()
			sameOutput(t, w.output(), want)
		})
	}
}

// TestTiers_HolderVanishes loses the only other host of a run, on which no rank
// runs. The run says that it has no copies any more, and ends.
func TestTiers_HolderVanishes(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	w.lets(5)
	w.begins("2 2", "--tiers", "local="+filepath.Join(w.local, "me")+",partner")
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on partner=1")
	if err := syscall.Kill(w.helperOf(w.net.Hosts[1]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.awaits("partner=1 fails: lost host ")
	w.lets(60)
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestTiers_NotMounted starts a run with a new run directory and a shared tier
// whose file system is not mounted. It must not begin: an earlier run may be
// there.
func TestTiers_NotMounted(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	shared := sharedDir(t)
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",shared=" + filepath.Join(shared, "me") + ":every=1"}
	w.refusesWith(flags, "1 1", "may have this run", filepath.Join(shared, "me")+" does not exist here: its file system may not be mounted", "mkdir", "--fresh")
	if left, _ := os.ReadDir(shared); len(left) > 0 {
		t.Errorf("it has made %v", left)
	}
	if err := os.Mkdir(filepath.Join(shared, "me"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.lets(60)
	w.begins("1 1", flags...)
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestTiers_UnreachableHostRefused starts a run whose directory is new on a
// blank host and on one that cannot be reached. That one may have an earlier
// run: nothing is started.
func TestTiers_UnreachableHostRefused(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 3, n, "-size", "2000")
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",partner"}
	w.lets(5)
	w.begins("1 1", flags...)
	w.reachesStep(5)
	w.stops()
	removes(t, w.run())
	for _, host := range []string{a, b} {
		if err := os.Rename(filepath.Join(w.disks, host), filepath.Join(w.disks, host+"-away")); err != nil {
			t.Fatal(err)
		}
	}
	w.newDisk(t, a)
	w.refusesWith(flags, "1 1 2", "host "+b, "may have an earlier run of this command", "--fresh")
	removes(t, w.run())
	w.loses(a)
	for _, host := range []string{a, b} {
		if err := os.Rename(filepath.Join(w.disks, host+"-away"), filepath.Join(w.disks, host)); err != nil {
			t.Fatal(err)
		}
	}
	w.lets(60)
	w.begins("1 1 2", flags...)
	w.awaits("restored checkpoint 1")
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestTiers_OldDisk puts a copy of a host's disk back that was made earlier.
// The run takes what other hosts have instead, and nothing of the old copy.
func TestTiers_OldDisk(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	b := w.net.Hosts[1]
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",partner"}
	w.lets(5)
	w.begins("1 1", flags...)
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on partner=1")
	tool(t, "cp", "-a", filepath.Join(w.disks, b), filepath.Join(w.disks, "old"))
	for i := range 3 {
		w.goes(7 + 2*i)
		w.saves()
		w.awaits(fmt.Sprintf("checkpoint %d is on partner=1", i+2))
	}
	w.goes(13)
	w.stops()
	must(t, w.text(), "checkpoint 5 is on partner=1")
	for _, lost := range []bool{false, true} { // the run directory, too
		w.loses(b)
		tool(t, "cp", "-a", filepath.Join(w.disks, "old"), filepath.Join(w.disks, b))
		index := 5
		if lost {
			index = 6
			removes(t, w.run())
		}
		w.lets(15 + index)
		w.begins("1 1", flags...)
		w.awaits(fmt.Sprintf("restored checkpoint %d", index))
		w.reachesStep(15 + index)
		w.stops()
		must(t, w.text(), fmt.Sprintf("checkpoint %d is on partner=1", index+1))
	}
	// The hosts have each other's names now, and their disks.
	disks := []string{filepath.Join(w.disks, w.net.Hosts[0]), filepath.Join(w.disks, b), filepath.Join(w.disks, "other")}
	tool(t, "sh", "-c", `mv "$0" "$2" && mv "$1" "$0" && mv "$2" "$1"`, disks[0], disks[1], disks[2])
	w.lets(60)
	w.begins("1 1", flags...)
	w.awaits("restored checkpoint 7")
	w.finishes()
	if strings.Contains(w.text(), "brought") {
		t.Errorf("files were brought, though the disks are there:\n%s", w.text())
	}
	sameOutput(t, w.output(), want)
}
