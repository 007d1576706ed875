package resume_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// supervised returns the command that runs a case under 'cairn run'.
func supervised(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("cairn run is for Linux")
	}
	cmd := exec.Command(build(t, "../cmd/cairn"), append([]string{"run"}, args...)...)
	cmd.Dir = dir
	text := new(bytes.Buffer)
	cmd.Stderr = text
	return cmd, text
}

// TestSupervised_Output shows that standard output is neither duplicated nor
// lost.
func TestSupervised_Output(t *testing.T) {
	cmd, text := supervised(t, t.TempDir(), "--every-points", "1", build(t, "./testdata/cases"), "printing")
	cmd.Env = append(os.Environ(), "CAIRN_KILL_AT=each")
	out, err := cmd.Output()
	if want := "init\nline 0\nline 1\nline 2\nline 3\nline 4\nline 5\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q\n%s", err, out, want, text)
	}
	if n := strings.Count(text.String(), "was killed by signal 9"); n != 6 {
		t.Errorf("killed %d times\n%s", n, text)
	}
}

// TestSupervised_Stop stops a program and resumes it.
func TestSupervised_Stop(t *testing.T) {
	dir, path := t.TempDir(), build(t, "./testdata/cases")
	cmd, text := supervised(t, dir, "--live", "--every", "1h", path, "waiting")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "waiting" {
			cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 75 {
		t.Fatalf("status %d: %s", code, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, text = supervised(t, dir, "--every", "1h", path, "waiting")
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "resumed") {
		t.Errorf("%v: %s\n%s", err, out, text)
	}
}

// TestSupervised_TerminatedTwice sends SIGTERM repeatedly to a program before
// its next point, as some schedulers do. It saves and stops, although it
// listens for the signal itself.
func TestSupervised_TerminatedTwice(t *testing.T) {
	dir, path := t.TempDir(), build(t, "./testdata/cases")
	cmd, text := supervised(t, dir, "--every", "1h", path, "waiting")
	cmd.Env = append(os.Environ(), "TERM_TWICE=1")
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 75 || !strings.Contains(text.String(), "stopped with checkpoint 1") {
		t.Fatalf("status %d: %s", code, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, text = supervised(t, dir, "--every", "1h", path, "waiting")
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "resumed") {
		t.Errorf("%v: %s\n%s", err, out, text)
	}
}

// TestSupervised_InputChanged shows that a program which refuses its input is
// not restarted repeatedly, and that no checkpoint is quarantined because of
// it.
func TestSupervised_InputChanged(t *testing.T) {
	dir, path := t.TempDir(), build(t, "./testdata/cases")
	in := filepath.Join(dir, "in")
	write(t, in, inputText)
	write(t, filepath.Join(dir, "data"), dataText)
	start := func(stdin string, env ...string) (int, string) {
		cmd, text := supervised(t, dir, "--every-points", "1", "--retries", "0", "--quarantine", "1", path, "reading")
		if len(env) == 0 {
			cmd, text = supervised(t, dir, "--every-points", "1", "--quarantine", "1", path, "reading")
		}
		cmd.Env = append(os.Environ(), env...)
		if stdin != "" {
			f, err := os.Open(stdin)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd.Stdin = f
		}
		cmd.Run()
		return cmd.ProcessState.ExitCode(), text.String()
	}
	if code, text := start(in, "CAIRN_KILL_AT=4"); code != 137 {
		t.Fatalf("status %d: %s", code, text)
	}
	for _, other := range []string{"", filepath.Join(dir, "data")} {
		code, text := start(other)
		if code != 1 || !strings.Contains(text, "had read 24 bytes of "+in) || strings.Contains(text, "restarting") || strings.Contains(text, "quarantined") {
			t.Errorf("%q: status %d: %s", other, code, text)
		}
	}
	if code, text := start(in); code != 0 {
		t.Fatalf("status %d: %s", code, text)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil || !strings.HasSuffix(string(got), "5 \"da five \" <nil>\ndone\n") {
		t.Errorf("%v: %s", err, got)
	}
}
