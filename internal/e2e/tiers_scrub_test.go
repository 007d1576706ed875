//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// rots changes a byte of a file that was written long ago.
func rots(t *testing.T, name string) {
	t.Helper()
	vfstest.Rot(t, name)
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
}

// TestTiers_Scrub changes bytes of old checkpoints while a run is running: on a
// host, and on the shared tier. Helpers find that and repair it, and say so;
// they say what cannot be repaired, too.
func TestTiers_Scrub(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	shared := sharedDir(t)
	w.lets(5)
	w.begins("1 1", "--tiers", "local="+filepath.Join(w.local, "me")+",shared="+shared+",scrub=1m")
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on shared=" + shared)
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	rots(t, filepath.Join(w.disk(a), "ckpt", "ckpt-00000001", "rank-0000.h5"))
	rots(t, one(t, shared, "run-*", "*", "files", "rank-0001-00000001-*"))
	w.awaits("read again: local: checkpoint 1: repaired: rank 0's file on host " + a + ", from shared=" + shared)
	w.awaits("read again: shared=" + shared + ": checkpoint 1: repaired: rank 1's file of checkpoint 1")
	w.tells(0, "status", "scrub       ", "2 repaired")
	w.tells(0, "verify")
	w.goes(7)
	w.saves() // this one is on the hosts only
	rots(t, filepath.Join(w.disk(b), "ckpt", "ckpt-00000002", "rank-0001.h5"))
	w.awaits("read again: local: checkpoint 2: cannot be repaired: rank 1's file on host " + b)
	w.tells(0, "status", "damaged     local: checkpoint 2: cannot be repaired: rank 1's file on host "+b)
	w.tells(0, "list", "damaged: local: checkpoint 2: cannot be repaired: rank 1's file on host "+b)
	w.lets(60)
	w.finishes()
	sameOutput(t, w.output(), want)
}
