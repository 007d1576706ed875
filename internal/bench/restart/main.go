// Command restart measures how much slower a Go program becomes when it is
// built to be restartable ('cairn build') and no checkpoint is taken, and how
// long one checkpoint pauses it.
//
//	go run ./internal/bench/restart [-rounds N] [-programs LIST]
//		[-dir DIRECTORY[,ARGS] …]
//
// Each program is built by 'go build' (plain) and by 'cairn build'. The result
// of 'cairn build' runs by itself (alone) and under 'cairn run --every 1h'
// (run). The programs are those in testdata, and the kernels of examples/npb
// without their calls of Cairn, as one rank.
//
// Machines are noisy and shared: the same run may take a fifth longer a second
// later. So runs are short, and what is compared runs side by side: a round is
// plain, alone, alone, plain, or the reverse, and gives one ratio. The medians
// of the ratios are shown, with the standard error of the median from their
// spread. The two plain runs of each round are compared in the same way
// (again): their difference is noise. The measure is the processor time that
// the system charges to the processes: the program and, for run, its
// supervisor. The time for start and end of a program is measured with no work
// to do, and subtracted. NPB has no such mode, and does not run under cairn
// run.
//
// The programs thousand and parked show the pauses of programs with many
// goroutines.
//
// Some programs consist of goroutines that wait for each other. While one
// processor has nothing to do, the Go scheduler uses processor time to look for
// work: -procs 1 shows what the program itself needs, -elapsed how long it
// takes.
//
// The linker's placement of functions has more effect than Cairn: -layouts
// compares several orders, and -count counts instructions instead.
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
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/plain"
)

var (
	rounds   = flag.Int("rounds", 15, "rounds of four runs each")
	programs = flag.String("programs", "", "programs to measure, with commas between (default: all)")
	tmpDir   = flag.String("tmp", "", "where programs are built and run (default: the temporary directory)")
	command  = flag.String("cairn", "", "the cairn command (default: it is built)")
	into     = flag.String("build", "", "only build, into `DIRECTORY`, for -built")
	built    = flag.String("built", "", "measure what -build put into `DIRECTORY`; that may be on another machine, which needs no Go")
	strict   = flag.Bool("strict", false, "fail if a bound is exceeded")
	skipRun  = flag.Bool("alone", false, "leave out what needs cairn run")
	layouts  = flag.Int("layouts", 1, "ways in which the linker orders functions; rounds take them in turn, all but the first at random")
	counting = flag.Bool("count", false, "count instructions, with Valgrind, instead of measuring time")
	procs    = flag.Int("procs", 0, "GOMAXPROCS of the programs (default: all processors)")
	elapsed  = flag.Bool("elapsed", false, "measure how long programs run, not the processor time that they use")
	atOnce   = flag.Int("at-once", 1, "programs that are measured at the same time")
	others   dirs
)

// dirs are the programs that -dir names.
type dirs []string

func (d *dirs) String() string     { return strings.Join(*d, " ") }
func (d *dirs) Set(s string) error { *d = append(*d, s); return nil }

//go:embed testdata
var embedded embed.FS

// bound is the bound of the overhead in percent for programs whose work is
// inside the loops with points.
const bound = 2.0

// bounds are those of other programs. The hottest function of queens and vm is
// rewritten itself: a recursion that calls itself from the loop with the point,
// and a loop with next to no work in an iteration. The others do nothing but
// wait for other goroutines.
var bounds = map[string]float64{
	"queens": 5, "vm": 5,
	"pingpong": 5, "pipeline": 5, "selecting": 5,
	"mutex": 3, "rwmutex": 3, "cond": 3,
}

