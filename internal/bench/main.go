// Command bench measures the cost of Cairn, as ratios to raw baselines: a
// parallel memcpy of the state (by Go's copy or by Cairn's, whichever is
// faster), an O_DIRECT write of the same bytes with fsync, an O_DIRECT read.
// Machines are noisy, so the baseline of each measurement is taken directly
// beside it, and the median of the ratios is shown.
//
//	go run ./internal/bench [-part checkpoints,objects,ranks,arrays]
//		[-size MiB] [-rounds N] [-dir DIR] [-strict]
//
// A line whose bound is missed says so. With -strict, the exit status is 1
// then.
//
// The part objects measures checkpoints of many small objects and of many
// variables. The part ranks measures messages between ranks compared with Open
// MPI's, the cost of counting messages for checkpoints, and how long ranks take
// to reach a common point. The part arrays compares messages of arrays on
// devices with copies to the host and messages of slices; it is not measured
// unless it is named.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/cairnrun/cairn"
)

var (
	size   = flag.Int("size", 1024, "MiB of float64 state")
	rounds = flag.Int("rounds", 7, "rounds; medians are shown")
	tmpDir = flag.String("dir", "", "where files are written (default: the temporary directory)")
	parts  = flag.String("part", "checkpoints,objects,ranks", "what is measured")
	role   = flag.String("as", "", "be a rank of a measurement; used by the part ranks")
	result = flag.String("to", "", "where that rank writes what it measured")
	strict = flag.Bool("strict", false, "fail if a bound is missed")
)

// missed is the number of bounds that were missed.
var missed int

