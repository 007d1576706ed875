//go:build linux

package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// threeHosts returns options for a run of two ranks on a and b, with c as a
// spare host.
func threeHosts(t *testing.T, args ...string) Options {
	t.Helper()
	o := options(t, 2, args...)
	_, rsh := shell(t)
	o.Hosts, o.RemoteShell = []Host{{"a", 1}, {"b", 1}, {"c", 1}}, rsh
	return o
}

// migration is a move that a test has requested.
type migration struct {
	t    *testing.T
	stop context.CancelFunc
	got  chan *control.MoveState
	err  error
}

func (l *live) migrate(o client.Migration) *migration {
	l.t.Helper()
	l.await("started") // it listens
	ctx, cancel := context.WithCancel(context.Background())
	m := &migration{t: l.t, stop: cancel, got: make(chan *control.MoveState, 1)}
	l.t.Cleanup(cancel)
	go func() {
		st, err := client.Migrate(ctx, l.o.Run, o, nil)
		m.err = err
		m.got <- st
	}()
	return m
}

// ends waits for the answer.
func (m *migration) ends(state string, why ...string) *control.MoveState {
	m.t.Helper()
	st := <-m.got
	if m.err != nil || st == nil || st.State != state {
		m.t.Fatalf("%+v, %v; want %s", st, m.err, state)
	}
	for _, w := range why {
		if !strings.Contains(st.Why, w) {
			m.t.Errorf("%q does not say %q", st.Why, w)
		}
	}
	return st
}

// enters waits until a move is in that state.
func (l *live) enters(id uint64, state string) {
	l.t.Helper()
	found := false
	l.until(func() bool {
		found = slices.ContainsFunc(l.last.Moves, func(m control.MoveState) bool { return m.ID == id && m.State == state })
		return found || l.done
	})
	if !found {
		l.t.Fatalf("the run ended, and move %d was not %s: %+v", id, state, l.last.Moves)
	}
}

// exactMoved checks the files and the shown output of a finished run. left has
// the points at which ranks moved; a line reports each.
func (l *live) exactMoved(points int, left map[int][]int) {
	l.t.Helper()
	for r := range l.o.Ranks {
		var want strings.Builder
		want.WriteString("a line before anything is restored\n")
		for p := 1; p <= points; p++ {
			fmt.Fprintf(&want, "rank %d point %d\n", r, p)
			if slices.Contains(left[r], p) {
				fmt.Fprintf(&want, "rank %d leaves\n", r)
			}
		}
		got, err := os.ReadFile(rundir.OutputFile(filepath.Join(l.o.Run, "output"), r, 1))
		if err != nil || string(got) != want.String() {
			l.t.Errorf("rank %d wrote %q, %v; want %q", r, got, err, want.String())
		}
		var screen strings.Builder
		prefix := fmt.Sprintf("[%d.1] ", r)
		for line := range strings.Lines(l.out.String()) {
			if text, ok := strings.CutPrefix(line, prefix); ok {
				screen.WriteString(text)
			}
		}
		if screen.String() != want.String() {
			l.t.Errorf("of rank %d was shown %q, want %q", r, screen.String(), want.String())
		}
	}
}

func hostsOf(t *testing.T, o Options) string {
	t.Helper()
	rec, err := rundir.ReadRecord(o.Run)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(rec.Hosts, " ")
}

