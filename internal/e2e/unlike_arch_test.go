//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// wanderer is a run of a program of testdata that computes up to a given step,
// on hosts that are this machine under other names.
type wanderer struct {
	*runOf
	*supervisor
	ranks int
	limit string
}

// wander starts a program on hosts a, b and so on, one rank on each, by a
// remote shell, and lets it compute up to a step.
func wander(t *testing.T, hosts, remote string, env []string, step int, command ...string) *wanderer {
	t.Helper()
	w := &wanderer{ranks: len(hosts), limit: filepath.Join(t.TempDir(), "limit")}
	w.lets(step)
	w.runOf = newRun(t, append(command, "-limit", w.limit)...)
	list := strings.Join(strings.Split(hosts, ""), ":1,") + ":1"
	w.supervisor = w.startIn(env, "--hosts", list, "--rsh", remote+" {host}")
	w.reachesStep(step)
	return w
}

// script makes an executable shell script.
func script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// hereRemote returns a remote shell that reaches this machine under any name.
func hereRemote(t *testing.T) string {
	return script(t, "remote", `shift; exec "$@"`)
}

// lets lets the program compute up to a step.
func (w *wanderer) lets(step int) {
	tmp := w.limit + ".new"
	if err := os.WriteFile(tmp, fmt.Append(nil, step), 0o644); err != nil {
		panic(err)
	}
	if err := os.Rename(tmp, w.limit); err != nil {
		panic(err)
	}
}

// goes lets the program compute up to a step, and waits until it has done so.
func (w *wanderer) goes(step int) {
	w.supervisor.t.Helper()
	w.lets(step)
	w.reachesStep(step)
}

// reachesStep waits until every rank has reported a step.
func (w *wanderer) reachesStep(step int) {
	t := w.supervisor.t
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		all := true
		for r := range w.ranks {
			text, _ := os.ReadFile(filepath.Join(w.run(), "output", fmt.Sprintf("rank-%04d.out", r)))
			all = all && strings.Contains(string(text), fmt.Sprintf("rank %d step %d:", r, step))
		}
		if all {
			return
		}
		if _, _, over := w.said(); over || time.Now().After(limit) {
			t.Fatalf("not all ranks have come to step %d:\n%s", step, w.text())
		}
	}
}

// run returns the run directory, which both embedded types have.
func (w *wanderer) run() string { return w.runOf.run() }

// moves migrates ranks. It must succeed.
func (w *wanderer) moves(args ...string) (st control.MoveState) {
	t := w.supervisor.t
	t.Helper()
	out, code := cairnTool(t, append([]string{"migrate", "--json"}, append(args, w.run())...)...)
	if code != 0 {
		t.Fatalf("migrate %s: exit status %d: %s\n%s", strings.Join(args, " "), code, out, w.text())
	}
	if err := json.Unmarshal([]byte(out), &st); err != nil || st.State != control.Moved {
		t.Fatalf("migrate %s: %v %s", strings.Join(args, " "), err, out)
	}
	return st
}

// stays checks that a migration is refused for a reason, and that the run
// continues.
func (w *wanderer) stays(why string, args ...string) {
	t := w.supervisor.t
	t.Helper()
	out, code := cairnTool(t, append([]string{"migrate"}, append(args, w.run())...)...)
	if code != 3 || !strings.Contains(out, why) {
		t.Fatalf("migrate %s: exit status %d: %s\n%s", strings.Join(args, " "), code, out, w.text())
	}
}

// pidOf returns the current process of a rank.
func (w *wanderer) pidOf(rank int, host string) int {
	t := w.supervisor.t
	t.Helper()
	st := w.state()
	if st == nil || len(st.Ranks) != w.ranks || st.Ranks[rank].Host != host {
		t.Fatalf("rank %d should be on %s: %+v", rank, host, st)
	}
	return st.Ranks[rank].Pid
}

// executes returns the program that a process runs.
func executes(pid int) string {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return filepath.Base(exe)
}

// arrives lets the program finish, and compares its output.
func (w *wanderer) arrives(want string) {
	w.supervisor.t.Helper()
	w.lets(60)
	w.finishes()
	sameOutput(w.supervisor.t, w.output(), want)
}

// TestMigrate_OtherArchitecture moves ranks of a running program to hosts of
// other architectures, one of them big-endian, and back, with messages in
// flight. Some are killed there, and restarted there. Their output must equal
// that of an undisturbed run, bit for bit.
func TestMigrate_OtherArchitecture(t *testing.T) {
	others := emulators(t)
	want := undisturbed(t, 3, program(t, "wander"))
	for _, e := range others {
		t.Run(e.goarch, func(t *testing.T) {
			t.Parallel()
			abroad := script(t, "wander", fmt.Sprintf("exec %s %s \"$@\"", e.name, build(t, "./internal/e2e/testdata/wander", e.goarch)))
			w := wander(t, "abc", hereRemote(t), nil, 10, program(t, "wander"))
			w.stays("no such file", "--rank", "1", "--to", "far", "--program", "/nowhere/wander")
			w.moves("--rank", "1", "--to", "far", "--program", abroad)
			if exe := executes(w.pidOf(1, "far")); !strings.HasPrefix(exe, "qemu-") {
				t.Fatalf("rank 1 is run by %s", exe)
			}
			w.goes(20)
			w.awaits("wander: rank 1 on " + e.goarch + " at step 10 by tcp,tcp")
			if out, code := cairnTool(t, "checkpoint", w.run()); code != 0 {
				t.Fatalf("checkpoint: %s\n%s", out, w.text())
			}
			w.goes(25)

			// The run remembers the host with its program when it is started
			// again, in the order of hosts. What was saved there is restored
			// here, and the reverse.
			before, _, _ := w.said()
			if err := syscall.Kill(w.pidOf(1, "far"), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if _, ok := w.sees(before, "restored checkpoint 1"); !ok {
				t.Fatal(w.text())
			}
			if _, ok := w.sees(before, "wander: rank 2 on "+e.goarch+" at step 20 by tcp,tcp"); !ok {
				t.Fatal(w.text())
			}

			w.moves("--host", "far", "--to", "b", "--rounds", "0")
			w.goes(30)
			// Emulated processes do not share memory, although they are on one
			// host.
			w.moves("--rank", "0,2", "--to", "farther", "--program", abroad)
			w.goes(40)
			w.awaits("wander: rank 0 on " + e.goarch + " at step 30 by tcp,tcp")
			w.awaits("wander: rank 2 on " + e.goarch + " at step 30 by tcp,tcp")
			w.moves("--rank", "0-2", "--to", "a", "--chunk", "50000")
			w.goes(45)
			w.awaits("wander: rank 2 on amd64 at step 40 by shm,shm")
			w.arrives(want)
		})
	}
}
