//go:build linux || darwin

package step

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain makes the test's own binary the process that is killed.
func TestMain(m *testing.M) {
	if names := os.Getenv("STEP_TEST"); names != "" {
		for name := range strings.SplitSeq(names, " ") {
			At(name)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// walk runs a process that takes steps and returns its status.
func walk(t *testing.T, steps string, env ...string) syscall.WaitStatus {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "STEP_TEST="+steps), env...)
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// TestAt_Kill kills at a step, when it is reached for the first time and later.
func TestAt_Kill(t *testing.T) {
	for _, c := range []struct {
		rule, steps string
		killed      bool
	}{
		{"b=kill", "a b c", true},
		{"b=kill", "a c", false},
		{"b#2=kill", "a b c", false},
		{"b#2=kill", "a b b", true},
		{"x.*#2=kill", "x.a y x.b", true},
		{"x.*#3=kill", "x.a y x.b", false},
		{"b=fly", "b", false},
		{"q=kill,b=kill", "b", true},
	} {
		st := walk(t, c.steps, "CAIRN_STEP="+c.rule)
		if killed := st.Signaled() && st.Signal() == syscall.SIGKILL; killed != c.killed {
			t.Errorf("%s with the steps %q: killed: %v, want %v", c.rule, c.steps, killed, c.killed)
		}
	}
}

// TestAt_Log shows that steps are counted over processes: the second one is not
// killed again.
func TestAt_Log(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	env := []string{"CAIRN_STEP=b=kill", "CAIRN_STEP_LOG=" + log}
	if st := walk(t, "a b c", env...); !st.Signaled() {
		t.Error("the first process was not killed")
	}
	if st := walk(t, "a b c", env...); st.Signaled() {
		t.Error("the second process was killed too")
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	if got := strings.Join(names, " "); got != "a b a b c" {
		t.Errorf("the log has %q", got)
	}
}

// TestAt_Stop waits for a step and continues.
func TestAt_Stop(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STEP_TEST=a b", "CAIRN_STEP=a=stop")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var st syscall.WaitStatus
	for {
		_, err := syscall.Wait4(cmd.Process.Pid, &st, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !st.Stopped() {
			t.Fatalf("it did not stop: %v, %v", st, err)
		}
		break
	}
	if err := syscall.Kill(cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}
