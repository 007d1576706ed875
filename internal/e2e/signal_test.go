//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

var small = []string{"-dense", "5000", "-sparse", "50000"}

// TestSignal_Stop shows that a program saves after SIGTERM, ends and reports
// it, and that the next start continues.
func TestSignal_Stop(t *testing.T) {
	dir, out := filepath.Join(t.TempDir(), "ckpt"), t.TempDir()
	args := append(small, "-dir", dir, "-out", out)
	cmd := exec.Command(survivor(t), append(args, "-steps", "1000000000")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatal("it did not start")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	must(t, lines.Text(), "saved checkpoint=1", `reason="terminated"`)
	for lines.Scan() {
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitStopped {
		t.Fatalf("exit status %d, not %d: %s", code, exitStopped, stderr.String())
	}
	must(t, stderr.String(), "stopped on request", "checkpoint 1 is committed; start the program again to resume")

	d := drive(t, []string{survivor(t)}, args...)
	var step int
	if _, err := fmt.Sscanf(d.ready, "ready step=%d resumed=true", &step); err != nil {
		t.Fatal(d.ready)
	}
	d.do("run 50")
	d.finish()
	compare(t, out, reference(t, append(small, "-steps", fmt.Sprint(step+50))...))
}

// TestSignal_Save shows that a program saves after SIGUSR1 and continues.
func TestSignal_Save(t *testing.T) {
	dir, out := filepath.Join(t.TempDir(), "ckpt"), t.TempDir()
	args := append(small, "-dir", dir, "-out", out)
	d := drive(t, []string{survivor(t)}, args...)
	d.do("run 10")
	if err := d.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	said, steps := "", 10
	for ; said == ""; steps++ { // it is handled at the next point after it arrived
		said = d.do("run 1")
	}
	must(t, said, "saved checkpoint=1")
	d.do("run 5")
	d.kill()

	d = drive(t, []string{survivor(t)}, args...)
	var step int
	if _, err := fmt.Sscanf(d.ready, "ready step=%d resumed=true", &step); err != nil || step < 10 || step >= steps {
		t.Fatalf("%q after the signal was taken up before step %d", d.ready, steps)
	}
	d.do("run 60")
	d.finish()
	compare(t, out, reference(t, append(small, "-steps", fmt.Sprint(step+60))...))
}

// TestDirectory_SecondProcess shows that a directory belongs to one process as
// long as that process lives.
func TestDirectory_SecondProcess(t *testing.T) {
	dir, out := filepath.Join(t.TempDir(), "ckpt"), t.TempDir()
	args := append(small, "-dir", dir, "-out", out)
	first := drive(t, []string{survivor(t)}, args...)
	first.do("run 10", "save")

	said, err := exec.Command(survivor(t), append(args, "-steps", "20")...).CombinedOutput()
	if err == nil {
		t.Fatal("two processes in one directory")
	}
	must(t, string(said), "another process is using this checkpoint directory", dir)
	first.do("run 10", "save")
	first.kill()
	verifyCheckpoints(t, dir)

	tool(t, survivor(t), append(args, "-steps", "40")...)
	compare(t, out, reference(t, append(small, "-steps", "40")...))
}
