package resume_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStop_DiskFull stops a program that cannot save any more. Its status says
// that the work is lost, and it resumes from what was saved before.
func TestStop_DiskFull(t *testing.T) {
	path := build(t, "./testdata/cases")
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small file system cannot be mounted here (it takes root): %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(mount, syscall.MNT_DETACH) })
	work := t.TempDir()
	start := func() (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command(path, "waiting")
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "CAIRN_DIR="+filepath.Join(mount, "sets"), "CAIRN_EVERY=1h")
		text := new(bytes.Buffer)
		cmd.Stderr = text
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(out); s.Scan() && s.Text() == "init"; {
		}
		go io.Copy(io.Discard, out)
		return cmd, text
	}
	for n, want := range []int{75, 74, 74, 75} { // saved, full, still full, room again
		fill := filepath.Join(mount, "fill")
		switch n {
		case 1:
			if err := os.WriteFile(fill, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		case 3:
			if err := os.Remove(fill); err != nil {
				t.Fatal(err)
			}
		}
		cmd, text := start()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want || strings.Contains(text.String(), "NOT saved") != (want == 74) {
			t.Errorf("stop %d: status %d, want %d: %s", n, got, want, text)
		}
	}
}
