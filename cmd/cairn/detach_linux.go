package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A detached run: 'cairn run --detach' starts itself again, in a session of its
// own, and shows what that process says until the ranks run. Then it ends, and
// the other one continues without a terminal.

const (
	envDetached  = "CAIRN_DETACHED" // set for the other process
	detachedMark = "\x00detached"   // it says this when the ranks run
	detachedFile = "detached.log"   // in the run directory: what it says from then on
)

// detach starts the run in the background. It returns when its ranks run, or
// when it has failed.
func detach(ctx context.Context, c *call) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the path of the cairn command itself: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	said, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), envDetached+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, null, say
	if isTerminal(os.Stdin) {
		cmd.Stdin = null
	}
	if st, err := os.Stdout.Stat(); err == nil && st.Mode().IsRegular() {
		cmd.Stdout = os.Stdout // cairn run --detach ./sim > out.txt
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	say.Close()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })()
	if detached(said, c.stderr) {
		cmd.Process.Release()
		return nil
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return statusError{status: exit.ExitCode()}
	}
	return err
}

// detached shows what the other process says. It reports whether its ranks run.
func detached(said io.Reader, show io.Writer) bool {
	var kept []byte
	buf := make([]byte, 4096)
	for {
		n, err := said.Read(buf)
		kept = append(kept, buf[:n]...)
		if i := bytes.Index(kept, []byte(detachedMark)); i >= 0 {
			show.Write(kept[:i])
			return true
		}
		if i := bytes.IndexByte(kept, 0); i < 0 { // no mark has begun
			show.Write(kept)
			kept = kept[:0]
		}
		if err != nil {
			show.Write(kept)
			return false
		}
	}
}

// isDetached reports whether this is the process in the background. Ranks do
// not inherit that.
func isDetached() bool {
	defer os.Unsetenv(envDetached)
	return os.Getenv(envDetached) != ""
}

// goBackground ends the other command, because the ranks run: from now on,
// stderr is a file in the run directory.
func goBackground(c *call, run string) error {
	f, err := vfs.OpenPrivate(filepath.Join(run, detachedFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	defer f.Close()
	if !c.quiet {
		fmt.Fprintf(c.stderr, "cairn: process %d runs it in the background; 'cairn attach %s' shows it, and 'cairn stop %s' makes it save and stop\n", os.Getpid(), run, run)
	}
	fmt.Fprint(c.stderr, detachedMark)
	return syscall.Dup3(int(f.Fd()), 2, 0)
}

// ignoreHangup lets the build of a program, with the processes that it starts,
// survive a lost terminal, unless stop is set. It reports whether SIGHUP is
// ignored already (nohup).
func ignoreHangup(stop bool) (nohup bool) {
	if signal.Ignored(syscall.SIGHUP) {
		return true
	}
	if !stop {
		signal.Ignore(syscall.SIGHUP)
	}
	return false
}

// onHangup decides what a lost terminal means for the run: nothing but a
// remark, or, if stop is set, that it is to save and stop. The function that it
// returns ends that.
func onHangup(stop bool, s *supervise.Supervisor) (end func()) {
	told, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(told, syscall.SIGHUP)
	go func() {
		for said := false; ; said = true { // the shell and the kernel send a signal each
			select {
			case <-told:
				if stop {
					s.Stop("the terminal is gone")
				} else if !said {
					s.Note("the terminal is gone, and the run continues in the background; 'cairn attach' shows it, 'cairn stop' makes it save and stop")
				}
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
