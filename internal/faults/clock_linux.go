package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The time of day jumps only for the programs of a case. They are built with a
// package time whose Now adds the offset that CAIRN_CLOCK_JUMPS specifies.

// jumping is the file that is added to package time.
const jumping = `package time

import "syscall"

// jumps are in the environment as "SECONDS@MILLISECONDS …": so much is added to
// the time of day when a process is so old.
var jumps []jump

type jump struct{ seconds, at int64 }

func init() {
	text, _ := syscall.Getenv("CAIRN_CLOCK_JUMPS")
	var n [2]int64
	k, sign := 0, int64(1)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			n[k] = n[k]*10 + int64(c-'0')
		case c == '@':
			n[0] *= sign
			k, sign = 1, 1
		case c == ';':
			jumps = append(jumps, jump{n[0], n[1] * 1e6})
			n, k = [2]int64{}, 0
		}
	}
}

func jumped(mono int64) (seconds int64) {
	for _, j := range jumps {
		if mono >= j.at {
			seconds += j.seconds
		}
	}
	return seconds
}
`

// buildJumping builds a program whose time of day can jump.
func (l *lab) buildJumping(ctx context.Context, path, pkg string) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(dir, "time.go"))
	if err != nil {
		return err
	}
	const line = "\tmono -= startNano\n\tsec += unixToInternal - minWall\n"
	if bytes.Count(text, []byte(line)) != 1 {
		return judged(skipped, "package time of this Go is not what the campaign knows")
	}
	text = bytes.Replace(text, []byte(line), []byte("\tmono -= startNano\n\tsec += jumped(mono)\n\tsec += unixToInternal - minWall\n"), 1)
	now, more, overlay := filepath.Join(l.bin, "time.go.txt"), filepath.Join(l.bin, "jump.go.txt"), filepath.Join(l.bin, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, "time.go"): now, filepath.Join(dir, "zz_jump.go"): more}})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{now: text, more: []byte(jumping), overlay: list} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", path, pkg)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build -overlay: %w\n%s", err, out)
	}
	return nil
}

// clockJumps makes the time of day jump back and forth while ranks save, are
// killed, restored and moved. It also changes the times of files.
func clockJumps(t *faultCase) error {
	t.prog = program{source: "library", suffix: ".jumping", mode: "ranks", ranks: 1 + t.r.IntN(3), seed: t.r.IntN(5), steps: 40 + t.r.IntN(20), pause: "3ms"}
	if t.prog.ranks == 1 {
		t.prog.mode = "single"
	}
	c := t.scenario()
	c.cairn = "cairn.jumping"
	if t.r.IntN(2) == 0 { // checkpoints by time are what jumps might disturb
		c.every = 1 << 30
		c.flags = append(c.flags, "--every", "20ms")
	}
	var jumps []string
	for range 1 + t.r.IntN(4) {
		seconds := []int{-86400 * 400, -3600, -61, -1, 1, 61, 3600, 86400 * 400}[t.r.IntN(8)]
		jumps = append(jumps, fmt.Sprintf("%d@%d;", seconds, t.r.IntN(400)))
	}
	c.env = append(c.env, "CAIRN_CLOCK_JUMPS="+strings.Join(jumps, ""))
	t.note("the time of day jumps (seconds@ms): %s", strings.Join(jumps, " "))
	if t.r.IntN(2) == 0 {
		if err := t.halted(c, 1+t.r.IntN(2)); err != nil {
			return err
		}
		shift := time.Duration(t.r.IntN(800)-400) * 24 * time.Hour
		t.note("times of files changed by %v", shift)
		err := filepath.WalkDir(t.dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			at := time.Now().Add(shift + time.Duration(t.r.IntN(7200))*time.Second)
			return os.Chtimes(path, at, at)
		})
		if err != nil {
			return err
		}
	}
	return t.storm(c, t.r.IntN(3))
}
