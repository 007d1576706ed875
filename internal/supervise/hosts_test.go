//go:build linux

package supervise

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// shell writes a remote shell for hosts that do not exist. It prints a
// greeting, as login shells do, and fails for hosts that are down.
func shell(t *testing.T) (dir string, command []string) {
	t.Helper()
	dir = t.TempDir()
	script(t, filepath.Join(dir, "remote"), `echo "Welcome to $1, last login: yesterday"
if test -e `+dir+`/$1.down; then echo "no route to $1" >&2; exit 255; fi
shift
exec "$@"`)
	return dir, []string{filepath.Join(dir, "remote"), "{host}"}
}

func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestHost_Lost loses a host, and another one takes its ranks.
func TestHost_Lost(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "gate:0:8:"+gate)
	dir, rsh := shell(t)
	o.Hosts, o.RemoteShell = []Host{{"a", 1}, {"b", 1}, {"c", 1}}, rsh
	l := begin(t, o)
	l.reaches(1, 8)
	l.mu.Lock()
	rank := l.last.Ranks[1]
	l.mu.Unlock()
	if host := rank.Host; host != "b" {
		t.Fatalf("rank 1 is on %s", host)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(parent(t, rank.Pid), syscall.SIGKILL)
	l.await("lost host b")
	l.await("restored checkpoint 1")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("continuing without a host: host b cannot be reached: no route to b", "started again: 2 ranks on a:1, c:1")
	exact(t, o, 20)
}

