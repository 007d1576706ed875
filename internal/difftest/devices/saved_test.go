//go:build linux

package devices

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestTestbed_SavedBytes compares what checkpoints of the compiled programs
// hold with what the same programs protect by hand: 1.05 times as much is
// allowed. The state of the smallest problems is hardly larger than the
// program's package variables, so daily some problems are larger.
func TestTestbed_SavedBytes(t *testing.T) {
	t.Parallel()
	plain, made := build(t, "testbed")
	hand := filepath.Join(t.TempDir(), "testbed")
	cmd := command(t, filepath.Join("..", "..", ".."), "go", "build", "-ldflags=-w", "-o", hand, "./examples/testbed")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, text)
	}
	for _, p := range []struct {
		name, size string
		killAt     int // a point in the main loop, not the first
		stopAt     float64
		long       string // a larger size
		longKillAt int
	}{
		{"ft", "tiny", 7, 0.5, "medium", 7},
		{"ftmd", "tiny", 7, 0.5, "medium", 7},
		{"shwa", "small", 450, 0.025, "large", 850},
		{"spmv", "tiny", 1040, 0.3, "medium", 8200},
		{"floyd", "small", 50, 0.05, "medium", 50},
		{"summa", "tiny", 272, 0.4, "", 0},
		{"mg", "small", 17, 0.5, "", 0},
	} {
		check := func(size string, killAt int) {
			of := fmt.Sprintf("%s, size %s", p.name, size)
			const devices = "host,host"
			dir := t.TempDir()
			cmd := command(t, dir, made, p.name, size)
			cmd.Env = append(cmd.Env, "CAIRN_DIR="+dir, fmt.Sprint("CAIRN_KILL_AT=", killAt), "CAIRN_DEVICES="+devices)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err == nil || !strings.Contains(out.String(), " devices\n") || strings.Contains(out.String(), " steps") {
				t.Fatalf("%s: point %d is not in the main loop: %v\n%s%s", of, killAt, err, out.Bytes(), errs.Bytes())
			}
			got, _ := stored(t, dir)

			cmd = command(t, t.TempDir(), hand, "-dir", dir+"/hand", "-devices", devices, "-size", size, "-stop-at", fmt.Sprint(p.stopAt), p.name)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, text)
			}
			want, variables := stored(t, dir+"/hand")
			if p.name == "shwa" {
				// Each start computes the ground again, which has one number
				// for the water's four. The compiled program does not know
				// that it could, and saves it.
				want += variables["water"] / 4
			}
			t.Logf("%s: %d bytes, by hand %d: %.3f", of, got, want, float64(got)/float64(want))
			if float64(got) > 1.05*float64(want) {
				t.Errorf("%s: a checkpoint has %d bytes, and by hand %d", of, got, want)
			}

			// What was left out does not matter.
			if size == "tiny" || p.name == "mg" {
				cmd = command(t, dir, made, p.name, size)
				cmd.Env = append(cmd.Env, "CAIRN_DIR="+dir, "CAIRN_DEVICES="+devices)
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Run(); err != nil {
					t.Fatalf("%s: %v\n%s", of, err, errs.Bytes())
				}
				if want := plainly(t, plain, devices, p.name, size); out.String() != want {
					t.Errorf("%s prints\n%swant\n%s", of, out.Bytes(), want)
				}
			}
		}
		check(p.size, p.killAt)
		if stress && p.long != "" {
			check(p.long, p.longKillAt)
		}
	}
}

// stored returns how many bytes the newest checkpoint in a directory holds, in
// all and for each variable. Zeros take no room.
func stored(t *testing.T, dir string) (all int64, variables map[string]int64) {
	t.Helper()
	text, err := command(t, dir, cairn(t), "inspect", "--json", dir).Output()
	if err != nil {
		t.Fatalf("cairn inspect: %v", err)
	}
	var doc struct {
		Variables []struct {
			Name                            string
			StoredBytes, StoredInBasesBytes int64
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil || len(doc.Variables) == 0 {
		t.Fatalf("cairn inspect: %v\n%s", err, text)
	}
	variables = map[string]int64{}
	for _, v := range doc.Variables {
		variables[v.Name] = v.StoredBytes + v.StoredInBasesBytes
		all += variables[v.Name]
	}
	return all, variables
}
