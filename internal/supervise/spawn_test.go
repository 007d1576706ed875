//go:build linux

package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestSpawning_Conditions tests when the MPI library of the others starts
// destinations, and which rank executes the spawn.
func TestSpawning_Conditions(t *testing.T) {
	on := func(name string) *host { return &host{shared: name, state: hostUp} }
	one, two := []*host{on("a"), on("a")}, []*host{on("a"), on("b")}
	for _, c := range []struct {
		what       string
		said       string
		other      bool // not Open MPI 4
		hosts      []*host
		apart      bool
		transports []string
		want       bool
	}{
		{what: "one host", hosts: one},
		{what: "one host, asked for", said: "spawn", hosts: one, want: true},
		{what: "several hosts", hosts: two, want: true},
		{what: "several hosts, with the library", transports: []string{"mpi"}, hosts: two, want: true},
		{what: "several hosts, without the library", transports: []string{"shm", "tcp"}, hosts: two},
		{what: "another launcher", other: true, said: "spawn", hosts: two},
		{what: "it went wrong", apart: true, said: "spawn", hosts: two},
		{what: "never", said: "no", hosts: two},
		{what: "another way", said: "any", hosts: two},
	} {
		t.Setenv(control.EnvJoin, c.said)
		s := &Supervisor{n: 2, launcher: &launcher{apart: c.apart, spawns: !c.other}, hosts: c.hosts, o: Options{Transports: c.transports}}
		if got := s.spawning(); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	extra := on("c")
	extra.extra = true
	l := &launcher{args: []string{"--oversubscribe", "--host", "10.0.0.2:2," + own + ",e.some.where:1"}}
	s := &Supervisor{launcher: l, hosts: append(slices.Clone(two), on(own), extra, on("d.some.where"), on("e.some.where"))}
	for goal, want := range map[string]string{"a": "a", "b": "b", "c": "", "d": "", "localhost": own, own: own, "10.0.0.2": "10.0.0.2", "10.0.0.3": "",
		"d.some.where": "d", "e.some.where": "e.some.where"} {
		if got := s.spawnHost(goal); got != want {
			t.Errorf("to %s: %q, not %q", goal, got, want)
		}
	}
	// A rank that moves executes it, if it belongs to the library's world;
	// otherwise any rank that does.
	spawned := on("b")
	spawned.spawned = true
	ranks := func(list ...rank) *Supervisor {
		for i := range list {
			list[i].Rank, list[i].State = i, rundir.Running
		}
		return &Supervisor{a: &attempt{ranks: list}}
	}
	for _, c := range []struct {
		what  string
		s     *Supervisor
		moves []int
		want  int
	}{
		{"the first", ranks(rank{on: two[0]}, rank{on: two[1]}), []int{0}, 0},
		{"the second", ranks(rank{on: two[0]}, rank{on: two[1]}), []int{1}, 1},
		{"one that was spawned", ranks(rank{on: two[0]}, rank{on: spawned, byMove: 3}), []int{1}, 1},
		{"not one that is apart", ranks(rank{on: two[0]}, rank{on: two[1], byMove: 3}), []int{1}, 0},
		{"one of two", ranks(rank{on: two[0], byMove: 4}, rank{on: two[1]}), []int{0, 1}, 1},
		{"none can", ranks(rank{on: two[0], byMove: 1}, rank{on: two[1], byMove: 2}), []int{0}, -1},
	} {
		m := new(move)
		for _, r := range c.moves {
			m.moving = append(m.moving, &movingRank{rank: r})
		}
		if got := c.s.spawner(m); got != c.want {
			t.Errorf("%s: %d, not %d", c.what, got, c.want)
		}
	}
}

// spawnedRun begins a run of two ranks whose launcher claims to be Open MPI 4.
// sent returns the hosts to which the launcher itself has sent helpers.
func spawnedRun(t *testing.T, args ...string) (l *live, sent func() string) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "mpirun"), `test "$1" = --version && echo 'mpirun (Open MPI) 4.1.4' && exit
n=$2; shift 2
while :; do case $1 in -x) shift 2;; --host) echo "$2" >> `+dir+`/hosts; shift 2;; *) break;; esac; done
i=0
while test $i -lt $n; do OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$n "$@" & i=$((i+1)); done
wait`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(control.EnvJoin, "spawn")
	o := options(t, 2, args...)
	o.Launcher = "mpirun"
	return begin(t, o), func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "hosts"))
		return string(text)
	}
}

