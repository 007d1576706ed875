//go:build linux

package supervise

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// ompiServer is Open MPI's program of that name, by which processes of several
// launches find each other. With it, the process that replaces a rank can join
// the MPI world of the others. Open MPI 5 has none.
type ompiServer struct {
	uri   string // address of the server, for mpirun
	cmd   *exec.Cmd
	ended chan struct{}
}

const serverTime = 10 * time.Second // how long it may take to print its address

// startServer starts the ompi-server that belongs to an mpirun. It returns nil
// if there is none, or if it does not start: then destinations do not join.
func startServer(mpirun string) *ompiServer {
	path := serverOf(mpirun)
	if path == "" {
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil
	}
	x := &ompiServer{ended: make(chan struct{})}
	x.cmd = exec.Command(path, "--no-daemonize", "--report-uri", "+") // to stderr, which is not buffered
	x.cmd.Stderr = write
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig refers to the thread
		defer runtime.UnlockOSThread()
		err := x.cmd.Start()
		write.Close()
		started <- err
		if err == nil {
			x.cmd.Wait()
			close(x.ended)
		}
	}()
	if <-started != nil {
		read.Close()
		return nil
	}
	read.SetReadDeadline(time.Now().Add(serverTime))
	r := bufio.NewReader(read)
	for x.uri == "" {
		line, err := r.ReadString('\n')
		if err != nil {
			read.Close()
			x.end()
			return nil
		}
		if line = strings.TrimSpace(line); strings.Contains(line, ";tcp") && strings.Contains(line, "://") {
			x.uri = line
		}
	}
	read.SetReadDeadline(time.Time{})
	go func() { // read its further output
		io.Copy(io.Discard, r)
		read.Close()
	}()
	return x
}

// runs reports whether the server can still be reached.
func (x *ompiServer) runs() bool {
	if x == nil {
		return false
	}
	select {
	case <-x.ended:
		return false
	default:
		return true
	}
}

// end ends the server. It cleans up on SIGTERM; if that takes long, it is
// killed.
func (x *ompiServer) end() {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !x.runs() {
			return
		}
		syscall.Kill(-x.cmd.Process.Pid, s)
		select {
		case <-x.ended:
		case <-time.After(5 * time.Second):
		}
	}
}

// serverOf returns the ompi-server of an mpirun: the one beside it, or one in
// PATH beside an mpirun of the same version. The server itself does not print a
// version.
func serverOf(mpirun string) string {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(mpirun), "ompi-server"))
	if err == nil {
		return path
	}
	if path, err = exec.LookPath("ompi-server"); err != nil {
		return ""
	}
	number := regexp.MustCompile(`\d+\.\d+[.\w]*`)
	want := number.FindString(version(mpirun))
	for _, name := range []string{"orterun", "mpirun"} {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(path), name)); err == nil && want != "" && number.FindString(version(beside)) == want {
			return path
		}
	}
	return ""
}

// useful reports whether ranks may want to join. On one host, where Open MPI
// can do it, this holds only if the run prefers the library to shared memory.
func (l *launcher) useful(s *Supervisor) bool {
	if said := os.Getenv(control.EnvJoin); s.n == 1 || l.apart || ownServer(l.args) || said == control.JoinNever || said == control.JoinSpawned {
		return false
	}
	return os.Getenv(control.EnvJoin) == control.JoinAnywhere || len(s.o.Transports) > 0 && s.o.Transports[0] == "mpi"
}

// joinAt returns where destinations can join the MPI world of the others:
// EnvJoin for their helpers. mpirun of Open MPI 4 fails if processes on other
// hosts than its own connect. The user may override this, or use a library that
// needs no server.
func (s *Supervisor) joinAt() string {
	l := s.launcher
	said := os.Getenv(control.EnvJoin)
	switch {
	case l.apart || said == control.JoinNever || said == control.JoinSpawned:
		return ""
	case said == control.JoinAnywhere:
		return said
	case !l.server.Load().runs():
		return ""
	}
	own, err := os.Hostname()
	if err != nil || slices.ContainsFunc(s.hosts, func(h *host) bool { return !h.extra && h.shared != own }) {
		return ""
	}
	return own
}
