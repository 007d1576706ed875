package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// lab holds what cases share: built programs, results of undisturbed runs, and
// a directory.
type lab struct {
	root    string // directory of the module
	bin     string // directory of programs
	scratch string // directory of the cases' directories
	say     func(format string, args ...any)
	verbose bool
	keep    bool

	mu    sync.Mutex
	built map[string]func() (string, error)
	wants map[string]func() (*results, error)
	steps map[string]func() (map[string]int, error) // steps of routes
	nets  []*network                                // networks that are not in use
	cases int                                       // number of cases that were begun
}

// newLab makes a laboratory. It must be closed.
func newLab(ctx context.Context, state string, say func(string, ...any)) (*lab, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for root != "/" {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	l := &lab{root: root, bin: filepath.Join(state, "bin"), say: say,
		built: make(map[string]func() (string, error)), wants: make(map[string]func() (*results, error)), steps: make(map[string]func() (map[string]int, error))}
	if err := os.MkdirAll(l.bin, 0o755); err != nil {
		return nil, err
	}
	// The name is short, because it is part of the path of a socket.
	if l.scratch, err = os.MkdirTemp("", "cf-"); err != nil {
		return nil, err
	}
	began := time.Now()
	say("building programs …")
	for _, name := range []string{"cairn", "plain", "plain.made", "library"} {
		if _, err := l.program(ctx, name); err != nil {
			l.close()
			return nil, err
		}
	}
	say("built in %.1f s", time.Since(began).Seconds())
	return l, nil
}

func (l *lab) close() {
	for _, n := range l.nets {
		n.close()
	}
	if !l.keep {
		os.RemoveAll(l.scratch)
	}
}

// program builds a program once: "cairn"; a program of testdata; with the
// suffix ".made", a program of testdata built by 'cairn build'; with
// ".jumping", one whose time of day can jump.
func (l *lab) program(ctx context.Context, name string) (string, error) {
	l.mu.Lock()
	once := l.built[name]
	if once == nil {
		once = sync.OnceValues(func() (string, error) { return l.build(ctx, name) })
		l.built[name] = once
	}
	l.mu.Unlock()
	return once()
}

func (l *lab) build(ctx context.Context, name string) (string, error) {
	path := filepath.Join(l.bin, name)
	source, jumping := strings.CutSuffix(name, ".jumping")
	argv := []string{"go", "build", "-o", path, "./internal/faults/testdata/" + source}
	if source == "cairn" {
		argv[4] = "./cmd/cairn"
	}
	if jumping {
		return path, l.buildJumping(ctx, path, argv[4])
	}
	if source, made := strings.CutSuffix(name, ".made"); made {
		cairn, err := l.program(ctx, "cairn")
		if err != nil {
			return "", err
		}
		argv = []string{cairn, "build", "-o", path, "./internal/faults/testdata/" + source}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return path, nil
}

// faultCase is a case in progress.
type faultCase struct {
	*lab
	ctx      context.Context
	kind     *kind
	n        int
	r        *rand.Rand
	dir      string // directory of everything that belongs to it
	prog     program
	workName string // name of the working directory in dir
	name     string // identifies its processes, in their environment

	did   []string // faults so far, for the report
	count int
	aside int    // number of files that were set aside
	safe  uint64 // the newest checkpoint that was reported committed
	begun int    // number of fresh starts until then
}

// try runs a case.
func (l *lab) try(ctx context.Context, seed uint64, n int) *result {
	began := time.Now()
	k := kindOf(seed, n)
	t := &faultCase{lab: l, ctx: ctx, kind: k, n: n, r: dice(seed, n), workName: "work"}
	l.mu.Lock()
	l.cases++
	number := l.cases
	l.mu.Unlock()
	t.dir = filepath.Join(l.scratch, fmt.Sprint(number))
	t.name = fmt.Sprintf("%s=%d-%d-%d", envCase, os.Getpid(), n, number)
	err := os.MkdirAll(t.work(), 0o755)
	if err == nil {
		err = k.run(t)
	}
	left := t.end(err == nil)
	res := &result{Seed: seed, Case: n, Kind: k.name, Real: !k.simulated(), Program: t.prog.String(), Faults: strings.Join(t.did, "; "), Count: t.count, Outcome: same}
	if err != nil {
		res.Outcome, res.Why = broken, err.Error()
		if v := (*verdict)(nil); errors.As(err, &v) {
			res.Outcome, res.Why = v.outcome, v.why
		}
	}
	if res.Outcome == same && t.count == 0 {
		res.Outcome = missed
	}
	if left != "" && !res.Outcome.bad() {
		res.Outcome, res.Why = hang, left
	}
	if !l.keep || !res.Outcome.bad() {
		os.RemoveAll(t.dir)
	} else {
		l.say("kept: %s", t.dir)
	}
	res.Seconds = time.Since(began).Seconds()
	if l.verbose {
		l.say("%s (%.1f s)", res, res.Seconds)
	}
	return res
}

// dice returns the random generator of a case.
func dice(seed uint64, n int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(n)+1)) }

// note records a fault.
func (t *faultCase) note(format string, args ...any) {
	t.did = append(t.did, fmt.Sprintf(format, args...))
	t.count++
	if t.verbose {
		t.say("case %d: %s", t.n, t.did[len(t.did)-1])
	}
}

// verdict is an outcome other than same.
type verdict struct {
	outcome outcome
	why     string
}

func (v *verdict) Error() string { return string(v.outcome) + ": " + v.why }

func judged(o outcome, format string, args ...any) error {
	return &verdict{o, fmt.Sprintf(format, args...)}
}
