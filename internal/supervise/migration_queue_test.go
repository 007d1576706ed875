//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// movesOf returns a run's moves, read as a command does.
func movesOf(t *testing.T, o Options) (*control.RunState, string) {
	t.Helper()
	st, err := client.Read(context.Background(), o.Run)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range st.Moves {
		out = append(out, fmt.Sprint(st.Moves[i].ID, " ", st.Moves[i].State))
	}
	return st, strings.Join(out, ", ")
}

// TestMove_Recorded shows that the results of moves are known as long as the
// run directory exists, and that no number is used twice.
func TestMove_Recorded(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "pause:3:1", "gate:0:12:"+gate, "pause:13:4:2")
	l := begin(t, o)
	l.migrate(client.Migration{Ranks: []int{0}, To: "localhost"}).ends(control.Moved)
	l.migrate(client.Migration{Ranks: []int{0}}).ends(control.NotMoved)
	l.reaches(0, 12)
	waits := l.migrate(client.Migration{Ranks: []int{0}, To: "localhost"})
	l.enters(3, control.MoveFinalCopy)
	l.kill()
	waits.ends(control.NotMoved, "the run")
	l.ends(rundir.Stopped, StoppedStatus)
	if st, got := movesOf(t, o); got != "1 moved, 2 not moved, 3 not moved" || st.State != rundir.Stopped {
		t.Errorf("%s: %+v", got, st)
	}
	if _, err := client.Migrate(context.Background(), o.Run, client.Migration{Ranks: []int{0}}, nil); err == nil || !strings.Contains(err.Error(), "it was stopped; the same 'cairn run' command resumes it") {
		t.Error(err)
	}
	l = begin(t, o)
	l.reaches(0, 12)
	m := l.migrate(client.Migration{Ranks: []int{0}, To: "localhost"})
	l.enters(4, control.MoveFinalCopy)
	open(t, gate)
	if st := m.ends(control.Moved); st.ID != 4 {
		t.Errorf("%+v", st)
	}
	l.ends(rundir.Finished, 0)
	if _, got := movesOf(t, o); got != "1 moved, 2 not moved, 3 not moved, 4 moved" {
		t.Error(got)
	}
	if _, err := client.Migrate(context.Background(), o.Run, client.Migration{Ranks: []int{0}}, nil); err == nil || !strings.Contains(err.Error(), "it has finished") {
		t.Error(err)
	}
	// Another run in the same directory starts with an empty list.
	o.Command = as("rank", "points=3")
	l = begin(t, o)
	l.ends(rundir.Finished, 0)
	if _, got := movesOf(t, o); got != "" {
		t.Error(got)
	}
}

// TestMove_SupervisorLost kills the supervisor during a move. The command that
// waits for the move reports that, and so do later ones.
func TestMove_SupervisorLost(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:8:"+gate, "fault:source:~precopy:1")
	p := startSupervisor(t, o)
	p.await("rank 0 at point 8")
	precopying := make(chan struct{})
	type answer struct {
		st  *control.MoveState
		err error
	}
	got := make(chan answer)
	go func() {
		st, err := client.Migrate(context.Background(), o.Run, client.Migration{Ranks: []int{0}, To: "localhost"}, func(st *control.MoveState) {
			if st.State == control.MovePrecopy {
				close(precopying)
			}
		})
		got <- answer{st, err}
	}()
	<-precopying
	p.cmd.Process.Kill()
	p.cmd.Wait()
	a := <-got
	if a.err != nil || a.st.State != control.MoveUnknown || a.st.ID != 1 {
		t.Fatalf("%+v, %v", a.st, a.err)
	}
	if text := control.MoveText(a.st); text != "whether rank 0 moved to localhost is unknown: the supervisor is gone, and the run has stopped; the same 'cairn run' command resumes it" {
		t.Error(text)
	}
	if st, got := movesOf(t, o); got != "1 unknown" || st.State != rundir.Interrupted || !strings.Contains(control.MoveText(&st.Moves[0]), "the supervisor was lost before it was over") {
		t.Errorf("%s: %+v", got, st)
	}
	if _, err := client.Migrate(context.Background(), o.Run, client.Migration{Ranks: []int{0}}, nil); err == nil || !strings.Contains(err.Error(), "is gone; the same 'cairn run' command resumes it") {
		t.Error(err)
	}
	l := begin(t, o)
	l.await("waiting for the ranks of the last start on localhost to save and stop")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("rank 0 rolled back: the supervisor was lost before it was over; the run resumes from checkpoint ")
	if _, got := movesOf(t, o); got != "1 rolled back" {
		t.Error(got)
	}
	exact(t, o, 20)
}

