//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// relocated changes files in ways that must be undone when a checkpoint is
// restored. It waits in its 34th iteration if gate is a pipe.
const relocated = `package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func main() {
	lines, err := os.OpenFile("lines", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	if err := errors.Join(os.Mkdir("sub", 0o755), os.Chdir("sub")); err != nil {
		panic(err)
	}
	tally, err := os.OpenFile("tally", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		panic(err)
	}
	for i := 0; i < 60; i++ {
		fmt.Fprintln(lines, "line", i)
		fmt.Println("out", i)
		text, _ := os.ReadFile("../count")
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if err := os.WriteFile("../count", []byte(fmt.Sprintln(n+1)), 0o644); err != nil {
			panic(err)
		}
		b := []byte{0}
		tally.ReadAt(b, 0)
		b[0]++
		tally.WriteAt(b, 0)
		if i == 33 {
			os.ReadFile("../gate")
		}
		if i == 47 {
			os.ReadFile("../gate2")
		}
	}
	lines.Close()
}
`

// TestRestart_RunMoved interrupts a run, moves, copies or links its directory
// with the program's source, continues there with the same command, and
// interrupts it again. The result must be that of an undisturbed run, and the
// original of a copy must not change.
func TestRestart_RunMoved(t *testing.T) {
	t.Parallel()
	cairn := build(t, "./cmd/cairn", runtime.GOARCH)
	source := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/relocated\n\ngo 1.26\n", "main.go": relocated} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(cairn, "build", "-q", "-o", "made", ".")
	cmd.Dir = source
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for i, how := range []string{"moved", "copied", "linked", "given to another user"} {
		if i%2 == 0 && !stressed() {
			continue
		}
		t.Run(how, func(t *testing.T) {
			other := how == "given to another user"
			if other && os.Geteuid() != 0 {
				t.Skip("it takes root to give files away")
			}
			top, err := os.MkdirTemp("", "moved") // other users can enter it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(top) })
			old, now := filepath.Join(top, "old"), filepath.Join(top, "now")
			tool(t, "chmod", "755", top)
			tool(t, "cp", "-a", source, old)
			tool(t, "chmod", "755", old)
			program, self := "./made", cairn
			if how == "copied" {
				program = "." // it is built in both places
			}
			if other { // a user who cannot read our cairn
				self = filepath.Join(top, "cairn")
				tool(t, "cp", cairn, self)
				tool(t, "chmod", "755", self)
			}
			start := func(dir string) *exec.Cmd {
				cmd := exec.Command(self, "run", "--run", "w.cairn", "--every-points", "10", "--grace", "0s", "-o", "result", program)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PWD="+dir)
				return cmd
			}
			// killed starts the run, and kills it when the program reads a
			// gate.
			killed := func(dir, gate string, cmd *exec.Cmd) {
				t.Helper()
				gate = filepath.Join(dir, gate)
				if err := syscall.Mkfifo(gate, 0o644); err != nil {
					t.Fatal(err)
				}
				var said strings.Builder
				cmd.Stderr = &said
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					ended <- cmd.Wait()
					if f, err := os.OpenFile(gate, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
						t.Cleanup(func() { f.Close() })
					}
				}()
				pipe, err := os.OpenFile(gate, os.O_WRONLY, 0) // opens when the program is at the gate, or has ended
				if err != nil {
					t.Fatal(err)
				}
				defer pipe.Close()
				select {
				case err := <-ended:
					t.Fatalf("it has ended: %v\n%s", err, &said)
				default:
				}
				cmd.Process.Kill()
				<-ended
				lock, err := os.Open(filepath.Join(dir, "w.cairn", "hosts", "localhost.lock"))
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close()
				if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { // its helper has ended
					t.Fatal(err)
				}
				if err := os.Remove(gate); err != nil {
					t.Fatal(err)
				}
			}
			killed(old, "gate", start(old))
			before := ""
			switch how {
			case "moved":
				err = os.Rename(old, now)
			case "linked":
				err = os.Symlink(old, now)
			default:
				before = left(t, old)
				tool(t, "cp", "-a", old, now)
			}
			if err != nil {
				t.Fatal(err)
			}
			again := func() *exec.Cmd {
				cmd := start(now)
				if other {
					const nobody = 65534
					tool(t, "chown", "-R", fmt.Sprint(nobody), now)
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
					cmd.Env = append(cmd.Env, "HOME="+now)
				}
				return cmd
			}
			killed(now, "gate2", again())
			text, err := again().CombinedOutput()
			if err != nil || !strings.Contains(string(text), "restored checkpoint ") {
				t.Fatalf("%v\n%s", err, text)
			}
			var lines, out strings.Builder
			for i := range 60 {
				fmt.Fprintln(&lines, "line", i)
				fmt.Fprintln(&out, "out", i)
			}
			for name, want := range map[string]string{"lines": lines.String(), "count": "60\n", "sub/tally": "\x3c", "result": out.String()} {
				if got, _ := os.ReadFile(filepath.Join(now, name)); string(got) != want {
					t.Errorf("%s holds %q, not %q\n%s", name, got, want, text)
				}
			}
			if before != "" && left(t, old) != before {
				t.Error("the run that was copied is not what it was")
			}
		})
	}
}
