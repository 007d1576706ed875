//go:build linux

package helper

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// watchEvacuation runs the command of EvacuateWhen repeatedly, and sends
// Evacuate when it ends with status 0.
func (h *helper) watchEvacuation(w *control.EvacuateWhen) {
	// The command's PDEATHSIG comes when the thread that forked it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tick := time.NewTicker(max(w.Every, time.Millisecond))
	defer tick.Stop()
	told := make(map[string]bool)
	for {
		select {
		case <-tick.C:
		case <-h.gone:
			return
		}
		if h.secret != nil && !h.serves() { // there are no ranks to move
			continue
		}
		evacuate, err := runEvacuateWhen(w)
		if evacuate {
			h.up.Send(&control.Evacuate{})
		}
		if err != nil && !told[err.Error()] {
			told[err.Error()] = true
			h.up.Send(&control.Evacuate{Error: err.Error()})
		}
	}
}

// runEvacuateWhen runs the command once. It may take as long as the time
// between two runs.
func runEvacuateWhen(w *control.EvacuateWhen) (evacuate bool, err error) {
	cmd := exec.Command("/bin/sh", "-c", w.Command)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, EnvSupervisor+"=") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("--evacuate-when: %w", err)
	}
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	late := make(chan bool, 1)
	go func() {
		t := time.NewTimer(w.Every)
		defer t.Stop()
		select {
		case <-ended:
			late <- false
		case <-t.C:
			syscall.Kill(-pid, syscall.SIGKILL)
			late <- true
		}
	}()
	ending(pid) // it is not reaped, so the number still belongs to it
	close(ended)
	killed := <-late
	err = cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case err == nil:
		return true, nil
	case killed:
		return false, fmt.Errorf("--evacuate-when: %s did not end within %s and was killed", control.ShellQuote(w.Command), control.TimeText(w.Every))
	case code == 126 || code == 127:
		return false, fmt.Errorf("--evacuate-when: %s cannot be run: the shell ended with status %d; the host is not watched", control.ShellQuote(w.Command), code)
	}
	return false, nil
}
