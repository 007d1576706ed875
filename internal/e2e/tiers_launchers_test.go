//go:build linux

package e2e

import (
	"path/filepath"
	"testing"
)

// TestTiers_OpenMPI loses a host with its disk, and then the other one, of a
// run that mpirun has started on two hosts which share nothing. The same
// command resumes it with blank disks in their places: also if everything was
// killed, and if the run directory is lost.
func TestTiers_OpenMPI(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	need(t, "mpirun.openmpi", "unshare")
	const n = 4
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",partner", "--grace", "1s"}
	w.lets(5)
	w.beginsMPI(2, 2, flags...)
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on partner=1")
	w.goes(7)
	w.saves()
	w.awaits("checkpoint 2 is on partner=1")
	w.goes(8)
	w.killsAll()
	w.loses(b)
	w.newDisk(t, b)
	w.lets(10)
	w.beginsMPI(2, 2, flags...)
	if _, ok := w.seesWithin(3*patience, 0, "restored checkpoint 2"); !ok { // it waits for ranks on the lost host
		t.Fatalf("it has ended:\n%s", w.text())
	}
	must(t, w.text(), "may still run on "+b)
	w.reachesStep(10)
	w.stops()
	must(t, w.text(), "checkpoint 3 is on partner=1")
	w.loses(a)
	w.newDisk(t, a)
	w.lets(14)
	w.beginsMPI(1, 3, flags...)
	w.awaits("restored checkpoint 3")
	w.reachesStep(14)
	w.saves()
	w.awaits("checkpoint 4 is on partner=1")
	w.stops()
	removes(t, w.run())
	w.lets(60)
	w.beginsMPI(2, 2, flags...)
	w.awaits("this run directory is new; the run on the hosts")
	w.awaits("restored checkpoint 5")
	w.finishes()
	sameOutput(t, w.output(), want)
	for _, h := range []string{a, b} {
		if left, _ := filepath.Glob(filepath.Join(w.disk(h), "ckpt", "*")); len(left) > 0 {
			t.Errorf("the finished run has left on %s: %v", h, left)
		}
	}
}

// TestTiers_OpenMPIHostLost is the part of it that takes a moment: a host is
// lost while the run is stopped. Then there is one host, and a policy that
// needs two.
func TestTiers_OpenMPIHostLost(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	need(t, "mpirun.openmpi", "unshare")
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	b := w.net.Hosts[1]
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",partner"}
	w.lets(5)
	w.beginsMPI(n, 0, flags...)
	if code := w.ends(); code == 0 {
		t.Errorf("with one host for partner: exit status %d", code)
	}
	must(t, w.text(), "partner needs 2 hosts, and there is 1")
	w.beginsMPI(2, 1, flags...)
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on partner=1")
	w.stops()
	must(t, w.text(), "checkpoint 2 is on partner=1")
	w.loses(b)
	w.newDisk(t, b)
	w.lets(60)
	w.beginsMPI(1, 2, flags...)
	w.awaits("restored checkpoint 2")
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestTiers_SlurmNodeKilled kills one of three nodes, each with a disk of its
// own, while a run computes. The run continues on the other nodes, with the
// checkpoints that they hold for the lost one; Slurm has not noticed anything
// by then.
func TestTiers_SlurmNodeKilled(t *testing.T) {
	onlyLong(t)
	want := travelled(t, "4")
	for _, x := range []struct{ tier, name string }{{"partner", "partner=1"}, {"rs=2+1:every=1", "rs=2+1"}} {
		t.Run(x.name, func(t *testing.T) {
			t.Setenv("CAIRN_GRACE", "5")
			c := newCluster(t, 3, slowToNotice, "")
			disk := filepath.Join(filepath.Dir(c.dir), "cairn-disk") // a node's own
			t.Setenv("CAIRN_TIERS", "local="+disk+","+x.tier)
			b := c.submit("--nodes=3", "--ntasks-per-node=4", "--distribution=cyclic")
			b.logs(0, " is on "+x.name)
			at := b.logs(0, "committed")
			c.killNode(3, true)
			at = b.logs(at, "may still run on n3")
			at = b.logs(at, "started again: 4 ranks by srun")
			at = b.logs(at, "restored checkpoint")
			b.logs(at, "committed")
			b.finishes(want)
		})
	}
}
