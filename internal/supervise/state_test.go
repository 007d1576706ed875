//go:build linux

package supervise

import (
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestState_Scripts runs scripts of events. Each event stands before the state
// that it leads to; a result stands for the end of the run.
func TestState_Scripts(t *testing.T) {
	for name, script := range map[string]string{
		"finishes":                 "start→starting begin→running finish→finishing finished→finished",
		"restarts after a failure": "start→starting begin→running pause→waiting start→starting begin→running finish→finishing finished→finished",
		"restarts at once":         "start→starting begin→running start→starting begin→running",
		"no helper comes":          "start→starting pause→waiting start→starting failed→failed",
		"stops":                    "start→starting begin→running stop→stopping stopped→stopped",
		"finishes while stopping":  "start→starting begin→running stop→stopping finish→finishing finished→finished",
		"stops in the pause":       "start→starting begin→running pause→waiting stop→waiting stopped→stopped",
		"stops before its start":   "stop→starting stopped→stopped",
		"stops twice":              "start→starting begin→running stop→stopping stop→stopping stopped→stopped",
		"completes an earlier end": "finish→finishing stop→finishing finished→finished",
		"cannot record its end":    "start→starting begin→running finish→finishing failed→failed",
		"nothing after the end":    "start→starting begin→running finish→finishing finished→finished stop→finished begin→finished failed→finished",
	} {
		t.Run(name, func(t *testing.T) {
			state := rundir.Starting
			for _, line := range strings.Fields(script) {
				what, want, _ := strings.Cut(line, "→")
				before := state
				switch what {
				case rundir.Stopped, rundir.Failed, rundir.Finished:
					state = Result{State: what}.after(state)
				default:
					state = event(what).after(state)
				}
				if state != want {
					t.Fatalf("%s in state %s leads to %s, want %s", what, before, state, want)
				}
			}
		})
	}
}

// TestTransitions_Known shows that every event and state of the table exists.
func TestTransitions_Known(t *testing.T) {
	states := []string{rundir.Starting, rundir.Running, rundir.Waiting, rundir.Stopping, rundir.Finishing}
	for e, table := range transitions {
		for from, to := range table {
			for _, state := range []string{from, to} {
				if !strings.Contains(strings.Join(states, " "), state) {
					t.Errorf("%s: unknown state %q", e, state)
				}
			}
		}
	}
}

// TestPhase_Grows shows that an attempt does not return from a later phase.
func TestPhase_Grows(t *testing.T) {
	a := new(attempt)
	for _, c := range []struct {
		to            phase
		begun, killed bool
	}{{preparing, false, false}, {launched, true, false}, {killed, true, true}, {launched, true, true}} {
		if a.reaches(c.to); a.begun() != c.begun || a.killed() != c.killed {
			t.Errorf("phase %d: begun %v, killed %v", c.to, a.begun(), a.killed())
		}
	}
}