// TestSpawn_Move moves ranks to helpers that the MPI library of the others
// starts. These helpers stay when their rank has moved away.
func TestSpawn_Move(t *testing.T) {
	gate := fifo(t)
	l, sent := spawnedRun(t, "pause:8:1", "pause:10:2", "pause:12:3", "gate:1:14:"+gate)
	for _, r := range []int{1, 0, 1} {
		l.migrate(client.Migration{Ranks: []int{r}, To: "localhost"}).ends(control.Moved)
	}
	pid, helpers := 0, 0
	l.until(func() bool { pid = l.last.Ranks[1].Pid; return true })
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range map[string]bool{helper.EnvSecret: false, helper.EnvSupervisor: false, helper.EnvParent: false, control.EnvJoin + "=spawn": true, "OMPI_COMM_WORLD_SIZE=1": true} {
		if strings.Contains(string(env), v) != want {
			t.Errorf("%s in the environment of a destination: %v", v, !want)
		}
	}
	if helpers = l.helpers(); helpers != 5 || sent() != "" {
		t.Errorf("%d helpers, not 5, and launcheds to %q", helpers, sent())
	}
	open(t, gate)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{1: {8, 12}, 0: {10}})
}

// helpers returns the number of helpers.
func (l *live) helpers() (n int) {
	counted := make(chan bool)
	l.s.post(func() {
		for _, h := range l.s.hosts {
			if h.state == hostUp {
				n++
			}
		}
		close(counted)
	})
	<-counted
	return n
}

// until waits until a condition holds.
func until(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(joinTime / 2); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to that")
		}
	}
}

// TestSpawned_AfterHandOver shows that a rank's message about a spawn is
// handled after it has handed over, too, but not one of its old process.
func TestSpawned_AfterHandOver(t *testing.T) {
	from, to := &host{shared: "a", state: hostUp}, &host{shared: "b", state: hostUp}
	for _, left := range []bool{false, true} {
		x := &movingRank{rank: 1, from: from, to: to}
		m := &move{MoveState: &control.MoveState{ID: 3}, moving: []*movingRank{x}}
		a := &attempt{launch: "x", ranks: make([]rank, 2), timers: make(map[*time.Timer]bool), spawning: []*spawn{{move: 3, movingRank: 1, rank: 1, busy: true}, {move: 3, movingRank: 0, rank: 0}}}
		s := &Supervisor{a: a, n: 2, migrations: migrations{move: m, limits: usualLimits}}
		if left {
			s.handedOver(x)
		} else { // the process does not belong to the rank any more
			a.ranks[1].on = to
			s.fromRank(from, &control.FromRank{Process: control.Process{Rank: 1}, Launch: "x", Carried: control.Carried{Message: &control.Spawned{Move: 3, Moving: 1}}})
		}
		if len(a.spawning) != 1 || a.spawning[0].rank != 0 {
			t.Errorf("left %v: %d are waited for", left, len(a.spawning))
		}
		for timer := range a.timers {
			timer.Stop()
		}
	}
}

// TestSpawnScript_Stays shows that the shell of a spawned helper never fails,
// and stays only if there were ranks.
func TestSpawnScript_Stays(t *testing.T) {
	dir := t.TempDir()
	const used = `if [ -n "$CAIRN_STAY" ]; then echo "$CAIRN_STAY" >>log; [ -e again ] || { >again; kill -9 $$; }; exit 0; fi
pwd >where; kill -USR1 $CAIRN_SHELL; kill -TERM $CAIRN_SHELL; kill -9 $$`
	for what, c := range map[string]struct {
		command []string
		log     string
	}{
		"killed early": {command: []string{"/bin/sh", "-c", `[ -z "$CAIRN_STAY" ] || echo no >>log; kill -9 $$`}},
		"missing":      {command: []string{"./no-such-program"}},
		"failed":       {command: []string{"/bin/false"}},
		"killed":       {command: []string{"/bin/sh", "-c", used}, log: "abc:/the run\nabc:/the run\n"},
	} {
		os.Remove(filepath.Join(dir, "log"))
		cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", spawnScript, "sh", "127.0.0.1:1", "abc:/the run", dir}, c.command...)...)
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", what, err, out)
		}
		if log, _ := os.ReadFile(filepath.Join(dir, "log")); string(log) != c.log {
			t.Errorf("%s: %q, not %q", what, log, c.log)
		}
	}
	if where, _ := os.ReadFile(filepath.Join(dir, "where")); string(where) != dir+"\n" {
		t.Errorf("started in %q, not %q", where, dir)
	}
}

