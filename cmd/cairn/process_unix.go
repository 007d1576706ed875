//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/cairnrun/cairn/internal/supervise"
)

// watchEvacuate evacuates the listed hosts when SIGUSR2 comes, until the
// function that it returns is called.
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

// trusted checks that a file is a regular one of this user or of root, and that
// nobody else can write it.
func trusted(st fs.FileInfo) error {
	s, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case ok && int(s.Uid) != os.Geteuid() && s.Uid != 0:
		return errors.New("it belongs to another user")
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write it (mode %04o)", st.Mode().Perm())
	}
	return nil
}

// ownGroup makes a command the leader of a process group, so that Ctrl-C does
// not end it. When its context ends, the whole group is killed.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
