package main

import (
	"fmt"
	"io"
	"math"
	"time"
)

// report is what a kernel found, the same on every rank.
type report struct {
	size       string
	iterations int
	operation  string    // what an operation is
	mop        float64   // millions of operations of the whole benchmark
	values     []float64 // the results, in the order in which they are printed
	lines      []string  // details for the reader
	verified   bool
	resumed    bool
	took       time.Duration // the time of the main loop, without the setup
}

// compare adds a result, and its relative difference from the official one,
// which must not exceed tolerance.
func (r *report) compare(name string, got, want, tolerance float64) {
	off := math.Abs((got - want) / want)
	good := off <= tolerance // false for NaN
	r.verified = r.verified && good
	r.values = append(r.values, got)
	mark := ""
	if !good {
		mark = "  FAILED"
	}
	r.lines = append(r.lines, fmt.Sprintf("%-12s = %-22v official %-18v off by %.1e%s", name, got, want, off, mark))
}

// note adds a line that is not a result.
func (r *report) note(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// print writes the report the way NPB's own programs do.
func (r *report) print(w io.Writer, name string, class byte, ranks int) error {
	text := fmt.Sprintf("\n NAS Parallel Benchmarks in Go, %s benchmark\n\n", name)
	for _, l := range r.lines {
		text += " " + l + "\n"
	}
	text += "\n"
	line := func(name string, value any) { text += fmt.Sprintf(" %-16s= %30v\n", name, value) }
	line("Class", string(class))
	line("Size", r.size)
	line("Iterations", r.iterations)
	line("Total processes", ranks)
	line("Time in seconds", fmt.Sprintf("%.2f", r.took.Seconds()))
	if r.resumed {
		// Only a part of the operations was done in that time.
		line("Mop/s total", "not known, resumed")
	} else {
		line("Mop/s total", fmt.Sprintf("%.2f", r.mop/r.took.Seconds()))
	}
	line("Operation type", r.operation)
	verification := "UNSUCCESSFUL"
	if r.verified {
		verification = "SUCCESSFUL"
	}
	line("Verification", verification)
	_, err := io.WriteString(w, text)
	return err
}
