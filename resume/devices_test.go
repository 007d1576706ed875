package resume_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestExit_LostDevice shows that a program which fails has ended, but not one
// that has lost a device.
func TestExit_LostDevice(t *testing.T) {
	path := build(t, "./testdata/lost")
	for _, c := range []struct {
		name string
		env  []string
		keep bool
	}{
		{"fails", []string{"FAIL=1"}, false},
		{"fails without a device", []string{"FAIL=1", "LOST=1"}, true},
		{"ends without a device", []string{"LOST=1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProgram(t, path)
			p.env = []string{"CAIRN_DIR=ck", "CAIRN_EVERY_POINTS=1"}
			code, _, text := p.start(c.env...)
			if want := 3 * strings.Count(strings.Join(c.env, " "), "FAIL"); code != want {
				t.Fatalf("status %d: %s", code, text)
			}
			sets, _ := filepath.Glob(filepath.Join(p.dir, "ck", "ckpt-*"))
			if (len(sets) > 0) != c.keep {
				t.Errorf("sets are left: %v", sets)
			}
			var again []string
			if !c.keep { // it has finished, with that status
				if next, _, text := p.start(); next != code || !strings.Contains(text, "has finished") {
					t.Errorf("the next start: status %d: %s", next, text)
				}
				again = []string{"CAIRN_FRESH=1"}
			}
			if code, _, text = p.start(again...); code != 0 || strings.Contains(text, "resumed") != c.keep {
				t.Errorf("the next start: status %d: %s", code, text)
			}
		})
	}
}

// TestRollback_LostDevice shows that a program which loses a device executes
// itself anew and restores its checkpoint, without the device, if it can do so.
func TestRollback_LostDevice(t *testing.T) {
	path := build(t, "./testdata/lost")
	for _, c := range []struct {
		name       string
		env        []string
		want, stop string
	}{
		{"after a checkpoint", []string{"LOSE_AT=7"}, "excluded [dev:1] of 2", "the device is lost"},
		{"before it", []string{"LOSE_AT=0", "CAIRN_EVERY_POINTS=100"}, "; nothing was saved before", "rolling back"},
		{"again and again", []string{"LOSE_AT=7", "AGAIN=1"}, "; devices were lost 17 times without a checkpoint in between", ""},
		{"with a pipe as stdin", []string{"LOSE_AT=7", "READS=1"}, "; the program reads stdin, which is not a file", "rolling back"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProgram(t, path)
			p.env = []string{"CAIRN_DIR=ck", "CAIRN_EVERY_POINTS=1"}
			if c.name != "before it" { // a first start leaves a checkpoint
				p.start("CAIRN_KILL_AT=5")
			}
			code, _, text := p.start(append(c.env, "LOST=1")...)
			if code != 0 || !strings.Contains(text, c.want) || c.stop != "" && strings.Contains(text, c.stop) {
				t.Errorf("status %d: %s", code, text)
			}
			if n := strings.Count(text, "rolling back to checkpoint "); strings.Count(text, "resumed at ") != n+1 && c.name != "before it" {
				t.Errorf("%d rollbacks: %s", n, text)
			}
			if files, _ := filepath.Glob(filepath.Join(p.dir, "ck", "lost-devices*")); len(files) > 0 {
				t.Errorf("%v is there", files)
			}
		})
	}
}
