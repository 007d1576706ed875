//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/interconnects"
)

// TestMigrate_TwiceAtOnce shows that moves which are requested at the same time
// are executed in order.
func TestMigrate_TwiceAtOnce(t *testing.T) {
	onlyLong(t)
	net := network(t, 3)
	p := traveller(t, 4, "--hosts", slots(net, 2, 2), "--rsh", interconnects.Shell)
	p.still(p.pidOf(1))
	first := p.asks("--rank", "1", "--to", net.Hosts[2])
	p.reachesState(control.MovePrecopy)
	second := p.asks("--rank", "1,2", "--to", net.Hosts[0], "--rounds", "0")
	p.reachesState(control.MoveWaiting)
	third := p.asks("--host", net.Hosts[0])
	if !p.enters(patience, func(m *control.MoveState) bool { return m.State == control.MoveWaiting && m.From == net.Hosts[0] }) {
		t.Fatalf("%+v", p.now().Moves)
	}
	p.thaw()
	first.ends(0)
	second.ends(0)
	// The second host has two slots, of which rank 3 takes one: there is no
	// room for ranks 0, 1 and 2.
	if m := third.ends(3); !strings.Contains(m.Why, "no other host of the run has room for ranks 0, 1 and 2") {
		t.Errorf("%+v", m)
	}
	from := 0
	for i, want := range []string{"rank 1 moved from", "ranks 1 and 2 moved from", "ranks 0, 1 and 2 not moved"} {
		var ok bool
		if from, ok = p.s.sees(from, want); !ok {
			t.Fatalf("%d: %q is not where it should be in:\n%s", i, want, p.s.text())
		}
	}
	p.onlyRanks()
	p.arrives()
}

// inside calls f in a network namespace.
func inside(t *testing.T, host string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		space, err := os.Open(filepath.Join("/run/netns", host))
		if err == nil {
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
			space.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestMigrate_StrangerConnects shows that a client without the run's secret
// gets nothing from a process that waits for its state, and disturbs nothing.
func TestMigrate_StrangerConnects(t *testing.T) {
	onlyLong(t)
	hosts := network(t, 2)
	p := traveller(t, 2, "--hosts", slots(hosts, 2), "--rsh", interconnects.Shell)
	p.still(p.pidOf(1))
	a := p.asks("--rank", "1", "--to", hosts.Hosts[1])
	p.reachesState(control.MovePrecopy)
	var ports []string
	out := tool(t, "ip", "netns", "exec", hosts.Hosts[1], "cat", "/proc/net/tcp", "/proc/net/tcp6")
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" { // it is a listening socket
			continue
		}
		port, err := strconv.ParseUint(f[1][strings.LastIndex(f[1], ":")+1:], 16, 16)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, strconv.FormatUint(port, 10))
	}
	if len(ports) == 0 {
		t.Fatalf("nobody listens: %s", out)
	}
	inside(t, hosts.Hosts[0], func() {
		for _, port := range ports {
			dial := func() net.Conn {
				conn, err := net.Dial("tcp", "10.77.0.2:"+port)
				if err != nil {
					t.Error(err)
					return nil
				}
				t.Cleanup(func() { conn.Close() })
				return conn
			}
			dial() // one client sends nothing
			if c := dial(); c != nil {
				c.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 1000))
			}
			if c := dial(); c != nil { // one knows the protocol, but not the secret
				c.SetDeadline(time.Now().Add(patience / 4))
				if _, err := control.Client(c, []byte("the wrong one")); err == nil {
					t.Errorf("port %s takes any secret", port)
				}
				if n, err := io.Copy(io.Discard, c); n > 0 {
					t.Errorf("port %s gave %d bytes to a stranger, %v", port, n, err)
				}
			}
		}
	})
	p.thaw()
	a.ends(0)
	p.onlyRanks()
	p.arrives()
}

