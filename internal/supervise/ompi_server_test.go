//go:build linux

package supervise

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// TestOmpiServer_Start shows that the server of an mpirun is found, prints its
// address, and is ended, and that other programs are not used.
func TestOmpiServer_Start(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	t.Setenv("PATH", there+":"+os.Getenv("PATH"))
	mpirun := filepath.Join(here, "mpirun")
	script(t, mpirun, "echo 'mpirun (Open MPI) 4.1.4'")
	server := filepath.Join(there, "ompi-server")
	script(t, server, `echo starting >&2; echo '17.0;tcp://10.0.0.1:4711' >&2; exec sleep 1000`)
	if x := startServer(mpirun); x != nil {
		t.Error("a server of nobody knows what")
	}
	script(t, filepath.Join(there, "orterun"), "echo 'orterun (OpenRTE) 4.0.0'")
	if x := startServer(mpirun); x != nil {
		t.Error("a server of another version")
	}
	script(t, filepath.Join(there, "orterun"), "echo 'orterun (OpenRTE) 4.1.4'")
	x := startServer(mpirun)
	if !x.runs() || x.uri != "17.0;tcp://10.0.0.1:4711" {
		t.Fatalf("%+v", x)
	}
	x.end()
	if x.runs() || syscall.Kill(x.cmd.Process.Pid, 0) == nil {
		t.Error("it runs")
	}
	// One beside mpirun is preferred.
	script(t, filepath.Join(here, "ompi-server"), "exit 1")
	if x := startServer(mpirun); x != nil {
		t.Error("a server that has ended")
	}
	script(t, filepath.Join(here, "ompi-server"), `echo '18.0;tcp://[::1]:1' >&2`)
	if x := startServer(mpirun); x != nil {
		select {
		case <-x.ended:
		case <-time.After(10 * time.Second):
		}
		if x.runs() {
			t.Error("a server that has ended runs")
		}
	}
	if (*ompiServer)(nil).runs() {
		t.Error("no server runs")
	}
}

// TestJoinAt_Hosts tests where destinations join.
func TestJoinAt_Hosts(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	running := &ompiServer{ended: make(chan struct{})}
	over := &ompiServer{ended: make(chan struct{})}
	close(over.ended)
	hosts := func(names ...string) (list []*host) {
		for _, n := range names {
			list = append(list, &host{shared: n})
		}
		return list
	}
	for _, c := range []struct {
		what   string
		said   string
		server *ompiServer
		hosts  []*host
		apart  bool
		want   string
	}{
		{what: "one host", server: running, hosts: hosts(own, own), want: own},
		{what: "no server", hosts: hosts(own, own)},
		{what: "a server that was lost", server: over, hosts: hosts(own, own)},
		{what: "another host", server: running, hosts: hosts(own, "other")},
		{what: "a destination on another host", server: running, hosts: append(hosts(own), &host{shared: "other", extra: true}), want: own},
		{what: "it went wrong", server: running, hosts: hosts(own), apart: true},
		{what: "never", said: "no", server: running, hosts: hosts(own)},
		{what: "always", said: "any", hosts: hosts(own, "other"), want: "any"},
		{what: "spawned", said: "spawn", server: running, hosts: hosts(own)},
		{what: "always, but it went wrong", said: "any", hosts: hosts(own), apart: true},
	} {
		t.Setenv(control.EnvJoin, c.said)
		s := &Supervisor{launcher: &launcher{apart: c.apart}, hosts: c.hosts}
		s.launcher.server.Store(c.server)
		if got := s.joinAt(); got != c.want {
			t.Errorf("%s: %q, not %q", c.what, got, c.want)
		}
		t.Setenv(control.EnvJoin, c.want)
		if control.MayJoin() != (c.want != "") {
			t.Errorf("%s: a destination does otherwise", c.what)
		}
	}
	t.Setenv(control.EnvJoin, "other")
	if control.MayJoin() {
		t.Error("a destination joins on another host")
	}
}

// TestOmpiServer_Useful tests when a server is started.
func TestOmpiServer_Useful(t *testing.T) {
	t.Setenv(control.EnvJoin, "")
	for _, c := range []struct {
		n          int
		transports []string
		args       []string
		want       bool
	}{
		{4, []string{"mpi"}, nil, true},
		{4, nil, nil, false},
		{4, []string{"shm", "mpi"}, nil, false},
		{1, []string{"mpi"}, nil, false},
		{4, []string{"mpi"}, []string{"--ompi-server", "file:x"}, false},
	} {
		s := &Supervisor{n: c.n, o: Options{Transports: c.transports}}
		if got := (&launcher{args: c.args}).useful(s); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