// TestMove_Cancel cancels a move by the command that requested it, which
// reports the result.
func TestMove_Cancel(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "fault:source:<switch:3:"+gate, "pause:8:3", "fault:source:~precopy:1")
	l := begin(t, o)
	ask := func(id uint64, when string) (*migration, func()) {
		off := make(chan struct{})
		m := l.migrate(client.Migration{Ranks: []int{1}, To: "c", Cancel: off})
		l.enters(id, when)
		return m, func() { close(off) }
	}
	first, off := ask(1, control.MovePrecopy)
	second, offSecond := ask(2, control.MoveWaiting)
	offSecond()
	second.ends(control.NotMoved, "called off")
	off()
	first.ends(control.NotMoved, "called off")
	late, off := ask(3, control.MoveSwitching)
	off()
	open(t, gate)
	late.ends(control.Moved)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{1: {8}})
}

// TestMove_CancelLaunched cancels a move before the destination's helper has
// connected. The helper's launcher must be ended.
func TestMove_CancelLaunched(t *testing.T) {
	dir := t.TempDir()
	launched := filepath.Join(dir, "launch")
	script(t, filepath.Join(dir, "mpirun"), `test "$1" = --version && exit
n=$2; shift 2
if test "$1" = -hosts; then echo $$ > `+launched+`.new; mv `+launched+`.new `+launched+`; exec sleep 1000; fi
i=0
while test $i -lt $n; do PMI_RANK=$i PMI_SIZE=$n "$@" & i=$((i+1)); done
wait`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	gate := fifo(t)
	o := options(t, 2, "gate:0:12:"+gate)
	o.Launcher = "mpirun"
	l := begin(t, o)
	l.reaches(0, 12)
	off := make(chan struct{})
	m := l.migrate(client.Migration{Ranks: []int{1}, To: "localhost", Cancel: off})
	l.enters(1, control.MovePreparing)
	pid, late := 0, time.Now().Add(30*time.Second)
	for pid == 0 && time.Now().Before(late) {
		text, _ := os.ReadFile(launched)
		fmt.Sscan(string(text), &pid)
		time.Sleep(time.Millisecond)
	}
	close(off)
	m.ends(control.NotMoved, "called off")
	for pid != 0 && syscall.Kill(pid, 0) == nil && time.Now().Before(late) {
		time.Sleep(time.Millisecond)
	}
	if pid == 0 || syscall.Kill(pid, 0) == nil {
		t.Errorf("the launcher, process %d, was not started or still runs", pid)
	}
	open(t, gate)
	l.ends(rundir.Finished, 0)
}

// TestMove_RunEnded ends the run before the request for a move is answered. The
// command reads the record.
func TestMove_RunEnded(t *testing.T) {
	for _, heard := range []bool{false, true} {
		dir := t.TempDir()
		rec := &rundir.Record{Command: []string{"x"}, Ranks: 1, State: rundir.Stopped, Moves: []control.MoveState{{ID: 3, State: control.NotMoved, Why: "the run has ended"}}}
		if err := (&rundir.Dir{FS: vfs.OS(), Path: dir}).Write(rec); err != nil {
			t.Fatal(err)
		}
		socket, err := net.Listen("unix", filepath.Join(dir, rundir.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			c := control.New(conn)
			c.Recv()
			if heard {
				c.Send(&control.Answer{More: true, Run: &control.RunState{Moves: []control.MoveState{{ID: 3, State: control.MoveWaiting}}}})
			}
			socket.Close()
			conn.Close()
		}()
		st, err := client.Migrate(context.Background(), dir, client.Migration{Ranks: []int{0}}, nil)
		switch {
		case heard && (err != nil || st.State != control.NotMoved):
			t.Errorf("%+v, %v", st, err)
		case !heard && (!errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), "it was stopped")):
			t.Errorf("%+v, %v", st, err)
		}
	}
}

