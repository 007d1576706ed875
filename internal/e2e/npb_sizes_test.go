//go:build linux

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// liveArrays are the arrays of each kernel that its variables lead to in the
// main loop, as somebody has found who read the program.
var liveArrays = map[string]string{
	"ep.go": "sums[:], counts[:]",
	"is.go": "keys, s.counts, s.totals, s.next, s.outgoing, s.incoming, s.sendCount, s.sendAt, s.recvCount, s.recvAt, s.before",
	"cg.go": "x, z, s.r, s.p, s.q, s.w, s.sum, s.a.begin, s.a.column, s.a.value",
	"ft.go": "waves, space, sums, decay, f.work, f.out, f.in, f.x.roots[0], f.x.roots[1], f.x.work, f.y.roots[0], f.y.roots[1], f.y.work, f.z.roots[0], f.z.roots[1], f.z.work",
	"mg.go": "append([]any{u, v, r}, solver.arrays()...)...",
}

// liveReport is a file that is added to the program: it tells how many bytes
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

// setOverhead is what a set may hold besides arrays: package variables, flags,
// frames.
const setOverhead = 8 << 10

// TestCompiledSizes compares what is saved of each kernel with its arrays.
func TestCompiledSizes(t *testing.T) {
	p := newCompiledNPB(t)
	top := make(map[string]string)
	for file, list := range liveArrays {
		top[file] = "\t\treportLive(" + list + ")\n"
	}
	told := plainSource(t, top)
	write(t, told.dir+"/live.go", liveReport)
	told.goBuild(t)
	t.Logf("%-6s %12s %12s %7s %12s %7s", "kernel", "live arrays", "saved", "ratio", "by hand", "ratio")
	for _, k := range kernelPoints {
		args := []string{"-kernel", k.name, "-class", "S", "-v"}
		live := perRank(t, told.built, args, regexp.MustCompile(`^\[(\d+)\] live=(\d+)`))
		saved := perRank(t, p.made, args, regexp.MustCompile(`^\[(\d+)\] saved set=\d+ .*state=(\d+)`))
		byHand := perRank(t, program(t, "npb"), args, regexp.MustCompile(`^\[(\d+)\] saved set=\d+ .*state=(\d+)`))
		const rank = 1
		l, s, h := live[rank], saved[rank], byHand[rank]
		t.Logf("%-6s %12d %12d %7.3f %12d %7.3f", k.name, l, s, float64(s)/float64(l), h, float64(s)/float64(h))
		if l == 0 || s < l {
			t.Errorf("%s: %d bytes saved, but there are arrays of %d", k.name, s, l)
		}
		if float64(s) > 1.05*float64(l)+setOverhead {
			t.Errorf("%s: %d bytes saved for arrays of %d", k.name, s, l)
		}
	}
}

// perRank runs a program with a checkpoint at every point, and returns the last
// number that each rank has told.
func perRank(t *testing.T, program string, args []string, tells *regexp.Regexp) map[int]int {
	t.Helper()
	r := newRun(t, append([]string{program}, args...)...)
	s := r.start("-n", fmt.Sprint(compiledRanks), "--every-points", "1")
	s.finishes()
	out := make(map[int]int)
	for line := range strings.Lines(s.text()) {
		if m := tells.FindStringSubmatch(line); m != nil {
			rank, _ := strconv.Atoi(m[1])
			out[rank], _ = strconv.Atoi(m[2])
		}
	}
	if len(out) != compiledRanks {
		t.Fatalf("%d of %d ranks have said how much it is:\n%s", len(out), compiledRanks, s.text())
	}
	return out
}
