package scheduler

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// unitOf returns the service that a process belongs to, from the content of
// /proc/self/cgroup, and whether it is one of the user's systemd.
func unitOf(cgroups string) (unit string, user bool) {
	for line := range strings.Lines(cgroups) {
		hierarchy, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		if controllers != "name=systemd" && (hierarchy != "0" || controllers != "") {
			continue
		}
		parts := strings.Split(path, "/")
		for i := len(parts) - 1; i >= 0; i-- { // below it may be groups that the service has made
			if name := parts[i]; strings.HasSuffix(name, ".service") {
				if strings.HasPrefix(name, "user@") {
					break // it belongs to a session, not to a service
				}
				return name, strings.Contains(path, "/user@")
			}
		}
	}
	return "", false
}

// stopTime returns the unit's TimeoutStopSec, or 0 if it is infinite or not
// known.
func (s *Scheduler) stopTime(ctx context.Context) time.Duration {
	args := []string{"show", "--property=TimeoutStopUSec", s.unit}
	if s.user {
		args = append([]string{"--user"}, args...)
	}
	text, err := command(ctx, "systemctl", args...)
	if err != nil {
		return 0
	}
	return parseSpan(strings.TrimPrefix(text, "TimeoutStopUSec="))
}

var spanPart = regexp.MustCompile(`^(\d+(?:\.\d+)?)(us|ms|s|min|h|d|w|month|y)$`)

var spanUnits = map[string]time.Duration{
	"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "month": 2629800 * time.Second, "y": 31557600 * time.Second,
}

// parseSpan reads a time as systemctl prints it: 1min 30s. It returns 0 for
// infinity and for anything else.
func parseSpan(text string) (d time.Duration) {
	for _, part := range strings.Fields(text) {
		m := spanPart.FindStringSubmatch(part)
		if m == nil {
			return 0
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0
		}
		d += time.Duration(n * float64(spanUnits[m[2]]))
	}
	return d
}
