package main

import (
	"strings"

	"github.com/rivo/uniseg"
)

// textWidth returns how many columns of a terminal a text takes: two for a
// Chinese character, none for an accent that is a character of its own.
func textWidth(text string) int { return uniseg.StringWidth(text) }

// pad fills a text up to a width.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-textWidth(text)))
}

// clipText cuts a text to a width of at least 1.
func clipText(text string, width int) string {
	if textWidth(text) <= width {
		return text
	}
	var b strings.Builder
	g := uniseg.NewGraphemes(text)
	for left := width - 1; g.Next() && g.Width() <= left; {
		b.WriteString(g.Str())
		left -= g.Width()
	}
	return b.String() + "…"
}

// align returns rows with their columns one below the other, two blanks apart.
// As in package tabwriter, a column ends at a row that does not have it, and
// the last cell of a row belongs to none.
func align(rows [][]string) (lines []string) {
	out := make([]strings.Builder, len(rows))
	for j, some := 0, true; some; j++ {
		some = false
		for i := 0; i < len(rows); i++ {
			end, width := i, 0 // rows i to end have the column
			for ; end < len(rows) && j < len(rows[end])-1; end++ {
				width = max(width, textWidth(rows[end][j]))
			}
			for k := i; k < end; k++ {
				out[k].WriteString(pad(rows[k][j], width+2))
				some = true
			}
			i = end
			if i < len(rows) && j == len(rows[i])-1 {
				out[i].WriteString(rows[i][j])
			}
			some = some || i < len(rows) && j < len(rows[i])-1
		}
	}
	for i := range out {
		lines = append(lines, out[i].String())
	}
	return lines
}
