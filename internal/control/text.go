package control

import (
	"fmt"
	"strings"
	"time"
)

// MoveText tells of a move that is over, in one line.
func MoveText(m *MoveState) string {
	what := RanksText(m.Ranks)
	if len(m.Ranks) == 0 && m.From != "" {
		what = "host " + m.From
	}
	switch m.State {
	case Moved:
		if len(m.Ranks) == 0 {
			return strings.TrimSuffix(fmt.Sprintf("no rank is on %s; %s", m.From, m.Why), "; ")
		}
		text := fmt.Sprintf("%s moved from %s to %s: paused %s", what, m.From, m.To, TimeText(time.Duration(m.PauseNS)))
		if s := m.Stats; s != nil {
			text += fmt.Sprintf(", %s in precopy, %s during the pause", BytesText(s.Precopied), BytesText(s.Sent))
		}
		return text
	case NotMoved, MoveRolledBack:
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

// TimeText gives a duration as people read it: 2.95 ms, 0.5 s, 90 s, 10 min.
func TimeText(d time.Duration) string {
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

// BytesText gives bytes as people read them.
func BytesText(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if v /= 1 << 10; v < 1023.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// RanksText names ranks: rank 3, ranks 3 and 4. If there are many, it counts
// them.
func RanksText(list []int) string {
	switch n := len(list); {
	case n == 0:
		return "no rank"
	case n > 16:
		return Count(n, "rank")
	}
	return Listed(list, "rank")
}

// Count returns a number of things: 1 rank, 2 ranks.
func Count[T int | int64 | uint64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Listed returns numbers of things: rank 3, ranks 3 and 4.
func Listed[T int | uint64](numbers []T, thing string) string {
	var text []string
	for _, n := range numbers {
		text = append(text, fmt.Sprint(n))
	}
	last := len(text) - 1
	if last == 0 {
		return thing + " " + text[0]
	}
	return thing + "s " + strings.Join(text[:last], ", ") + " and " + text[last]
}

// ShellCommand returns a command as one writes it in a shell.
func ShellCommand(command []string) string {
	var out []string
	for _, s := range command {
		out = append(out, ShellQuote(s))
	}
	return strings.Join(out, " ")
}

func ShellQuote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,"
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
