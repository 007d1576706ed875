// Command restart measures what it costs a Go program to be built so that it can
// be restarted where it was ('cairn build'), without any checkpoint being taken,
// and how long one checkpoint holds it.
//
//	go run ./internal/bench/restart [-rounds N] [-programs LIST] [-dir FOLDER[,ARGS] …]
//
// Each program is built by 'go build' and by 'cairn build'. Then, round by round
// and one after another, these are run:
//
//	plain    what go build made
//	again    the same once more: how far this differs from plain is noise
//	alone    what cairn build made, run by itself
//	run      the same under 'cairn run --every 1h'
//
// Machines are noisy and shared, so what counts is the processor time that the
// system charges to the processes, of the program and, for run, of its
// supervisor; wall-clock time is shown too. What a program takes to start and end
// is measured with no work to do, and taken off. Differences are those of the
// medians, and of the shortest runs of each kind: what others do on the machine
// only makes runs longer.
package main

import (
	"cmp"
	"context"
	"embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

var (
	rounds   = flag.Int("rounds", 7, "rounds; medians are shown")
	programs = flag.String("programs", "", "programs to measure, with commas between (default: all)")
	folder   = flag.String("tmp", "", "where programs are built and run (default: the temporary folder)")
	command  = flag.String("cairn", "", "the cairn command (default: it is built)")
	keep     = flag.Bool("keep", false, "keep what was built")
	strict   = flag.Bool("strict", false, "fail if a bound is not held")
	skipRun  = flag.Bool("alone", false, "leave out what needs cairn run")
	others   dirs
)

// dirs are programs elsewhere, as the flag -dir gives them.
type dirs []string

func (d *dirs) String() string     { return strings.Join(*d, " ") }
func (d *dirs) Set(s string) error { *d = append(*d, s); return nil }

//go:embed testdata
var embedded embed.FS

// Bounds on the overhead, in per cent: of programs whose work is inside the loops
// with points, and of those whose hottest function is itself rewritten.
const (
	bound    = 2.0
	boundHot = 5.0
)

// hot are the programs of the second kind: recursion that calls itself from the
// loop with the point, and a loop that does next to nothing in a round.
var hot = []string{"queens", "vm"}

func main() {
	flag.Var(&others, "dir", "also measure the program in `FOLDER`, with ARGS: FOLDER,ARG,ARG…; can be given again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	tmp, err := os.MkdirTemp(*folder, "cairn-restart-")
	if err != nil {
		return err
	}
	if *keep {
		fmt.Fprintln(os.Stderr, "kept:", tmp)
	} else {
		defer os.RemoveAll(tmp)
	}
	b := &bench{ctx: ctx, tmp: tmp, cairn: filepath.Join(tmp, "cairn")}
	list, err := b.list()
	if err != nil {
		return err
	}
	if *command != "" {
		if b.cairn, err = filepath.Abs(*command); err != nil {
			return err
		}
	} else if err := b.do(".", "go", "build", "-o", b.cairn, "github.com/cairnrun/cairn/cmd/cairn"); err != nil {
		return err
	}
	fmt.Printf("%s/%s, %d processors; %d rounds; processor time without start and end; bounds %.0f %%, of hot functions (*) %.0f %%\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *rounds, bound, boundHot)
	fmt.Printf("%-12s %8s  %15s  %15s  %15s  %7s  %9s %9s  %s\n", "", "plain", "again", "alone", "run", "wall", "held", "state", "")
	fmt.Printf("%-12s %8s  %15s  %15s  %15s  %7s  %9s %9s  %s\n", "", "s", "% (least)", "% (least)", "% (least)", "alone %", "ms", "", "points; functions rewritten")
	var over []string
	for _, p := range list {
		r, err := b.measure(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Println(r.row(p))
		most := bound
		if p.hot {
			most = boundHot
		}
		if min(r.alone.median, r.alone.least) > most || min(r.run.median, r.run.least) > most {
			over = append(over, p.name)
		}
	}
	if len(over) > 0 {
		fmt.Printf("above the bound, by medians and by the shortest runs: %s\n", strings.Join(over, ", "))
		if *strict {
			return fmt.Errorf("%d programs are above the bound", len(over))
		}
	}
	return nil
}

// program is one to measure.
type program struct {
	name    string
	dir     string   // to build in
	pkg     string   // to build, from there
	args    []string // when it is to work
	nothing []string // when it is not; nil: that can't be asked for
	hot     bool
}

// list puts the programs where they can be built.
func (b *bench) list() ([]*program, error) {
	tree, err := fs.Sub(embedded, "testdata")
	if err != nil {
		return nil, err
	}
	src := filepath.Join(b.tmp, "src")
	if err := os.CopyFS(src, tree); err != nil {
		return nil, err
	}
	// The folder of programs is no module here, so that it can be embedded.
	if err := os.WriteFile(filepath.Join(src, "go.mod"), []byte("module restartbench\n\ngo 1.26\n"), 0o666); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return nil, err
	}
	var out []*program
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, &program{name: e.Name(), dir: src, pkg: "./" + e.Name(), nothing: []string{"-rounds", "0"}, hot: slices.Contains(hot, e.Name())})
		}
	}
	for _, d := range others {
		f := strings.Split(d, ",")
		dir, err := filepath.Abs(f[0])
		if err != nil {
			return nil, err
		}
		out = append(out, &program{name: filepath.Base(dir), dir: dir, pkg: ".", args: f[1:]})
	}
	if *programs == "" {
		return out, nil
	}
	want := strings.Split(*programs, ",")
	out = slices.DeleteFunc(out, func(p *program) bool { return !slices.Contains(want, p.name) && p.nothing != nil })
	for _, w := range want {
		if !slices.ContainsFunc(out, func(p *program) bool { return p.name == w }) {
			return nil, fmt.Errorf("there is no program %q", w)
		}
	}
	return out, nil
}

// do runs a tool.
func (b *bench) do(dir, name string, args ...string) error {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func median[T cmp.Ordered](l []T) T {
	s := slices.Sorted(slices.Values(l))
	return s[len(s)/2]
}
