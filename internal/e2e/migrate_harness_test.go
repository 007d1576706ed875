//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/interconnects"
)

// network returns hosts that are network namespaces.
func network(t *testing.T, hosts int) *interconnects.Network {
	t.Helper()
	net, err := interconnects.NewNetwork(hosts)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(net.Close)
	return net
}

// slots returns hosts for --hosts.
func slots(net *interconnects.Network, count ...int) string {
	var list []string
	for i, k := range count {
		list = append(list, fmt.Sprintf("%s:%d", net.Hosts[i], k))
	}
	return strings.Join(list, ",")
}

// trip is a run whose ranks are moved.
type trip struct {
	*runOf
	s      *supervisor
	n      int
	stills []int // stopped processes
	first  int   // the destination of the first rank that moves, if the test waited for it

	restart func() // starts the run with the same command
}

func (r *runOf) travels(n int, s *supervisor) *trip {
	p := &trip{runOf: r, s: s, n: n}
	r.t.Cleanup(p.thaw)
	return p
}

// asked is a running 'cairn migrate'.
type asked struct {
	t    *testing.T
	p    *trip
	out  bytes.Buffer
	errs bytes.Buffer
	done chan struct{}
	code int
}

// asks starts 'cairn migrate'.
func (p *trip) asks(args ...string) *asked {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	p.t.Cleanup(cancel)
	a := &asked{t: p.t, p: p, done: make(chan struct{})}
	cmd := exec.CommandContext(ctx, build(p.t, "./cmd/cairn", runtime.GOARCH), append(append([]string{"migrate", "--json"}, args...), p.run())...)
	cmd.Stdout, cmd.Stderr = &a.out, &a.errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(a.done)
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			a.code = exit.ExitCode()
		}
	}()
	return a
}

// ends waits for the answer, which must come with this exit status.
func (a *asked) ends(code int) *control.MoveState {
	a.t.Helper()
	<-a.done
	if a.code != code {
		a.t.Fatalf("cairn migrate: exit status %d, not %d: %s%s\n%s", a.code, code, a.out.String(), a.errs.String(), a.p.s.text())
	}
	var st control.MoveState
	if err := json.Unmarshal(a.out.Bytes(), &st); err != nil && a.out.Len() > 0 {
		a.t.Fatalf("%v: %s", err, a.out.String())
	}
	return &st
}

// moves moves ranks. It must succeed.
func (p *trip) moves(args ...string) *control.MoveState {
	p.t.Helper()
	return p.asks(args...).ends(0)
}

// enters waits until f holds for the newest move, and returns whether that
// happened in time.
func (p *trip) enters(limit time.Duration, f func(m *control.MoveState) bool) bool {
	p.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		st := p.s.state()
		if st == nil {
			if _, _, over := p.s.said(); over {
				p.t.Fatalf("the run has ended:\n%s", p.s.text())
			}
			continue
		}
		if n := len(st.Moves); n > 0 && f(&st.Moves[n-1]) {
			return true
		}
	}
	return false
}

func (p *trip) reachesState(state string) {
	p.t.Helper()
	if !p.enters(patience, func(m *control.MoveState) bool { return m.State == state }) {
		p.t.Fatalf("the move is not %s: %+v\n%s", state, p.s.state().Moves, p.s.text())
	}
}

// still stops a process, until thaw.
func (p *trip) still(pid int) {
	p.t.Helper()
	if err := stop(pid); err != nil {
		p.t.Fatalf("process %d: %v\n%s", pid, err, p.s.text())
	}
	p.stills = append(p.stills, pid)
}

// stop sends SIGSTOP and waits until all threads have stopped. On a busy
// machine, other threads continue for a while before one of them handles the
// signal.
func stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		going := ""
		list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, f := range list {
			text, err := os.ReadFile(f)
			_, rest, _ := strings.Cut(string(text), ") ")
			if err == nil && rest != "" && !strings.ContainsAny(rest[:1], "TtZX") {
				going = string(text)
			}
		}
		if going == "" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("runs in spite of SIGSTOP: %s", going)
		}
	}
}

