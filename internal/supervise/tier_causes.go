//go:build linux

package supervise

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// causes are the causes for which a tier has failed since it worked last, and
// when each occurred last. Several hosts may fail for different ones.
type causes map[string]time.Time

// forgetCause is after how long a cause counts as a new one.
const forgetCause = 10 * time.Minute

// varying is what differs between failures of one cause: numbers of
// checkpoints, ranks, ports and tries, and tokens.
var varying = regexp.MustCompile(`\b[0-9a-f]{8,}\b|[0-9]+(\.[0-9]+)?`)

// causeOf returns the innermost reason in the text of an error: what was done,
// to which object, by which host, is before it.
func causeOf(text string) string {
	var out []string
	for part := range strings.SplitSeq(text, "; ") {
		if i := strings.LastIndex(part, ": "); i >= 0 {
			part = part[i+2:]
		}
		out = append(out, varying.ReplaceAllString(part, "N"))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "; ")
}

// isNew notes a failure, and reports whether its cause was not there lately.
func (c causes) isNew(text string, now time.Time) bool {
	cause := causeOf(text)
	last, known := c[cause]
	c[cause] = now
	return !known || now.Sub(last) > forgetCause
}
