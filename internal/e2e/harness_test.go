//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// exitStopped is the programs' exit status after save and stop.
const exitStopped = 75

// patience bounds waits for things that take far less.
const patience = time.Minute

var binaries struct {
	dir string
	mu  sync.Mutex
	all map[string]func() (string, error)
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cairn-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries.dir, binaries.all = dir, make(map[string]func() (string, error))
	before := namespaces()
	code := m.Run()
	os.RemoveAll(dir)
	for _, name := range namespaces() {
		if !slices.Contains(before, name) {
			fmt.Fprintf(os.Stderr, "a test left the network namespace %s\n", name)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// namespaces returns the network namespaces of the tests of this process.
func namespaces() []string {
	all, _ := filepath.Glob(fmt.Sprintf("/run/netns/cairn-interconnects-%d-*", os.Getpid()))
	return all
}

// lazyGC lets the compiler and the linker collect garbage more rarely, which
// takes a fifth less of their time.
const lazyGC = "GOGC=400"

// build compiles a package of the module, once, and returns the program.
func build(t *testing.T, pkg, goarch string) string {
	t.Helper()
	binaries.mu.Lock()
	key := filepath.Base(pkg) + "-" + goarch
	once := binaries.all[key]
	if once == nil {
		once = sync.OnceValues(func() (string, error) {
			path := filepath.Join(binaries.dir, key)
			args := []string{"build", "-ldflags=-w", "-o", path, pkg}
			if goarch != runtime.GOARCH { // there is no C library of that kind here
				args = []string{"build", "-ldflags=-w", "-tags", "static", "-o", path, pkg}
			}
			cmd := exec.Command("go", args...)
			cmd.Dir = filepath.Join("..", "..")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+goarch, lazyGC)
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("go build %s: %v\n%s", pkg, err, out)
			}
			return path, nil
		})
		binaries.all[key] = once
	}
	binaries.mu.Unlock()
	path, err := once()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func survivor(t *testing.T) string {
	return build(t, "./internal/e2e/testdata/survivor", runtime.GOARCH)
}

// tool runs a program and returns its output. The test fails if the program
// fails.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// cairnTool runs the cairn command and returns its output and exit status.
func cairnTool(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return cairnToolIn(t, nil, args...)
}

// cairnToolIn calls the command with further environment variables.
func cairnToolIn(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// need skips the test if a program is not installed.
func need(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed; scripts/deps installs it", name)
		}
	}
}

// reference runs the survivor without Cairn and returns its results.
func reference(t *testing.T, args ...string) string {
	t.Helper()
	out := t.TempDir()
	tool(t, survivor(t), append([]string{"-out", out}, args...)...)
	return out
}

// compare fails the test unless two directories hold the same results.
func compare(t *testing.T, got, want string) {
	t.Helper()
	entries, err := os.ReadDir(want)
	if err != nil || len(entries) < 2 {
		t.Fatalf("results of the uninterrupted run: %v %v", entries, err)
	}
	for _, e := range entries {
		name := e.Name()
		a, err := os.ReadFile(filepath.Join(got, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(want, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Fatalf("%s differs from that of an uninterrupted run: %s", name, firstDifference(a, b))
		}
	}
}

func firstDifference(a, b []byte) string {
	la, lb := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return fmt.Sprintf("line %d is\n%.300s\ninstead of\n%.300s", i+1, la[i], lb[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(la), len(lb))
}

// verifyCheckpoints checks every byte of every committed checkpoint and returns
// their headers, newest first.
func verifyCheckpoints(t *testing.T, dir string) []ckpt.Header {
	t.Helper()
	d := store.Open(vfs.OS(), dir, 0)
	indices, err := d.Committed()
	if err != nil {
		t.Fatal(err)
	}
	var out []ckpt.Header
	for _, n := range indices {
		s, err := ckpt.Open(vfs.OS(), d.File(n))
		if err != nil {
			t.Fatalf("checkpoint %d was published, but: %v", n, err)
		}
		damage, err := s.Verify(context.Background(), nil)
		s.Close()
		if err != nil || len(damage) > 0 {
			t.Fatalf("checkpoint %d was published, but is damaged: %v %v", n, damage, err)
		}
		out = append(out, s.Header)
	}
	return out
}

// newest returns the file of the newest checkpoint.
func newest(t *testing.T, dir string) string {
	t.Helper()
	d := store.Open(vfs.OS(), dir, 0)
	indices, err := d.Committed()
	if err != nil || len(indices) == 0 {
		t.Fatalf("no checkpoints in %s: %v", dir, err)
	}
	return d.File(indices[0])
}

// driven is a survivor that executes the test's commands.
type driven struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr bytes.Buffer
	ready  string // its message after Restore
}

// drive starts a survivor under the test's control. argv may begin with an
// emulator.
func drive(t *testing.T, argv []string, args ...string) *driven {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	argv = append(append(slices.Clone(argv), "-drive"), args...)
	d := &driven{t: t, cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	d.cmd.Stderr = &d.stderr
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGQUIT) } // the goroutine dump shows where it hangs
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewScanner(out)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		cancel()
	})
	if !d.out.Scan() {
		d.cmd.Wait()
		t.Fatalf("%s did not start: %s", filepath.Base(argv[0]), d.stderr.String())
	}
	d.ready = d.out.Text()
	return d
}

// try sends a command and returns the program's output, and whether it answered
// ok.
func (d *driven) try(cmd string) (said string, ok bool) {
	fmt.Fprintln(d.in, cmd) // after an error, its output ends
	for d.out.Scan() {
		if strings.HasPrefix(d.out.Text(), "ok ") {
			return said, true
		}
		said += d.out.Text() + "\n"
	}
	return said, false
}

// do sends commands and returns the program's output without ok.
func (d *driven) do(cmds ...string) string {
	d.t.Helper()
	all := ""
	for _, cmd := range cmds {
		said, ok := d.try(cmd)
		if !ok {
			d.cmd.Wait()
			d.t.Fatalf("it ended at %q: %v: %s", cmd, d.cmd.ProcessState, d.stderr.String())
		}
		all += said
	}
	return all
}

// kill ends the program without warning.
func (d *driven) kill() {
	d.cmd.Process.Kill()
	d.cmd.Wait()
}

// finish makes the program write its results and end.
func (d *driven) finish() {
	d.t.Helper()
	d.do("finish")
	if err := d.cmd.Wait(); err != nil {
		d.t.Fatalf("%v: %s", err, d.stderr.String())
	}
}

func must(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Fatalf("%q is missing in:\n%s", p, text)
		}
	}
}

// stressed reports whether to run the long tests.
func stressed() bool { return os.Getenv("CAIRN_LONG") == "1" }

// shorter returns a program's arguments with a third of the steps, unless the
// long tests run.
func shorter(args string) []string {
	list := strings.Fields(args)
	if i := slices.Index(list, "-steps"); i >= 0 && !stressed() {
		n, err := strconv.Atoi(list[i+1])
		if err != nil {
			panic(err)
		}
		list[i+1] = strconv.Itoa(n / 3)
	}
	return list
}

// onlyLong skips a test whose subject others touch every day.
func onlyLong(t *testing.T) {
	t.Helper()
	if !stressed() {
		t.Skip("only with CAIRN_LONG=1")
	}
}
