//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/cairnrun/cairn/internal/supervise"
)

// watchEvacuate evacuates the listed hosts when SIGUSR2 comes, until the function
// that it returns is called.
func watchEvacuate(s *supervise.Supervisor) (stop func()) {
	told, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(told, syscall.SIGUSR2)
	go func() {
		for {
			select {
			case <-told:
				s.Evacuate()
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(told)
		close(ended)
	}
}

// ownGroup makes a command the leader of a process group, so that Ctrl-C does
// not end it. When its context ends, the whole group is killed.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
