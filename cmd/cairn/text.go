package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
	"unicode"
)

// output is stdout. It remembers the first error.
type output struct {
	w   io.Writer
	err error
}

// regular reports whether the output goes to a regular file.
func (o *output) regular() bool {
	f, ok := o.w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode().IsRegular()
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}

// printf writes text to stdout. run reports an error at the end.
func (c *call) printf(format string, args ...any) { fmt.Fprintf(c.stdout, format, args...) }

// notef writes a remark for people, which is no part of the result, to stderr.
func (c *call) notef(format string, args ...any) {
	fmt.Fprintf(c.stderr, "cairn: "+format+"\n", args...)
}

// document writes v as the command's JSON document.
func (c *call) document(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table is text in aligned columns.
type table struct {
	w      io.Writer
	indent string
	rows   [][]string
}

func (c *call) table(indent string, header ...string) *table {
	t := &table{w: c.stdout, indent: indent}
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

// row adds a line. Special characters in a cell do not disturb the columns.
func (t *table) row(cells ...string) {
	for i, s := range cells {
		cells[i] = printable(s)
	}
	t.rows = append(t.rows, cells)
}

// flush writes the table.
func (t *table) flush() {
	for _, line := range align(t.rows) {
		fmt.Fprintln(t.w, t.indent+line)
	}
	t.rows = nil
}

// printable replaces control characters, which names in a file may hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '�'
		}
		return r
	}, s)
}

// percent returns part of whole. It returns 0 % and 100 % only for exactly none
// and all.
func percent(part, whole int64) string {
	switch {
	case whole == 0 || part == 0:
		return "-"
	case part == whole:
		return "100 %"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case p < 0.1:
		return "<0.1 %"
	case p >= 99.95:
		return ">99.9 %"
	}
	return fmt.Sprintf("%.1f %%", p)
}

// age tells how long ago t was.
func age(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 0:
		return "in the future"
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min ago", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// clock returns a time of a header in the local time zone.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// millis returns milliseconds with three significant digits.
func millis(ms float64) string {
	switch {
	case ms >= 10000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.3g ms", ms)
}

// number returns a difference as people read it.
func number(v float64) string { return fmt.Sprintf("%.4g", v) }

// finite returns v for a JSON document, and null for NaN and infinities, which
// JSON does not have.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