// TestSpawn_Refused has a library, or its launcher, that refuses. Another
// launch must start the destinations, and the library is not asked again.
func TestSpawn_Refused(t *testing.T) {
	gate := fifo(t)
	l, sent := spawnedRun(t, "spawn:refuses", "pause:8:1", "pause:10:2", "gate:1:13:"+gate)
	l.migrate(client.Migration{Ranks: []int{1}, To: "localhost"}).ends(control.Moved)
	l.migrate(client.Migration{Ranks: []int{0}, To: "localhost"}).ends(control.Moved)
	l.await("it is not possible; the new process of rank 1 is started by another mpirun")
	if sent() != "localhost\nlocalhost\n" {
		t.Errorf("%q", sent())
	}
	open(t, gate)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{1: {8}, 0: {10}})
}

// TestSpawn_Hangs shows that a rank which does not execute the spawn is no
// reason to end the others, and that one which does not return from it is lost.
func TestSpawn_Hangs(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		l, sent := spawnedRun(t, "spawn:nothing", "pause:13:2")
		l.reaches(0, 13)
		l.s.post(func() { l.s.limits.join = 50 * time.Millisecond })
		l.migrate(client.Migration{Ranks: []int{1}, To: "localhost"}).ends(control.NotMoved, "no helper came from localhost")
		l.s.post(func() { l.s.limits.join = joinTime })
		m := l.migrate(client.Migration{Ranks: []int{1}, To: "localhost"})
		l.await("has not called MPI_Comm_spawn within 50 ms")
		m.ends(control.Moved)
		if sent() != "localhost\n" {
			t.Errorf("launcheds to %q", sent())
		}
		l.ends(rundir.Finished, 0)
	})
	t.Run("one of two", func(t *testing.T) { // a helper that has had no rank ends
		gate := fifo(t)
		l, _ := spawnedRun(t, "spawn:one", "gate:1:13:"+gate)
		l.reaches(1, 13)
		l.s.post(func() { l.s.limits.join = time.Second })
		m := l.migrate(client.Migration{Ranks: []int{0, 1}, To: "localhost"})
		until(t, func() bool { return l.helpers() == 3 })
		m.ends(control.NotMoved, "no helper came from localhost")
		until(t, func() bool { return l.helpers() == 2 })
		open(t, gate)
		l.ends(rundir.Finished, 0)
		l.exactMoved(20, nil)
	})
	t.Run("none", func(t *testing.T) {
		l, sent := spawnedRun(t, "spawn:none", "pause:13:1")
		l.reaches(0, 13)
		l.s.post(func() { l.s.limits.come = 50 * time.Millisecond })
		m := l.migrate(client.Migration{Ranks: []int{1}, To: "localhost"})
		l.await("no helper came from localhost within 50 ms, though rank 1 had started one by MPI_Comm_spawn; the new process of rank 1 is started by another mpirun")
		m.ends(control.Moved)
		if sent() != "localhost\n" {
			t.Errorf("launcheds to %q", sent())
		}
		l.ends(rundir.Finished, 0)
	})
	t.Run("hangs", func(t *testing.T) {
		l, sent := spawnedRun(t, "spawn:hangs", "pause:13:1", "pause:17:2:2")
		l.reaches(0, 13)
		l.s.post(func() { l.s.limits.spawn = 50 * time.Millisecond })
		m := l.migrate(client.Migration{Ranks: []int{1}, To: "localhost"})
		l.await("has not come back from MPI_Comm_spawn within 50 ms")
		m.ends(control.MoveRolledBack)
		l.migrate(client.Migration{Ranks: []int{1}, To: "localhost"}).ends(control.Moved)
		if sent() != "localhost\n" {
			t.Errorf("after it went wrong: launcheds to %q", sent())
		}
		l.ends(rundir.Finished, 0)
	})
}
