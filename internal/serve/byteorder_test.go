//go:build linux

package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestC_OtherByteOrder takes a checkpoint of a C program from this machine to
// an emulated one with the other byte order, and back.
func TestC_OtherByteOrder(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("it compiles the cairn command for another architecture: set CAIRN_LONG=1")
	}
	const compiler, emulator = "s390x-linux-gnu-gcc", "qemu-s390x-static"
	for _, tool := range []string{compiler, emulator} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s: Debian has it in gcc-s390x-linux-gnu, libc6-dev-s390x-cross and qemu-user-static", tool)
		}
	}
	build(t)
	dir := t.TempDir()
	for _, c := range [][]string{
		{"make", "-s", "-C", "../../lib", "CC=" + compiler, "BUILD=" + dir, "CFLAGS=-O1 -g", dir + "/libcairn.a"},
		{compiler, "-std=c11", "-O1", "-static", "-I../../lib", "-o", filepath.Join(dir, "plain"), wraps, "testdata/plain.c", "testdata/kill.c", filepath.Join(dir, "libcairn.a"), "-lm", "-lpthread", "-ldl"},
		{"env", "GOARCH=s390x", "go", "build", "-o", filepath.Join(dir, "cairn.s390x"), "../../cmd/cairn"},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	helper := fmt.Sprintf("#!/bin/sh\nexec %s %s/cairn.s390x \"$@\"\n", emulator, dir)
	if err := os.WriteFile(filepath.Join(dir, "cairn"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	emulated, err := exec.LookPath(emulator)
	if err != nil {
		t.Fatal(err)
	}
	here := func(args ...string) *exec.Cmd { return program(t, "plain", args...) }
	there := func(args ...string) *exec.Cmd {
		cmd := program(t, "cairn")
		cmd.Path, cmd.Args = emulated, append([]string{emulator, filepath.Join(dir, "plain")}, args...)
		cmd.Env = append(cmd.Env, "CAIRN_HELPER="+filepath.Join(dir, "cairn"))
		return cmd
	}
	type start struct {
		on   func(...string) *exec.Cmd
		at   string // it is stopped there
		says string
		code int
	}
	run := func(list []start) (last string) {
		t.Helper()
		ckpt := filepath.Join(t.TempDir(), "ckpt")
		for i, s := range list {
			cmd := s.on(ckpt, "20", "2000", "1")
			cmd.Env = append(cmd.Env, "KILL_WAIT=1", "KILL_AT="+s.at)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != s.code || !strings.Contains(string(out), s.says) {
				t.Fatalf("start %d: status %d, want %d and %q:\n%s", i, code, s.code, s.says, out)
			}
			last = string(out)
		}
		return last
	}
	// A long double is another type there. It is refused, and stays what it is.
	run([]start{
		{here, "point#5=15", "started at step 0", 9},
		{there, "", "wide: the checkpoint has", 3},
		{here, "point#5=15", "restored at step 4", 9},
	})
	t.Setenv("PLAIN_NARROW", "1") // all but that
	t.Run("bytes without a type", func(t *testing.T) {
		t.Setenv("PLAIN_BYTES", "1")
		run([]start{
			{here, "point#5=15", "started at step 0", 9},
			{there, "", "bytes: the checkpoint has", 3},
			{here, "point#5=15", "restored at step 4", 9},
		})
	})
	want := run([]start{{here, "", "started at step 0", 0}})
	got := run([]start{
		{here, "point#5=15", "started at step 0", 9},
		{there, "point#5=15", "restored at step 4", 9},
		{here, "point#5=15", "restored at step 8", 9},
		{there, "", "restored at step 12", 0},
	})
	_, want, _ = strings.Cut(want, "\n")
	if _, got, _ = strings.Cut(got, "\n"); got != want || want == "" {
		t.Errorf("it printed %s, want %s", got, want)
	}
}
