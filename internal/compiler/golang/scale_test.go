package golang

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// bigProgram writes a program of about n lines: packages of structs with
// methods, loops over slices, errors that are returned, interfaces, closures,
// maps and messages between ranks, in a mix like that of large simulations.
func bigProgram(dir string, n int) error {
	r := rand.New(rand.NewSource(1))
	var main strings.Builder
	main.WriteString("package main\n\nimport (\n\t\"context\"\n\t\"log\"\n\n\t\"github.com/cairnrun/cairn\"\n")
	const perPart = 64 // lines of a part of a package
	packages := max(1, n/perPart/8)
	for p := range packages {
		fmt.Fprintf(&main, "\t\"github.com/cairnrun/cairn/internal/compiler/golang/testdata/%s/part%d\"\n", filepath.Base(dir), p)
	}
	main.WriteString(")\n\nfunc main() {\n\trun, err := cairn.Open(context.Background(), cairn.Options{})\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tc := run.World()\n")
	for p := range packages {
		fmt.Fprintf(&main, "\tm%d := part%[1]d.New(c, %d)\n", p, 100+p)
	}
	main.WriteString("\tfor step := range 1000 {\n\t\tif err := run.Point(context.Background()); err != nil {\n\t\t\tlog.Fatal(err)\n\t\t}\n")
	for p := range packages {
		fmt.Fprintf(&main, "\t\tif err := m%d.Step(step); err != nil {\n\t\t\tlog.Fatal(err)\n\t\t}\n", p)
	}
	main.WriteString("\t}\n}\n")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(main.String()), 0o666); err != nil {
		return err
	}
	for p := range packages {
		var b strings.Builder
		fmt.Fprintf(&b, "package part%d\n\nimport (\n\t\"fmt\"\n\t\"math\"\n\n\t\"github.com/cairnrun/cairn/mpi\"\n)\n", p)
		fmt.Fprintf(&b, "\ntype worker interface{ work(step int) error }\n\n// Model is a part of the simulation.\ntype Model struct {\n\tc       *mpi.Comm\n\tn       int\n\tworkers []worker\n\tsum     map[string]float64\n}\n")
		b.WriteString("\nfunc New(c *mpi.Comm, n int) *Model {\n\tm := &Model{c: c, n: n, sum: make(map[string]float64)}\n")
		for k := range 8 {
			fmt.Fprintf(&b, "\tm.workers = append(m.workers, newField%d(c, n))\n", k)
		}
		b.WriteString("\treturn m\n}\n\nfunc (m *Model) Step(step int) error {\n\tfor _, w := range m.workers {\n\t\tif err := w.work(step); err != nil {\n\t\t\treturn fmt.Errorf(\"step %d: %w\", step, err)\n\t\t}\n\t}\n\treturn nil\n}\n")
		for k := range 8 {
			bigPart(&b, k, r)
		}
		part := filepath.Join(dir, fmt.Sprintf("part%d", p))
		if err := os.MkdirAll(part, 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(part, "part.go"), []byte(b.String()), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// bigPart writes one struct and its methods.
func bigPart(b *strings.Builder, k int, r *rand.Rand) {
	f := strings.NewReplacer("K", fmt.Sprint(k), "TAG", fmt.Sprint(r.Intn(8)), "COEF", fmt.Sprintf("%.3f", r.Float64())).Replace
	b.WriteString(f(`
// fieldK is a field on a line of cells, divided among the ranks.
type fieldK struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newFieldK(c *mpi.Comm, n int) *fieldK {
	f := &fieldK{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * COEF)
	}
	return f
}

func (f *fieldK) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + COEF*b + c) / (2 + COEF) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *fieldK) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, TAG, f.edge, f.right, TAG); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, TAG, f.edge, f.left, TAG); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *fieldK) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// doneK counts measurements, of which there are at most mostK.
var doneK, mostK int

func (f *fieldK) measure() error {
	if doneK++; doneK > mostK && mostK > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}
`))
}

// moreWork is how much the steps per line may grow from the smallest program to
// the largest: objects and variables are in trees, which get deeper.
const moreWork = 1.4

// TestExplain_LinearSteps: the analysis of a program grows no faster than the
// program, in steps, which are the same on any machine. It prints how long it
// takes, besides reading and type-checking.
func TestExplain_LinearSteps(t *testing.T) {
	sizes := []int{3000, 6000, 12500, 25000}
	if os.Getenv("CAIRN_LONG") == "" {
		sizes = sizes[:2]
	}
	last, lines, least := 0.0, 0, 0.0
	for _, n := range sizes {
		dir, err := os.MkdirTemp("testdata", "scale")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := bigProgram(dir, n); err != nil {
			t.Fatal(err)
		}
		p, err := Load(context.Background(), ".", []string{"./" + filepath.ToSlash(dir)}, load.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e := explain.Explain(p, explain.Options{})
		took, phases := 0.0, ""
		for _, ph := range e.Phases {
			if ph.Name != "go list" && ph.Name != "parse and type-check" {
				took += ph.Seconds
				phases += fmt.Sprintf(", %s %.2f", ph.Name, ph.Seconds)
			}
		}
		ratio := ""
		if last > 0 {
			ratio = fmt.Sprintf("; %.2f times the time for %.2f times the lines", took/last, float64(p.Lines)/float64(lines))
		}
		steps := float64(e.Work) / float64(p.Lines)
		t.Logf("%d lines: %.2f s%s; %.0f steps for a line%s", p.Lines, took, phases, steps, ratio)
		last, lines = took, p.Lines
		if least == 0 {
			least = steps
		}
		if steps > moreWork*least {
			t.Errorf("%d lines: %.0f steps for a line, and %.0f in a program of about %d lines: the work grows faster than the program", p.Lines, steps, least, sizes[0])
		}
		for _, l := range e.Loops {
			if l.Chosen && filepath.Base(l.File) == "main.go" && l.Messages != "safe" {
				t.Errorf("%d lines: the main loop is %s: %q", p.Lines, l.Messages, l.Reasons)
			}
		}
		if len(e.Loops) == 0 {
			t.Error("there are no loops")
		}
	}
}
