//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// liveArrays lists the arrays of each kernel that its variables lead to in the
// main loop. They were found by reading the program.
var liveArrays = map[string]string{
	"ep.go": "sums[:], counts[:]",
	"is.go": "keys, s.counts, s.totals, s.next, s.outgoing, s.incoming, s.sendCount, s.sendAt, s.recvCount, s.recvAt, s.before",
	"cg.go": "x, z, s.r, s.p, s.q, s.w, s.sum, s.a.begin, s.a.column, s.a.value",
	"ft.go": "waves, space, sums, decay, f.work, f.out, f.in, f.x.roots[0], f.x.roots[1], f.x.work, f.y.roots[0], f.y.roots[1], f.y.work, f.z.roots[0], f.z.roots[1], f.z.work",
	"mg.go": "append([]any{u, v, r}, solver.arrays()...)...",
}

// liveReport is a file that is added to the program. It reports how many bytes
// some slices have.
const liveReport = `package main

import (
	"fmt"
	"os"
	"reflect"
)

func reportLive(slices ...any) {
	n := 0
	for _, s := range slices {
		v := reflect.ValueOf(s)
		n += v.Len() * int(v.Type().Elem().Size())
	}
	fmt.Fprintf(os.Stderr, "live=%d\n", n)
}

func (m *multigrid) arrays() (out []any) {
	for i, l := range m.levels {
		if i < len(m.levels)-1 || m.all == nil { // the top's are the caller's
			out = append(out, l.u, l.r)
		}
	}
	out = append(out, m.all)
	if m.whole != nil {
		out = append(out, m.whole.arrays()...)
	}
	return out
}
`

// checkpointOverhead is what a checkpoint may hold in addition to arrays:
// package variables, flags and frames. For EP, whose arrays have 96 bytes, it
// is nearly everything. A slice is saved up to its capacity, but what append
// has not used yet is zeros, which are not in the file, except in the block in
// which the slice ends.
const checkpointOverhead = 8 << 10

// sizesAt is the point whose checkpoint is examined, and sizesOf the rank.
const (
	sizesAt = 3
	sizesOf = 1
)

// TestNPBCompiled_SavedBytes compares the saved bytes of each kernel with its
// arrays.
func TestNPBCompiled_SavedBytes(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	p := newCompiledNPB(t)
	top := make(map[string]string)
	for file, list := range liveArrays {
		top[file] = "\t\treportLive(" + list + ")\n"
	}
	told := plainSource(t, top)
	write(t, filepath.Join(told.dir, "live.go"), liveReport)
	told.goBuild(t)
	hand := program(t, "npb")
	t.Logf("%-6s %12s %12s %12s %7s %12s", "kernel", "live arrays", "state", "not zero", "ratio", "by hand")
	for _, k := range kernelPoints {
		args := []string{"-kernel", k.name, "-class", "W"}
		live := liveBytes(t, told.built, args)
		r := newRun(t, append([]string{p.made}, args...)...)
		s := r.startIn([]string{fmt.Sprint("CAIRN_KILL_AT=", sizesAt)}, "-n", fmt.Sprint(compiledRanks), "--retries", "0")
		if code := s.ends(); code != 137 {
			t.Fatalf("exit status %d:\n%s", code, s.text())
		}
		state, zero := checkpointBytes(t, r.checkpoints())
		byHand := savedBytes(t, hand, args)
		t.Logf("%-6s %12d %12d %12d %7.3f %12d", k.name, live, state, state-zero, float64(state-zero)/float64(live), byHand)
		if live == 0 || state < live {
			t.Errorf("%s: %d bytes saved, but there are arrays of %d", k.name, state, live)
		}
		if float64(state-zero) > 1.05*float64(live)+checkpointOverhead {
			t.Errorf("%s: %d bytes saved for arrays of %d", k.name, state-zero, live)
		}
	}
}

// liveBytes returns the size of the arrays at the point, as the program reports
// it.
func liveBytes(t *testing.T, program string, args []string) int {
	t.Helper()
	r := newRun(t, append([]string{program}, args...)...)
	s := r.start("-n", fmt.Sprint(compiledRanks))
	s.finishes()
	return numberIn(t, s.text(), regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] live=(\d+)$`, sizesOf)), sizesAt)
}

// savedBytes returns how much a program with points by hand saves.
func savedBytes(t *testing.T, program string, args []string) int {
	t.Helper()
	r := newRun(t, append([]string{program, "-v"}, args...)...)
	s := r.start("-n", fmt.Sprint(compiledRanks), "--every-points", "1")
	s.finishes()
	return numberIn(t, s.text(), regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] saved checkpoint=\d+ .*state=(\d+)`, sizesOf)), 1)
}

// numberIn returns the number in parentheses of the nth match.
func numberIn(t *testing.T, text string, fits *regexp.Regexp, nth int) int {
	t.Helper()
	all := fits.FindAllStringSubmatch(text, -1)
	if len(all) < nth {
		t.Fatalf("%d lines have %s:\n%s", len(all), fits, text)
	}
	n, err := strconv.Atoi(all[nth-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkpointBytes returns the size of the newest checkpoint, and how much of it
// is in blocks of zeros, which files do not hold.
func checkpointBytes(t *testing.T, dir string) (state, zero int) {
	t.Helper()
	out, code := cairnTool(t, "inspect", "--json", "--rank", fmt.Sprint(sizesOf), dir)
	if code != 0 {
		t.Fatalf("cairn inspect: %s", out)
	}
	var doc struct {
		Variables []struct {
			Size int `json:"sizeBytes"`
			Zero int `json:"zeroBytes"`
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, v := range doc.Variables {
		state += v.Size
		zero += v.Zero
	}
	return state, zero
}
