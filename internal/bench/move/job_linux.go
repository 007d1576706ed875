package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/interconnects"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// bench is one run of this program.
type bench struct {
	ctx   context.Context
	tmp   string
	self  string // path of this program
	cairn string
	npb   string
	net   *interconnects.Network
	jobs  int
	sink  *sinkProcess

	pinned bool // the first host has a processor for itself
}

// limit sets the rate of all hosts' links, in Mbit/s; 0: no limit.
func (b *bench) limit(rate int) error {
	for _, h := range b.net.Hosts {
		args := []string{"-n", h, "qdisc", "replace", "dev", "eth0", "root"}
		if rate == 0 {
			args = append(args, "pfifo")
		} else {
			args = append(args, "tbf", "rate", strconv.Itoa(rate)+"mbit", "burst", "1mb", "limit", "64mb")
		}
		if out, err := exec.CommandContext(b.ctx, "tc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("tc %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// job is a run in progress.
type job struct {
	b     *bench
	cmd   *exec.Cmd
	files string
	said  bytes.Buffer
	ended chan error
}

// start begins a run.
func (b *bench) start(ranks int, hosts string, program ...string) (*job, error) {
	b.jobs++
	j := &job{b: b, files: filepath.Join(b.tmp, fmt.Sprintf("job%d", b.jobs)), ended: make(chan error, 1)}
	args := append([]string{"run", "-q", "--run", j.runDir(), "-o", j.files + ".out", "-n", strconv.Itoa(ranks), "--every", "24h",
		"--retries", "0", "--hosts", hosts, "--rsh", interconnects.Shell}, program...)
	j.cmd = exec.CommandContext(b.ctx, b.cairn, args...)
	j.cmd.Dir = b.tmp
	j.cmd.Cancel = func() error { return j.cmd.Process.Signal(os.Interrupt) }
	j.cmd.WaitDelay = 20 * time.Second
	j.cmd.Stderr = &j.said
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { j.ended <- j.cmd.Wait() }()
	return j, nil
}

func (j *job) runDir() string { return j.files + ".run" }

// await waits until a file exists.
func (j *job) await(name string) error {
	return j.until(5*time.Millisecond, func() bool {
		_, err := os.Stat(name)
		return err == nil
	})
}

// awaitRanks waits until all ranks run.
func (j *job) awaitRanks(n int) error {
	return j.until(20*time.Millisecond, func() bool {
		st, err := client.Read(j.b.ctx, j.runDir())
		return err == nil && len(st.Ranks) == n && !slices.ContainsFunc(st.Ranks, func(r control.RankState) bool { return r.State != rundir.Running || r.Pid == 0 })
	})
}

// until waits until cond holds, while the run lasts.
func (j *job) until(every time.Duration, cond func() bool) error {
	look := time.NewTicker(every)
	defer look.Stop()
	for !cond() {
		select {
		case err := <-j.ended:
			j.ended <- err
			return fmt.Errorf("the run ended: %v\n%s", err, j.said.String())
		case <-j.b.ctx.Done():
			return j.b.ctx.Err()
		case <-look.C:
		}
	}
	return nil
}

// end makes the benchmark's own rank end, and checks that its memory is right.
func (j *job) end() error {
	if err := os.WriteFile(j.files+".end", nil, 0o666); err != nil {
		return err
	}
	if err := <-j.ended; err != nil {
		return fmt.Errorf("the run ended: %v\n%s", err, j.said.String())
	}
	text, err := os.ReadFile(j.files + ".said")
	if err == nil && !strings.HasPrefix(string(text), "right") {
		err = errors.New(string(text))
	}
	return errors.Join(err, os.RemoveAll(j.runDir()))
}

// kill ends a run that is not needed any more.
func (j *job) kill() {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for ended := false; !ended; { // the second signal ends it at once
		j.cmd.Process.Signal(os.Interrupt)
		select {
		case <-j.ended:
			ended = true
		case <-again.C:
		}
	}
	os.RemoveAll(j.runDir())
}

// move is the result of one migration.
type move struct {
	control.MoveState
	own         int64 // memory of the program itself before the move, without staging memory
	source      int64 // the most memory that the source had in addition
	destination int64 // the most memory that the destination had before it continued, without staging memory
}

// migrate moves ranks, and watches the memory of the first one.
func (j *job) migrate(m client.Migration) (*move, error) {
	st, err := client.Read(j.b.ctx, j.runDir())
	if err != nil {
		return nil, err
	}
	out := &move{}
	pid := st.Ranks[m.Ranks[0]].Pid
	before, err := memoryOf(pid)
	if err != nil {
		return nil, err
	}
	out.own = before.private
	var wg sync.WaitGroup
	over := make(chan struct{})
	watch := func(pid int, see func(memory)) {
		wg.Go(func() {
			t := time.NewTicker(2 * time.Millisecond) // a process that has ended reports nothing
			defer t.Stop()
			for {
				x, err := memoryOf(pid)
				if err != nil {
					return
				}
				see(x)
				select {
				case <-over:
					return
				case <-t.C:
				}
			}
		})
	}
	watch(pid, func(x memory) { out.source = max(out.source, x.highest-before.highest) })
	found := false
	ms, err := client.Migrate(j.b.ctx, j.runDir(), m, func(st *control.MoveState) {
		if found || st.State != control.MovePrecopy && st.State != control.MoveFinalCopy || len(m.Ranks) > 1 {
			return
		}
		if next := twin(pid); next > 0 {
			found = true
			watch(next, func(x memory) {
				if x.shared == 0 { // before it has staging memory
					out.destination = max(out.destination, x.highest)
				}
				out.destination = max(out.destination, x.private)
			})
		}
	})
	close(over)
	wg.Wait()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, j.said.String())
	}
	if ms.State != control.Moved {
		return nil, fmt.Errorf("%s\n%s", control.MoveText(ms), j.said.String())
	}
	if out.MoveState = *ms; len(m.Ranks) == 1 && out.destination == 0 {
		return nil, errors.New("the new process was not found")
	}
	return out, nil
}

// times describes the times of the move.
func (m *move) times() string {
	return fmt.Sprintf("spawn %.3f ahead %.3f negotiation %.3f transfer %.3f restart %.3f s; %+v", s(m.SpawnNS), s(m.PrecopyNS), s(m.NegotiationNS),
		s(m.TransferNS), s(m.RestartNS), *m.Stats)
}

// memory is the memory of a process in bytes.
type memory struct {
	private, shared int64
	highest         int64 // maximum of the sum so far
}

func memoryOf(pid int) (m memory, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		kb, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return m, err
		}
		switch f[0] {
		case "RssAnon:", "RssFile:":
			m.private += kb << 10
		case "RssShmem:":
			m.shared = kb << 10
		case "VmHWM:":
			m.highest = kb << 10
		}
	}
	if m.highest == 0 {
		err = fmt.Errorf("process %d has ended", pid)
	}
	return m, err
}