func main() {
	flag.Var(&others, "dir", "also measure the program in `DIRECTORY`, with ARGS: DIRECTORY,ARG,ARG…; can be given again")
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
	tmp, err := os.MkdirTemp(*tmpDir, "cairn-restart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{ctx: ctx, tmp: tmp, bin: tmp}
	if f := cmp.Or(*built, *into); f != "" {
		if b.bin, err = filepath.Abs(f); err != nil {
			return err
		}
	}
	if b.cairn = filepath.Join(b.bin, "cairn"); *command != "" {
		if b.cairn, err = filepath.Abs(*command); err != nil {
			return err
		}
	}
	list, err := b.list()
	if err != nil {
		return err
	}
	if *built == "" {
		if err := b.build(list); err != nil || *into != "" {
			return err
		}
	}
	if *procs > 0 {
		os.Setenv("GOMAXPROCS", strconv.Itoa(*procs))
	}
	if *counting {
		return b.count(list)
	}
	time := "processor time"
	if *elapsed {
		time = "time"
	}
	fmt.Printf("%s/%s, %d processors; %d rounds; more %s than plain, without start and end\n",
		runtime.GOOS, runtime.GOARCH, cmp.Or(*procs, runtime.NumCPU()), *rounds, time)
	fmt.Printf("%-12s %8s  %13s  %13s  %13s  %9s %9s %9s\n", "", "plain s", "again %", "alone %", "run %", "bound %", "pause ms", "state")
	results, errs := make([]*result, len(list)), make([]error, len(list))
	done := make([]chan struct{}, len(list))
	lanes := make(chan struct{}, max(1, *atOnce))
	for i := range list {
		done[i] = make(chan struct{})
	}
	go func() {
		for i, p := range list {
			lanes <- struct{}{}
			go func() {
				results[i], errs[i] = b.measure(p)
				close(done[i])
				<-lanes
			}()
		}
	}()
	var over []string
	for i, p := range list {
		<-done[i]
		r := results[i]
		if errs[i] != nil {
			return fmt.Errorf("%s: %w", p.name, errs[i])
		}
		fmt.Println(r.row(p))
		if r.alone.above(p.bound) || r.run.above(p.bound) {
			over = append(over, p.name)
		}
	}
	if len(over) > 0 {
		fmt.Printf("above the bound by more than twice the error: %s\n", strings.Join(over, ", "))
		if *strict {
			return fmt.Errorf("%d programs are above the bound", len(over))
		}
	}
	return nil
}

// program is a program to measure.
type program struct {
	name    string
	binary  string   // name of its files, without endings
	dir     string   // directory to build in
	pkg     string   // package to build, relative to dir
	args    []string // arguments for a run with work
	nothing []string // arguments for a run without work; nil: there is no such mode
	changes bool     // its output differs from run to run
	bound   float64
	given   bool // it comes from the flag -dir
}

// list copies the programs to where they can be built.
func (b *bench) list() ([]*program, error) {
	tree, err := fs.Sub(embedded, "testdata")
	if err != nil {
		return nil, err
	}
	src := filepath.Join(b.tmp, "src")
	if err := os.CopyFS(src, tree); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return nil, err
	}
	var out []*program
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, &program{name: e.Name(), binary: e.Name(), dir: src, pkg: "./" + e.Name(), nothing: []string{"-rounds", "0"}, bound: cmp.Or(bounds[e.Name()], bound)})
		}
	}
	// Kernels of examples/npb, in classes that take a fraction of a second.
	for _, k := range []struct{ name, class string }{{"ep", "S"}, {"is", "W"}, {"cg", "W"}, {"ft", "W"}, {"mg", "W"}} {
		out = append(out, &program{name: "npb-" + k.name, binary: "npb", dir: filepath.Join(b.tmp, "npb-src"), pkg: ".", changes: true, bound: bound,
			args: []string{"-kernel", k.name, "-class", k.class, "-dir", "npb.state", "-every", "1h"}})
	}
	for _, d := range others {
		f := strings.Split(d, ",")
		dir, err := filepath.Abs(f[0])
		if err != nil {
			return nil, err
		}
		out = append(out, &program{name: filepath.Base(dir), binary: filepath.Base(dir), dir: dir, pkg: ".", args: f[1:], changes: true, bound: bound, given: true})
	}
	if *programs == "" {
		return out, nil
	}
	want := strings.Split(*programs, ",")
	out = slices.DeleteFunc(out, func(p *program) bool { return !slices.Contains(want, p.name) && !p.given })
	for _, w := range want {
		if !slices.ContainsFunc(out, func(p *program) bool { return p.name == w }) {
			return nil, fmt.Errorf("there is no program %q", w)
		}
	}
	return out, nil
}

// build builds all programs in both ways.
func (b *bench) build(list []*program) error {
	if err := os.MkdirAll(b.bin, 0o777); err != nil {
		return err
	}
	if *command == "" {
		if err := b.do(".", "go", "build", "-o", b.cairn, "github.com/cairnrun/cairn/cmd/cairn"); err != nil {
			return err
		}
	}
	// The directory of programs is not a module here, so that it can be
	// embedded.
	if err := os.WriteFile(filepath.Join(b.tmp, "src", "go.mod"), []byte("module restartbench\n\ngo 1.26\n"), 0o666); err != nil {
		return err
	}
	if err := b.npb(); err != nil {
		return err
	}
	done := make(map[string]bool)
	for _, p := range list {
		if done[p.binary] {
			continue
		}
		done[p.binary] = true
		for k := range *layouts {
			plain, made := b.binaries(p, k)
			flags := fmt.Sprintf("-s -w -randlayout=%d", k) // 0: the usual order
			if err := b.do(p.dir, "go", "build", "-ldflags", flags, "-o", plain, p.pkg); err != nil {
				return err
			}
			if err := b.do(p.dir, b.cairn, "build", "-q", "--ldflags", flags, "-o", made, p.pkg); err != nil {
				return err
			}
		}
	}
	return nil
}

// binaries returns the files of a program in one layout: the results of go
// build and of cairn build.
func (b *bench) binaries(p *program, layout int) (plain, made string) {
	made = filepath.Join(b.bin, p.binary)
	if layout > 0 {
		made += fmt.Sprint(".", layout)
	}
	return made + ".plain", made
}

// npb copies the kernels to where they can be built.
func (b *bench) npb() error {
	root, err := exec.CommandContext(b.ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cairnrun/cairn").Output()
	if err != nil {
		return fmt.Errorf("where the module is: %w", err)
	}
	dir := filepath.Join(b.tmp, "npb-src")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	for _, e := range plain.Env() {
		name, value, _ := strings.Cut(e, "=")
		os.Setenv(name, value)
	}
	_, err = plain.NPB(strings.TrimSpace(string(root)), dir, nil)
	return err
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
