//go:build linux

package e2e

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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
	for _, c := range []struct {
		tier, slots string
		hosts       int
	}{
		{"shared", "", 2}, {"partner", "1 1", 2}, {"rs=2+1:every=1", "1 1 1", 3},
	} {
		t.Run(c.tier, func(t *testing.T) {
			t.Parallel()
			w := onIslands(t, c.hosts, 1, made)
			books := filepath.Join(w.local, "books")
			w.command = append(w.command, "-dir", books, "-steps", "2000", "-pause", "5ms")
			disk := func(host int) string { return filepath.Join(w.disks, w.net.Hosts[host], "books") }
			shared := sharedDir(t)
			tiers := "local=" + filepath.Join(w.local, "me") + "," + c.tier
			if c.tier == "shared" {
				tiers = "shared=" + shared + ":every=1,keep=2"
			}
			if err := os.Mkdir(disk(0), 0o700); err != nil {
				t.Fatal(err)
			}
			on := 0 // where the program runs
			for i := range 4 {
				slots := c.slots
				if slots == "" {
					slots = []string{"1", "0 1"}[i%2]
				}
				w.begins(slots, "--tiers", tiers)
				w.awaits([]string{"started", "restored checkpoint"}[min(i, 1)])
				on = slices.IndexFunc(w.net.Hosts, func(h string) bool {
					_, err := os.Stat(filepath.Join(w.disks, h, "books"))
					return err == nil
				})
				w.saves()
				w.awaits(" is on " + strings.Split(c.tier, ":")[0])
				if out, code := cairnTool(t, "copy", w.run(), filepath.Join(t.TempDir(), "me", "copy")); c.tier != "shared" && (code == 0 || !strings.Contains(out, "with their journal, and a copy needs them")) {
					t.Errorf("a copy without the program's files: exit status %d: %s", code, out)
				}
				w.stops()
				// The last checkpoint did not get there. The one before was
				// copied while the program changed its files.
				last := w.newest(filepath.Join(shared, "run-*", "*", "checkpoints", "*.json"), filepath.Join(w.disks, "*", "me", "run-*", "kept", "*", "parts", "*.json"))
				for _, name := range last {
					if err := os.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
				w.loses(w.net.Hosts[on])
				w.newDisk(t, w.net.Hosts[on])
			}
			w.begins(cmp.Or(c.slots, "1"), "--tiers", tiers)
			w.finishes()
			sameOutput(t, w.output(), want)
			for h := range w.net.Hosts {
				if _, err := os.Stat(disk(h)); err == nil {
					on = h
				}
			}
			sameTree(t, disk(on), plain)
			// The run has finished. Its host is lost, and the run directory.
			removes(t, w.run())
			w.loses(w.net.Hosts[on])
			w.newDisk(t, w.net.Hosts[on])
			w.begins(cmp.Or(c.slots, "1"), "--tiers", tiers)
			w.finishes()
			must(t, w.text(), "the run has finished, at ")
			sameOutput(t, w.output(), want)
			for h := range w.net.Hosts {
				if _, err := os.Stat(disk(h)); err == nil {
					on = h
				}
			}
			sameTree(t, disk(on), plain)
		})
	}
}

// newest returns the records of the newest checkpoint on a tier. Their names
// begin with its number.
func (w *islands) newest(patterns ...string) (out []string) {
	t := w.runOf.t
	t.Helper()
	byIndex := make(map[string][]string)
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			byIndex[filepath.Base(name)[:8]] = append(byIndex[filepath.Base(name)[:8]], name)
		}
	}
	if len(byIndex) < 2 {
		t.Fatalf("records of checkpoints: %v", byIndex)
	}
	return byIndex[slices.Max(slices.Collect(maps.Keys(byIndex)))]
}
