package supervise

import (
	"fmt"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// MoveState is a move of ranks to another host.
type MoveState = control.MoveState

// How a move ended.
const (
	Moved       = control.Moved
	NotMoved    = control.NotMoved       // everything continues as before
	RolledBack  = control.MoveRolledBack // the run was, from its recovery line
	MoveUnknown = control.MoveUnknown
)

// DefaultRounds is how often state is sent ahead, at most, if nothing else is
// said.
const DefaultRounds = 3

// DefaultStartLimit is how long a new process may take to come to Restore.
const DefaultStartLimit = 10 * time.Minute

// Migration says what is moved, and how.
type Migration struct {
	Ranks  []int  // these,
	Host   string // or all that are on this host, where none is placed any more
	To     string // host; "": those of the run that have the most free slots
	Chunk  int64  // bytes that are sent at a time; 0: 64 MiB
	Rounds int    // of sending ahead, at most; 0: none
	Files  bool   // the run's open files are copied, too

	// Program is the program's path on the host To, and Env are variables
	// (NAME=VALUE) for ranks there. They hold for that host from then on, also
	// when the run is started again. "" and nil: what held before.
	Program string
	Env     []string

	// StartLimit is how long the new processes may take to come to Restore; 0:
	// DefaultStartLimit.
	StartLimit time.Duration

	// Cancel, if not nil, calls the move off when it is closed, unless it is
	// decided by then. The answer tells what became of it.
	Cancel <-chan struct{}
}

// MoveText tells of a move that is over, in one line.
func MoveText(m *MoveState) string {
	what := "no rank"
	switch n := len(m.Ranks); {
	case n == 0 && m.From != "":
		what = "host " + m.From
	case n == 1:
		what = fmt.Sprintf("rank %d", m.Ranks[0])
	case n > 16:
		what = fmt.Sprintf("%d ranks", n)
	case n > 1:
		what = "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(m.Ranks[:n-1]), " ", ", "), "[]") + fmt.Sprintf(" and %d", m.Ranks[n-1])
	}
	switch m.State {
	case Moved:
		if len(m.Ranks) == 0 {
			return strings.TrimSuffix(fmt.Sprintf("no rank is on %s; %s", m.From, m.Why), "; ")
		}
		text := fmt.Sprintf("%s moved from %s to %s: paused %s", what, m.From, m.To, timeText(time.Duration(m.PauseNS)))
		if s := m.Stats; s != nil {
			text += fmt.Sprintf(", %s in precopy, %s during the pause", bytesText(s.Precopied), bytesText(s.Sent))
		}
		return text
	case NotMoved, RolledBack:
		return fmt.Sprintf("%s %s: %s", what, m.State, m.Why)
	case MoveUnknown:
		if m.To != "" {
			what += " moved to " + m.To
		} else {
			what += " moved"
		}
		return fmt.Sprintf("whether %s is unknown: %s", what, m.Why)
	}
	if len(m.Ranks) > 0 && m.From != "" {
		what += " from " + m.From
	}
	if m.To != "" {
		what += " to " + m.To
	}
	return what + ": " + m.State
}

// timeText gives a duration as people read it: 2.95 ms, 0.5 s, 90 s, 10 min.
func timeText(d time.Duration) string {
	switch ms := float64(d) / 1e6; {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.3g ms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	case d >= 2*time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// bytesText gives bytes as people read them.
func bytesText(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v /= 1 << 10; v < 1023.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
