package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

// outcome is the outcome of a case.
type outcome string

const (
	same    outcome = "same"
	refused outcome = "refused"
	wrong   outcome = "WRONG"
	lost    outcome = "LOST"
	hang    outcome = "HANG"
	// broken says that the campaign itself failed. This is not an outcome of
	// Cairn.
	broken outcome = "broken"
	// missed says that the run ended before it could be disturbed.
	missed outcome = "missed"
	// skipped says that this machine lacks what the case needs.
	skipped outcome = "skipped"
)

// outcomes are the counted outcomes, in the table's order.
var outcomes = []outcome{same, refused, wrong, lost, hang, broken}

func (o outcome) bad() bool { return o == wrong || o == lost || o == hang || o == broken }

// result is the result of a case: a line of the records.
type result struct {
	Seed    uint64  `json:"seed"`
	Case    int     `json:"case"`
	Kind    string  `json:"kind"`
	Real    bool    `json:"real"` // with real processes
	Program string  `json:"program"`
	Faults  string  `json:"faults"` // what was done
	Count   int     `json:"count"`  // number of faults that were injected
	Outcome outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"`
	Seconds float64 `json:"seconds"`
}

func (r *result) String() string {
	s := fmt.Sprintf("case %d, %s, %s: %s: %s", r.Case, r.Kind, r.Program, r.Faults, r.Outcome)
	if r.Why != "" {
		s += ": " + r.Why
	}
	return s
}

// repeat returns the command that runs the case again.
func (r *result) repeat() string {
	return fmt.Sprintf("go run ./internal/faults -seed %d -case %d -v -keep", r.Seed, r.Case)
}

// records is the file of results of one seed. It is only appended to. The last
// line of a case counts.
type records struct {
	path string
	file *os.File
	last map[int]*result
}

func openRecords(path string) (*records, error) {
	r := &records{path: path, last: make(map[int]*result)}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		x := new(result)
		if json.Unmarshal(line, x) == nil { // the last line may be incomplete
			r.last[x.Case] = x
		}
	}
	if r.file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' { // the campaign was killed while it wrote
		if _, err := r.file.WriteString("\n"); err != nil {
			return nil, err
		}
	}
	if err := syscall.Flock(int(r.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%s: another campaign writes to it: %w", path, err)
	}
	return r, nil
}

func (r *records) close() { r.file.Close() }

func (r *records) add(x *result) error {
	r.last[x.Case] = x
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(text, '\n'))
	return err
}

// bad returns the bad cases.
func (r *records) bad() (out []*result) {
	for _, x := range r.last {
		if x.Outcome.bad() {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b *result) int { return a.Case - b.Case })
	return out
}

// table counts outcomes by kind, for real processes and simulations separately.
func (r *records) table() string {
	var b strings.Builder
	for _, real := range []bool{true, false} {
		counts := make(map[string]map[outcome]int)
		faults := make(map[string]int)
		for _, x := range r.last {
			if x.Real != real || x.Outcome == skipped || x.Outcome == missed {
				continue
			}
			for _, name := range []string{x.Kind, "~"} {
				if counts[name] == nil {
					counts[name] = make(map[outcome]int)
				}
				counts[name][x.Outcome]++
				faults[name] += x.Count
			}
		}
		names := slices.Sorted(maps.Keys(counts))
		title := "simulated file systems"
		if real {
			title = "real processes"
		}
		fmt.Fprintf(&b, "\n%s\n", title)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(w, "kind\tcases\tfaults\t")
		for _, o := range outcomes {
			fmt.Fprintf(w, "%s\t", o)
		}
		fmt.Fprintln(w)
		for _, name := range names {
			all := 0
			for _, n := range counts[name] {
				all += n
			}
			shown := name
			if name == "~" {
				shown = "all"
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t", shown, all, faults[name])
			for _, o := range outcomes {
				fmt.Fprintf(w, "%d\t", counts[name][o])
			}
			fmt.Fprintln(w)
		}
		w.Flush()
	}
	return b.String()
}