// TestMove_Ranks moves ranks by number, by host, and to a named host.
func TestMove_Ranks(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     client.Migration
		left  map[int][]int
		text  string
		hosts string
		where []string
	}{
		{"rank", client.Migration{Ranks: []int{1}, To: "c"}, map[int][]int{1: {8}}, "rank 1 moved from b to c: paused ", "a:1 b:0 c:1", []string{"a", "c"}},
		{"zero", client.Migration{Ranks: []int{0}, To: "c"}, map[int][]int{0: {8}}, "rank 0 moved from a to c: paused ", "a:0 b:1 c:1", []string{"c", "b"}},
		{"chosen", client.Migration{Ranks: []int{1}}, map[int][]int{1: {8}}, "rank 1 moved from b to c: paused ", "a:1 b:0 c:1", []string{"a", "c"}},
		{"all", client.Migration{Ranks: []int{1, 0}, To: "c"}, map[int][]int{0: {8}, 1: {8}}, "ranks 0 and 1 moved from a, b to c: paused ", "a:0 b:0 c:2", []string{"c", "c"}},
		{"new host", client.Migration{Ranks: []int{1}, To: "d"}, map[int][]int{1: {8}}, "rank 1 moved from b to d: paused ", "a:1 b:0 c:1 d:1", []string{"a", "d"}},
		{"taken host", client.Migration{Ranks: []int{1}, To: "a"}, map[int][]int{1: {8}}, "rank 1 moved from b to a: paused ", "a:2 b:0 c:1", []string{"a", "a"}},
		{"same host", client.Migration{Ranks: []int{1}, To: "b"}, map[int][]int{1: {8}}, "rank 1 moved from b to b: paused ", "a:1 b:1 c:1", []string{"a", "b"}},
		{"drain", client.Migration{Host: "a"}, map[int][]int{0: {8}}, "rank 0 moved from a to c: paused ", "a:0 b:1 c:1", []string{"c", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := fifo(t)
			o := threeHosts(t, "pause:8:1", "gate:1:12:"+gate)
			l := begin(t, o)
			before := []int{l.pid(0, 1), l.pid(1, 1)}
			st := l.migrate(c.o).ends(control.Moved)
			if st.SpawnNS <= 0 || st.PauseNS <= 0 || st.TransferNS <= 0 || st.RestartNS <= 0 || st.PauseNS != st.TransferNS+st.RestartNS || st.Stats == nil || st.Stats.Precopied != int64(len(c.left))*2<<20 {
				t.Errorf("%+v", st)
			}
			now, err := client.Read(context.Background(), o.Run)
			if err != nil || len(now.Moves) != 1 || now.Moves[0].State != control.Moved {
				t.Fatalf("%+v, %v", now, err)
			}
			for r, host := range c.where {
				if now.Ranks[r].Host != host || (now.Ranks[r].Pid == before[r]) != (len(c.left[r]) == 0) || now.Ranks[r].State != rundir.Running || now.Ranks[r].Points < 8 {
					t.Errorf("%+v", now.Ranks[r])
				}
			}
			if got := hostsOf(t, o); got != c.hosts {
				t.Errorf("hosts %s, want %s", got, c.hosts)
			}
			open(t, gate)
			l.ends(rundir.Finished, 0).says(c.text, fmt.Sprintf(" %d.0 MiB during the pause", len(c.left)), "checkpoint 4 committed")
			l.exactMoved(20, c.left)
			for r := range 2 {
				if n := strings.Count(l.out.String(), fmt.Sprintf("[%d.2] a destination begins\n", r)); n != len(c.left[r]) {
					t.Errorf("rank %d is said to begin %d times", r, n)
				}
			}
			if n := l.last.Attempt; n != 1 {
				t.Errorf("%d starts", n)
			}
		})
	}
}

// TestMove_ThenRestart loses a rank that has moved. The run restarts where the
// ranks were.
func TestMove_ThenRestart(t *testing.T) {
	o := threeHosts(t, "pause:8:1", "kill:1:13:1")
	l := begin(t, o)
	l.migrate(client.Migration{Host: "b", To: "d"}).ends(control.Moved)
	l.ends(rundir.Finished, 0).says("rank 1 on d was killed by signal 9", "restored checkpoint 2", "started again: 2 ranks on a:1, c:1")
	l.exactMoved(20, map[int][]int{1: {8}})
	if got := hostsOf(t, o); got != "a:1 b:0 c:1 d:1" {
		t.Error(got)
	}
}

// TestMove_OneRank moves a program of one rank on its own machine, back and
// forth.
func TestMove_OneRank(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "pause:3:1", "pause:4:2", "pause:9:3", "gate:0:15:"+gate)
	l := begin(t, o)
	for i := range 3 {
		st := l.migrate(client.Migration{Ranks: []int{0}, To: "localhost"}).ends(control.Moved)
		if st.ID != uint64(i+1) {
			t.Errorf("move %d has number %d", i, st.ID)
		}
	}
	left := make(chan int)
	l.s.post(func() { left <- len(l.s.a.timers) })
	if n := <-left; n > 1 { // the descriptor of the first Hello
		t.Errorf("%d timers run", n)
	}
	open(t, gate)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{0: {3, 4, 9}})
}

