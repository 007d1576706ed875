//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// steps returns the lines of a log of steps, "NAME PID", that begin with a
// prefix; "NAME PID " is a prefix of its whole line.
func steps(t *testing.T, log, prefix string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line+" ", prefix) {
			out = append(out, line)
		}
	}
	return out
}

// TestTiers_OneWriterAtATime lets one of three hosts write to the shared tier
// at a time. The first one is stopped while it does: the others have asked, and
// do not begin. Then all get their turns, one after the other.
func TestTiers_OneWriterAtATime(t *testing.T) {
	t.Parallel()
	const n = 3
	w := wanderOn(t, 3, n, "-size", "2000")
	shared, log := sharedDir(t), filepath.Join(t.TempDir(), "steps")
	w.env = []string{"CAIRN_STEP_LOG=" + log, "CAIRN_STEP=upload.begin=stop"}
	w.lets(5)
	w.begins("1 1 1", "--tiers", "local="+filepath.Join(w.local, "me")+",shared="+shared+":writers=1")
	w.reachesStep(5)
	w.saves()
	awaitSteps(t, log, "upload.turn", n)
	awaitSteps(t, log, "upload.begin", 1)
	w.tells(0, "status", "shared="+shared+": no checkpoint; checkpoint 1 is on its way") // the supervisor has read what helpers have said before
	first := steps(t, log, "upload.begin")
	if len(first) != 1 {
		t.Errorf("%d hosts write at the same time", len(first))
	}
	pid, err := strconv.Atoi(strings.Fields(first[0])[1])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGCONT)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.awaits("checkpoint 1 is on shared=" + shared)
	writing := 0
	begun := steps(t, log, "upload.")
	for _, s := range begun {
		switch {
		case strings.HasPrefix(s, "upload.begin"):
			writing++
		case strings.HasPrefix(s, "upload.end"):
			writing--
		}
		if writing > 1 {
			t.Fatalf("%d hosts wrote at the same time: %v", writing, begun)
		}
	}
	if len(steps(t, log, "upload.end")) != n {
		t.Errorf("not all hosts have written: %v", begun)
	}
	w.lets(60)
	w.finishes()
}
