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
