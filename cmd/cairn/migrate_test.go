//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/mpi"
)

// ring passes a number around its ranks and prints a line per round. At round
// 100 it waits until a file exists, and passes messages all the time.
func ring(args []string) error {
	ctx := context.Background()
	if os.Getenv("RING") == "hangs before Open" {
		select {}
	}
	p, err := cairn.Open(ctx, cairn.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	switch os.Getenv("RING") {
	case "speaks":
		fmt.Fprintln(os.Stderr, "it begins")
		defer fmt.Fprintln(os.Stderr, "it ends")
	case "hangs before Restore":
		time.Sleep(time.Hour)
	case "ends":
		return errors.New("it has no ring")
	}
	round, sum, data := 0, uint64(0), make([]uint64, 1<<16)
	cairn.Protect(p, "round", &round)
	cairn.Protect(p, "sum", &sum)
	cairn.Protect(p, "data", &data)
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	w := p.World()
	for round < 200 {
		if err := p.Point(ctx); err != nil {
			if errors.Is(err, cairn.ErrStopped) {
				return nil
			}
			return err
		}
		all, ready := []uint64{0}, uint64(0)
		if round == 100 && exists(args[0]) {
			ready = 1
		}
		if err := mpi.Allreduce(w, []uint64{ready}, all, mpi.Min[uint64]); err != nil {
			return err
		}
		if round == 100 && all[0] == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		next, last := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
		got := []uint64{0}
		if _, err := mpi.Sendrecv(w, []uint64{sum + uint64(round*w.Rank())}, next, 7, got, last, 7); err != nil {
			return err
		}
		sum = got[0] + 1
		data[round] = sum
		fmt.Println(round, sum)
		round++
	}
	p.Finish()
	return nil
}

// ringRun starts a ring on hosts that are this machine, and returns when it
// waits.
func ringRun(t *testing.T, ranks, hosts string, flags ...string) (r *ringing) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "remote", "#!/bin/sh\nif test $1 = down; then echo no route to $1 >&2; exit 255; fi\nif test $1 = slow; then cat > /dev/null; exit; fi\nshift\nexec \"$@\"\n")
	if err := os.Chmod("remote", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, _ := os.Getwd()
	gate := filepath.Join(dir, "gate")
	args := append([]string{"_cairn", "run", "--run", "r.cairn", "-n", ranks, "--hosts", hosts, "--rsh", dir + "/remote {host}", "-o", "out-%r"}, flags...)
	r = ringStart(t, append(args, self(t), "_ring", gate))
	r.gate = gate
	return r
}

func ringStart(t *testing.T, args []string) *ringing {
	t.Helper()
	r := &ringing{cmd: exec.Command(self(t), args...)}
	r.errs.some.L = &r.errs.mu
	r.cmd.Stderr = &r.errs
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		if t.Failed() {
			t.Log(r.errs.b.String())
		}
	})
	r.await(t, " started")
	return r
}

type ringing struct {
	cmd  *exec.Cmd
	errs lines
	gate string
}

// await waits for a text, for a minute at most: if a test hung, the run that it
// leaves behind would run forever.
func (r *ringing) await(t *testing.T, text string) {
	t.Helper()
	said := make(chan struct{})
	go func() {
		defer close(said)
		r.errs.await(text)
	}()
	select {
	case <-said:
	case <-time.After(time.Minute):
		t.Fatalf("it was not said within a minute: %s", text)
	}
}

// ends lets the ring finish and checks its output.
func (r *ringing) ends(t *testing.T, ranks int) {
	t.Helper()
	write(t, r.gate, "")
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, r.errs.b.String())
	}
	sums := make([]uint64, ranks)
	want := make([]bytes.Buffer, ranks)
	for round := range 200 {
		old := make([]uint64, ranks)
		for i := range old {
			old[i] = sums[i] + uint64(round*i)
		}
		for i := range sums {
			sums[i] = old[(i+ranks-1)%ranks] + 1
			fmt.Fprintln(&want[i], round, sums[i])
		}
	}
	for i := range want {
		if got, err := os.ReadFile(fmt.Sprintf("out-%04d", i)); err != nil || !bytes.Equal(got, want[i].Bytes()) {
			t.Errorf("rank %d wrote %v\n%s", i, err, got)
		}
	}
}

