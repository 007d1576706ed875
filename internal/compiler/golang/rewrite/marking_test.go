package rewrite

import (
	"math/rand/v2"
	"regexp"
	"testing"
)

// TestComments_AgreeWithRegexps compares the functions that remove and move
// comments with regular expressions, on texts made of pieces of comments.
func TestComments_AgreeWithRegexps(t *testing.T) {
	marks := regexp.MustCompile(` ?/\*cairn:(call|point|range|receiver|park|go|gopoints|background|wait \d+|lit \d+)\*/ ?`)
	broken := regexp.MustCompile(`[ \t]*(/\*line [^*]*:\d+\*/)[ \t]*\n([ \t\n]*)`)
	lines := regexp.MustCompile(`/\*line [^*]*:\d+\*/ ?`)
	pieces := []string{" ", " ", "\t", "\n", "\n", "x", "*", "/", "/*", "*/", "/*line ", "a.go", ":", "12", ":12*/", "/*line a.go:3:4*/", "/*line a.go:3*/",
		"/*cairn:", "call", "/*cairn:call*/", "/*cairn:wait 12*/", "/*cairn:lit */", "wait ", "point*/", "/*cairn:point*/", "/*cairn:gopoint*/"}
	r := rand.New(rand.NewPCG(1, 2))
	changed := 0
	for range 20000 {
		var text []byte
		for range 1 + r.IntN(20) {
			text = append(text, pieces[r.IntN(len(pieces))]...)
		}
		for _, c := range []struct {
			name      string
			got, want []byte
		}{
			{"StripMarks", StripMarks(text), marks.ReplaceAll(text, nil)},
			{"JoinLineComments", JoinLineComments(text), broken.ReplaceAll(text, []byte("\n$2$1"))},
			{"StripLineComments", StripLineComments(text), lines.ReplaceAll(text, nil)},
		} {
			if string(c.got) != string(c.want) {
				t.Fatalf("%s(%q) = %q, want %q", c.name, text, c.got, c.want)
			}
			if string(c.got) != string(text) {
				changed++
			}
		}
	}
	if changed < 10000 {
		t.Errorf("only %d texts changed", changed)
	}
}