// TestMove_FailsUndecided shows that the run continues as before after any
// failure before the decision.
func TestMove_FailsUndecided(t *testing.T) {
	for _, c := range []struct {
		fault string
		to    string
		limit func(*moveLimits)
		why   string
	}{
		{"destination:start", "c", nil, "the new process of rank 1 on c ended with status 5 (it said: a destination begins | destination ends at start)"},
		{"destination:%start", "c", nil, "the new process of rank 1 on c was killed by signal 9"},
		{"destination:!start", "c", nil, "the new process of rank 1 on c: it cannot, destination at start"},
		{"destination:~start", "c", func(m *moveLimits) { m.start = 50 * time.Millisecond }, "the new process of rank 1 did not call Restore within 50 ms"},
		{"destination:listening", "c", nil, "ended with status 5"},
		{"destination:state", "c", nil, "ended with status 5"},
		{"destination:~state", "c", func(m *moveLimits) { m.send = 50 * time.Millisecond }, "the destination did not receive the state of rank 1 within 50 ms"},
		{"source:!precopy", "c", nil, "rank 1 on b: it cannot, source at precopy"},
		{"source:~precopy", "c", func(m *moveLimits) { m.precopy = 50 * time.Millisecond }, "rank 1 did not finish its precopy within 50 ms"},
		{"none", "down", nil, "host down cannot be reached: no route to down"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			gate := fifo(t)
			o := threeHosts(t, "fault:"+c.fault+":1", "gate:0:12:"+gate)
			os.WriteFile(filepath.Join(filepath.Dir(o.RemoteShell[0]), "down.down"), nil, 0o600)
			late := strings.Contains(c.fault, "state")
			if late {
				o.Command = as("rank", "fault:"+c.fault+":1", "pause:8:1", "gate:0:12:"+gate)
			}
			s := begin(t, o)
			if c.limit != nil {
				s.s.post(func() { c.limit(&s.s.limits) })
			}
			pid := s.pid(1, 1)
			s.migrate(client.Migration{Ranks: []int{1}, To: c.to}).ends(control.NotMoved, c.why)
			st, err := client.Read(context.Background(), o.Run)
			if err != nil || st.Ranks[1].Pid != pid || st.Ranks[1].Host != "b" || st.State != rundir.Running {
				t.Fatalf("%+v, %v", st, err)
			}
			if got := hostsOf(t, o); got != "a:1 b:1 c:1" {
				t.Errorf("hosts %s", got)
			}
			open(t, gate)
			s.ends(rundir.Finished, 0).says("rank 1 not moved: ")
			s.exactMoved(20, nil)
			if strings.Contains(s.out.String(), "destination") { // the process is not the program
				t.Error(s.out.String())
			}
			if s.last.Attempt != 1 {
				t.Errorf("%d starts", s.last.Attempt)
			}
		})
	}
}

