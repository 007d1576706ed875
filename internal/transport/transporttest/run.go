// Package transporttest holds the tests that every transport passes. A test is
// a body: what each rank does. The package runs the bodies of all ranks as
// goroutines of one process, as processes, or as processes that a launcher such
// as mpirun starts:
//
//	go test ─▶ TestTransport ─▶ Run ─┬─ goroutines/Order: rank 0, rank 1, …
//	                                 └─ processes/Order ─▶ go test's own binary, once per rank
//	                                        ─▶ TestTransport ─▶ Run: the body of that rank
//
// Environment variables tell a process which body to run as which rank. Ranks
// exchange addresses through a directory. A rank that fails leaves a note
// there, so that the others end, too. The test that started a process collects
// its output and its exit status.
package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

// Transport is what the suite is to know of a transport. Only New is needed.
type Transport struct {
	// New prepares n ranks and returns a function that opens the driver of
	// a rank; it is called by the goroutine, or in the process, of that
	// rank. In a process, New is called there, once. dir is a directory
	// that all ranks of one test share and no other test does.
	New func(n int, dir string) (open func(rank int) (transport.Driver, error))
	// Sizes are payload lengths of interest, such as those of buffers. They
	// are tried with one more and one less.
	Sizes []int
	// NoGoroutines says that a process cannot be more than one rank.
	NoGoroutines bool
	// NoProcesses says that all ranks must be in one process.
	NoProcesses bool
	// Kill ends a rank that is a goroutine. Without it, ranks that are to
	// be killed are always processes.
	Kill func(rank int)
	// Launch returns a command that starts n processes with the arguments
	// and the environment. Their ranks are taken from the variables that
	// Open MPI, MPICH and Slurm set. Without it, they are started one by
	// one.
	Launch func(ctx context.Context, n int, argv, env []string) *exec.Cmd
	// Skip names tests that are skipped, with the reason.
	Skip map[string]string

	limit time.Duration // replaces the constant limit, for the suite's own tests
}

// test is a body, with the number of ranks that run it.
type test struct {
	name string
	n    int
	body func(*Rank)
	dies []int // ranks that are killed during the test
	// leaves are ranks that are killed if they are processes; otherwise they
	// close their links.
	leaves []int
}

// limit is how long one test may take before it is considered hanging.
const limit = 60 * time.Second

const (
	envTest = "CAIRN_CONFORM_TEST"
	envDir  = "CAIRN_CONFORM_DIR"
	envRank = "CAIRN_CONFORM_RANK"
)

// rankVariables are environment variables that state the rank of a process.
var rankVariables = []string{envRank, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}

// Run runs the suite. It must be called in the same way in every process of
// the test's binary, before anything else that the test does.
func Run(t *testing.T, tr Transport) {
	if name := os.Getenv(envTest); name != "" {
		for _, c := range tests {
			if c.name == name {
				runProcess(t, tr, c)
				return
			}
		}
		t.Fatalf("there is no test %q", name)
	}
	for _, mode := range []string{"goroutines", "processes"} {
		if mode == "goroutines" && tr.NoGoroutines || mode == "processes" && tr.NoProcesses {
			continue
		}
		t.Run(mode, func(t *testing.T) {
			for _, c := range tests {
				t.Run(c.name, func(t *testing.T) {
					if why := tr.Skip[c.name]; why != "" {
						t.Skip(why)
					}
					if mode == "processes" {
						c.dies = append(c.dies, c.leaves...)
						processes(t, tr, c)
						return
					}
					if len(c.dies) > 0 && tr.Kill == nil {
						t.Skip("a goroutine of this transport cannot be killed")
					}
					goroutines(t, tr, c)
				})
			}
		})
	}
}

// goroutines runs all ranks in this process.
func goroutines(t *testing.T, tr Transport, c test) {
	for _, err := range together(tr, c, t.TempDir()) {
		if errors.Is(err, errSkip) {
			t.Skip(err)
		} else if err != nil && !errors.Is(err, errOther) {
			t.Error(err)
		}
	}
}

// together runs all ranks and returns their results.
func together(tr Transport, c test, dir string) []error {
	open := tr.New(c.n, dir)
	errs := make([]error, c.n)
	var wg sync.WaitGroup
	for id := range c.n {
		wg.Go(func() {
			r := newRank(tr, c, dir, id, open)
			r.die = func() {
				tr.Kill(id)
				panic(killed{})
			}
			errs[id] = r.run(c.body)
		})
	}
	wg.Wait()
	return errs
}

