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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/journey"
	"github.com/cairnrun/cairn/supervise"
)

// bench is one run of this program.
type bench struct {
	ctx   context.Context
	tmp   string
	self  string // this program
	cairn string
	npb   string
	net   *journey.Network
	jobs  int
	sink  *sinkProcess
}

// limit sets the rate of all hosts' links, in Mbit/s; 0: as fast as they are.
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

// job is a run that is under way.
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
	args := append([]string{"run", "-q", "--run", j.folder(), "-o", j.files + ".out", "-n", strconv.Itoa(ranks), "--every", "24h",
		"--retries", "0", "--hosts", hosts, "--rsh", journey.Shell}, program...)
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

func (j *job) folder() string { return j.files + ".run" }

// await waits until a file is there.
func (j *job) await(name string) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(name); err == nil {
			return nil
		}
		select {
		case err := <-j.ended:
			j.ended <- err
			return fmt.Errorf("the run ended: %v\n%s", err, j.said.String())
		case <-j.b.ctx.Done():
			return j.b.ctx.Err()
		case <-look.C:
		}
	}
}

// end lets our own rank end and looks whether its memory is right.
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
	return errors.Join(err, os.RemoveAll(j.folder()))
}

// kill ends a run that is not needed any more.
func (j *job) kill() {
	for range 2 { // the second one means at once
		j.cmd.Process.Signal(os.Interrupt)
	}
	<-j.ended
	os.RemoveAll(j.folder())
}

// move is what one of them took.
type move struct {
	supervise.MoveState
	before    int64 // what the source's memory was at most before,
	source    int64 // and at the end,
	newcomer  int64 // and its newcomer's; bytes
	haveLeft  bool
	newcomers []int
}

// migrate moves ranks, and watches the memory of the first one.
func (j *job) migrate(m supervise.Migration) (*move, error) {
	st, err := supervise.Read(j.b.ctx, j.folder())
	if err != nil {
		return nil, err
	}
	out := &move{}
	var wg sync.WaitGroup
	over := make(chan struct{})
	if pid := st.Ranks[m.Ranks[0]].Pid; pid > 0 {
		if out.before, err = highest(pid); err != nil {
			return nil, err
		}
		wg.Go(func() { out.source = watch(pid, over) })
	}
	ms, err := supervise.Migrate(j.b.ctx, j.folder(), m, nil)
	close(over)
	wg.Wait()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, j.said.String())
	}
	if ms.State != supervise.Moved {
		return nil, fmt.Errorf("%s\n%s", supervise.MoveText(ms), j.said.String())
	}
	out.MoveState = *ms
	if st, err = supervise.Read(j.b.ctx, j.folder()); err != nil {
		return nil, err
	}
	out.newcomer, err = highest(st.Ranks[m.Ranks[0]].Pid)
	return out, err
}

// all is the time from the request to the end.
func (m *move) all() int64 {
	return m.SpawnNS + m.AheadNS + m.NegotiationNS + m.TransferNS + m.RestartNS
}

// highest is the most memory that a process ever had.
func highest(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has ended", pid)
}

// watch returns the most memory that a process had until it ended. It is
// looked at often, since one that has ended does not tell.
func watch(pid int, over <-chan struct{}) (most int64) {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		n, err := highest(pid)
		if err != nil {
			return most
		}
		most = n
		select {
		case <-over:
			return most
		case <-t.C:
		}
	}
}

// sinkProcess takes bytes at the other end of the link.
type sinkProcess struct {
	cmd  *exec.Cmd
	in   interface{ Close() error }
	addr string
}

// listen starts the sink, on the second host.
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

// alone measures on the first host: stages of a rank, or a transfer.
func (b *bench) alone(role string, size, chunk int64) (*stages, error) {
	cmd := exec.CommandContext(b.ctx, "ip", "netns", "exec", b.net.Hosts[0], b.self, "-as", role,
		"-size", strconv.FormatInt(size, 10), "-chunk", strconv.FormatInt(chunk, 10), "-to", b.sink.addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s alone: %w", role, err)
	}
	s := new(stages)
	return s, json.Unmarshal(out, s)
}