// TestMove_RankLost loses a rank of the run during a move, or any process after
// the decision.
func TestMove_RankLost(t *testing.T) {
	for _, c := range []struct {
		fault string
		limit func(*moveLimits)
		why   string
		left  map[int][]int
	}{
		{"source:%precopy", nil, "rank 1 on b was killed by signal 9", nil},
		{"source:%paused", nil, "rank 1 on b was killed by signal 9", nil},
		{"other:%pause", nil, "rank 0 on a was killed by signal 9", nil},
		{"source:%switch", nil, "rank 1 on b was killed by signal 9", nil},
		{"source:~switch", func(m *moveLimits) { m.handOver = 50 * time.Millisecond }, "the source of rank 1 did not hand over within 50 ms", nil},
		{"destination:%received", nil, "", nil},
		{"destination:%switch", nil, "rank 1 on c was killed by signal 9", nil},
		{"destination:!switch", nil, "it cannot, destination at switch", nil},
		{"other:%switch", nil, "rank 0 on a was killed by signal 9", nil},
		{"other:~switch", func(m *moveLimits) { m.link = 50 * time.Millisecond }, " did not connect to the new processes within 50 ms", nil}, // rank 0, and on a busy machine rank 1, too
	} {
		t.Run(c.fault, func(t *testing.T) {
			args := []string{"fault:" + c.fault + ":1", "pause:8:1"}
			o := threeHosts(t, args...)
			l := begin(t, o)
			if c.limit != nil {
				l.s.post(func() { c.limit(&l.s.limits) })
			}
			l.await("checkpoint 1 committed") // the checkpoint that it restarts from
			m := l.migrate(client.Migration{Ranks: []int{1}, To: "c"})
			if c.fault == "destination:%received" { // the failure may be noticed before the decision
				if st := <-m.got; m.err != nil || st.State == control.Moved {
					t.Fatalf("%+v, %v", st, m.err)
				}
			} else {
				m.ends(control.MoveRolledBack, c.why, "; the run resumes from checkpoint 1")
			}
			l.ends(rundir.Finished, 0)
			if c.fault != "destination:%received" {
				l.says("restored checkpoint 1", "rank 1 rolled back: ")
			}
			// The output of a source while it hands over is cut off with the
			// rest.
			exact(t, o, 20)
		})
	}
}

// TestMove_HelperLost loses helpers during a move.
func TestMove_HelperLost(t *testing.T) {
	for _, c := range []struct {
		fault, when string
		destination bool
		state       string
	}{
		{"destination:~start", control.MoveStarting, true, control.NotMoved},
		{"source:~precopy", control.MovePrecopy, true, control.NotMoved},
		{"source:~precopy", control.MovePrecopy, false, control.MoveRolledBack},
		{"source:~switch", control.MoveSwitching, true, control.MoveRolledBack},
		{"source:~switch", control.MoveSwitching, false, control.MoveRolledBack},
		{"other:~switch", control.MoveLinking, true, control.MoveRolledBack},
		{"other:<switch", control.MoveLinking, false, control.Moved}, // no process is left there
	} {
		t.Run(fmt.Sprint(c.when, c.destination), func(t *testing.T) {
			gate := fifo(t)
			args := []string{"fault:" + c.fault + ":1:" + gate, "pause:8:1"}
			if c.state == control.NotMoved {
				args[1] = "gate:0:12:" + gate
			}
			o := threeHosts(t, args...)
			l := begin(t, o)
			helper := parent(t, l.pid(1, 1))
			m := l.migrate(client.Migration{Ranks: []int{1}, To: "c"})
			l.enters(1, c.when)
			if c.when == control.MoveLinking {
				var pid int
				l.until(func() bool {
					if st := l.last.Ranks; len(st) > 1 && st[1].Host == "c" {
						pid = st[1].Pid
					}
					return pid != 0
				})
				if c.destination {
					helper = parent(t, pid)
				}
			} else if c.destination {
				got := make(chan int)
				for helper = 0; helper == 0; {
					l.s.post(func() {
						pid := 0
						if l.s.move != nil {
							pid = l.s.move.moving[0].next.Pid
						}
						got <- pid
					})
					if pid := <-got; pid != 0 {
						helper = parent(t, pid)
					}
				}
			}
			syscall.Kill(helper, syscall.SIGKILL)
			if c.state == control.Moved {
				for up := true; up; {
					got := make(chan bool)
					l.s.post(func() { got <- l.s.hosts[1].state == hostUp })
					up = <-got
				}
				open(t, gate)
			}
			m.ends(c.state)
			if c.state == control.NotMoved {
				open(t, gate)
			}
			l.ends(rundir.Finished, 0)
			if c.state == control.Moved {
				l.exactMoved(20, map[int][]int{1: {8}})
			} else {
				exact(t, o, 20)
			}
		})
	}
}

