//go:build linux

package helper

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestChildSignal_AlreadyEnded shows that a rank which ended before it was to
// be killed does not count as killed by the supervisor, even if its end is not
// known yet.
func TestChildSignal_AlreadyEnded(t *testing.T) {
	for _, dead := range []bool{true, false} {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c := &child{l: &launch{}, cmd: cmd, id: rundir.Process{Pid: cmd.Process.Pid}}
		if dead {
			syscall.Kill(cmd.Process.Pid, syscall.SIGKILL)
			ending(cmd.Process.Pid) // it is not reaped
		}
		c.signal(syscall.SIGKILL)
		if c.killed == dead {
			t.Errorf("ended before: %v, killed by the supervisor: %v", dead, c.killed)
		}
		c.reap()
	}
}
