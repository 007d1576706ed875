package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether what is written to w is shown on a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// lineWidth returns the number of characters on a line of the terminal w, minus
// one: a line that wraps cannot be replaced. If the width is not known, it is
// that of the narrowest usual terminal.
func lineWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 1 {
			return columns - 1
		}
	}
	return 79
}