// TestMove_Queue shows that moves which are requested at once are executed one
// after the other.
func TestMove_Queue(t *testing.T) {
	o := threeHosts(t, "pause:8:1", "pause:10:2")
	l := begin(t, o)
	first := l.migrate(client.Migration{Ranks: []int{1}, To: "c"})
	l.until(func() bool { return len(l.last.Moves) == 1 || l.done })
	second := l.migrate(client.Migration{Host: "c", To: "b"})
	if st := first.ends(control.Moved); st.ID != 1 {
		t.Errorf("%+v", st)
	}
	if st := second.ends(control.Moved); st.ID != 2 || !slices.Equal(st.Ranks, []int{1}) || st.From != "c" {
		t.Errorf("%+v", st)
	}
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{1: {8, 10}})
	if got := hostsOf(t, o); got != "a:1 b:1 c:0" {
		t.Error(got)
	}
}

// TestMove_CommandEnds ends the command that requested a move. Before the
// decision, this cancels the move.
func TestMove_CommandEnds(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "fault:source:~precopy:1", "gate:0:12:"+gate, "pause:15:3")
	l := begin(t, o)
	m := l.migrate(client.Migration{Ranks: []int{1}, To: "c"})
	l.enters(1, control.MovePrecopy)
	waits := l.migrate(client.Migration{Ranks: []int{1}, To: "d"})
	l.until(func() bool { return len(l.last.Moves) == 2 })
	waits.stop()
	l.await("rank 1 not moved: called off")
	m.stop()
	l.enters(1, control.NotMoved)
	open(t, gate)
	l.migrate(client.Migration{Ranks: []int{1}, To: "c"}).ends(control.Moved)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{1: {15}})
}

// TestMove_Stop shows that stop cancels a move, or waits until it is done.
func TestMove_Stop(t *testing.T) {
	for _, decided := range []bool{false, true} {
		t.Run(fmt.Sprint(decided), func(t *testing.T) {
			gate := fifo(t)
			args := []string{"fault:source:~precopy:1", "gate:0:12:" + gate}
			if decided {
				args = []string{"fault:source:<switch:1:" + gate, "pause:8:1"}
			}
			o := threeHosts(t, args...)
			l := begin(t, o)
			m := l.migrate(client.Migration{Ranks: []int{1}, To: "c"})
			if decided {
				l.enters(1, control.MoveSwitching)
				l.s.Stop("enough")
				l.await("enough: the run stops when rank 1 is moved")
				open(t, gate)
				m.ends(control.Moved)
			} else {
				l.enters(1, control.MovePrecopy)
				l.reaches(0, 12)
				l.s.Stop("enough")
				m.ends(control.NotMoved, "the run is to stop")
				open(t, gate)
			}
			l.ends(rundir.Stopped, StoppedStatus).says("enough: ranks are to save and stop", "stopped with checkpoint ")
			o.Command = l.o.Command
			l = begin(t, o)
			l.ends(rundir.Finished, 0).says("restored checkpoint ")
			if !decided {
				exact(t, o, 20)
			}
		})
	}
}

// TestMove_Checkpoint shows that a checkpoint which is requested during a move
// is taken after it. Ranks that are paused for the move make no progress, which
// does not count as a stall.
func TestMove_Checkpoint(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "every=100", "points=60", "fault:source:<paused:1:"+gate, "pause:8:1")
	l := begin(t, o)
	m := l.migrate(client.Migration{Ranks: []int{0}, To: "c"})
	l.until(func() bool { return l.done || len(l.last.Moves) == 1 && l.last.Moves[0].NegotiationNS > 0 })
	got := make(chan error, 1)
	go func() {
		_, err := client.Checkpoint(context.Background(), o.Run, "")
		got <- err
	}()
	for waiting := false; !waiting; {
		n := make(chan bool, 1)
		l.s.post(func() {
			waits := slices.ContainsFunc(l.s.requests, func(w *commandRequest) bool { return w.isCheckpoint() })
			var w stallWatch
			for range 3 * stallLooks {
				if waits && w.look(l.s, l.s.a) {
					t.Error("the pause counts as a stall")
				}
			}
			n <- waits
		})
		select {
		case waiting = <-n:
		case <-l.s.over:
			t.Fatal("the run has ended")
		}
	}
	open(t, gate)
	m.ends(control.Moved)
	if err := <-got; err != nil {
		t.Error(err)
	}
	l.ends(rundir.Finished, 0).says("checkpoint 1 committed")
	l.exactMoved(60, map[int][]int{0: {8}})
}

