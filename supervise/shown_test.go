//go:build linux

package supervise

import (
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// TestShownAgain: what a rank prints after it was rolled back is shown where it
// differs from what was shown before, by whole lines, and nothing is shown twice.
func TestShownAgain(t *testing.T) {
	type piece struct {
		at   int64
		text string
	}
	long := strings.Repeat("0123456789abcde\n", tailSize/8)
	for _, v := range []struct {
		name   string
		pieces []piece
		want   string
	}{
		{"the same", []piece{{0, "a\nb\nc"}, {2, "b\n"}, {4, "c\nd\n"}}, "a|b|c|d|"},
		{"cut and the same", []piece{{0, "a\nb\n"}, {2, ""}, {2, "b\nc\n"}}, "a|b|c|"},
		{"another text", []piece{{0, "a\nfailed\n"}, {2, ""}, {2, "fine\nb\n"}}, "a|failed|fine|b|"},
		{"in the midst of a line", []piece{{0, "a\nstep 1\nstep 2\n"}, {2, "step 1\nst"}, {11, "op\n"}}, "a|step 1|step 2|stop|"},
		{"an unfinished line", []piece{{0, "a\nOh no"}, {2, "Oh yes\n"}}, "a|Oh no|Oh yes|"},
		{"an unfinished line that goes on", []piece{{0, "a\nOh"}, {2, "Oh"}, {4, " yes\n"}}, "a|Oh yes|"},
		{"shorter", []piece{{0, "a\nb\nc\n"}, {0, "a\nx\n"}, {4, "y\nz\n"}}, "a|b|c|x|y|z|"},
		{"some was let go", []piece{{0, "a\n"}, {10, "b\n"}, {10, "c\n"}}, "a|b|c|"},
		{"older than what is kept", []piece{{0, long}, {0, "9" + long[1:]}, {int64(len(long)), "b\n"}}, strings.ReplaceAll(long, "\n", "|") + "b|"},
	} {
		t.Run(v.name, func(t *testing.T) {
			var shown strings.Builder
			k := &sink{o: &Options{Line: func(_, _ int, line []byte) {
				shown.Write(line)
				shown.WriteByte('|')
			}}, ranks: make([][2]stream, 1)}
			for _, p := range v.pieces {
				m := &control.Message{Stream: control.Stdout, Offset: p.at}
				if p.text != "" {
					m.Data = []byte(p.text)
				}
				k.show(m)
			}
			if got := shown.String(); got != v.want {
				t.Errorf("shown: %.200s\nwanted: %.200s", got, v.want)
			}
		})
	}
}
