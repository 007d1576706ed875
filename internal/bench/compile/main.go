//go:build unix

// Command compile measures how long 'cairn build' takes, next to 'go build -a'
// of the same program.
//
//	go run ./internal/bench/compile [-phases] [DIRECTORY[,PATTERN] …]
//
// Without arguments, the program is examples/npb. Each program is built in
// these ways, in this order:
//
//	plain  go build -a, with an empty build cache
//	once   cairn build of a program with one loop, with an empty build cache
//	       and an empty cache of Cairn: Cairn's run time and the packages of the
//	       standard library that it imports are compiled
//	new    cairn build of the program, with what once has left in the caches
//	same   cairn build again, with nothing changed
//	warm   the same without Cairn's cache: the analysis and the rewriting are
//	       done again, and the compiler of Go has nothing to do
//
// The table has the processor time of all processes (and the elapsed time) in
// seconds, and ratios to plain. The last column is the analysis and the
// rewriting of warm, for 12,500 lines of the program and its modules. On a busy
// machine both times grow; ratios grow less.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/compiler/golang/gobuild"
)

var (
	phases  = flag.Bool("phases", false, "show the steps of new and warm")
	profile = flag.String("cpuprofile", "", "write a CPU profile of the analysis of warm to `FILE`")
	rounds  = flag.Int("rounds", 1, "measure each program `N` times; the least times count")
	child   = flag.String("child", "", "for internal use: build the program into `FILE`, print the steps")
)

// cost is what something takes, in seconds.
type cost struct{ CPU, Elapsed float64 }

// step is a part of a build.
type step struct {
	Name string
	cost
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *child != "" {
		err = build(ctx, *child, flag.Arg(0), flag.Args()[1:])
	} else {
		err = run(ctx, flag.Args())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}

// build builds a program as 'cairn build' does, and prints the steps as JSON.
func build(ctx context.Context, to, dir string, patterns []string) error {
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	var steps []step
	last := cost{cpu(), 0}
	begin := time.Now()
	next := func(name string) {
		now := cost{cpu(), time.Since(begin).Seconds()}
		if n := len(steps); n > 0 {
			steps[n-1].CPU, steps[n-1].Elapsed = now.CPU-last.CPU, now.Elapsed-last.Elapsed
		}
		last, steps = now, append(steps, step{Name: name})
	}
	_, err := golang.Make(ctx, dir, patterns, golang.MakeOptions{Options: gobuild.Options{Cache: os.Getenv("CAIRN_BENCH_CACHE")}, Output: to, Step: next})
	if err != nil {
		return err
	}
	next("")
	return json.NewEncoder(os.Stdout).Encode(steps[:len(steps)-1])
}

// cpu returns the processor time of this process and of its children that have
// ended.
func cpu() (sum float64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		}
	}
	return sum
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"examples/npb"}
	}
	tmp, err := os.MkdirTemp("", "cairn-compile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Printf("%s/%s, %d processors; seconds of processor time (elapsed time), and ratios to plain\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	fmt.Printf("%-16s %7s %14s %14s %20s %20s %20s %12s %8s\n", "program", "lines", "plain", "once", "new", "once and new", "warm", "same", "s/12,500")
	for _, arg := range args {
		dir, pattern, _ := strings.Cut(arg, ",")
		if pattern == "" {
			pattern = "."
		}
		b := &bench{ctx: ctx, tmp: tmp, self: self, dir: dir, pattern: pattern}
		if err := b.measure(); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		b.print(arg)
	}
	return nil
}

// bench measures one program.
type bench struct {
	ctx                     context.Context
	tmp, self, dir, pattern string

	lines                        int
	plain, once, new, warm, same cost
	newSteps, warmSteps          []step
}

func (b *bench) measure() error {
	text, err := b.command(nil, "go", "list", "-deps", "-f", `{{if not .Standard}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}`, "--", b.pattern)
	if err != nil {
		return err
	}
	for name := range strings.Lines(text.stdout) {
		src, err := os.ReadFile(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		b.lines += bytes.Count(src, []byte("\n"))
	}
	for range *rounds {
		if err := b.round(); err != nil {
			return err
		}
	}
	return nil
}

// round builds the program in all four ways.
func (b *bench) round() error {
	work, err := os.MkdirTemp(b.tmp, "round-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	program := filepath.Join(work, "program")
	plain, err := b.command([]string{"GOCACHE=" + filepath.Join(work, "plain")}, "go", "build", "-a", "-o", program, "--", b.pattern)
	if err != nil {
		return err
	}
	own := filepath.Join(work, "own")
	env := []string{"GOCACHE=" + filepath.Join(work, "go"), "CAIRN_BENCH_CACHE=" + own}
	least(&b.plain, plain.cost)
	hello := filepath.Join(work, "hello.go")
	if err := os.WriteFile(hello, []byte("package main\n\nfunc main() {\n\tfor i := range 1000 { //cairn:point\n\t\tprintln(i)\n\t}\n}\n"), 0o666); err != nil {
		return err
	}
	once, err := b.command(env, b.self, "-child", program, work, "hello.go")
	if err != nil {
		return err
	}
	least(&b.once, once.cost)
	for _, way := range []struct {
		to    *cost
		steps *[]step
		again bool
	}{{&b.new, &b.newSteps, false}, {&b.same, nil, false}, {&b.warm, &b.warmSteps, true}} {
		args := []string{"-child", program}
		if way.again {
			if err := os.RemoveAll(filepath.Join(own, "build")); err != nil {
				return err
			}
			if *profile != "" {
				args = append(args, "-cpuprofile", *profile)
			}
		}
		out, err := b.command(env, b.self, append(args, b.dir, b.pattern)...)
		if err != nil {
			return err
		}
		if least(way.to, out.cost) && way.steps != nil {
			*way.steps = nil
			if err := json.Unmarshal([]byte(out.stdout), way.steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// least keeps the smaller cost, and reports whether that is the new one.
func least(to *cost, c cost) bool {
	if to.CPU != 0 && to.CPU <= c.CPU {
		return false
	}
	*to = c
	return true
}

// output is what a command printed, and what it took.
type output struct {
	stdout string
	cost
}

// command runs a command with more environment variables: go in the program's
// directory, this program in its own.
func (b *bench) command(env []string, name string, args ...string) (*output, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	if name == "go" {
		cmd.Dir = b.dir
	}
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	took := time.Since(begin).Seconds()
	return &output{stdout.String(), cost{(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), took}}, nil
}

func (b *bench) print(name string) {
	text := func(c cost) string { return fmt.Sprintf("%.1f (%.1f)", c.CPU, c.Elapsed) }
	ratio := func(c cost) string { return fmt.Sprintf("%s %.2f×", text(c), c.CPU/b.plain.CPU) }
	analysis := 0.0
	for _, s := range b.warmSteps {
		if s.Name != "compiling" {
			analysis += s.CPU
		}
	}
	both := cost{b.once.CPU + b.new.CPU, b.once.Elapsed + b.new.Elapsed}
	fmt.Printf("%-16s %7d %14s %14s %20s %20s %20s %12s %8.2f\n", filepath.Base(name), b.lines, text(b.plain), text(b.once),
		ratio(b.new), ratio(both), ratio(b.warm), text(b.same), analysis/float64(b.lines)*12500)
	if !*phases {
		return
	}
	for _, steps := range [][]step{b.newSteps, b.warmSteps} {
		for _, s := range steps {
			fmt.Printf("    %-28s %7.2f (%.2f)\n", s.Name, s.CPU, s.Elapsed)
		}
		fmt.Println()
	}
}