// TestMigrate moves real ranks back and forth, one by one and together. Their
// output must not change.
func TestMigrate(t *testing.T) {
	r := ringRun(t, "3", "a:1,b:1,c:1")
	cairnRun(t, "migrate", "--rank", "1", "--to", "d").exit(exitFine).says("rank 1 moved from b to d: paused ", " during the pause")
	doc := decode[control.MoveState](cairnRun(t, "migrate", "--json", "--rank", "0,2", "--to", "d", "--rounds", "0").exit(exitFine))
	if doc.State != control.Moved || doc.PauseNS <= 0 || doc.Stats == nil || doc.Stats.State < 2<<19 || len(doc.Ranks) != 2 {
		t.Errorf("%+v", doc)
	}
	cairnRun(t, "checkpoint").exit(exitFine)
	cairnRun(t, "migrate", "--host", "d", "--to", "a", "--chunk", "100K").exit(exitFine).says("ranks 0, 1 and 2 moved from d to a")
	cairnRun(t, "status").exit(exitFine).says("move        ranks 0, 1 and 2 moved from d to a: paused", "running")
	st := decode[control.RunState](cairnRun(t, "status", "--json").exit(exitFine))
	if len(st.Moves) != 3 || st.Attempt != 1 || st.Ranks[1].Host != "a" {
		t.Errorf("%+v", st)
	}
	cairnRun(t, "migrate", "--rank", "1", "--to", "down").exit(exitFailed).complains("rank 1 not moved: host down cannot be reached: no route to down")
	cairnRun(t, "migrate", "--rank", "9").exit(exitFailed).complains("there is no rank 9; the run has ranks 0 to 2")
	r.ends(t, 3)
}

// TestMigrate_Interrupted shows that Ctrl-C cancels a move, and that the run
// continues.
func TestMigrate_Interrupted(t *testing.T) {
	r := ringRun(t, "2", "a:1,b:1")
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"migrate", "--rank", "1", "--to", "slow"}, &out, &errs) }()
	r.await(t, "moving rank 1 from b to slow")
	cancel()
	if c := <-code; c != exitFailed || errs.String() != "cairn: cancelling the move; Ctrl-C again ends this command at once\ncairn: rank 1 not moved: called off\n" {
		t.Errorf("%d, %q", c, errs.String())
	}
	cairnRun(t, "migrate", "--rank", "1", "--to", "a").exit(exitFine)
	r.ends(t, 2)
}

// TestMigrate_InterruptedTwice shows that a second Ctrl-C does not wait for a
// supervisor that does not answer. When the supervisor continues, it cancels
// the move.
func TestMigrate_InterruptedTwice(t *testing.T) {
	r := ringRun(t, "2", "a:1,b:1")
	m := exec.Command(self(t), "_main", "migrate", "--rank", "1", "--to", "slow")
	errs := &lines{}
	errs.some.L = &errs.mu
	m.Stderr = errs
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	r.await(t, "moving rank 1 from b to slow")
	r.cmd.Process.Signal(syscall.SIGSTOP)
	m.Process.Signal(syscall.SIGINT)
	errs.await("Ctrl-C again ends this command at once")
	m.Process.Signal(syscall.SIGINT) // this is still the first one
	time.Sleep(secondAfter + 100*time.Millisecond)
	m.Process.Signal(syscall.SIGINT)
	m.Wait()
	if c := m.ProcessState.ExitCode(); c != exitUnknown || !strings.Contains(errs.b.String(), "the move is cancelled unless it was decided") {
		t.Errorf("%d, %q", c, errs.b.String())
	}
	r.cmd.Process.Signal(syscall.SIGCONT)
	r.await(t, "rank 1 not moved: called off")
	r.ends(t, 2)
}

// TestMigrate_StartLimit shows that new processes which do not call Restore are
// given up, and that their messages are not part of the program's output.
func TestMigrate_StartLimit(t *testing.T) {
	r := ringRun(t, "2", "a:1,b:1")
	for _, c := range []struct{ how, want string }{
		{"hangs before Open", "the new process of rank 1 did not call Restore within 1 s"},
		{"hangs before Restore", "did not call Restore within"},
		{"ends", "rank 1 not moved: the new process of rank 1 on d ended with status 1 (it said: it has no ring)"},
	} {
		cairnRun(t, "migrate", "--rank", "1", "--to", "d", "--start-limit", "1s", "--env", "RING="+c.how).exit(exitFailed).complains(c.want)
	}
	cairnRun(t, "migrate", "--rank", "1", "--to", "d", "--env", "RING=speaks").exit(exitFine)
	r.ends(t, 2)
	cairnRun(t, "migrate", "--rank", "1", "--to", "d").exit(exitFailed).complains("r.cairn: not running on this machine: it has finished; the same 'cairn run' command starts it afresh")
	st := decode[control.RunState](cairnRun(t, "status", "--json").exit(exitFine))
	if len(st.Moves) != 4 || st.State != rundir.Finished || st.Moves[0].ID != 1 || st.Moves[3].ID != 4 {
		t.Errorf("%+v", st)
	}
	cairnRun(t, "status").exit(exitFine).says("finished", "move        rank 1 not moved: the new process of rank 1 on d ended with status 1")
	if got, err := os.ReadFile("r.cairn/output/rank-0001.err"); err != nil || string(got) != "it begins\nit ends\n" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestMigrate_SupervisorLost kills the supervisor while a command waits.
func TestMigrate_SupervisorLost(t *testing.T) {
	r := ringRun(t, "2", "a:1,b:1")
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{"migrate", "--rank", "1", "--to", "slow"}, &bytes.Buffer{}, &errs)
	}()
	r.await(t, "moving rank 1 from b to slow")
	r.cmd.Process.Kill()
	r.cmd.Wait()
	if c := <-code; c != exitUnknown || errs.String() != "cairn: whether rank 1 moved to slow is unknown: the supervisor is gone, and the run has stopped; the same 'cairn run' command resumes it\n" {
		t.Errorf("%d, %q", c, errs.String())
	}
	cairnRun(t, "status").exit(exitFine).says("interrupted: its supervisor, 'cairn run', was killed; the same command resumes the run\n", "whether rank 1 moved to slow is unknown: the supervisor was lost before it was over")
	cairnRun(t, "migrate", "--rank", "1", "--to", "a").exit(exitFailed).complains("is gone; the same 'cairn run' command resumes it")
	gate := r.gate
	r = ringStart(t, r.cmd.Args[1:])
	r.gate = gate
	r.await(t, "rank 1 rolled back: the supervisor was lost before it was over; the run resumes from ")
	r.ends(t, 2)
}

