//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/control"
)

// talker prints a hundred lines after each of its points, on stdout and on
// stderr. In the middle of those of point 3 it waits until a file exists. With
// another argument, each line has the number of the process, and there is a
// checkpoint at point 3.
func talker(args []string) error {
	ctx := context.Background()
	p, err := cairn.Open(ctx, cairn.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	i := 0
	cairn.Protect(p, "i", &i)
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	for ; i < 6; i++ {
		if err := p.Point(ctx); errors.Is(err, cairn.ErrStopped) {
			return nil
		} else if err != nil {
			return err
		}
		if i == 3 && len(args) > 1 {
			if err := p.Checkpoint(ctx); err != nil {
				return err
			}
		}
		for j := range 100 {
			for i == 3 && j == 50 && !exists(args[0]) {
				time.Sleep(time.Millisecond)
			}
			line := []any{"line", i, j}
			if len(args) > 1 {
				line = append(line, os.Getpid())
			}
			fmt.Println(line...)
			fmt.Fprintln(os.Stderr, "remark", i, j)
		}
	}
	p.Finish()
	return nil
}

// talk starts a run of talkers.
func talk(t *testing.T, n int, args ...string) (cmd *exec.Cmd, out, errs *lines) {
	t.Helper()
	cmd = exec.Command(self(t), append([]string{"_cairn", "run", "--run", "t.cairn", "-n", fmt.Sprint(n), "--every-points", "2"}, args...)...)
	out, errs = new(lines), new(lines)
	out.some.L, errs.some.L = &out.mu, &errs.mu
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(errs.b.String())
		}
	})
	return cmd, out, errs
}

// noted waits until the output offsets include everything that the ranks have
// written, on stdout before a text. If the supervisor is killed before that, a
// line may be shown again.
func noted(t *testing.T, n int, before string) {
	t.Helper()
	want := new(strings.Builder)
	for r := range n {
		for _, kind := range []string{"out", "err"} {
			text, err := os.ReadFile(fmt.Sprintf("t.cairn/output/rank-%04d.%s", r, kind))
			if err != nil {
				t.Fatal(err)
			}
			if at := bytes.Index(text, []byte(before)); kind == "out" && at >= 0 {
				text = text[:at]
			}
			fmt.Fprintf(want, "%015d\n", len(text))
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, err := os.ReadFile("t.cairn/output-offsets")
		if string(got) == want.String() || err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("shown: %q, want %q", got, want)
		}
	}
}

// TestOutput_SupervisorKilled kills 'cairn run' with SIGKILL while ranks are
// between two points. The next one must show exactly what this one had not
// shown, on stdout and stderr: what the ranks print until they save and stop
// or, if they were killed, too, print again. Without --live, processes may
// print different lines.
func TestOutput_SupervisorKilled(t *testing.T) {
	for _, v := range []struct {
		name string
		n    int
		all  bool // the ranks are killed, too
		live bool
	}{
		{"one", 1, false, true}, {"four", 4, false, true}, {"one, all killed", 1, true, true}, {"four, all killed", 4, true, true},
		{"one, delayed", 1, false, false}, {"four, delayed", 4, false, false}, {"one, all killed, delayed", 1, true, false}, {"four, all killed, delayed", 4, true, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			gate, _ := filepath.Abs("gate")
			args, last, unshown := []string{self(t), "_talker", gate, "pid"}, "line 2 99 ", "line 3 0 "
			if v.live {
				args, last, unshown = []string{"--live", self(t), "_talker", gate}, "line 3 49\n", "\x00"
			}
			first, out1, errs1 := talk(t, v.n, args...)
			prefix := func(r int) string {
				if v.n == 1 {
					return ""
				}
				return fmt.Sprintf("[%d] ", r)
			}
			for r := range v.n {
				out1.await(prefix(r) + last)
				errs1.await(prefix(r) + "remark 3 49\n")
			}
			noted(t, v.n, unshown)
			st := decode[control.RunState](cairnRun(t, "status", "--json", "t.cairn").exit(exitFine))
			first.Process.Kill()
			first.Wait()
			if v.all {
				for _, r := range st.Ranks {
					syscall.Kill(r.Pid, syscall.SIGKILL)
				}
			}
			write(t, gate, "")
			second, out2, errs2 := talk(t, v.n, args...)
			if err := second.Wait(); err != nil {
				t.Fatal(err)
			}
			for r := range v.n {
				var want strings.Builder
				for i := range 6 {
					for j := range 100 {
						fmt.Fprintf(&want, "%sline %d %d\n", prefix(r), i, j)
					}
				}
				only := func(text, begin string) string {
					var b strings.Builder
					for line := range strings.Lines(text) {
						if strings.HasPrefix(line, begin) {
							b.WriteString(line)
						}
					}
					return b.String()
				}
				if !v.live { // the rank's own file is right
					want.Reset()
					file, err := os.ReadFile(fmt.Sprintf("t.cairn/output/rank-%04d.out", r))
					if err != nil || bytes.Count(file, []byte("\n")) != 600 {
						t.Fatalf("%v: %s", err, file)
					}
					for line := range strings.Lines(string(file)) {
						want.WriteString(prefix(r) + line)
					}
				}
				if got := only(out1.b.String()+out2.b.String(), prefix(r)+"line "); got != want.String() {
					t.Errorf("rank %d: shown before:\n…%s\nand then:\n%s", r, tailOf(out1.b.String(), 100), out2.b.String())
				}
				// stderr is not cut back: everything in the file was shown
				// once.
				remarks := only(errs1.b.String()+errs2.b.String(), prefix(r)+"remark ")
				file, _ := os.ReadFile(fmt.Sprintf("t.cairn/output/rank-%04d.err", r))
				if want := only(prefix(r)+strings.ReplaceAll(string(file), "\n", "\n"+prefix(r)), prefix(r)+"remark "); remarks != want {
					t.Errorf("rank %d: on stderr %q, want %q", r, remarks, want)
				}
			}
		})
	}
}

func tailOf(s string, n int) string { return s[max(0, len(s)-n):] }

// TestOutput_UnreadIsKept shows that the next start shows output that was not
// written because stdout was closed.
func TestOutput_UnreadIsKept(t *testing.T) {
	t.Chdir(t.TempDir())
	once, _ := filepath.Abs("once")
	args := []string{"run", "-q", "--retries", "0", "sh", "-c", "echo a; echo b; test -e " + once + " || { : > " + once + "; exit 5; }; echo c"}
	var out brokenPipe
	var errs bytes.Buffer
	if code := run(t.Context(), args, &out, &errs); code != 5 || out.writes != 1 {
		t.Errorf("exit code %d, %d writes: %s", code, out.writes, errs.String())
	}
	if r := cairnRun(t, args...).exit(exitFine); r.out != "a\nb\nc\n" {
		t.Errorf("%q", r.out)
	}
}