// TestMove_Refused sends requests that the supervisor refuses.
func TestMove_Refused(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "gate:0:12:"+gate)
	l := begin(t, o)
	l.reaches(0, 12)
	for want, m := range map[string]client.Migration{
		"there is no rank 2; the run has ranks 0 to 1": {Ranks: []int{0, 2}},
		"there is no rank -1":                          {Ranks: []int{-1}},
		"the run has no host x; it has a, b, c":        {Host: "x"},
		"either ranks or a host":                       {Host: "a", Ranks: []int{1}},
		"either ranks or":                              {},
		`"-oProxyCommand=x" is no host`:                {Ranks: []int{1}, To: "-oProxyCommand=x"},
		"host a cannot be evacuated to itself":         {Host: "a", To: "a"},
		"cannot be below zero":                         {Ranks: []int{1}, Rounds: -1},
	} {
		if st, err := client.Migrate(context.Background(), o.Run, m, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %+v, %v", m, st, err)
		}
	}
	l.migrate(client.Migration{Ranks: []int{0, 1}}).ends(control.NotMoved, "no other host of the run has room for ranks 0 and 1 (free slots: 1); name a host with --to")
	// The host has no rank, as requested.
	if st := l.migrate(client.Migration{Host: "c"}).ends(control.Moved); control.MoveText(st) != "no rank is on c; none will be placed there any more" || len(st.Ranks) != 0 {
		t.Errorf("%+v: %s", st, control.MoveText(st))
	}
	if got := hostsOf(t, o); got != "a:1 b:1 c:0" {
		t.Error(got)
	}
	l.migrate(client.Migration{Ranks: []int{1}}).ends(control.NotMoved, "no other host of the run has room for rank 1; name a host with --to")
	open(t, gate)
	l.ends(rundir.Finished, 0)
	if _, err := client.Migrate(context.Background(), o.Run, client.Migration{Ranks: []int{1}}, nil); err == nil {
		t.Error("a finished run's rank was moved")
	}
}

// TestMove_Launched moves ranks that a launcher started to helpers that it
// starts for them. They must not act as ranks of the launcher's job.
func TestMove_Launched(t *testing.T) {
	for _, name := range []string{"fake", "mpirun.openmpi", "mpirun.mpich"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if name == "fake" {
				script(t, filepath.Join(dir, "mpirun"), `test "$1" = --version && exit
n=$2; shift 2
if test "$1" = -hosts; then echo "$2" >> `+dir+`/hosts; shift 2; fi
i=0
while test $i -lt $n; do PMI_RANK=$i PMI_SIZE=$n "$@" & i=$((i+1)); done
wait`)
			} else {
				path, err := exec.LookPath(name)
				if err != nil {
					t.Skip(err)
				}
				script(t, filepath.Join(dir, "mpirun"), "exec "+path+` "$@"`)
				t.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
				t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			own, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			o := options(t, 2, "pause:8:1", "pause:10:2", "gate:1:13:"+fifo(t))
			gate := strings.TrimPrefix(o.Command[len(o.Command)-1], "gate:1:13:")
			o.Launcher = "mpirun"
			if name == "mpirun.openmpi" {
				o.LauncherArgs = []string{"--oversubscribe"}
			}
			l := begin(t, o)
			for i, r := range []int{1, 0} {
				if st := l.migrate(client.Migration{Ranks: []int{r}, To: "localhost"}).ends(control.Moved); st.ID != uint64(i+1) || st.From != own || st.To != own {
					t.Errorf("%+v", st)
				}
			}
			pid := 0
			l.until(func() bool { pid = l.last.Ranks[1].Pid; return true })
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []string{"PMI_", "PMIX_", "OMPI_COMM", helper.EnvSecret} {
				if strings.Contains(string(env), v) {
					t.Errorf("a destination has %s in its environment", v)
				}
			}
			if name == "fake" {
				if got, _ := os.ReadFile(filepath.Join(dir, "hosts")); string(got) != "localhost\nlocalhost\n" {
					t.Errorf("%q", got)
				}
			}
			open(t, gate)
			l.ends(rundir.Finished, 0)
			l.exactMoved(20, map[int][]int{1: {8}, 0: {10}})
		})
	}
}
