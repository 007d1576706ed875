//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/interconnects"
)

// These tests stop a move of ranks 1 and 3, of four on two hosts, to a third
// host in each of its phases, by stopping processes that it needs to continue.
// Then they kill a process.
//
// The process that is stopped, so that the move cannot pass the phase:
//
//	preparing  the remote shell of the target
//	arriving   the destinations, when they have just begun
//	ahead      a source
//	gathering  a rank that does not move
//	sending    a destination, after the sources have connected, when all are
//	           paused
//	leaving    a source, when it has sent all
//	linking    a rank that does not move, after it was paused
var movePhases = []string{"preparing", "arriving", "ahead", "gathering", "sending", "leaving", "linking"}

const (
	source, source2, other = 1, 3, 2
)

// shellWithGate returns a remote shell for hosts that are network namespaces.
// It waits while the file hold-HOST is in the directory.
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

// stoppedIn brings a run to a phase of a move. release lets it continue.
func stoppedIn(t *testing.T, phase string, net *interconnects.Network) (p *trip, a *asked, release func()) {
	t.Helper()
	gates, shell := shellWithGate(t)
	p = traveller(t, 4, "--hosts", slots(net, 2, 2), "--rsh", shell, "--grace", "5s")
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
	ask := func() {
		a = p.asks("--rank", fmt.Sprintf("%d,%d", source, source2), "--to", net.Hosts[2], "--rounds", "0")
	}
	hold := func(file string) {
		write(t, file, "")
		files = append(files, file)
	}
	held := func(m *control.MoveState) bool { return m.State == control.MoveFinalCopy && m.NegotiationNS > 0 }
	switch phase {
	case "preparing":
		hold(filepath.Join(gates, "hold-"+net.Hosts[2]))
		ask()
		p.reachesState(control.MovePreparing)
	case "arriving":
		hold(filepath.Join(p.root, "hold"))
		ask()
		p.reachesState(control.MoveStarting)
	case "ahead":
		p.still(p.pidOf(source))
		ask()
		p.reachesState(control.MovePrecopy)
	default:
		p.still(p.pidOf(other))
		ask()
		p.reachesState(control.MoveFinalCopy)
	}
	if phase == "sending" || phase == "leaving" || phase == "linking" {
		first := p.destination(source)
		p.first = first
		p.still(first)
		p.thawOne(p.pidOf(other))
		if !p.enters(patience, held) {
			t.Fatalf("not all ranks are paused: %+v\n%s", p.now().Moves, p.s.text())
		}
		last, state := other, control.MoveLinking
		if phase == "leaving" {
			last, state = source2, control.MoveSwitching
		}
		for tries := 0; phase != "sending"; tries++ {
			time.Sleep(50 * time.Millisecond << tries) // no event shows that it has sent everything
			pid := p.pidOf(last)
			p.still(pid)
			p.thawOne(first)
			if p.enters(time.Second<<tries, func(m *control.MoveState) bool { return m.State == state }) {
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

// helperOn returns the helper of a host.
func (p *trip) helperOn(host string) int {
	p.t.Helper()
	var lock struct{ Helper int }
	for end := time.Now().Add(patience / 4); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(p.run(), "hosts", host+".lock"))
		if err == nil && json.Unmarshal(text, &lock) == nil && runs(lock.Helper, p.s.cmd.Path) {
			return lock.Helper
		}
	}
	p.t.Fatalf("there is no helper on %s", host)
	return 0
}

// TestMigrate_Killed kills each kind of process in each phase of a move. Every
// time the run must end with each line of each rank exactly once, and the
// command must report the result of the move.
func TestMigrate_Killed(t *testing.T) {
	net := network(t, 3)
	some := make(chan struct{}, 3) // maximum number at the same time
	for i, phase := range movePhases {
		decided := phase == "leaving" || phase == "linking"
		for j, victim := range []string{"nobody", "source", "destination", "other", "source's helper", "target's helper", "supervisor"} {
			early := phase == "arriving" || phase == "ahead"
			if phase == "preparing" && victim == "destination" || phase == "linking" && victim == "source" {
				continue // there is no such process
			}
			if !stressed() && ((i+j)%9 != 0 || victim == "nobody") {
				continue
			}
			t.Run(phase+", "+victim, func(t *testing.T) {
				t.Parallel()
				some <- struct{}{}
				defer func() { <-some }()
				p, a, release := stoppedIn(t, phase, net)
				pid, code, state := 0, 4, control.MoveRolledBack
				switch victim {
				case "nobody":
					code, state = 0, control.Moved
				case "source":
					pid = p.pidOf(source)
					if phase == "leaving" {
						pid = p.pidOf(source2)
					}
				case "destination":
					if early {
						for helper := p.helperOn(net.Hosts[2]); pid == 0; {
							for _, x := range childrenOf(helper) {
								if runs(x, p.command[0]) {
									pid = x
								}
							}
						}
					} else if decided {
						pid = p.first
					} else {
						pid = p.destination(source)
					}
					if !decided {
						code, state = 3, control.NotMoved
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
						code, state = 3, control.NotMoved
					}
				case "supervisor":
					pid, code, state = p.s.cmd.Process.Pid, 5, control.MoveUnknown
				}
				if victim != "nobody" {
					if pid <= 1 {
						t.Fatalf("there is no %s:\n%s", victim, p.s.text())
					}
					syscall.Kill(pid, syscall.SIGKILL)
				}
				release()
				m := a.ends(code)
				if m.State != state {
					t.Errorf("%+v", m)
				}
				if victim == "supervisor" {
					p.s.ends()
					p.restart()
					p.s.awaits("rolled back: the supervisor was lost before it was over; the run resumes from ")
				} else {
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

// TestMigrate_ConnectionCut disconnects the target in a phase of a move,
// without a message. The test takes as long as silence is tolerated.
func TestMigrate_ConnectionCut(t *testing.T) {
	if !stressed() {
		t.Skip("it takes minutes; CAIRN_LONG=1")
	}
	for _, v := range []struct {
		phase string
		code  int
		state string
	}{
		{"ahead", 3, control.NotMoved},
		{"gathering", 3, control.NotMoved},
		{"sending", 3, control.NotMoved},
		{"linking", 4, control.MoveRolledBack},
	} {
		t.Run(v.phase, func(t *testing.T) {
			net := network(t, 3)
			p, a, release := stoppedIn(t, v.phase, net)
			tool(t, "ip", "-n", net.Hosts[2], "link", "set", "eth0", "down")
			release()
			begun := time.Now()
			if v.code == 4 { // ranks may be placed there again
				p.s.awaits("was decided and failed")
				tool(t, "ip", "-n", net.Hosts[2], "link", "set", "eth0", "up")
			}
			m := a.ends(v.code)
			t.Logf("after %v: %s", time.Since(begun).Round(time.Millisecond), m.Why)
			if m.State != v.state {
				t.Errorf("%+v", m)
			}
			p.onlyRanks()
			p.arrives()
		})
	}
}

// childrenOf returns the processes that a process started.
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

// TestMigrate_KilledAtRandom moves ranks and kills processes of the run at
// random moments of the moves. Every move must end and report its result; every
// run must end like an undisturbed one.
func TestMigrate_KilledAtRandom(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	net := network(t, 3)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CAIRN_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("CAIRN_SEED=%d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	const most = 300
	const n, steps = 4, "500"
	want := undisturbed(t, n, program(t, "flight"), "-steps", steps)
	ends := make(map[string]int)
	for blows := 0; blows < most; {
		r := newRun(t, program(t, "flight"), "-steps", steps)
		p := r.travels(n, nil)
		start := func() bool {
			p.s = r.start("-n", strconv.Itoa(n), "--hosts", slots(net, 2, 2, 4), "--rsh", interconnects.Shell, "--every", "40ms", "--grace", "5s")
			_, ok := p.s.sees(0, "committed")
			return ok
		}
		for going := start(); going && blows < most; {
			if _, _, over := p.s.said(); over {
				break
			}
			args := []string{"--to", net.Hosts[dice.IntN(3)], "--rounds", strconv.Itoa(dice.IntN(4)), "--rank", strconv.Itoa(dice.IntN(n))}
			if dice.IntN(2) == 0 {
				args[5] += "," + strconv.Itoa(dice.IntN(n))
			}
			a := p.asks(args...)
			time.Sleep(time.Duration(dice.Int64N(int64(150 * time.Millisecond))))
			hit, what := p.strikes(dice)
			if hit {
				blows++
			}
			<-a.done
			how := fmt.Sprintf("%s killed, exit status %d", what, a.code)
			ends[how]++
			late := strings.Contains(a.errs.String(), "about to end") || strings.Contains(a.errs.String(), "not running")
			if a.code != 0 && a.code != 3 && a.code != 4 && (a.code != 5 || what != "supervisor") || !hit && a.code != 0 && !late {
				t.Fatalf("%v, %s: %s\n%s", args, how, a.errs.String(), p.s.text())
			}
			if what == "supervisor" {
				p.s.ends()
				going = start()
			} else if hit { // otherwise the checkpoint would rightly be quarantined
				line, _, _ := p.s.said()
				_, going = p.s.sees(line, "committed")
			}
		}
		p.s.finishes()
		sameOutput(t, r.output(), want)
		os.RemoveAll(r.root)
	}
	for how, n := range ends {
		t.Logf("%3d %s", n, how)
	}
}

// strikes kills a process of the run, most often one of the program.
func (p *trip) strikes(dice *rand.Rand) (hit bool, what string) {
	pid, what := 0, "nobody"
	list := childrenOf(p.s.cmd.Process.Pid)
	switch dice.IntN(8) {
	case 0:
	case 1:
		pid, what = p.s.cmd.Process.Pid, "supervisor"
	case 2:
		if len(list) > 0 {
			pid, what = list[dice.IntN(len(list))], "helper"
		}
	default:
		var of []int
		for _, h := range list {
			of = append(of, childrenOf(h)...)
		}
		of = slices.DeleteFunc(of, func(x int) bool { return !runs(x, p.command[0]) })
		if len(of) > 0 {
			pid, what = of[dice.IntN(len(of))], "process"
		}
	}
	return pid > 1 && syscall.Kill(pid, syscall.SIGKILL) == nil, what
}