// thaw continues the stopped processes.
func (p *trip) thaw() {
	for _, pid := range p.stills {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	p.stills = nil
}

func (p *trip) thawOne(pid int) {
	syscall.Kill(pid, syscall.SIGCONT)
	p.stills = slices.DeleteFunc(p.stills, func(x int) bool { return x == pid })
}

// now returns the run's state. There must be one.
func (p *trip) now() *control.RunState {
	p.t.Helper()
	st := p.s.state()
	if st == nil || len(st.Ranks) != p.n {
		p.t.Fatalf("the run does not tell how it is: %+v\n%s", st, p.s.text())
	}
	return st
}

// pidOf returns the process of a rank.
func (p *trip) pidOf(rank int) int {
	p.t.Helper()
	return p.now().Ranks[rank].Pid
}

// where returns the hosts of the ranks.
func (p *trip) where() (out []string) {
	p.t.Helper()
	for _, r := range p.now().Ranks {
		out = append(out, r.Host)
	}
	return out
}

// processes returns the processes that run the program with the run directory
// among their arguments.
func (p *trip) processes() (found []int) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, x := range list {
		pid, _ := strconv.Atoi(strings.TrimPrefix(x, "/proc/"))
		args, err := os.ReadFile(filepath.Join(x, "cmdline"))
		if err == nil && strings.Contains(string(args), p.root) && runs(pid, p.command[0]) {
			found = append(found, pid)
		}
	}
	return found
}

// onlyRanks waits until no processes but the ranks' exist.
func (p *trip) onlyRanks() {
	p.t.Helper()
	var found []int
	for end := time.Now().Add(patience / 4); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if found = p.processes(); len(found) == p.n {
			return
		}
	}
	p.t.Fatalf("%d ranks, but processes %v:\n%s", p.n, found, p.s.text())
}

// byRank sorts lines by rank, the second word, and keeps the order of each
// rank's lines.
func byRank(text string) string {
	lines := slices.Collect(strings.Lines(text))
	slices.SortStableFunc(lines, func(a, b string) int {
		rank := func(s string) int {
			f := strings.Fields(s)
			if len(f) < 2 {
				return -1
			}
			n, _ := strconv.Atoi(f[1])
			return n
		}
		return rank(a) - rank(b)
	})
	return strings.Join(lines, "")
}

// newTraveller makes the directory of a run of testdata/traveller.
func newTraveller(t *testing.T, args ...string) *runOf {
	t.Helper()
	r := newRun(t)
	r.command = append([]string{program(t, "traveller"), "-dir", r.root}, args...)
	if err := os.Mkdir(filepath.Join(r.root, "files"), 0o777); err != nil {
		t.Fatal(err)
	}
	return r
}

// traveller starts a run of testdata/traveller and waits until it is at its
// gate.
func traveller(t *testing.T, n int, flags ...string) *trip {
	t.Helper()
	return newTraveller(t).waiting(n, flags...)
}

// waiting starts a traveller and waits until it is at its gate.
func (r *runOf) waiting(n int, flags ...string) *trip {
	r.t.Helper()
	p := r.travels(n, nil)
	p.restart = func() { p.s = r.start(append([]string{"-n", strconv.Itoa(n)}, flags...)...) }
	p.restart()
	p.waits()
	return p
}

const travellerGate = 30 // the step of the gate

// waits returns when all ranks wait at the gate.
func (p *trip) waits() {
	p.t.Helper()
	if !p.s.reaches(travellerGate + 2) {
		p.t.Fatalf("it ended:\n%s", p.s.text())
	}
}

// arrives opens the gate and checks the end: every rank must have written each
// line once, to its output and to its file.
func (p *trip) arrives() {
	p.t.Helper()
	write(p.t, filepath.Join(p.root, "gate"), "")
	p.s.finishes()
	p.wrote()
}

// wanted are the outputs of undisturbed travellers, by their number of ranks.
var (
	wanted  = make(map[int]string)
	wanting sync.Mutex
)

