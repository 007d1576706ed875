//go:build linux

package helper

import (
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// TestRunEvacuateWhen_Status shows that the status of the command decides, and
// that a command which fails or hangs is reported.
func TestRunEvacuateWhen_Status(t *testing.T) {
	for _, c := range []struct {
		command  string
		evacuate bool
		want     string
	}{
		{"true", true, ""}, {"false", false, ""}, {"kill -9 $$", false, ""},
		{"no-such-command-at-all 2>/dev/null", false, "cannot be run: the shell ended with status 127"},
		{"/dev/null 2>/dev/null", false, "cannot be run: the shell ended with status 126"},
		{"sleep 100 & sleep 100", false, "did not end within 500 ms and was killed"},
	} {
		evacuate, err := runEvacuateWhen(&control.EvacuateWhen{Command: c.command, Every: 500 * time.Millisecond})
		if evacuate != c.evacuate || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", c.command, evacuate, err)
		}
	}
}