// TestMigrate_Evacuate shows that a host is evacuated when a file requests it,
// and when the host itself does.
func TestMigrate_Evacuate(t *testing.T) {
	need(t, "ip")
	net := network(t, 3)
	root := t.TempDir()
	p := traveller(t, 4, "--hosts", slots(net, 2, 2, 2), "--rsh", interconnects.Shell, "--evacuate-poll", "300ms",
		"--evacuate-when", "test -e "+root+"/$(ip netns identify $$)")
	write(t, filepath.Join(root, net.Hosts[1]), "")
	p.s.awaits("host " + net.Hosts[1] + " is to be evacuated, as --evacuate-when says there")
	p.s.awaits("ranks 2 and 3 moved from " + net.Hosts[1] + " to " + net.Hosts[2])
	if err := os.Remove(filepath.Join(root, net.Hosts[1])); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.run(), "evacuate"), fmt.Sprintf("%s %s # for good\nnowhere\n", net.Hosts[2], net.Hosts[1]))
	p.s.cmd.Process.Signal(syscall.SIGUSR2)
	p.s.awaits("the run has no host nowhere")
	p.s.awaits("ranks 2 and 3 moved from " + net.Hosts[2] + " to " + net.Hosts[1])
	p.onlyRanks()
	p.arrives()
}

// shellOn returns a remote shell that also executes a script on a host, in a
// mount namespace of its own.
func shellOn(t *testing.T, host, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shell")
	text := "#!/bin/sh\nhost=$1; shift\nif test $host = " + host + "; then\n  unshare -m --propagation private sh -c '" + script + "; exec ip netns exec \"$@\"' sh $host \"$@\"\nelse exec ip netns exec $host \"$@\"; fi\n"
	write(t, file, text)
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
	return file + " {host}"
}

// TestMigrate_UnsuitableHostRefused moves a rank to a host that lacks
// something. The rank stays where it is, and the command reports the reason.
func TestMigrate_UnsuitableHostRefused(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	need(t, "unshare", "prlimit")
	hosts := network(t, 2)
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces cannot be made: %v: %s", err, out)
	}
	for _, v := range []struct {
		name, script string // ROOT is the traveller's
		args         []string
		flags        []string
		why          []string
	}{
		{"the program", "mount --bind /dev/null PROGRAM", nil, nil, []string{"could not be started", "traveller"}},
		{"memory", "ulimit -d 200000", []string{"-ballast", "256"}, nil, []string{"the new process of rank 1"}},
		{"disk space", "mount -t tmpfs -o size=64k none ROOT/files", []string{"-fill", "300000"}, []string{"--copy-files"}, []string{"no space left on device"}},
		{"the file", "mount -t tmpfs none ROOT/files", []string{"-fill", "300000"}, nil, []string{"files/1 is not on this host", "--copy-files"}},
		{"the run directory", "mount -t tmpfs none ROOT", nil, nil, []string{"the run directory", "does not exist here"}},
		{"a way to it", "ip -n " + hosts.Hosts[1] + " link set eth0 down", nil, nil, nil},
	} {
		t.Run(v.name, func(t *testing.T) {
			if v.name == "a way to it" && !stressed() {
				t.Skip("it is given up after 20 s")
			}
			r := newTraveller(t, v.args...)
			script := strings.NewReplacer("ROOT", r.root, "PROGRAM", r.command[0]).Replace(v.script)
			p := r.waiting(2, "--hosts", slots(hosts, 2), "--rsh", shellOn(t, hosts.Hosts[1], script))
			m := p.asks(append(v.flags, "--rank", "1", "--to", hosts.Hosts[1])...).ends(3)
			t.Log(m.Why)
			must(t, m.Why, v.why...)
			p.onlyRanks()
			p.moves("--rank", "1", "--to", hosts.Hosts[0])
			p.arrives()
		})
	}
	tool(t, "ip", "-n", hosts.Hosts[1], "link", "set", "eth0", "up")
}