// runProcess runs one rank in this process.
func runProcess(t *testing.T, tr Transport, c test) {
	dir := os.Getenv(envDir)
	id := -1
	for _, v := range rankVariables {
		if n, err := strconv.Atoi(os.Getenv(v)); err == nil {
			id = n
			break
		}
	}
	if id < 0 || id >= c.n {
		t.Fatalf("rank %d of %d ranks: none of %v says which it is", id, c.n, rankVariables)
	}
	r := newRank(tr, c, dir, id, tr.New(c.n, dir))
	r.single = true
	r.die = func() {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			r.Fatalf("cannot kill itself: %v", err)
		}
		select {}
	}
	err := r.run(c.body)
	if errors.Is(err, errSkip) {
		os.WriteFile(filepath.Join(dir, "skip"), []byte(err.Error()), 0o600)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "done-"+strconv.Itoa(id)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// processes starts one process per rank and waits for them.
func processes(t *testing.T, tr Transport, c test) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The test that called Run is two levels up.
	names := strings.Split(t.Name(), "/")
	for i, n := range names {
		names[i] = "^" + regexp.QuoteMeta(n) + "$"
	}
	argv := []string{self, "-test.run=" + strings.Join(names[:len(names)-2], "/"), "-test.count=1", "-test.timeout=" + (2 * limit).String()}
	env := []string{envTest + "=" + c.name, envDir + "=" + dir}
	if os.Getenv("GORACE") == "" {
		env = append(env, "GORACE=atexit_sleep_ms=20") // the default is a second, for every process
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	skip := filepath.Join(dir, "skip")
	skipped := func() bool {
		_, err := os.Stat(skip)
		return err == nil
	}
	if tr.Launch != nil {
		cmd := tr.Launch(ctx, c.n, argv, env)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", cmd.Args, err, out)
		}
	} else {
		one(ctx, t, c, argv, env, skipped)
	}
	for id := range c.n {
		_, err := os.Stat(filepath.Join(dir, "done-"+strconv.Itoa(id)))
		if err != nil && !slices.Contains(c.dies, id) && !t.Failed() {
			t.Errorf("rank %d ended without having run; it was started as %q", id, argv)
		}
	}
	if why, err := os.ReadFile(skip); err == nil && !t.Failed() {
		t.Skip(string(why))
	}
}

// one starts the ranks one by one.
func one(ctx context.Context, t *testing.T, c test, argv, env []string, skipped func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmds := make([]*exec.Cmd, 0, c.n)
	outs := make([]bytes.Buffer, c.n)
	for id := range c.n {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = append(append(os.Environ(), env...), envRank+"="+strconv.Itoa(id))
		cmd.Stdout, cmd.Stderr = &outs[id], &outs[id]
		if err := cmd.Start(); err != nil {
			t.Errorf("cannot start rank %d: %v", id, err)
			cancel() // ends the processes that were started
			break
		}
		cmds = append(cmds, cmd)
	}
	for id, cmd := range cmds {
		err := cmd.Wait()
		switch dies := slices.Contains(c.dies, id); {
		case dies && err == nil && !skipped():
			t.Errorf("rank %d was to be killed and was not\n%s", id, outs[id].String())
		case dies && cmd.ProcessState.ExitCode() == -1, err == nil:
		default:
			t.Errorf("rank %d: %v\n%s", id, err, outs[id].String())
		}
	}
}

var (
	errSkip  = errors.New("not tested")
	errOther = errors.New("another rank failed")
)

// failure and killed are the values that a body panics with.
type (
	failure struct{ err error }
	killed  struct{}
)

// run runs the body and returns its result. A rank that fails leaves a note for
// the others. One that skips the test does not: the others do so, too, and may
// not have read yet what it gave them.
func (r *Rank) run(body func(*Rank)) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case killed:
			return
		case failure:
			err = fmt.Errorf("rank %d of %d: %w", r.ID, r.N, v.err)
		default:
			err = fmt.Errorf("rank %d of %d: panic: %v\n%s", r.ID, r.N, v, debug.Stack())
		}
		if err != nil && !errors.Is(err, errSkip) {
			os.WriteFile(filepath.Join(r.dir, "failed-"+strconv.Itoa(r.process)), nil, 0o600)
		}
		if cerr := r.cleanUp(); err == nil && cerr != nil {
			err = fmt.Errorf("rank %d of %d: %w", r.ID, r.N, cerr)
		}
	}()
	body(r)
	return nil
}