// verdict says whether a bound is met.
func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	missed++
	return "MISSED"
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *role != "" {
		err = runRank(ctx, *role, *result)
	} else {
		err = run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench holds the state and the samples.
type bench struct {
	ctx   context.Context
	dir   string
	state []float64
	copy  []float64 // warm memory of the same size
	got   map[string][]float64
	log   func(format string, args ...any)
}

func (b *bench) add(name string, v float64) { b.got[name] = append(b.got[name], v) }

// time adds a sample: the seconds that f takes.
func (b *bench) time(name string, f func() error) error {
	t := time.Now()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.add(name, time.Since(t).Seconds())
	return nil
}

func (b *bench) median(name string) float64 {
	v := slices.Clone(b.got[name])
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// ratio returns the median ratio of name to base, sample by sample.
func (b *bench) ratio(name, base string) float64 {
	v := slices.Clone(b.got[name])
	for i := range v {
		v[i] /= b.got[base][min(i, len(b.got[base])-1)]
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp(*tmpDir, "cairn-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{ctx: ctx, dir: dir, got: map[string][]float64{}}
	b.log = func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }
	for part := range strings.SplitSeq(*parts, ",") {
		switch part {
		case "checkpoints":
			err = b.checkpoints()
		case "objects":
			err = b.objectsPart()
		case "ranks":
			err = b.ranks()
		case "arrays":
			err = b.arrays()
		default:
			err = fmt.Errorf("no part %q; there are checkpoints, objects, ranks and arrays", part)
		}
		if err != nil {
			return err
		}
	}
	if missed > 0 && *strict {
		return fmt.Errorf("%d bounds were missed", missed)
	}
	return nil
}

// checkpoints measures the cost of checkpoints of one process.
func (b *bench) checkpoints() error {
	n := *size << 20 / 8
	b.state, b.copy = make([]float64, n), make([]float64, n)
	defer func() { b.state, b.copy = nil, nil }()
	for i := range b.state {
		b.state[i] = 1 / float64(i+1)
	}
	parallel(len(b.copy), func(lo, hi int) { clear(b.copy[lo:hi]) })
	steps := []struct {
		name string
		f    func() error
	}{
		{"a point that saves nothing", b.point},
		{"all changed", b.all},
		{"1 % changed, digests", func() error { return b.sparse("digest", true) }},
		{"1 % changed, kernel tracking", func() error { return b.sparse("kernel", false) }},
		{"90 % zeros", b.zeros},
		{"memory bound", b.bounded},
	}
	for r := range *rounds {
		for _, s := range steps {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			b.log("round %d of %d: %s", r+1, *rounds, s.name)
			if err := s.f(); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	b.log("for comparison: encoding/gob, libhdf5")
	if err := b.peers(); err != nil {
		return err
	}
	b.report()
	return nil
}

func (b *bench) report() {
	bytes := float64(len(b.state) * 8)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(what, value, ratio, bound, verdict string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", what, value, ratio, bound, verdict)
	}
	ratio := func(what, name, base, of string, bound float64) {
		v, r := b.median(name), b.ratio(name, base)
		if b.got[name] == nil {
			row(what, "not available here", "", "", "")
			return
		}
		met, text := "", ""
		if bound > 0 {
			met, text = verdict(r <= bound), fmt.Sprintf("≤ %.2f", bound)
		}
		row(what, fmt.Sprintf("%.3f s", v), fmt.Sprintf("%.2f × %s", r, of), text, met)
	}
	share := func(what, name string, bound float64) {
		v := b.median(name)
		if b.got[name] == nil {
			row(what, "not available here", "", "", "")
			return
		}
		row(what, fmt.Sprintf("%.2f %%", 100*v), "", fmt.Sprintf("≤ %.0f %%", 100*bound), verdict(v <= bound))
	}
	fmt.Fprintf(w, "\n%d MiB of float64, %d processors, medians of %d rounds\n\n", *size, runtime.GOMAXPROCS(0), *rounds)
	row("WHAT", "MEDIAN", "RATIO", "BOUND", "")
	raw := func(what, name string) {
		v := b.median(name)
		row(what, fmt.Sprintf("%.3f s", v), fmt.Sprintf("%.1f GB/s", bytes/v/1e9), "", "")
	}
	ns := 1e9 * b.median("point")
	row("a point that saves nothing", fmt.Sprintf("%.1f ns", ns), "", "≤ 50 ns", verdict(ns <= 50))
	raw("parallel memcpy, the faster of Go's and Cairn's copy", "memcpy")
	raw("parallel memcpy, Go's copy", "memcpy of Go")
	raw("O_DIRECT write + fsync", "direct write")
	raw("buffered write + fsync", "buffered write")
	raw("O_DIRECT read", "direct read")
	ratio("pause, all changed", "pause all", "memcpy", "memcpy", 1.15)
	ratio("", "pause all", "memcpy of Go", "Go's memcpy", 0)
	ratio("pause, 1 % changed, digests", "pause digest", "memcpy digest", "memcpy", 0.6)
	ratio("", "pause digest", "memcpy digest of Go", "Go's memcpy", 0)
	ratio("pause, 1 % changed, kernel tracking", "pause kernel", "memcpy kernel", "memcpy", 0.1)
	ratio("durable, all changed", "durable all", "direct write", "O_DIRECT write", 1.15)
	ratio("", "durable all", "buffered write", "buffered write", 1)
	ratio("restore", "restore", "direct read", "O_DIRECT read", 1.2)
	share("written, 1 % changed", "written digest", 0.02)
	share("written, 1 % changed, kernel tracking", "written kernel", 0.02)
	share("written, 90 % zeros", "written zeros", 0.11)
	share("extra memory, of a bound of 1/4 of the state", "memory", 1)
	ratio("encoding/gob, durable", "gob", "direct write", "O_DIRECT write", 0)
	ratio("libhdf5, durable", "libhdf5", "direct write", "O_DIRECT write", 0)
	w.Flush()
}

// parallel calls f for parts of n, one per processor.
func parallel(n int, f func(lo, hi int)) {
	p := runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for i := range p {
		wg.Go(func() { f(n*i/p, n*(i+1)/p) })
	}
	wg.Wait()
}

// change rewrites every number.
func (b *bench) change() {
	parallel(len(b.state), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			b.state[i] += 1e-3
		}
	})
}

// changeSome rewrites 1 % of the blocks, evenly distributed.
func (b *bench) changeSome() {
	const block = 64 << 10 / 8
	for at := 0; at < len(b.state); at += 100 * block {
		for i := at; i < min(at+block, len(b.state)); i++ {
			b.state[i] += 1e-3
		}
	}
}

// cairn opens a run on the state in a fresh directory and calls f with it.
func (b *bench) cairn(o cairn.Options, f func(p *cairn.Run, saved *cairn.CheckpointInfo) error) error {
	o.Dir = filepath.Join(b.dir, "ckpt")
	o.Every = time.Hour
	o.Signals = map[os.Signal]cairn.SignalAction{}
	saved := new(cairn.CheckpointInfo)
	o.OnSaved = func(s cairn.CheckpointInfo) { *saved = s }
	defer os.RemoveAll(o.Dir)
	p, err := cairn.Open(b.ctx, o)
	if err != nil {
		return err
	}
	defer p.Close()
	cairn.Protect(p, "state", &b.state)
	if _, err := p.Restore(b.ctx); err != nil {
		return err
	}
	return f(p, saved)
}
