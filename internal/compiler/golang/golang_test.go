package golang

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
	"github.com/cairnrun/cairn/internal/compiler/hotloops"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

var update = flag.Bool("update", false, "write the golden files anew")

func loadTest(t *testing.T, name string, o load.Options) *lower.Program {
	t.Helper()
	p, err := Load(context.Background(), ".", []string{"./testdata/src/" + name}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// remarks returns the comments at the ends of lines, by line.
func remarks(t *testing.T, name, pattern string) map[int][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/src/" + name + "/main.go")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[int][]string)
	for i, line := range strings.Split(string(text), "\n") {
		if m := regexp.MustCompile(`//.*?` + pattern).FindStringSubmatch(line); m != nil {
			found[i+1] = m[1:]
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no remarks %s", name, pattern)
	}
	return found
}

// TestExplain_Counts compares the counted statements and accesses of programs
// and loops with the comments in their source.
func TestExplain_Counts(t *testing.T) {
	for _, name := range []string{"plain", "calls", "dynamic", "flow"} {
		t.Run(name, func(t *testing.T) {
			r := hotloops.Measure(loadTest(t, name, load.Options{}).Program)
			for _, m := range remarks(t, name, `total s=(\d+) a=(\d+)`) {
				if got := []string{fmt.Sprint(r.S), fmt.Sprint(r.A)}; !slices.Equal(got, m) {
					t.Errorf("the program counts %v, want %v", got, m)
				}
			}
			want := remarks(t, name, ` s=(\d+) a=(\d+)`)
			for line := range remarks(t, name, `total`) {
				delete(want, line)
			}
			for _, l := range r.Loops {
				m, got := want[l.Line], []string{fmt.Sprint(l.S), fmt.Sprint(l.A)}
				if !slices.Equal(got, m) {
					t.Errorf("%s counts %v, want %v", l.Pos, got, m)
				}
				delete(want, l.Line)
			}
			for line := range want {
				t.Errorf("line %d has no loop that main reaches", line)
			}
		})
	}
}

func loopsOf(p *lower.Program) (list []*ir.Loop) {
	for _, q := range p.Procs {
		ir.Each(q.Body, func(s ir.Stmt) {
			if l, ok := s.(*ir.Loop); ok {
				list = append(list, l)
			}
		})
	}
	return list
}

// TestLoad_TripCounts compares the number of iterations of loops with the
// comments in the source.
func TestLoad_TripCounts(t *testing.T) {
	want := remarks(t, "trips", `trip=(-?\d+)`)
	for _, l := range loopsOf(loadTest(t, "trips", load.Options{})) {
		if m := want[l.Line]; len(m) == 0 || m[0] != strconv.Itoa(l.Trip) {
			t.Errorf("line %d has %d rounds, want %v", l.Line, l.Trip, m)
		}
		delete(want, l.Line)
	}
	if len(want) > 0 {
		t.Errorf("loops not found: %v", want)
	}
}

// TestExplain_Messages compares the verdicts on messages at loops, and the
// reasons for them, with the comments in the source.
func TestExplain_Messages(t *testing.T) {
	for _, name := range []string{"ring", "pending", "oneway", "arrays"} {
		t.Run(name, func(t *testing.T) {
			e := explain.Explain(loadTest(t, name, load.Options{}), explain.Options{})
			want := remarks(t, name, `\b(safe|unsafe|unknown)$`)
			because := make(map[int]bool)
			if name != "ring" {
				for line := range remarks(t, name, `because$`) {
					because[line] = true
				}
			}
			for _, l := range e.Loops {
				m := want[l.Line]
				if !l.Chosen || m == nil {
					continue
				}
				delete(want, l.Line)
				if l.Messages != m[0] {
					t.Errorf("line %d is %s, want %s (%v)", l.Line, l.Messages, m[0], l.Reasons)
				}
				if (l.Messages == "safe") != (len(l.Reasons) == 0) {
					t.Errorf("line %d is %s because of %q", l.Line, l.Messages, l.Reasons)
				}
				for _, b := range l.Reasons {
					if part := strings.Split(b, ":"); len(part) < 2 || !because[atoi(part[1])] {
						t.Errorf("line %d: unexpected reason %s", l.Line, b)
					}
				}
			}
			if len(want) > 0 {
				t.Errorf("no verdict on %v", want)
			}
		})
	}
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// TestExplain_Kernels checks which variables a kernel reads and writes. The
// function that runs it on the host is not part of the program.
func TestExplain_Kernels(t *testing.T) {
	p := loadTest(t, "kernels", load.Options{})
	var found []*ir.Kernel
	for _, q := range p.Procs {
		ir.Each(q.Body, func(s ir.Stmt) {
			if k, ok := s.(*ir.Kernel); ok {
				found = append(found, k)
			}
		})
		if strings.Contains(q.Name, "func") {
			t.Errorf("%s is the kernel's host function and no part of the program", q.Name)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d kernels", len(found))
	}
	names := func(list []*ir.Var) (s string) {
		for _, v := range list {
			s += v.Name + " "
		}
		return s
	}
	if k := found[0]; k.Name != "scale" || names(k.In) != "x y " || names(k.Out) != "y " || names(k.Reads) != "devs scale x y " {
		t.Errorf("%s in %s out %s reads %s", k.Name, names(k.In), names(k.Out), names(k.Reads))
	}
}

// TestExplain_Goroutines compares the goroutines that are alive at loops with
// the comments in the source.
func TestExplain_Goroutines(t *testing.T) {
	e := explain.Explain(loadTest(t, "alive", load.Options{}), explain.Options{})
	want := remarks(t, "alive", `alive: (\d)`)
	for _, l := range e.Loops {
		if m := want[l.Line]; m != nil {
			if fmt.Sprint(len(l.Goroutines)) != m[0] || !strings.HasPrefix(l.Goroutines[0], "tick, started at testdata/src/alive/main.go:") {
				t.Errorf("line %d: %q, want %s", l.Line, l.Goroutines, m[0])
			}
			delete(want, l.Line)
		}
	}
	if len(want) > 0 {
		t.Errorf("loops not found: %v", want)
	}
}

// TestExplain_Comments shows that comments choose loops and exclude them. An
// unknown comment is reported.
func TestExplain_Comments(t *testing.T) {
	p := loadTest(t, "comments", load.Options{})
	e := explain.Explain(p, explain.Options{})
	var got []string
	for _, l := range e.Loops {
		got = append(got, fmt.Sprint(l.Line, l.Chosen, strings.Contains(l.Why, "comment")))
	}
	slices.Sort(got)
	if want := []string{"16 true true", "21 true true", "8 false true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "main.go:24: unknown comment //cairn:nonsense") {
		t.Errorf("warnings %q", e.Warnings)
	}
}

// TestInstrument_StrayComments shows that a comment for a point in an
// impossible place is reported.
func TestInstrument_StrayComments(t *testing.T) {
	const head = "package main\n\nvar n int\n\nfunc main() {\n"
	const loop = "\tfor i := 0; i < 1000; i++ {\n\t\tn += i * n\n\t}\n"
	const unused = "}\n\nfunc unused() {\n\t//cairn:point\n" + loop
	for _, c := range []struct {
		name, text string
		refused    string // expected in the error
		warns      string // expected in a warning
	}{
		{"statement", head + "\t//cairn:point\n\tn++\n" + loop + "}\n", "main.go:6: //cairn:point belongs to no loop", ""},
		{"function", head[:len("package main\n\nvar n int\n\n")] + "//cairn:point\n" + "func main() {\n" + loop + "}\n", "main.go:5: //cairn:point belongs to no loop", ""},
		{"too far", head + "\t//cairn:point\n\n" + loop + "}\n", "main.go:6: //cairn:point belongs to no loop", ""},
		{"inside", head + loop[:len(loop)-len("\t}\n")] + "\t\t//cairn:point\n\t}\n}\n", "main.go:8: //cairn:point belongs to no loop", ""},
		{"skip", head + loop + "\t//cairn:skip\n\tn++\n}\n", "", "main.go:9: //cairn:skip belongs to no loop"},
		{"unused", head + loop + unused + "}\n", "", "main.go:12: //cairn:point has no effect: main does not reach the loop"},
		{"right", head + "\t//cairn:point\n" + loop + "}\n", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", c.text)
			p, err := Load(context.Background(), dir, []string{"."}, load.Options{})
			if err != nil {
				t.Fatal(err)
			}
			in, err := instrument.Instrument(p, instrument.Options{})
			if c.refused != "" {
				if !errors.Is(err, instrument.ErrRefused) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "put the comment on the line of the loop") {
					t.Errorf("got %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(in.Warnings, "\n"); !strings.Contains(got, c.warns) || (c.warns == "") != (got == "") {
				t.Errorf("warnings %q, want %q", got, c.warns)
			}
		})
	}
}

// TestInstrument_PointLines shows that a point has the line of its loop, and a
// variable that of the statement that reads it.
func TestInstrument_PointLines(t *testing.T) {
	text := `package main

var grid [100]float64

func work(n int) bool {
	for i := range grid {
		grid[i] += float64(n)
	}
	return grid[0] > 1e6
}

func main() {
	n := 3
	for {
		if work(n) {
			break
		}
	}
	for !work(n) {
	}
}
`
	p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", text), []string{"."}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := instrument.Instrument(p, instrument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var points, frames []int
	for _, q := range in.Points {
		points = append(points, q.Line)
	}
	for _, f := range instrument.Save(in.Explanation, in, nil).Frames {
		frames = append(frames, f.Line)
		for _, v := range f.Saved {
			if v.Name == "n" && v.Read != 15 && v.Read != 19 {
				t.Errorf("n is read at line %d", v.Read)
			}
		}
	}
	if want := []int{14, 19}; !slices.Equal(points, want) || !slices.Equal(frames, want) {
		t.Errorf("points in lines %v, with frames in lines %v, want %v", points, frames, want)
	}
}

// TestLoad_TakeNamesCallee has a dynamic call that leads to two functions, of
// which Take names one. A name that fits no function is an error.
func TestLoad_TakeNamesCallee(t *testing.T) {
	p := loadTest(t, "dynamic", load.Options{Take: []string{"one"}})
	if r := hotloops.Measure(p.Program); r.S != 8 || r.A != 7 { // one instead of two
		t.Errorf("counts %v and %v", r.S, r.A)
	}
	_, err := Load(context.Background(), ".", []string{"./testdata/src/dynamic"}, load.Options{Take: []string{"three"}})
	if !errors.Is(err, load.ErrPattern) || !strings.Contains(err.Error(), "three") {
		t.Error(err)
	}
}

func TestLoad_Errors(t *testing.T) {
	syntax := t.TempDir()
	if err := os.WriteFile(filepath.Join(syntax, "main.go"), []byte("package main\nfunc main() { for }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/other\n", "main.go": "package main\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		pattern string
		is      error
		want    []string
	}{
		{other, load.ErrPattern, []string{"start cairn in that directory (cd " + other + ")"}},
		{"./testdata/src/broken", load.ErrSource, []string{"broken/main.go:4:14: ", "broken/main.go:5:2: undefined: undefined", "go build"}},
		{"./testdata/src/broken/main.go", load.ErrSource, []string{"undefined: undefined", "correct it until 'go build ./testdata/src/broken/main.go' succeeds; name all files of the program"}},
		{filepath.Join(syntax, "main.go"), load.ErrSource, []string{"main.go:2:"}},
		{"./testdata/src", load.ErrPattern, []string{"no program found: no Go files in", "; name a directory"}},
		{"absent.go", load.ErrPattern, []string{"there is no file absent.go"}},
		{"./testdata/src/nomain", load.ErrPattern, []string{"not a program", "name a package main"}},
		{"./testdata/src/several/...", load.ErrPattern, []string{"2 programs", "several/a", "several/b"}},
		{"./testdata/src/absent", load.ErrPattern, []string{"absent"}},
		{"no.such/package", load.ErrPattern, []string{"no program found"}},
	} {
		_, err := Load(context.Background(), ".", []string{c.pattern}, load.Options{Env: append(os.Environ(), "GOPROXY=off", programtest.Flags("-mod=mod"))})
		if err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %v", c.pattern, w, err)
			}
		}
	}
	if _, err := Load(context.Background(), ".", nil, load.Options{Go: "no-such-go"}); err == nil || !strings.Contains(err.Error(), "PATH") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Load(ctx, ".", []string{"./testdata/src/plain"}, load.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLoad_Modules loads a program with a replaced dependency, whose source is
// read, and a file with a build tag.
func TestLoad_Modules(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.com/prog\n\ngo 1.24\n\nrequire example.com/dep v0.0.0\n\nreplace example.com/dep => ./dep\n",
		"main.go":     "package main\n\nimport \"example.com/dep\"\n\nvar extra = func(int) {}\n\nfunc main() { dep.Work(3); extra(4) }\n",
		"tagged.go":   "//go:build tagged\n\npackage main\n\nfunc init() {\n\textra = func(n int) {\n\t\tfor n > 0 {\n\t\t\tn = n - 1\n\t\t}\n\t}\n}\n",
		"dep/go.mod":  "module example.com/dep\n\ngo 1.24\n",
		"dep/work.go": "package dep\n\nfunc Work(n int) {\n\tfor n > 0 {\n\t\tn = n / 2\n\t}\n}\n",
	} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	for _, tags := range [][]string{nil, {"tagged"}} {
		p, err := Load(context.Background(), dir, nil, load.Options{Tags: tags, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range explain.Explain(p, explain.Options{}).Loops {
			got = append(got, fmt.Sprintf("%s:%d %s", l.File, l.Line, l.Function))
		}
		slices.Sort(got)
		want := []string{"dep/work.go:4 dep.Work"}
		if tags != nil {
			want = append(want, "tagged.go:7 init.func1")
		}
		if !slices.Equal(got, want) {
			t.Errorf("tags %v: %q, want %q", tags, got, want)
		}
	}
}

// TestExplain_Examples compares with the golden files, and with where the
// programs call Point by hand.
func TestExplain_Examples(t *testing.T) {
	for _, c := range []struct {
		name, pattern, take string
		points              []string // file and function of the points in the source
	}{
		{"heat", "./examples/heat", "", []string{"plate.go (*plate).run"}},
		{"ring", "./examples/ring", "", []string{"ring.go (*ring).run"}},
		{"water", "./examples/water", "", []string{"main.go simulate"}},
		{"npb-ep", "./examples/npb", "ep", []string{"ep.go ep"}},
		{"npb-cg", "./examples/npb", "cg", []string{"cg.go cg"}},
		{"npb-is", "./examples/npb", "is", []string{"is.go is"}},
		{"npb-ft", "./examples/npb", "ft", []string{"ft.go ft"}},
		{"npb-mg", "./examples/npb", "mg", []string{"mg.go mg"}},
		{"npb", "./examples/npb", "", []string{"mg.go mg", "cg.go cg", "ft.go ft", "is.go is", "ep.go ep"}},
		// All programs have the same main loop. The references and
		// initial states of some have not much less work.
		{"testbed", "./examples/testbed", "", []string{"harness.go (*harness).loop", "shwa.go (*shwa).reference",
			"ftmd.go (*ft).toWaves", "ftmd.go (*ft).toWaves", "summa.go (*summa).begin", "summa.go (*summa).reference",
			"summa.go (*summa).prepare"}},
	} {
		if !slices.Contains([]string{"heat", "npb-cg", "npb", "testbed"}, c.name) && os.Getenv("CAIRN_LONG") == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			var o load.Options
			if c.take != "" {
				o.Take = []string{c.take}
			}
			p, err := Load(context.Background(), "../../..", []string{c.pattern}, o)
			if err != nil {
				t.Fatal(err)
			}
			e := explain.Explain(p, explain.Options{})
			var chosen []string
			for _, l := range e.Loops {
				if l.Chosen {
					chosen = append(chosen, filepath.Base(l.File)+" "+l.Function)
				}
			}
			if !slices.Equal(chosen, c.points) {
				t.Errorf("chosen %q, want %q", chosen, c.points)
			}
			for _, l := range e.Loops {
				if strings.HasPrefix(c.name, "npb") && l.Chosen && l.Messages != "safe" {
					t.Errorf("%s:%d is %s, and not safe: %q", l.File, l.Line, l.Messages, l.Reasons)
				}
			}
			var b strings.Builder
			if err := e.Text(&b, true, false); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "golden", c.name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("not as %s has it (-update writes it anew):\n%s", golden, diff(string(want), b.String()))
			}
		})
	}
}

// diff returns the first lines that differ.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d\n  want %s\n  got  %s", i+1, strings.Join(w[min(i, len(w)):min(i+3, len(w))], "\n       "), strings.Join(g[min(i, len(g)):min(i+3, len(g))], "\n       "))
		}
	}
	return ""
}

// BenchmarkExplain_LargestProgram analyses the largest program available: the
// cairn command, with the packages of the call graph.
func BenchmarkExplain_LargestProgram(b *testing.B) {
	times := make(map[string]float64)
	lines := 0
	for b.Loop() {
		p, err := Load(context.Background(), "../../..", []string{"./cmd/cairn"}, load.Options{})
		if err != nil {
			b.Fatal(err)
		}
		lines = p.Lines
		for _, ph := range explain.Explain(p, explain.Options{}).Phases {
			times[ph.Name] += ph.Seconds
		}
	}
	b.ReportMetric(float64(lines), "lines")
	for name, s := range times {
		b.ReportMetric(s/float64(b.N), strings.ReplaceAll(name, " ", "-")+"-s")
	}
}

// TestExplain_Malleable checks which programs of the testbed can continue on
// another number of devices, and what depends on that number in the others.
func TestExplain_Malleable(t *testing.T) {
	p, err := Load(context.Background(), "../../..", []string{"./examples/testbed"}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := explain.Explain(p, explain.Options{})
	if e.Devices == nil || e.Devices.Malleable {
		t.Fatalf("devices: %+v", e.Devices)
	}
	var depends []string
	for _, d := range e.Devices.Depends {
		depends = append(depends, filepath.Base(d.File)+" "+d.Name)
	}
	want := []string{"mg.go slabs", "mg.go u", "mg.go r", "mg.go v", "summa.go grid", "summa.go A", "summa.go B", "summa.go C"}
	if !slices.Equal(depends, want) {
		t.Errorf("%q depend on the number of devices, want %q", depends, want)
	}
	for _, m := range e.Modes {
		if m.Malleable == nil || *m.Malleable != (m.Name != "(*summa)" && m.Name != "(*mg)") {
			t.Errorf("%s is malleable: %v", m.Name, m.Malleable)
		}
	}
	for _, k := range e.Devices.Kernels {
		if k.Name == "s.update" && !slices.Equal(k.Writes, []string{"u", "gate", "peak"}) {
			t.Errorf("%s:%d writes %q", k.File, k.Line, k.Writes)
		}
	}
}
