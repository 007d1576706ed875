//go:build linux

package serve

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mirror runs testdata/mirror.c and returns what it prints.
func mirror(t *testing.T, dir, what string, env ...string) string {
	t.Helper()
	cmd := program(t, "mirror", dir, what)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, failure(err))
	}
	return string(out)
}

// stopWriting makes the first helper stop when it has begun to write.
func stopWriting(t *testing.T) (env []string, log string) {
	log = filepath.Join(t.TempDir(), "steps")
	return []string{"CAIRN_STEP=write.segment#3=stop", "CAIRN_STEP_LOG=" + log}, log
}

// TestMirror_NextSaveEarly lets a program save again while the helper writes
// the checkpoint before: each has the values of its own time.
func TestMirror_NextSaveEarly(t *testing.T) {
	for _, what := range []string{"early", "begin", "lost"} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ckpt")
			env, _ := stopWriting(t)
			mirror(t, dir, what, env...)
			missing := fmt.Sprint(" ", statusMismatch, " -1")
			want := "checkpoint 1: 1 1" + missing + "\ncheckpoint 2: 2" + missing + " 2\n"
			if got := mirror(t, dir, "read"); got != want {
				t.Errorf("read\n%swant\n%s", got, want)
			}
		})
	}
}

// TestMirror_ProgramKilledWhileWriting kills the program then, alone and under
// 'cairn run': the helper publishes what was copied.
func TestMirror_ProgramKilledWhileWriting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	env, log := stopWriting(t)
	cmd := program(t, "mirror", dir, "killed")
	cmd.Env = append(cmd.Env, env...)
	cmd.Run()
	if st := cmd.ProcessState.Sys().(syscall.WaitStatus); !st.Signaled() {
		t.Fatalf("it was not killed: %v", cmd.ProcessState)
	}
	continueHelper(t, log)
	if got := mirror(t, dir, "restore"); got != "1: 1 1\n" {
		t.Errorf("restored %s", got)
	}
	t.Run("cairn run", func(t *testing.T) {
		env, log := stopWriting(t)
		go continueHelper(t, log)
		if got := supervised(t, env, filepath.Join(build(t), "mirror"), filepath.Join(t.TempDir(), "ckpt"), "killed"); got != " 1 1\n" {
			t.Errorf("it resumed with %q", got)
		}
	})
}

// TestMirror_ProgramKilledWhileCopying kills the program when it has sent Save,
// and still copies what the helper is to write: it resumes from the checkpoint
// before.
func TestMirror_ProgramKilledWhileCopying(t *testing.T) {
	for n := 1; ; n++ { // each of the copies of two checkpoints
		dir := filepath.Join(t.TempDir(), "ckpt")
		cmd := program(t, "mirror", dir, "save")
		cmd.Env = append(cmd.Env, fmt.Sprintf("KILL_COPY=%d", n))
		out, err := cmd.CombinedOutput()
		if err == nil {
			if n < 8 {
				t.Errorf("only %d copies were made", n-1)
			}
			return
		}
		if st := cmd.ProcessState.Sys().(syscall.WaitStatus); !st.Signaled() {
			t.Fatalf("it was not killed: %v: %s", err, out)
		}
		switch got := mirror(t, dir, "restore"); got {
		case "0: -1 -1\n", "1: 1 1\n":
		default:
			t.Errorf("killed in copy %d: restored %s", n, got)
		}
	}
}

// continueHelper waits until a helper has stopped, and has lost its program,
// and continues it.
func continueHelper(t *testing.T, log string) {
	for t.Context().Err() == nil {
		text, _ := os.ReadFile(log)
		helper := 0
		for line := range strings.Lines(string(text)) {
			fmt.Sscanf(line, "write.segment %d\n", &helper)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", helper))
		parent := 0
		if _, rest, ok := strings.Cut(string(status), "\nPPid:"); ok {
			fmt.Sscan(rest, &parent)
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", parent))
		if err == nil && strings.Contains(string(status), "State:\tT") && filepath.Base(exe) != "mirror" {
			syscall.Kill(helper, syscall.SIGCONT)
			return
		}
		time.Sleep(time.Millisecond) // no event tells that to others than its parent
	}
}

// TestMirror_HelperKilledWhileWriting kills the helper then: the program is
// told, and gets another one.
func TestMirror_HelperKilledWhileWriting(t *testing.T) {
	for _, step := range []string{"write.segment#2", "write.segment#11"} {
		dir := filepath.Join(t.TempDir(), "ckpt")
		cmd := program(t, "mirror", dir, "save")
		cmd.Env = append(cmd.Env, "CAIRN_STEP="+step+"=kill", "CAIRN_STEP_LOG="+filepath.Join(t.TempDir(), "steps"))
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "the helper process is gone") {
			t.Fatalf("%s: %v: %s", step, err, out)
		}
		want := "0: -1 -1\n"
		if step == "write.segment#11" { // of the second checkpoint
			want = "1: 1 1\n"
		}
		if got := mirror(t, dir, "restore"); got != want {
			t.Errorf("%s: restored %s, want %s", step, got, want)
		}
	}
}

// TestMirror_RestoreDamaged damages checkpoints near the end of their values: a
// restart takes the one before, as a whole, or leaves the program's variables
// as they are. So does reading.
func TestMirror_RestoreDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	mirror(t, dir, "save")
	damage := func(index int) {
		path := filepath.Join(dir, fmt.Sprintf("ckpt-%08d", index), "rank-0000.h5")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		value := binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(index)))
		content[bytes.LastIndex(content, bytes.Repeat(value, 16))] ^= 0x55
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := mirror(t, dir, "restore"); got != "1: 2 2\n" {
		t.Fatalf("restored %s", got)
	}
	damage(2)
	if got := mirror(t, dir, "restore"); got != "1: 1 1\n" {
		t.Errorf("with a damaged checkpoint: restored %s", got)
	}
	damage(1)
	if got, want := mirror(t, dir, "restore"), fmt.Sprintln(statusCorrupt, ": -1 -1"); got != strings.Replace(want, " :", ":", 1) {
		t.Errorf("with two damaged checkpoints: restored %s, want %s", got, want)
	}
}
