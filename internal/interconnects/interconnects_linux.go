package interconnects

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

// stage says how a phase is run.
type stage struct {
	title string
	flags []string
	env   []string
	left  error
}

// spare is the number of steps in addition to those of the phases: a fast ring
// continues while it is being stopped.
const spare = 2000

// Run performs the experiment. It returns the phases and the last line of the
// ring's output, which says whether all messages arrived once and unaltered. It
// skips what this machine cannot do.
func Run(ctx context.Context, o Options) (phases []Phase, last string, err error) {
	o.Bytes = cmp.Or(o.Bytes, 8192)
	o.Steps = cmp.Or(o.Steps, 1000)
	o.SampleSteps = cmp.Or(o.SampleSteps, 50)
	if o.Report == nil {
		o.Report = func(string) {}
	}
	net, neterr := NewNetwork(Ranks)
	if neterr == nil {
		defer net.Close()
	}
	all, err := stages(net, neterr, o.Dir)
	if err != nil {
		return nil, "", err
	}
	total := o.Steps*len(all) + spare
	step := 0
	for i, s := range all {
		p := Phase{Label: string(rune('A' + i)), Title: s.title, From: step}
		if s.left != nil {
			p.Skipped = s.left.Error()
			p.To = step
			phases = append(phases, p)
			o.Report(fmt.Sprintf("%s  %s: left out: %v", p.Label, p.Title, s.left))
			continue
		}
		until := step + o.Steps
		if i == len(all)-1 {
			until = total
		}
		if err := run(ctx, o, s, total, until); err != nil {
			return nil, "", fmt.Errorf("phase %s, %s: %w", p.Label, p.Title, err)
		}
		if last, err = read(filepath.Join(o.Dir, outName), &p); err != nil {
			return nil, "", err
		}
		if step = p.To; step >= total && i < len(all)-1 {
			return nil, "", fmt.Errorf("the ring was done in phase %s, before it could be stopped", p.Label)
		}
		phases = append(phases, p)
		o.Report(fmt.Sprintf("%s  %-36s steps %6d to %6d  by %s", p.Label, p.Title, p.From, p.To, strings.Join(p.Routes, " ")))
	}
	return phases, last, nil
}

const outName = "ring.txt"

// asRoot allows Open MPI to run as root, which namespaces need.
var asRoot = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}

// stages returns the phases in order.
func stages(net *Network, neterr error, dir string) ([]stage, error) {
	hosts := func(title string, count int) stage {
		s := stage{title: title, left: neterr}
		if neterr == nil {
			s.flags = []string{"--hosts", net.List(count, Ranks/count), "--rsh", Shell}
		}
		return s
	}
	open := stage{title: "Open MPI", flags: []string{"--launcher", "mpirun", "--transport", "mpi", "--launcher-args=--oversubscribe"},
		env: slices.Clone(asRoot)}
	if dir, err := launcher(dir, "mpirun.openmpi", "open-mpi.org"); err != nil {
		open.left = err
	} else {
		open.env = append(open.env, dir)
	}
	mpich := stage{title: "MPICH", flags: []string{"--launcher", "mpirun", "--transport", "mpi"}, env: []string{"UCX_LOG_LEVEL=error"}}
	if dir, err := launcher(dir, "mpirun.mpich", "HYDRA"); err != nil {
		mpich.left = err
	} else {
		mpich.env = append(mpich.env, dir)
	}
	one := stage{title: "1 host, shared memory", flags: []string{"--transport", "shm"}}
	back := one
	back.title = "back on 1 host, shared memory"
	return []stage{one,
		hosts("8 hosts, TCP", 8),
		hosts("4 hosts of 2 ranks, mixed", 4),
		hosts("2 hosts of 4 ranks, mixed", 2),
		open, mpich, back}, nil
}

// launcher creates a directory with the mpirun of a certain implementation, and
// returns the variable for the environment. mark is a text in that mpirun's
// --version.
func launcher(dir, name, mark string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("mpirun"); err != nil {
			return "", fmt.Errorf("%s is not installed; scripts/deps installs it", name)
		}
	}
	version := exec.Command(path, "--version")
	version.Env = append(os.Environ(), asRoot...)
	if text, _ := version.CombinedOutput(); !strings.Contains(string(text), mark) {
		return "", fmt.Errorf("%s is not installed; scripts/deps installs it", name)
	}
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Not a link: MPICH's mpirun looks for its parts relative to the path by
	// which it was called.
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", path)
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte(script), 0o755); err != nil {
		return "", err
	}
	return "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH"), nil
}

// run continues the ring until it has done a number of steps, and stops it.
// After the last step the ring ends by itself.
func run(ctx context.Context, o Options, s stage, total, until int) error {
	dir := filepath.Join(o.Dir, "run")
	args := append([]string{"run", "--run", dir, "-o", filepath.Join(o.Dir, outName), "-n", strconv.Itoa(Ranks), "--every", "1h"}, s.flags...)
	args = append(args, o.Ring, "-steps", strconv.Itoa(total), "-bytes", strconv.Itoa(o.Bytes), "-report", strconv.Itoa(o.SampleSteps), "-routes")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.Cairn, args...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil && until == total {
				return nil
			}
			return fmt.Errorf("it ended before it was stopped: %v\n%s", err, said.String())
		case <-look.C:
		}
		var p Phase
		if _, err := read(filepath.Join(o.Dir, outName), &p); err == nil && p.To >= until && until < total {
			break
		}
	}
	if _, err := client.Stop(ctx, dir, "interconnects"); err != nil {
		cancel()
		<-ended
		return fmt.Errorf("cairn stop: %w\n%s", err, said.String())
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != supervise.StoppedStatus {
		return fmt.Errorf("cairn run, told to stop: %v\n%s", err, said.String())
	}
	return nil
}

// read reads what the ring wrote from step p.From on. It returns the last line.
func read(path string, p *Phase) (last string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // the line is incomplete
		}
		last = strings.TrimSpace(line)
		f := strings.Fields(line)
		if rest, ok := strings.CutPrefix(last, "# from step "); ok {
			f := strings.Fields(rest)
			from, err := strconv.Atoi(f[0])
			if err != nil || len(f) < 3 {
				return "", fmt.Errorf("%s: %q is no line of the ring", path, last)
			}
			if from >= p.From { // the newest start
				p.Routes = f[2:]
			}
			continue
		}
		if strings.HasPrefix(line, "ring ok") {
			continue
		}
		var s Sample
		if _, err := fmt.Sscan(line, &s.Step, &s.Mean, &s.Least, &s.Most); err != nil || len(f) != 4 {
			return "", fmt.Errorf("%s: %q is no line of the ring", path, last)
		}
		if s.Step > p.From {
			p.Samples = append(p.Samples, s)
			p.To = s.Step
		}
	}
	return last, nil
}
