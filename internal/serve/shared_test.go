//go:build linux

package serve

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// shared runs testdata/shared.c and returns what it prints.
func shared(t *testing.T, env string, args ...string) string {
	t.Helper()
	cmd := program(t, "shared", args...)
	cmd.Env = append(cmd.Env, env)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", args, err, failure(err))
	}
	return string(out)
}

// TestMirror_SharedMemory restores variables that share memory: the same under
// two names, and parts of each other. If the last variable turns out to be
// damaged when the others have got their values, all have again what they had.
func TestMirror_SharedMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	shared(t, "", dir, "save")
	restore := func(want string) {
		t.Helper()
		if got := shared(t, "", dir, "restore"); got != want+"\n" {
			t.Errorf("restored %s, want %s", got, want)
		}
	}
	restore("1: 2")
	for _, c := range []struct {
		index int
		want  string
	}{{2, "1: 1"}, {1, fmt.Sprint(statusCorrupt) + ": 5"}} {
		path := filepath.Join(dir, fmt.Sprintf("ckpt-%08d", c.index), "rank-0000.h5")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content[bytes.LastIndex(content, bytes.Repeat([]byte{byte(c.index)}, 4096))] ^= 0x55
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		restore(c.want)
	}
}

// TestMirror_NoMemory lets each allocation of a restore fail: then all
// variables have what they had.
func TestMirror_NoMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	shared(t, "", dir, "save")
	for n := 1; ; n++ {
		got := shared(t, fmt.Sprint("FAIL_MEMORY=", n), dir, "restore")
		if got == "1: 2\n" { // there are no more
			if n < 5 {
				t.Errorf("only %d allocations failed", n-1)
			}
			return
		}
		if !strings.HasPrefix(got, "-") || !strings.HasSuffix(got, ": 5 failed\n") {
			t.Errorf("when allocation %d failed: restored %s", n, got)
		}
	}
}

// TestMirror_SavedWithoutMemory lets each allocation of a save fail. The next
// checkpoint holds what the one that failed would have held, too.
func TestMirror_SavedWithoutMemory(t *testing.T) {
	got := shared(t, "", filepath.Join(t.TempDir(), "ckpt"), "failing")
	if n, err := strconv.Atoi(strings.TrimSpace(got)); err != nil || n < 2 {
		t.Errorf("allocations that failed: %s", got)
	}
}

// TestMirror_SmallVariables restores many small variables without a message for
// each.
func TestMirror_SmallVariables(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	for _, want := range []string{"0: 0 parts\n", "1: 0 parts\n"} {
		if got := shared(t, "", dir, "many", "2000"); got != want {
			t.Errorf("it says %s, want %s", got, want)
		}
	}
}
