//go:build linux

package e2e

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// listening returns the TCP ports at which a process listens, as addresses of
// loopback.
func listening(pid int) []string {
	inodes := make(map[string]bool)
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to[len("socket:"):], "[]")] = true
		}
	}
	var out []string
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			l := strings.Fields(lines.Text())
			if len(l) < 10 || l[3] != "0A" || !inodes[l[9]] {
				continue
			}
			address, port, _ := strings.Cut(l[1], ":")
			n, err := strconv.ParseUint(port, 16, 16)
			if err != nil {
				continue
			}
			out = append(out, netip.AddrPortFrom(loopback(address), uint16(n)).String())
		}
		f.Close()
	}
	return out
}

// loopback returns how a listener at an address of /proc/net/tcp is reached: at
// that address if it is a loopback address, otherwise at 127.0.0.1.
func loopback(text string) netip.Addr {
	home := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return home
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.NativeEndian.Uint32(raw))
	if a := netip.AddrFrom4(b); a.IsLoopback() {
		return a
	}
	return home
}

// attacker connects to ports and sends data that does not belong there.
type attacker struct {
	sent  atomic.Int64
	mu    sync.Mutex
	dice  *rand.Rand
	open  []net.Conn // some are left open, and silent
	going sync.WaitGroup
	slots chan struct{}
}

func newPest(seed uint64) *attacker {
	return &attacker{dice: rand.New(rand.NewPCG(seed, 1)), slots: make(chan struct{}, 24)}
}

// attack starts attacks and does not wait for them.
func (p *attacker) attack(address string) {
	p.slots <- struct{}{}
	p.mu.Lock()
	what, cut, b := p.dice.IntN(5), 1+p.dice.IntN(9), make([]byte, 1+p.dice.IntN(4096))
	for i := range b {
		b[i] = byte(p.dice.Uint32())
	}
	p.mu.Unlock()
	p.going.Go(func() {
		p.send(address, what, cut, b)
		<-p.slots
	})
}

func (p *attacker) send(address string, what, cut int, b []byte) {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return
	}
	p.sent.Add(1)
	c.SetDeadline(time.Now().Add(time.Second))
	switch what {
	case 0: // a hello of a rank that does not know the secret
		copy(b, "cairnTCP\x01\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00")
		c.Write(b)
		c.Read(b)
		c.Write(b)
	case 1: // a helper that does not know the secret
		if conn, err := control.Client(c, b[:min(len(b), 32)]); err == nil {
			panic("a wrong secret was accepted: " + address)
		} else if conn != nil {
			conn.Close()
		}
	case 2: // nothing
		p.mu.Lock()
		p.open = append(p.open, c)
		p.mu.Unlock()
		return
	case 3: // an end in the middle of a hello
		c.Write([]byte("cairnTCP\x01")[:cut])
	default:
		c.Write(b)
	}
	c.Close()
}

func (p *attacker) close() {
	p.going.Wait()
	for _, c := range p.open {
		c.Close()
	}
}

// TestRanks_Hostile attacks the ports of ranks and of the supervisor, also
// while the ranks connect to each other. Nothing may be disturbed.
func TestRanks_Hostile(t *testing.T) {
	t.Parallel()
	command := []string{program(t, "ring"), "-steps", "6000", "-report", "0"}
	want := undisturbed(t, 4, command...)
	for _, c := range []struct {
		name, needs string
		flags       []string
	}{
		{"ranks", "true", []string{"--transport", "tcp"}},
		{"supervisor", "mpirun.openmpi", []string{"--launcher", "mpirun.openmpi", "--transport", "tcp", "--launcher-args=--oversubscribe"}},
	} {
		if c.name == "ranks" && !stressed() { // the other attacks them, too
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			need(t, c.needs)
			r := newRun(t, command...)
			s := r.start(append([]string{"-n", "4", "--every", "50ms"}, c.flags...)...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			toRanks, toSupervisor := newPest(1), newPest(2)
			// It leaves the processors to the program.
			pace := func() bool {
				select {
				case <-ctx.Done():
					return false
				case <-time.After(10 * time.Millisecond):
					return true
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				defer toSupervisor.close()
				for pace() {
					for _, a := range listening(s.cmd.Process.Pid) {
						toSupervisor.attack(a)
					}
				}
			})
			wg.Go(func() {
				defer toRanks.close()
				for pace() {
					st := s.state()
					if st == nil {
						continue
					}
					for _, rank := range st.Ranks {
						for _, a := range listening(rank.Pid) {
							toRanks.attack(a)
						}
					}
				}
			})
			// They connect to each other twice more.
			line := 0
			for range 2 {
				var ok bool
				if line, ok = s.sees(line, "committed"); !ok {
					break
				}
				if st := s.state(); st != nil && len(st.Ranks) == 4 && runs(st.Ranks[1].Pid, command[0]) {
					syscall.Kill(st.Ranks[1].Pid, syscall.SIGKILL)
				}
				if line, ok = s.sees(line, "restored checkpoint"); !ok {
					break
				}
			}
			s.finishes()
			cancel()
			wg.Wait()
			sameOutput(t, r.output(), want)
			if n := strings.Count(s.text(), "started again"); n != 2 {
				t.Errorf("%d restarts instead of 2:\n%s", n, s.text())
			}
			if n := toRanks.sent.Load(); n < 10 {
				t.Errorf("ranks were bothered %d times", n)
			}
			if c.name == "supervisor" {
				if toSupervisor.sent.Load() == 0 {
					t.Error("the supervisor was not bothered")
				}
				must(t, s.text(), "a connection was refused")
			}
			t.Logf("%d connections to ranks, %d to the supervisor", toRanks.sent.Load(), toSupervisor.sent.Load())
		})
	}
}

// TestRanks_OtherUser shows that another user cannot stop a run, or request
// anything, even if the socket's mode would allow it.
func TestRanks_OtherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("becoming another user takes root")
	}
	r := newRun(t, program(t, "ring"), "-steps", "100000000", "-report", "0")
	s := r.start("-n", "2", "--every", "100ms")
	s.awaits("committed")
	command := build(t, "./cmd/cairn", runtime.GOARCH)
	os.Chmod(filepath.Dir(command), 0o755)
	socket := filepath.Join(r.run(), "control.sock")
	st, err := os.Stat(socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("control.sock: %v %v", st.Mode(), err)
	}
	nobody := func(arg string) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, command, arg, r.run())
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("cairn %s worked for another user: %s", arg, out)
		}
		return string(out)
	}
	for dir := r.run(); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, arg := range []string{"stop", "checkpoint"} {
		must(t, nobody(arg), "permission denied")
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, arg := range []string{"stop", "checkpoint", "status"} {
		must(t, nobody(arg), "cairn: ", r.run())
	}
	line, _, over := s.said()
	if over || strings.Contains(s.text(), "save and stop") {
		t.Fatalf("it was stopped:\n%s", s.text())
	}
	if _, ok := s.sees(line, "committed"); !ok {
		t.Fatalf("it does not continue:\n%s", s.text())
	}
	s.stops()
}