// TestMove_Spread shows that the ranks of a host go to several hosts if none
// has room for all.
func TestMove_Spread(t *testing.T) {
	o := options(t, 3, "pause:8:1", "pause:10:2")
	_, rsh := shell(t)
	o.Hosts, o.RemoteShell = []Host{{"a", 3}, {"b", 1}, {"c", 2}, {"d", 3}}, rsh
	l := begin(t, o)
	// The first host has room for all.
	if st := l.migrate(client.Migration{Host: "a"}).ends(control.Moved); st.To != "d" {
		t.Errorf("%+v", st)
	}
	if st := l.migrate(client.Migration{Host: "d"}).ends(control.Moved); st.To != "c, b" || !slices.Equal(st.Ranks, []int{0, 1, 2}) {
		t.Errorf("%+v", st)
	}
	l.ends(rundir.Finished, 0).says("moving ranks 0, 1 and 2 from d to c, b")
	l.exactMoved(20, map[int][]int{0: {8, 10}, 1: {8, 10}, 2: {8, 10}})
	if got := hostsOf(t, o); got != "a:0 b:1 c:2 d:0" {
		t.Error(got)
	}
}

// TestEvacuate_WaitsForRoom shows that an evacuation waits for room, and that
// this is reported once. The slot of a rank that has moved away counts as room.
func TestEvacuate_WaitsForRoom(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "pause:8:2", "pause:10:3", "gate:0:15:"+gate)
	_, rsh := shell(t)
	o.Hosts, o.RemoteShell = []Host{{"a", 1}, {"b", 1}}, rsh
	asked := filepath.Join(t.TempDir(), "asked")
	o.EvacuateWhen, o.EvacuatePoll = `grep -q "\"helper\":$PPID," `+o.Run+`/hosts/b.lock && echo >> `+asked, 100*time.Millisecond
	l := begin(t, o)
	l.await("rank 1 not moved: no other host of the run has room for rank 1; the ranks move as soon as a host has room; 'cairn migrate --host b --to TARGET' does not wait")
	before, _ := os.ReadFile(asked)
	for n := len(before); n < len(before)+3; { // the supervisor checks repeatedly
		text, _ := os.ReadFile(asked)
		n = len(text)
	}
	l.migrate(client.Migration{Ranks: []int{0}, To: "d"}).ends(control.Moved)
	l.await("host b is to be evacuated, and now there is room for its ranks")
	l.await("rank 1 moved from b to a")
	open(t, gate)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{0: {8}, 1: {10}})
	n := 0
	for _, s := range l.said {
		if strings.Contains(s, "has room") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it was said %d times: %q", n, l.said)
	}
	if got := hostsOf(t, o); got != "a:1 b:0 d:1" {
		t.Error(got)
	}
}

// TestEvacuate_HostClosed shows that an evacuated host accepts a rank that is
// sent there by --to. When the rank has moved away again, its slot is not free
// for others.
func TestEvacuate_HostClosed(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "pause:8:1", "pause:10:2", "pause:12:3", "gate:0:15:"+gate)
	l := begin(t, o)
	l.migrate(client.Migration{Host: "a"}).ends(control.Moved)
	l.migrate(client.Migration{Ranks: []int{0}, To: "a"}).ends(control.Moved)
	if st := l.migrate(client.Migration{Ranks: []int{0}}).ends(control.Moved); st.To != "c" {
		t.Errorf("%+v", st)
	}
	l.migrate(client.Migration{Host: "b"}).ends(control.NotMoved, "no other host of the run has room for rank 1; name")
	open(t, gate)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{0: {8, 10, 12}})
	if got := hostsOf(t, o); got != "a:0 b:1 c:1" {
		t.Error(got)
	}
}

// TestAdvice_NoRoom has a host in the file that cannot be evacuated. The advice
// is to change the file.
func TestAdvice_NoRoom(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:3:"+gate)
	l := begin(t, o)
	l.reaches(0, 3)
	path := filepath.Join(o.Run, rundir.EvacuateFile)
	if err := os.WriteFile(path, []byte("localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.s.Evacuate()
	l.await("no other host of the run has room for rank 0; write 'localhost TARGET' into " + path + " and send SIGUSR2 again")
	open(t, gate)
	l.ends(rundir.Finished, 0)
}

// TestEvacuate_RetriedLessOften has a host that requests its evacuation
// repeatedly while the move fails. The supervisor tries it less and less often.
func TestEvacuate_RetriedLessOften(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "fault:destination:start:1", "fault:destination:start:2", "pause:8:3", "gate:0:12:"+gate)
	o.EvacuateWhen, o.EvacuatePoll = `grep -q "\"helper\":$PPID," `+o.Run+`/hosts/b.lock`, 100*time.Millisecond
	l := begin(t, o)
	l.s.post(func() { l.s.limits.again = 30 * time.Millisecond })
	l.await("rank 1 moved from b to c")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("host b is to be evacuated: trying again in 30 ms", "host b is to be evacuated: trying again in 60 ms")
	l.exactMoved(20, map[int][]int{1: {8}})
}
