//go:build linux

package supervise

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// startSupervisor runs a supervisor in a process of its own.
func startSupervisor(t *testing.T, o Options) *supervisorProcess {
	t.Helper()
	args := as("supervisor")
	cmd := exec.Command(args[0], args[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &supervisorProcess{t, cmd, make(chan string, 1000)}
	t.Cleanup(func() { cmd.Process.Kill() })
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.said <- s.Text()
		}
		close(p.said)
	}()
	type plain struct { // the options without functions, which JSON cannot represent
		Command, Helper []string
		Ranks           int
		Run, Out        string
		Grace           int64
		Fresh           bool
	}
	if err := json.NewEncoder(in).Encode(plain{o.Command, o.Helper, o.Ranks, o.Run, o.Out, int64(o.Grace), o.Fresh}); err != nil {
		t.Fatal(err)
	}
	in.Close()
	return p
}

// awaitEnd returns a function that waits for a process's end.
func awaitEnd(t *testing.T, pid int) func() {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Skip(err)
	}
	return func() {
		defer unix.Close(fd)
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			if _, err := unix.Poll(fds, -1); err != unix.EINTR {
				return
			}
		}
	}
}