// twin returns another process with the same command line, or 0.
func twin(pid int) int {
	line := func(pid int) string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return string(text)
	}
	want := line(pid)
	list, _ := os.ReadDir("/proc")
	for _, e := range list {
		if n, err := strconv.Atoi(e.Name()); err == nil && n != pid && want != "" && line(n) == want {
			return n
		}
	}
	return 0
}

// sinkProcess receives bytes at the other end of the link.
type sinkProcess struct {
	cmd  *exec.Cmd
	in   interface{ Close() error }
	addr string
}

// listen starts the sink on the second host.
func (b *bench) listen() error {
	cmd := exec.CommandContext(b.ctx, "ip", "netns", "exec", b.net.Hosts[1], b.self, "-as", "sink")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	b.sink = &sinkProcess{cmd: cmd, in: in}
	port, err := bufio.NewReader(out).ReadString('\n')
	b.sink.addr = "10.77.0.2:" + strings.TrimSpace(port)
	return err
}

func (s *sinkProcess) close() {
	s.in.Close()
	s.cmd.Wait()
}

// alone runs a measurement on the first host: the stages of a rank, or a
// transfer.
func (b *bench) alone(role string, size int64) (*stages, error) {
	cmd := exec.CommandContext(b.ctx, "ip", "netns", "exec", b.net.Hosts[0], b.self, "-as", role,
		"-size", strconv.FormatInt(size, 10), "-to", b.sink.addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s alone: %w", role, err)
	}
	s := new(stages)
	return s, json.Unmarshal(out, s)
}
