//go:build linux

package serve

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestPython_Killed kills a Python program, and compares what it prints and
// writes with an undisturbed run.
func TestPython_Killed(t *testing.T) {
	long(t)
	dir := build(t)
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import numpy").Run(); err != nil {
		t.Skip("no NumPy for " + python)
	}
	path, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/walk.py")
	if err != nil {
		t.Fatal(err)
	}
	start := func(ckpt, out string) *exec.Cmd {
		cmd := program(t, "cairn")
		cmd.Path, cmd.Args = python, []string{python, script, ckpt, "5000", out}
		cmd.Env = append(cmd.Env, "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1", "CAIRN_LIBRARY="+filepath.Join(dir, "libcairn.so"))
		return cmd
	}
	base := t.TempDir()
	want, err := start(filepath.Join(base, "a"), filepath.Join(base, "a.out")).Output()
	if err != nil {
		t.Fatal(err, failure(err))
	}
	for range 3 {
		cmd := start(filepath.Join(base, "b"), filepath.Join(base, "b.out"))
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 100)
		n, _ := stderr.Read(text) // it is in its loop
		time.Sleep(rand.N(100 * time.Millisecond))
		cmd.Process.Kill()
		t.Logf("%s", text[:n])
		if cmd.Wait() == nil { // it was quicker: there is nothing to resume
			os.RemoveAll(filepath.Join(base, "b"))
			os.Remove(filepath.Join(base, "b.out"))
		}
	}
	got, err := start(filepath.Join(base, "b"), filepath.Join(base, "b.out")).Output()
	if err != nil {
		t.Fatal(err, failure(err))
	}
	if string(got) != string(want) {
		t.Errorf("%s, want %s", got, want)
	}
	a, _ := os.ReadFile(filepath.Join(base, "a.out"))
	b, _ := os.ReadFile(filepath.Join(base, "b.out"))
	if string(a) != string(b) || len(a) == 0 {
		t.Errorf("the file is\n%s\nwant\n%s", b, a)
	}
}

// failure is what a command that failed said.
func failure(err error) string {
	if e, ok := err.(*exec.ExitError); ok {
		return string(e.Stderr)
	}
	return ""
}