// TestMigrate_OneRank moves a program of one rank, without messages.
func TestMigrate_OneRank(t *testing.T) {
	r := ringRun(t, "1", "a:1,b:1")
	cairnRun(t, "migrate", "--host", "a").exit(exitFine).says("rank 0 moved from a to b: paused ")
	cairnRun(t, "checkpoint").exit(exitFine)
	cairnRun(t, "migrate", "--host", "b", "--to", "b2").exit(exitFine)
	r.ends(t, 1)
}

// TestEvacuate_Signal shows that SIGUSR2 moves ranks off the hosts that a file
// lists.
func TestEvacuate_Signal(t *testing.T) {
	r := ringRun(t, "2", "a:1,b:1,c:1")
	write(t, "r.cairn/evacuate", "x\nb\n")
	r.cmd.Process.Signal(syscall.SIGUSR2)
	r.await(t, "the run has no host x")
	r.await(t, "rank 1 moved from b to c")
	r.ends(t, 2)
}

// TestEvacuate_RankKilled has a host that requests its own evacuation; a rank
// that has moved is killed.
func TestEvacuate_RankKilled(t *testing.T) {
	r := ringRun(t, "2", "a:1,b:1,c:1", "--evacuate-poll", "500ms", "--evacuate-when", `grep -q "\"helper\":$PPID," r.cairn/hosts/a.lock`)
	r.await(t, "rank 0 moved from a to c")
	cairnRun(t, "checkpoint").exit(exitFine)
	st := decode[control.RunState](cairnRun(t, "status", "--json").exit(exitFine))
	syscall.Kill(st.Ranks[0].Pid, syscall.SIGKILL)
	r.await(t, "restored checkpoint")
	r.ends(t, 2)
	if text := r.errs.b.String(); !strings.Contains(text, "started again: 2 ranks on b:1, c:1") {
		t.Error(text)
	}
}

// TestMigrate_Usage shows that wrong arguments are refused, and the message
// says what to write.
func TestMigrate_Usage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ args, want string }{
		{"migrate", "name what to move, with --rank or --host"},
		{"migrate --rank 1 --host a", "cannot be used together"},
		{"migrate --rank x", "\"x\" is not a rank; write 3, or 3,4,5, or 3-5"},
		{"migrate --rank 3-1", "is not a rank"},
		{"migrate --rank -1", "is not a rank"},
		{"migrate --rank 1 --chunk 5X", "\"5X\" is not a size"},
		{"migrate --rank 1 --chunk 0", "is not a size"},
		{"migrate --rank 1 --rounds -1", "is negative"},
		{"migrate --rank 1 --start-limit 0s", "is not positive"},
		{"migrate --rank 1 --program ./sim", "name it with --to"},
		{"migrate --rank 1 --env A=1", "name it with --to"},
		{"migrate --rank 1 --to a --env A", "takes NAME=VALUE"},
		{"migrate --rank 1", "no run directory"},
		{"migrate --rank 1 a b", "too many"},
		{"run --evacuate-poll -1s true", "is negative"},
	} {
		cairnRun(t, strings.Fields(c.args)...).exit(exitUsage).complains(c.want)
	}
	cairnRun(t, "migrate", "--rank", "1", "nothing").exit(exitFailed).complains("no such file or directory; name the directory that 'cairn run' made")
	os.MkdirAll("x.cairn", 0o700)
	cairnRun(t, "migrate", "--rank", "1").exit(exitFailed).complains("x.cairn: not a run directory; name the directory that 'cairn run' made")
	write(t, "file", "")
	cairnRun(t, "migrate", "--rank", "1", "file").exit(exitFailed).complains("file: not a run directory; name the directory that 'cairn run' made")
	for text, want := range map[string]int64{"64M": 64 << 20, "1G": 1 << 30, "3k": 3 << 10, "100": 100, "2MiB": 2 << 20, "7B": 7} {
		if n, err := parseSize(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for text, want := range map[string]string{"3": "[3]", "3,5-7": "[3 5 6 7]", "0-1": "[0 1]"} {
		if n, err := parseRanks(text); err != nil || fmt.Sprint(n) != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
}
