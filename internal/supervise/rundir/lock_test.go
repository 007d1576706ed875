//go:build linux

package rundir

import (
	"strings"
	"testing"
)

// TestWhoHas_LockText checks what is said about the process that has a lock.
func TestWhoHas_LockText(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "another process",
		`{"helper":3,"ho`:                    "another process",
		"process 7 on a since noon\n":        "process 7 on a since noon",
		`{"helper":3,"host":"a","ranks":[]}`: "process 3 on a",
		`{"helper":3,"host":"a","ranks":[{"pid":4}]}` + "\n":                                 "process 3 on a, with the ranks' processes 4",
		`{"helper":3,"host":"a","ranks":[` + strings.Repeat(`{"pid":4},`, 9) + `{"pid":5}]}`: "process 3 on a, with the ranks' processes 4, 4, 4, 4, 4, 4, 4, 4 and 2 more",
	} {
		if got := whoHas([]byte(text)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
