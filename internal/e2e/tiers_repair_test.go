//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// one returns the only file or directory of a pattern.
func one(t *testing.T, pattern ...string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", filepath.Join(pattern...), found, err)
	}
	return found[0]
}

// removes removes a directory with all that is in it.
func removes(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// TestTiers_Repair damages what tiers have while a run is stopped, in many
// ways. After each, cairn repair makes it whole again; it says so if it cannot.
// Then the run resumes and finishes.
func TestTiers_Repair(t *testing.T) {
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
	w.tells(0, "repair", "the run is running", "0 repaired, 0 cannot be repaired")
	w.goes(7)
	w.stops()
	must(t, w.text(), "checkpoint 2 is on partner=1", "checkpoint 2 is on rs=2+1", "checkpoint 2 is on shared="+shared)
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	file := func(host string, rank int) string {
		return filepath.Join(w.disk(host), "ckpt", "ckpt-00000002", fmt.Sprintf("rank-%04d.h5", rank))
	}
	object := func(pattern string) string { return one(t, shared, "run-*", "*", pattern) }
	whole := func() {
		t.Helper()
		w.tells(0, "repair", "0 repaired, 0 cannot be repaired")
		w.tells(0, "verify")
		for _, tier := range []string{"partner", "shared"} {
			w.tells(0, "verify --tier "+tier, ", 0 damaged")
		}
		w.tells(0, "list", "2           ", "local, partner=1, rs=2+1, shared="+shared, "all hosts")
	}
	type damage struct {
		name   string
		damage func(t *testing.T)
		says   []string
	}
	repairs := func(list ...damage) {
		t.Helper()
		var says []string
		for _, d := range list {
			t.Log(d.name)
			d.damage(t)
			says = append(says, d.says...)
		}
		if len(list) == 1 && strings.Contains(list[0].name, "manifest") {
			w.tells(1, "verify --tier shared", "checkpoint 2: its manifest: damaged")
		}
		command := "repair"
		if len(list) == 1 && list[0].name == "the shared tier" { // as if it were not mounted
			w.tells(1, "repair", "what this run had there is missing", "Mount it", "cairn repair --replace shared")
			if left, _ := filepath.Glob(filepath.Join(shared, "*")); len(left) > 0 {
				t.Errorf("made in an empty directory: %v", left)
			}
			command = "repair --replace shared"
		}
		w.tells(0, command, says...)
	}
	all := []damage{
		{"a file and what its host keeps of it", func(t *testing.T) { vfstest.Rot(t, file(a, 0)) },
			[]string{"local: checkpoint 2: repaired: rank 0's file on host " + a + ", which was damaged"}},
		{"a checkpoint directory", func(t *testing.T) { removes(t, filepath.Join(w.disk(b), "ckpt", "ckpt-00000002")) },
			[]string{"local: checkpoint 2: repaired: rank 1's file on host " + b + ", which was missing"}},
		{"all that a host keeps", func(t *testing.T) { removes(t, filepath.Join(w.disk(b), "kept")) },
			[]string{"partner=1: checkpoint 2: repaired", "rs=2+1: checkpoint 2: repaired"}},
		{"all that hosts keep", func(t *testing.T) {
			for _, h := range w.net.Hosts {
				removes(t, filepath.Join(w.disk(h), "kept"))
			}
		}, []string{"partner=1: checkpoint 2: repaired", "rs=2+1: checkpoint 2: repaired"}},
		{"a file on the shared tier", func(t *testing.T) { vfstest.Rot(t, object("files/rank-0001-00000002-*")) },
			[]string{"shared=" + shared + ": checkpoint 2: repaired: rank 1's file of checkpoint 2"}},
		{"a manifest there", func(t *testing.T) { vfstest.Rot(t, object("checkpoints/00000002.json")) },
			[]string{"shared=" + shared + ": checkpoint 2: repaired: its manifest, from its parts"}},
		{"the parts there", func(t *testing.T) { removes(t, object("parts")) },
			[]string{"shared=" + shared + ": checkpoint 2: repaired: its list of objects"}},
		{"the record of the start there", func(t *testing.T) { vfstest.Rot(t, object("attempts/*.json")) },
			[]string{"shared=" + shared + ": repaired: the record of start 1"}},
		{"the shared tier", func(t *testing.T) { removes(t, one(t, shared, "run-*")) },
			[]string{"shared=" + shared + ": checkpoint 2: repaired: all of it"}},
	}
	if stressed() {
		for _, d := range all {
			repairs(d)
			whole()
		}
	}
	repairs(all[0], all[1], all[2], all[5], all[7]) // together
	whole()
	repairs(damage{"a host, which gets a blank disk", func(t *testing.T) {
		w.loses(b)
		w.newDisk(t, b)
	}, []string{"partner=1: checkpoint 2: repaired", "the directory of rank 1 on host " + b + " is gone"}})
	w.tells(0, "repair", "0 repaired, 0 cannot be repaired")
	// What nobody has any more cannot be repaired.
	for _, h := range w.net.Hosts {
		tool(t, "cp", "-a", filepath.Join(w.disks, h), filepath.Join(w.disks, h+"-was"))
	}
	tool(t, "cp", "-a", shared, shared+"-was")
	vfstest.Rot(t, file(a, 0))
	lost, err := filepath.Glob(filepath.Join(w.disks, w.net.Hosts[0][:1]+"*", "me", "run-*", "kept", "*", "*", "rank-0000-00000002-*"))
	if err != nil || len(lost) == 0 {
		t.Fatal(lost, err)
	}
	for _, name := range append(lost, object("files/rank-0000-00000002-*")) {
		removes(t, name)
	}
	w.tells(1, "repair", "local: checkpoint 2: cannot be repaired: rank 0's file on host "+a, "shared="+shared+": checkpoint 2: cannot be repaired: rank 0's file of checkpoint 2")
	for _, h := range w.net.Hosts {
		w.loses(h)
		if err := os.Rename(filepath.Join(w.disks, h+"-was"), filepath.Join(w.disks, h)); err != nil {
			t.Fatal(err)
		}
	}
	removes(t, shared)
	if err := os.Rename(shared+"-was", shared); err != nil {
		t.Fatal(err)
	}
	w.lets(60)
	w.begins("1 1 1", flags...)
	w.awaits("restored checkpoint 2")
	w.finishes()
	sameOutput(t, w.output(), want)
}
