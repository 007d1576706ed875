package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
)

func TestTextWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "étage": 5, "e\u0301tage": 5, "日本": 4, "한글x": 5, "👩‍🔬": 2, "ﾊﾝ": 2, "·…": 2} {
		if got := textWidth(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
}

// TestClipText cuts texts at every width.
func TestClipText(t *testing.T) {
	for _, text := range []string{"", "a", "abcdef", "日本語テキスト", "e\u0301e\u0301e\u0301", "x日y本z", "👩‍🔬👩‍🔬"} {
		for width := 1; width <= textWidth(text)+1; width++ {
			got := clipText(text, width)
			if textWidth(got) > width || textWidth(text) <= width && got != text || textWidth(text) > width && !strings.HasPrefix(text, strings.TrimSuffix(got, "…")) {
				t.Errorf("%q in %d columns is %q", text, width, got)
			}
		}
	}
	if got := clipText("x日本", 4); got != "x日…" {
		t.Error(got)
	}
}

// TestAlign compares tables of narrow characters with those of package
// tabwriter.
func TestAlign(t *testing.T) {
	n := 0
	for range 2000 {
		var rows [][]string
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for range 1 + n%5 {
			var cells []string
			for range n % 4 {
				n = n*1103515245 + 12345&0x7fffffff
				n = (n >> 3) & 0xffffff
				cells = append(cells, strings.Repeat("x", n%7+1))
			}
			n = (n*69069 + 1) & 0xffffff
			cells = append(cells, strings.Repeat("y", n%5+1))
			rows = append(rows, cells)
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		w.Flush()
		if got := strings.Join(align(rows), "\n") + "\n"; got != b.String() {
			t.Fatalf("%q is\n%swant\n%s", rows, got, b.String())
		}
	}
	got := align([][]string{{"NAME", "SIZE"}, {"日本", "2"}, {"étage", "3"}})
	if strings.Join(got, "\n") != "NAME   SIZE\n日本   2\nétage  3" {
		t.Errorf("%q", got)
	}
}
