package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/interconnects"
)

var (
	parts    = flag.String("part", "pipeline,programs,pause", "what is measured; also tiers, slowdown and coder")
	rounds   = flag.Int("rounds", 3, "rounds; medians are shown")
	size     = flag.Int64("size", 1<<30, "bytes of the rank's state; twice as many in the part pause")
	tierSize = flag.Int64("tier-size", 64<<20, "bytes of each rank's state in the part tiers")
	classes  = flag.String("npb", "ft.A,mg.B,cg.B", "NPB kernels and classes of the part programs")
	kept     = flag.String("figures", "", "a file that keeps figures: those of parts that are not measured now are drawn, too")
	drawing  = flag.String("o", "", "where the picture is written (default: nowhere)")
	tmpDir   = flag.String("tmp", "", "where programs are built and run (default: the temporary directory)")
	strict   = flag.Bool("strict", false, "fail if a bound is exceeded")
	verbose  = flag.Bool("v", false, "show every move")

	role   = flag.String("as", "", "be a part of the measurement: rank, compute, stages, send, sink, store")
	dirty  = flag.Float64("dirty", 0, "of a rank: the part of its state that it changes between two points")
	period = flag.Duration("period", 5*time.Millisecond, "of a rank: time between two points")
	files  = flag.String("files", "", "of a rank: how the files begin by which it is followed")
	to     = flag.String("to", "", "of stages and send: address of the sink")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "move:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	switch *role {
	case "":
		return measure(ctx)
	case "rank", "compute":
		return runRank(ctx, *size, *dirty, *period, *files, *role == "compute")
	case "stages":
		return runStages(ctx, *size, *to, os.Stdout)
	case "send":
		return runSend(ctx, *size, *to, os.Stdout)
	case "sink":
		return runSink(os.Stdout)
	case "store":
		return runStore()
	}
	return fmt.Errorf("no role %q", *role)
}

// measure runs all parts.
func measure(ctx context.Context) (err error) {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it in the directory that holds go.mod: make migration")
	}
	b := &bench{ctx: ctx}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.tmp, err = os.MkdirTemp(*tmpDir, "cairn-move-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.tmp)
	b.cairn, b.npb = filepath.Join(b.tmp, "cairn"), filepath.Join(b.tmp, "npb")
	for program, pkg := range map[string]string{b.cairn: "./cmd/cairn", b.npb: "./examples/npb"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", pkg, err, text)
		}
	}
	if b.net, err = interconnects.NewNetwork(3); err != nil {
		return err
	}
	defer b.net.Close()
	if err := b.listen(); err != nil {
		return err
	}
	defer b.sink.close()
	fmt.Printf("%s/%s, %d processors for all hosts; medians of %d rounds\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *rounds)
	var all []figure
	before := make(map[string][]figure) // by part
	if text, err := os.ReadFile(*kept); err == nil {
		if err := json.Unmarshal(text, &before); err != nil {
			return fmt.Errorf("%s: %w", *kept, err)
		}
	}
	want := strings.Split(*parts, ",")
	for _, p := range []struct {
		name string
		do   func() ([]figure, error)
	}{{"pipeline", b.pipeline}, {"programs", b.programs}, {"pause", b.pause}, {"tiers", b.tiers}, {"slowdown", b.slowdown}, {"coder", b.coder}} {
		if !slices.Contains(want, p.name) {
			all = append(all, before[p.name]...)
			continue
		}
		began := time.Now()
		figures, err := p.do()
		if err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
		for _, f := range figures {
			fmt.Print(f.table())
		}
		fmt.Printf("(part %s took %.0f s)\n", p.name, time.Since(began).Seconds())
		all = append(all, figures...)
		before[p.name] = figures
	}
	if *kept != "" {
		text, err := json.Marshal(before)
		if err := cmp.Or(err, os.WriteFile(*kept, text, 0o666)); err != nil {
			return err
		}
	}
	if *drawing != "" {
		if err := os.WriteFile(*drawing, []byte(picture(all)), 0o644); err != nil {
			return err
		}
		fmt.Println("the picture is", *drawing)
	}
	over := 0
	for _, f := range all {
		for _, x := range f.Bars {
			if x.over() {
				over++
			}
		}
	}
	if over > 0 && *strict {
		return fmt.Errorf("%d figures are above their bounds", over)
	}
	return nil
}

// figure is a diagram of bars.
type figure struct {
	Title string
	Unit  string   // what 1 stands for
	Parts []string // names of the parts of each bar, if it has several
	Bars  []bar
}

// bar is a value, or several values that add up.
type bar struct {
	Name    string
	Parts   []float64
	Bound   float64 // 0: there is none
	Least   float64 // ratio of the shortest times; 0: there is none
	AtLeast float64 // a bound from below; 0: there is none
	Note    string
}

func (x *bar) sum() (v float64) {
	for _, p := range x.Parts {
		v += p
	}
	return v
}

// over reports whether the median exceeds the bound. The shortest times are
// only shown.
func (x *bar) over() bool {
	return x.Bound > 0 && x.sum() > x.Bound || x.AtLeast > 0 && x.sum() < x.AtLeast
}

// table returns the figure as text.
func (f *figure) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s (1 = %s)\n", f.Title, f.Unit)
	for _, x := range f.Bars {
		fmt.Fprintf(&b, "  %-44s %6.3f", x.Name, x.sum())
		if x.Least > 0 {
			fmt.Fprintf(&b, "  least %.3f", x.Least)
		}
		switch {
		case x.over():
			fmt.Fprintf(&b, "  bound %.3f NOT HELD", x.Bound)
		case x.Bound > 0:
			fmt.Fprintf(&b, "  bound %.3f held", x.Bound)
		}
		if len(f.Parts) > 0 {
			for i, p := range x.Parts {
				fmt.Fprintf(&b, "  %s %.3f", f.Parts[i], p)
			}
		}
		if x.Note != "" {
			fmt.Fprintf(&b, "  (%s)", x.Note)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func median[T cmp.Ordered](l []T) T {
	s := slices.Sorted(slices.Values(l))
	return s[len(s)/2]
}

// tell prints a line about a move.
func tell(format string, args ...any) {
	if *verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}
