//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestTiers_ChangedFiles runs a program of 'cairn build' that changes files in
// all ways on the disk of its host. The host is lost with its disk, and so is
// the next one. Each time the program resumes elsewhere, with its files as they
// were at the checkpoint.
func TestTiers_ChangedFiles(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/clerk")
	plain := t.TempDir()
	want := tool(t, build(t, "./internal/e2e/testdata/clerk", runtime.GOARCH), "-dir", plain, "-steps", "2000")
	w := onIslands(t, 2, 1, made)
	books := filepath.Join(w.local, "books")
	w.command = append(w.command, "-dir", books, "-steps", "2000", "-pause", "5ms")
	shared := filepath.Join(t.TempDir(), "gpfs")
	flags := []string{"--tiers", "shared=" + shared + ":every=1,keep=2"}
	if err := os.Mkdir(filepath.Join(w.disks, w.net.Hosts[0], "books"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, slots := range []string{"1", "0 1", "1", "0 1"} {
		w.begins(slots, flags...)
		w.awaits([]string{"started", "restored checkpoint"}[min(i, 1)])
		w.saves()
		w.awaits("is on shared=")
		w.stops()
		// The last checkpoint did not get there. The one before was uploaded
		// while the program changed its files.
		found, _ := filepath.Glob(filepath.Join(shared, "run-*", "*", "checkpoints", "*.json"))
		if len(found) < 2 || os.Remove(found[len(found)-1]) != nil {
			t.Fatalf("manifests: %v", found)
		}
		w.loses(w.net.Hosts[i%2])
		w.newDisk(t, w.net.Hosts[i%2])
	}
	w.begins("1", flags...)
	w.finishes()
	sameOutput(t, w.output(), want)
	sameTree(t, filepath.Join(w.disks, w.net.Hosts[0], "books"), plain)
}