// TestHost_Unreachable shows that a host that cannot be reached is named when
// the other hosts have no room.
func TestHost_Unreachable(t *testing.T) {
	o := options(t, 2)
	dir, rsh := shell(t)
	o.Hosts, o.RemoteShell = []Host{{"a", 1}, {"b", 1}}, rsh
	if err := os.WriteFile(filepath.Join(dir, "b.down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := begin(t, o).ends(rundir.Failed, 1)
	l.once("failed: host b cannot be reached: no route to b; 2 ranks need room and there is room for 1")
	if err := os.WriteFile(filepath.Join(dir, "a.down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin(t, o).ends(rundir.Failed, 1).once("failed: host a cannot be reached: no route to a; host b cannot be reached: no route to b")
	// This host exists, but has no cairn.
	o.Hosts, o.RemoteHelper = []Host{{"c", 2}}, []string{"/no/such/cairn"}
	l = begin(t, o).ends(rundir.Failed, 1).says("host c: its helper could not be started: ", "/no/such/cairn", "--remote-cairn")
	if len(l.said) != 1 {
		t.Errorf("said %q", l.said)
	}
}

// TestHost_Namespaces uses hosts that are network namespaces.
func TestHost_Namespaces(t *testing.T) {
	var hosts []Host
	for _, name := range []string{"a", "b"} {
		name = fmt.Sprintf("cairn-%s-%d", name, os.Getpid())
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
			t.Skipf("network namespaces cannot be made: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
		hosts = append(hosts, Host{name, 2})
	}
	o := options(t, 4, "kill:3:8:1")
	o.Hosts, o.RemoteShell = hosts, strings.Fields("ip netns exec {host}")
	l := begin(t, o)
	l.ends(rundir.Finished, 0).says("rank 3 on "+hosts[1].Name+" was killed by signal 9", "restored checkpoint 1")
	exact(t, o, 20)
}

// TestHost_Command checks the command that starts a helper on a host, with each
// remote shell.
func TestHost_Command(t *testing.T) {
	s := &Supervisor{o: Options{Helper: []string{"/a b/cairn", "_host"}, RemoteHelper: []string{"/a b/cairn", "_host"}}}
	for _, c := range []struct {
		shell []string
		local bool
		want  string
	}{
		{nil, true, "/a b/cairn|_host"},
		{nil, false, "ssh|-T|-o|BatchMode=yes|-o|ServerAliveInterval=10|-o|ServerAliveCountMax=3|x|'/a b/cairn' _host"},
		{[]string{"ip", "netns", "exec", "{host}"}, false, "ip|netns|exec|x|/a b/cairn|_host"},
		{[]string{"rsh"}, false, "rsh|x|'/a b/cairn' _host"},
	} {
		s.o.RemoteShell = c.shell
		h := &host{s: s, name: "x", local: c.local}
		if got := strings.Join(h.command(), "|"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestPlace_Slots checks how many ranks each host gets.
func TestPlace_Slots(t *testing.T) {
	for _, c := range []struct {
		n           int
		slots, want []int
	}{{4, []int{2, 2}, []int{2, 2}}, {3, []int{2, 2}, []int{2, 1}}, {1, []int{4, 4}, []int{1, 0}}, {5, []int{2, 2}, nil}} {
		if got := place(c.n, c.slots); !slices.Equal(got, c.want) {
			t.Errorf("%d ranks on %v: %v, want %v", c.n, c.slots, got, c.want)
		}
	}
}

// TestOptions_Refused checks the message for each wrong option.
func TestOptions_Refused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"has room":      func(o *Options) { o.Ranks, o.Hosts = 5, []Host{{"a", 2}} },
		"named twice":   func(o *Options) { o.Hosts = []Host{{"a", 2}, {"a", 2}} },
		"is no host":    func(o *Options) { o.Hosts = []Host{{"-oProxyCommand=x", 2}} },
		"no launcher":   func(o *Options) { o.Launcher = "qsub" },
		"launcher-args": func(o *Options) { o.LauncherArgs = []string{"-v"} },
		"--hosts":       func(o *Options) { o.Launcher, o.Hosts = "srun", []Host{{"a", 2}} },
		"are needed":    func(o *Options) { o.Helper = nil },
		"-1 ranks":      func(o *Options) { o.Ranks = -1 },
	} {
		o := options(t, 1)
		change(&o)
		_, err := New(o)
		if !errors.Is(err, ErrOptions) || want != "has room" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// fakeLauncher puts an mpirun into PATH that passes descriptors 3 and 7 to its
// children, as MPICH does.
func fakeLauncher(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script(t, filepath.Join(dir, "mpirun"), `test "$1" = --version && exit
n=$2; shift 2
exec 3<`+dir+`/mpirun 7<`+dir+`/mpirun
i=0
while test $i -lt $n; do PMI_RANK=$i PMI_FD=3 "$@" & i=$((i+1)); done
wait`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestLauncher_Run runs ranks by a stand-in for mpirun, and restarts them after
// a failure. The ranks get nothing of the helper's.
func TestLauncher_Run(t *testing.T) {
	fakeLauncher(t)
	o := options(t, 3, "kill:2:8:1")
	o.Launcher = "mpirun"
	begin(t, o).ends(rundir.Finished, 0).says("3 ranks by mpirun", "killed by signal 9", "restored checkpoint 1")
	exact(t, o, 20)

	o = options(t, 1)
	o.Launcher = "mpirun"
	o.Command = []string{"sh", "-c", "readlink /proc/$$/fd/3 /proc/$$/fd/7; echo $CAIRN_CONTROL $CAIRN_WRITER $PMI_FD $CAIRN_SECRET"}
	begin(t, o).ends(rundir.Finished, 0)
	got, _ := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), 0, 1))
	if lines := strings.Split(string(got), "\n"); len(lines) != 4 || !strings.HasSuffix(lines[0], "/mpirun") || lines[1] != lines[0] || !strings.HasSuffix(strings.TrimSpace(lines[2]), " 3") {
		t.Errorf("%q", lines)
	}
}

// TestLauncher_Real does the same with each launcher that is installed.
func TestLauncher_Real(t *testing.T) {
	for _, name := range []string{"mpirun.openmpi", "mpirun.mpich"} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip(err)
			}
			t.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
			t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
			o := options(t, 2, "kill:1:8:1")
			o.Launcher = name
			if name == "mpirun.openmpi" {
				o.LauncherArgs = []string{"--oversubscribe"}
			}
			begin(t, o).ends(rundir.Finished, 0).says("2 ranks by "+name, "killed by signal 9", "restored checkpoint 1")
			exact(t, o, 20)
		})
	}
}

// TestLauncher_Fails shows what is said if a launcher fails or is not
// installed.
func TestLauncher_Fails(t *testing.T) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "mpirun"), "echo no allocation >&2; exit 1")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	o := options(t, 2)
	o.Launcher = "mpirun"
	begin(t, o).ends(rundir.Failed, 1).once("failed: mpirun: it ended before all ranks had come (it said: no allocation)")

	for _, name := range []string{"mpirun.none", filepath.Join(dir, "mpiexec")} { // not installed
		o = options(t, 2)
		o.Launcher = name
		begin(t, o).ends(rundir.Failed, 1).says("failed: "+name+": ", "; install it, load its module, or choose another with --launcher (fork needs no command)")
	}
}

