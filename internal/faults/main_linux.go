package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.count, "n", 1000, "run cases until `N` of this seed are recorded")
	flag.Uint64Var(&o.seed, "seed", 1, "`SEED` of the campaign")
	flag.DurationVar(&o.limit, "for", 0, "stop after `DURATION` (default: no limit)")
	flag.IntVar(&o.workers, "j", 2, "run `N` cases at a time")
	flag.StringVar(&o.state, "state", "build/faults", "`DIRECTORY` for programs and results")
	flag.StringVar(&o.only, "only", "", "run only kinds of faults whose name matches one of `PATTERNS`, such as power,sim-*; nothing else is recorded as done")
	flag.StringVar(&o.one, "case", "", "run the cases `N,M…` again, and record nothing")
	flag.BoolVar(&o.redo, "redo", false, "first run those again whose recorded outcome is bad")
	flag.BoolVar(&o.verbose, "v", false, "tell what happens in each case")
	flag.BoolVar(&o.keep, "keep", false, "leave the directories of bad cases")
	report := flag.Bool("report", false, "only print the table of what is recorded")
	flag.Parse()
	if err := o.run(ctx, *report); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// options are the campaign's options.
type options struct {
	count, workers      int
	seed                uint64
	limit               time.Duration
	state, only, one    string
	redo, verbose, keep bool
}

// errBad says that the campaign found bad cases.
var errBad = errors.New("there are bad cases")

func (o *options) run(ctx context.Context, report bool) error {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it in the directory that holds go.mod: make faults")
	}
	state, err := filepath.Abs(o.state)
	if err != nil {
		return err
	}
	o.state = state
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	records, err := openRecords(filepath.Join(state, fmt.Sprintf("seed-%d.jsonl", o.seed)))
	if err != nil {
		return err
	}
	defer records.close()
	if report {
		return o.summary(records)
	}
	lab, err := newLab(ctx, state, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	if err != nil {
		return err
	}
	defer lab.close()
	lab.verbose, lab.keep = o.verbose, o.keep
	if o.one != "" {
		return o.repeat(ctx, lab)
	}
	todo := o.todo(records)
	fmt.Printf("%d cases to run with seed %d; results go to %s\n", len(todo), o.seed, records.path)
	lab.campaign(ctx, o, todo, records)
	return o.summary(records)
}

// todo returns the cases to run.
func (o *options) todo(rec *records) (out []int) {
	for n := range o.count {
		r, done := rec.last[n]
		if done && !(o.redo && r.Outcome.bad()) {
			continue
		}
		if o.only != "" && !matches(kindOf(o.seed, n).name, o.only) {
			continue
		}
		out = append(out, n)
	}
	if o.redo { // bad cases first
		slices.SortStableFunc(out, func(a, b int) int {
			_, x := rec.last[a]
			_, y := rec.last[b]
			switch {
			case x == y:
				return 0
			case x:
				return -1
			}
			return 1
		})
	}
	return out
}

// matches reports whether a name matches one of the patterns.
func matches(name, patterns string) bool {
	for p := range strings.SplitSeq(patterns, ",") {
		if ok, err := filepath.Match(p, name); ok && err == nil {
			return true
		}
	}
	return false
}

// repeat runs some cases again.
func (o *options) repeat(ctx context.Context, lab *lab) error {
	bad := false
	for field := range strings.SplitSeq(o.one, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("-case %s: %w", o.one, err)
		}
		r := lab.try(ctx, o.seed, n)
		fmt.Println(r.String())
		bad = bad || r.Outcome.bad()
	}
	if bad {
		return errBad
	}
	return nil
}

// summary prints the table and the bad cases.
func (o *options) summary(rec *records) error {
	fmt.Print(rec.table())
	bad := rec.bad()
	for _, r := range bad {
		fmt.Printf("\n%s\n    repeat it: %s\n", r.String(), r.repeat())
	}
	if len(bad) > 0 {
		return errBad
	}
	return nil
}

// campaign runs cases, several at a time, until there are no more or time is
// up.
func (l *lab) campaign(ctx context.Context, o *options, todo []int, rec *records) {
	began := time.Now()
	work := make(chan int)
	var all sync.WaitGroup
	var mu sync.Mutex
	done, bad, shown := 0, 0, time.Now()
	for range max(1, o.workers) {
		all.Go(func() {
			for n := range work {
				r := l.try(ctx, o.seed, n)
				if ctx.Err() != nil { // the campaign itself was interrupted
					return
				}
				mu.Lock()
				done++
				if err := rec.add(r); err != nil {
					fmt.Fprintln(os.Stderr, "faults:", err)
				}
				if r.Outcome.bad() {
					bad++
					fmt.Printf("%s\n    repeat it: %s\n", r.String(), r.repeat())
				}
				if time.Since(shown) > 5*time.Second {
					shown = time.Now()
					fmt.Printf("%s: %d of %d cases, %d bad\n", time.Since(began).Round(time.Second), done, len(todo), bad)
				}
				mu.Unlock()
			}
		})
	}
	for _, n := range todo {
		if ctx.Err() != nil || o.limit > 0 && time.Since(began) > o.limit {
			break
		}
		select {
		case work <- n:
		case <-ctx.Done():
		}
	}
	close(work)
	all.Wait()
}
