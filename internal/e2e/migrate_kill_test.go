//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/journey"
	"github.com/cairnrun/cairn/supervise"
)

// A move of ranks 1 and 3, of four on two hosts, to a third host is stopped in
// each of its phases: processes that it needs to go on with stand still. Then one
// is killed.
//
// Which one stands still, so that the move can't get beyond:
//
//	preparing  the remote shell of the target
//	arriving   the newcomers, when they have just begun
//	ahead      a source
//	gathering  a rank that does not move
//	sending    a newcomer, after the sources have connected, when all are held
//	leaving    a source, when it has sent all
//	linking    a rank that does not move, after it was held
var movePhases = []string{"preparing", "arriving", "ahead", "gathering", "sending", "leaving", "linking"}

const (
	source, source2, other = 1, 3, 2
)

// shellWithGate is a remote shell for hosts that are network namespaces. One
// waits while the file hold-HOST is in the folder.
func shellWithGate(t *testing.T) (dir, flag string) {
	t.Helper()
	dir = t.TempDir()
	script := filepath.Join(dir, "shell")
	write(t, script, "#!/bin/sh\nhost=$1; shift\nwhile test -e "+dir+"/hold-$host; do sleep 0.01; done\nexec ip netns exec $host \"$@\"\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, script + " {host}"
}

// stoppedIn brings a run to a phase of a move. release lets it go on.
func stoppedIn(t *testing.T, phase string, net *journey.Network) (p *trip, a *asked, release func()) {
	t.Helper()
	gates, shell := shellWithGate(t)
	p = traveller(t, 4, nil, "--hosts", slots(net, 2, 2), "--rsh", shell, "--grace", "5s")
	if out, code := cairnTool(t, "checkpoint", p.run()); code != 0 {
		t.Fatalf("%s\n%s", out, p.s.text())
	}
	var files []string
	release = func() {
		for _, f := range files {
			os.Remove(f)
		}
		p.thaw()
	}
	ask := func() { a = p.asks("--rank", fmt.Sprintf("%d,%d", source, source2), "--to", net.Hosts[2], "--rounds", "0") }
	hold := func(file string) {
		write(t, file, "")
		files = append(files, file)
	}
	held := func(m *supervise.MoveState) bool { return m.State == control.MoveGathers && m.NegotiationNS > 0 }
	switch phase {
	case "preparing":
		hold(filepath.Join(gates, "hold-"+net.Hosts[2]))
		ask()
		p.reachesState(control.MovePrepares)
	case "arriving":
		hold(filepath.Join(p.folder, "hold"))
		ask()
		p.reachesState(control.MoveArrives)
	case "ahead":
		p.still(p.pidOf(source))
		ask()
		p.reachesState(control.MoveAhead)
	default:
		p.still(p.pidOf(other))
		ask()
		p.reachesState(control.MoveGathers)
	}
	if phase == "sending" || phase == "leaving" || phase == "linking" {
		first := p.newcomer(source)
		p.still(first)
		p.thawOne(p.pidOf(other))
		if !p.enters(patience, held) {
			t.Fatalf("not all ranks are held: %+v\n%s", p.now().Moves, p.s.text())
		}
		last, state := other, control.MoveLinks
		if phase == "leaving" {
			last, state = source2, control.MoveLeaves
		}
		for tries := 0; phase != "sending"; tries++ {
			time.Sleep(50 * time.Millisecond << tries) // when it has sent all, nobody tells
			pid := p.pidOf(last)
			p.still(pid)
			p.thawOne(first)
			if p.enters(time.Second, func(m *supervise.MoveState) bool { return m.State == state }) {
				break
			}
			if tries == 6 {
				t.Fatalf("the move is not %s: %+v\n%s", state, p.now().Moves, p.s.text())
			}
			p.still(first)
			p.thawOne(pid)
		}
	}
	return p, a, release
}

// helperOn is the helper of a host.
func (p *trip) helperOn(host string) int {
	p.t.Helper()
	list, _ := filepath.Glob("/proc/[0-9]*")
	lock, err := os.ReadFile(filepath.Join(p.run(), "hosts", host+".lock"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, x := range list {
		if pid := strings.TrimPrefix(x, "/proc/"); strings.Contains(string(lock), fmt.Sprintf(`"helper":%s,`, pid)) {
			var n int
			fmt.Sscan(pid, &n)
			return n
		}
	}
	p.t.Fatalf("there is no helper on %s: %s", host, lock)
	return 0
}

// TestMigrateKilled kills each kind of process in each phase of a move. Every
// time the run ends with each line of each rank exactly once, and the command
// tells what has become of the move.
func TestMigrateKilled(t *testing.T) {
	for _, phase := range movePhases {
		decided := phase == "leaving" || phase == "linking"
		for _, victim := range []string{"nobody", "source", "newcomer", "other", "source's helper", "target's helper", "supervisor"} {
			early := phase == "preparing" || phase == "arriving"
			if phase == "preparing" && victim == "newcomer" || phase == "linking" && victim == "source" {
				continue // there is none
			}
			t.Run(phase+", "+victim, func(t *testing.T) {
				net := network(t, 3)
				p, a, release := stoppedIn(t, phase, net)
				pid, code, state := 0, 4, supervise.BroughtBack
				switch victim {
				case "nobody":
					code, state = 0, supervise.Moved
				case "source":
					pid = p.pidOf(source)
					if phase == "leaving" {
						pid = p.pidOf(source2)
					}
				case "newcomer":
					if early {
						for _, x := range p.processes() {
							if parentOf(x) == p.helperOn(net.Hosts[2]) {
								pid = x
							}
						}
					} else if decided {
						pid = p.pidsOf(source)[1]
					} else {
						pid = p.newcomer(source)
					}
					if !decided {
						code, state = 3, supervise.NotMoved
					}
				case "other":
					pid = p.pidOf(other)
				case "source's helper":
					pid = p.helperOn(net.Hosts[0])
				case "target's helper":
					if phase == "preparing" {
						for _, x := range childrenOf(p.s.cmd.Process.Pid) {
							if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", x)); strings.Contains(string(args), net.Hosts[2]) {
								pid = x
							}
						}
					} else {
						pid = p.helperOn(net.Hosts[2])
					}
					if !decided {
						code, state = 3, supervise.NotMoved
					}
				case "supervisor":
					pid, code, state = p.s.cmd.Process.Pid, 1, ""
				}
				if victim != "nobody" {
					if pid <= 1 {
						t.Fatalf("there is no %s:\n%s", victim, p.s.text())
					}
					syscall.Kill(pid, syscall.SIGKILL)
				}
				release()
				m := a.ends(code)
				if victim == "supervisor" {
					p.s.ends()
					p.restart()
				} else {
					if m.State != state {
						t.Errorf("%+v", m)
					}
					st := p.now()
					if n := len(st.Moves); n != 1 || st.Moves[0].State != state {
						t.Errorf("the run says %+v of the move, and the command %+v", st.Moves, m)
					}
					p.onlyRanks()
				}
				t.Logf("%s", strings.ReplaceAll(m.Why, "\n", " "))
				p.arrives()
			})
		}
	}
}

// childrenOf are the processes that a process started.
func childrenOf(pid int) (out []int) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, x := range list {
		var n int
		fmt.Sscan(strings.TrimPrefix(x, "/proc/"), &n)
		if parentOf(n) == pid {
			out = append(out, n)
		}
	}
	return out
}