// TestLauncher_HostilePort has strangers connect to the port for launched
// helpers.
func TestLauncher_HostilePort(t *testing.T) {
	fakeLauncher(t)
	o := options(t, 2)
	o.Launcher = "mpirun"
	script(t, filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "mpirun"), `test "$1" = --version && exit
shift 2
echo $CAIRN_SUPERVISOR > `+o.Run+`.port
echo $CAIRN_SECRET > `+o.Run+`.secret
cat < `+o.Run+`.go
PMI_RANK=0 "$@" & PMI_RANK=1 "$@" &
wait`)
	if err := syscall.Mkfifo(o.Run+".go", 0o600); err != nil {
		t.Fatal(err)
	}
	l := begin(t, o)
	hold, err := os.OpenFile(o.Run+".go", os.O_WRONLY, 0) // blocks until the port exists
	if err != nil {
		t.Fatal(err)
	}
	port, err := os.ReadFile(o.Run + ".port")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(o.Run + ".secret")
	secret, _ := hex.DecodeString(strings.TrimSpace(string(text)))
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.Split(strings.TrimSpace(string(port)), ",")[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range 2 * halfOpen {
		dial() // sends nothing
	}
	c := dial()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n0123456789012345678901234567890123456789")
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("garbage was answered")
	}
	if _, err := control.Client(dial(), make([]byte, 32)); !errors.Is(err, control.ErrRefused) {
		t.Errorf("wrong secret: %v", err)
	}
	// This client knows the secret and claims a rank that does not exist.
	stranger, err := control.Client(dial(), secret)
	if err != nil {
		t.Fatal(err)
	}
	stranger.Send(&control.Joined{Rank: 7})
	if _, err := stranger.Recv(); err == nil {
		t.Error("rank 7 of 2 was taken in")
	}
	hold.Close()
	l.ends(rundir.Finished, 0).says("a connection was refused", " connections were refused", "it has rank 7 of 2")
	exact(t, o, 20)
}

// TestControlSocket_Hostile has strangers connect to the run's socket.
func TestControlSocket_Hostile(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:3:"+gate)
	l := begin(t, o)
	l.reaches(0, 3)
	if st, err := os.Stat(filepath.Join(o.Run, rundir.SocketName)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(o.Run); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	for i, text := range []string{"", "\x00\x00\x00\x02{}", "\xff\xff\xff\xff", "\x00\x00\x00\x10{\"kind\":", "\x00\x00\x00\x0f{\"kind\":\"kill\"}", "GET / HTTP/1.0\r\n\r\n"} {
		c, err := net.Dial("unix", filepath.Join(o.Run, rundir.SocketName))
		if err != nil {
			t.Fatal(i, err)
		}
		defer c.Close()
		c.Write([]byte(text))
		if st, err := client.Read(context.Background(), o.Run); err != nil || st.State != rundir.Running {
			t.Fatalf("after %q: %+v, %v", text, st, err)
		}
	}
	conn, err := rundir.Dial(t.Context(), o.Run)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := control.New(conn)
	if err := c.Send(&control.Kill{}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Recv(); err != nil || !strings.Contains(m.(*control.Answer).Error, `"kill" is no request`) {
		t.Error(m, err)
	}
	open(t, gate)
	l.ends(rundir.Finished, 0)
}
