//go:build unix

package e2e

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// variants are ways to save, with problems that exercise them.
var variants = []struct {
	name string
	args string
	show func(h ckpt.Header) bool // true for some checkpoint that remains
}{
	{"plain", "-dense 40000 -sparse 2000 -steps 3000 -every-points 2", nil},
	{"full", "-full -dense 20000 -sparse 100000 -steps 3000 -every-points 5", func(h ckpt.Header) bool { return len(h.Bases) == 0 }},
	{"zstd", "-compress zstd -dense 10000 -sparse 100000 -steps 3000 -every-points 3", func(h ckpt.Header) bool { return h.Compression == ckpt.Zstd }},
	{"gzip", "-compress gzip -dense 10000 -sparse 50000 -steps 5000 -every-points 3", func(h ckpt.Header) bool { return h.Compression == ckpt.Gzip }},
	{"bound", "-memory 1 -dense 400000 -sparse 1000000 -steps 250 -every-points 2", nil}, // the minimum, far below the size of the state
	{"tracked", "-dense 20000 -sparse 1000000 -steps 4000 -every-points 3", func(h ckpt.Header) bool {
		return len(h.Bases) > 0 && (h.Note.Finding == "kernel" || h.Note.Tracking != "available")
	}},
	{"untracked", "-no-tracking -dense 20000 -sparse 1000000 -steps 4000 -every-points 3", func(h ckpt.Header) bool {
		return len(h.Bases) > 0 && h.Note.Finding != "kernel"
	}},
	{"finished", "-n 96 -steps 300 -every-points 3", nil}, // examples/water, which removes its checkpoints at the end
	{"incremental", "-incremental 2 -dense 10000 -sparse 100000 -steps 500", func(h ckpt.Header) bool { return h.Note.Reason == "call" }},
	{"timed", "-dense 30000 -sparse 300000 -steps 1500 -every 10ms", func(h ckpt.Header) bool { return h.Note.Reason == "time" }},
}

// kills returns how often each variant is killed.
func kills() int {
	if os.Getenv("CAIRN_LONG") == "1" {
		return 250
	}
	return 2
}

// TestKill_AnyMoment kills a program at random moments until it has died often
// enough. What it leaves must be intact every time, and the final result must
// be that of an uninterrupted run.
func TestKill_AnyMoment(t *testing.T) {
	for i, v := range variants {
		if i%3 == 0 && !stressed() {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			program := survivor(t)
			if v.name == "finished" {
				program = build(t, "./examples/water", runtime.GOARCH)
			}
			args := shorter(v.args)
			began, want := time.Now(), t.TempDir()
			tool(t, program, append(args, "-out", want)...)
			span := max(time.Since(began), 100*time.Millisecond)
			dice := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))
			k := killer{t: t, program: program, args: args, want: want, dice: dice, span: span}
			shown := func() bool { return v.show == nil || slices.ContainsFunc(k.left, v.show) }
			for k.fresh(); k.killed < kills() || k.resumable == 0 || !shown() && k.killed < 50*kills(); {
				switch had := k.resumable; {
				case !k.run(time.Duration(dice.Int64N(int64(k.span)))):
					k.fresh() // it ended before the kill
					k.span = span
				case k.resumable == had:
					k.span += k.span / 4 // nothing was saved yet: the machine may be slower now
				}
			}
			for k.run(0) {
			}
			t.Logf("%d kills, %d of them with a checkpoint to resume from, %d complete runs", k.killed, k.resumable, k.completed)
			if !shown() {
				t.Error("no checkpoint that was left is of the kind that this test is about")
			}
		})
	}
}

// killer runs a program and kills it.
type killer struct {
	t       *testing.T
	program string
	args    []string
	want    string
	dice    *rand.Rand
	span    time.Duration // the kill comes within it; at first the duration of an uninterrupted run

	dir, out                     string
	left                         []ckpt.Header // checkpoints that it left
	killed, resumable, completed int
}

// fresh begins a new run.
func (k *killer) fresh() {
	k.dir, k.out = filepath.Join(k.t.TempDir(), "ckpt"), k.t.TempDir()
}

// run starts the program and kills it after a time, or lets it run to the end
// if the time is 0. It returns whether the program was killed.
func (k *killer) run(after time.Duration) bool {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.program, append([]string{"-dir", k.dir, "-out", k.out}, k.args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // the goroutine dump shows where it hangs
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	if after > 0 {
		blow := time.AfterFunc(after, func() { cmd.Process.Kill() })
		defer blow.Stop()
	}
	err := cmd.Wait()
	switch {
	case err == nil:
		k.completed++
		compare(k.t, k.out, k.want)
		k.left = append(k.left, verifyCheckpoints(k.t, k.dir)...)
		return false
	case cmd.ProcessState.ExitCode() != -1 || after == 0:
		k.t.Fatalf("it failed by itself: %v\n%s", err, stderr.String())
	}
	k.killed++
	if indices := verifyCheckpoints(k.t, k.dir); len(indices) > 0 {
		k.resumable++
		k.left = append(k.left, indices[0])
		if k.resumable%10 > 0 {
			return true
		}
		if out, code := cairnTool(k.t, "verify", k.dir); code != 0 {
			k.t.Fatalf("cairn verify: exit status %d\n%s", code, out)
		}
	}
	return true
}