func (p *trip) wrote() {
	p.t.Helper()
	wanting.Lock()
	defer wanting.Unlock()
	if wanted[p.n] == "" {
		r := newTraveller(p.t)
		write(p.t, filepath.Join(r.root, "gate"), "")
		r.start("-n", strconv.Itoa(p.n), "--every", "1h").finishes()
		wanted[p.n] = byRank(r.output())
	}
	sameOutput(p.t, byRank(p.output()), wanted[p.n])
	for rank := range p.n {
		got, err := os.ReadFile(filepath.Join(p.root, "files", strconv.Itoa(rank)))
		if err != nil {
			p.t.Fatal(err)
		}
		var want strings.Builder
		for line := range strings.Lines(wanted[p.n]) {
			if strings.HasPrefix(line, fmt.Sprintf("rank %d step ", rank)) {
				want.WriteString(line)
			}
		}
		sameOutput(p.t, strings.TrimLeft(string(got), "x"), want.String())
	}
	if left := p.processes(); len(left) > 0 {
		p.t.Errorf("processes %v are left", left)
	}
}

// pidsOf returns the processes of a rank, now and before.
func (p *trip) pidsOf(rank int) (out []int) {
	list, _ := filepath.Glob(filepath.Join(p.root, fmt.Sprintf("pid-%d-*", rank)))
	for _, f := range list {
		pid, _ := strconv.Atoi(f[strings.LastIndex(f, "-")+1:])
		out = append(out, pid)
	}
	return out
}

// destination waits for a process that will replace a rank, and returns it.
func (p *trip) destination(rank int) int {
	p.t.Helper()
	source := p.pidOf(rank)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, pid := range p.pidsOf(rank) {
			if pid != source && runs(pid, p.command[0]) {
				return pid
			}
		}
	}
	p.t.Fatalf("there is no destination of rank %d:\n%s", rank, p.s.text())
	return 0
}

// movesAround moves ranks while a short program computes: one, two, and all
// that are on a host. It makes at most most moves, and returns how many it
// made. So that the program does not end before the new processes exist, one of
// its ranks runs only for moments, and not at all while they start.
func (p *trip) movesAround(most int, hosts []string) (moved int) {
	p.t.Helper()
	if _, ok := p.s.sees(0, "started"); !ok {
		return 0
	}
	for limit := time.Now().Add(patience); moved < most; {
		if time.Now().After(limit) {
			p.t.Fatalf("it takes too long:\n%s", p.s.text())
		}
		st := p.s.state()
		if _, _, over := p.s.said(); over {
			return moved
		}
		if st == nil || len(st.Ranks) < p.n || slices.ContainsFunc(st.Ranks, func(r control.RankState) bool { return r.Pid == 0 }) {
			time.Sleep(time.Millisecond)
			continue
		}
		still := st.Ranks[(moved+1)%p.n].Pid
		if stop(still) != nil {
			return moved
		}
		p.stills = append(p.stills, still)
		first := st.Ranks[moved%p.n]
		from := slices.Index(hosts, first.Host) // -1: started by a launcher
		args := []string{"--rank", strconv.Itoa(first.Rank), "--to", hosts[(from+1)%len(hosts)], "--rounds", "0"}
		switch moved % 3 {
		case 1:
			args[1] = fmt.Sprintf("%d,%d", first.Rank, (first.Rank+p.n/2)%p.n)
		case 2:
			if hosts[(from+1)%len(hosts)] != first.Host {
				args[0], args[1] = "--host", first.Host
			}
		}
		a := p.asks(args...)
		for known := len(st.Moves); ; time.Sleep(time.Millisecond) {
			st := p.s.state()
			if st == nil || len(st.Moves) <= known {
				if isDone(a.done) {
					break
				}
				continue
			}
			m := &st.Moves[len(st.Moves)-1]
			if m.State == control.MovePrecopy || m.State == control.MoveFinalCopy || m.Over() {
				break
			}
			if m.State == control.MoveWaiting { // perhaps it has not reached Restore yet
				syscall.Kill(still, syscall.SIGCONT)
				time.Sleep(2 * time.Millisecond)
				stop(still)
			}
		}
		p.thawOne(still)
		<-a.done
		switch {
		case a.code == 0:
			moved++
		case a.code == 3 && strings.Contains(a.errs.String(), "the program is about to end"):
			return moved
		default:
			p.t.Fatalf("%v: exit status %d: %s\n%s", args, a.code, a.errs.String(), p.s.text())
		}
	}
	return moved
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
