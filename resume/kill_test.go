package resume_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// binaries are the programs under testdata, built once.
var binaries struct {
	sync.Mutex
	dir  string
	made map[string]string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if binaries.dir != "" {
		os.RemoveAll(binaries.dir)
	}
	os.Exit(code)
}

// build returns the program of a package.
func build(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	key := fmt.Sprint(pkg, flags)
	if b := binaries.made[key]; b != "" {
		return b
	}
	if binaries.dir == "" {
		var err error
		if binaries.dir, err = os.MkdirTemp("", "resume"); err != nil {
			t.Fatal(err)
		}
		binaries.made = make(map[string]string)
	}
	b := filepath.Join(binaries.dir, fmt.Sprintf("%s%d", filepath.Base(pkg), len(binaries.made)))
	cmd := exec.Command("go", append(append([]string{"build", "-o", b}, flags...), pkg)...)
	cmd.Env = append(os.Environ(), "GOGC=400") // it compiles faster
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	binaries.made[key] = b
	return b
}

// program is a program to be run in a directory of its own.
type program struct {
	t    *testing.T
	path string
	args []string
	dir  string
	env  []string

	stdin string // a file, or the null device
	pipe  bool   // stdin comes through a pipe
}

func newProgram(t *testing.T, path string, args ...string) *program {
	return &program{t: t, path: path, args: args, dir: t.TempDir()}
}

// start runs it once.
func (p *program) start(env ...string) (status int, killed bool, stderr string) {
	p.t.Helper()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CAIRN_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(append(cmd.Env, p.env...), env...)
	var text bytes.Buffer
	cmd.Stderr = &text
	if p.stdin != "" {
		in, err := os.Open(p.stdin)
		if err != nil {
			p.t.Fatal(err)
		}
		defer in.Close()
		cmd.Stdin = in
		if p.pipe {
			cmd.Stdin = bufio.NewReader(in)
		}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return cmd.ProcessState.ExitCode(), ws.Signaled() && ws.Signal() == syscall.SIGKILL, text.String()
}

// files returns the files that the program has left.
func (p *program) files() map[string]string {
	p.t.Helper()
	m := make(map[string]string)
	err := filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(p.dir, path)
		if name == "ck" {
			return fs.SkipDir
		}
		if !e.IsDir() {
			text, err := os.ReadFile(path)
			m[name] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// same compares the files that two programs have left.
func (p *program) same(q *program) {
	p.t.Helper()
	got, want := p.files(), q.files()
	for name := range want {
		if got[name] != want[name] {
			p.t.Errorf("%s differs:\n%s\nwant\n%s", name, got[name], want[name])
		}
		delete(got, name)
	}
	for name := range got {
		p.t.Errorf("there is a file %s", name)
	}
}

// survives runs a program to its end, killed at each of its points in turn, and
// sometimes with a single kill.
func survives(t *testing.T, path string, points, status int, args ...string) {
	want := newProgram(t, path, args...)
	if code, _, text := want.start(); code != status {
		t.Fatalf("status %d: %s", code, text)
	}
	for _, n := range []int{1, (points + 1) / 2} {
		p := newProgram(t, path, args...)
		p.env = []string{"CAIRN_DIR=ck", fmt.Sprint("CAIRN_KILL_AT=", n)}
		if code, killed, text := p.start(); !killed {
			t.Fatalf("not killed at point %d: status %d: %s", n, code, text)
		}
		if code, _, text := p.start(); code != status {
			t.Fatalf("after point %d: status %d: %s", n, code, text)
		}
		p.same(want)
	}
	p := newProgram(t, path, args...)
	p.env = []string{"CAIRN_DIR=ck", "CAIRN_KILL_AT=each"}
	if points > 30 {
		var list []string
		for n := 2; n < points; n += points / 10 {
			list = append(list, fmt.Sprint(n))
		}
		points = len(list)
		p.env[1] = "CAIRN_KILL_AT=" + strings.Join(list, ",")
	}
	kills := 0
	for {
		code, killed, text := p.start()
		if !killed {
			if code != status {
				t.Errorf("status %d: %s", code, text)
			}
			break
		}
		kills++
	}
	if kills != points {
		t.Errorf("killed %d times, not %d", kills, points)
	}
	p.same(want)
	sets, _ := filepath.Glob(filepath.Join(p.dir, "ck", "ckpt-*"))
	if want := status == 2; (len(sets) > 0) != want {
		t.Errorf("sets are left: %v, want %v", sets, want)
	}
}

// TestPoint_Killed kills compiled programs at each of their points: the output
// is that of an undisturbed run.
func TestPoint_Killed(t *testing.T) {
	t.Run("rows", func(t *testing.T) { survives(t, build(t, "./testdata/rows"), 20, 0) })
	t.Run("pie", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("position-independent programs are the same elsewhere")
		}
		if os.Getenv("CAIRN_LONG") == "" {
			t.Skip("it compiles a standard library: set CAIRN_LONG=1")
		}
		survives(t, build(t, "./testdata/cases", "-buildmode=pie"), 6, 0, "closures")
	})
	for _, c := range []struct {
		name           string
		points, status int
		args           []string
	}{
		{"queens", 60, 0, nil},
		{"panics", 26, 0, nil},
		{"callback", 12, 0, nil},
		{"closures", 6, 0, nil},
		{"process", 10, 0, []string{"-v", "3", "-name", "n", "a", "b"}},
		{"crash", 3, 2, nil},
		{"exit", 3, 7, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			survives(t, build(t, "./testdata/cases"), c.points, c.status, append([]string{c.name}, c.args...)...)
		})
	}
}

// TestFiles_KilledBetweenPoints kills a program that repeatedly opens its file,
// between two points.
func TestFiles_KilledBetweenPoints(t *testing.T) {
	path := build(t, "./testdata/cases")
	want := newProgram(t, path, "append")
	if code, _, text := want.start(); code != 0 {
		t.Fatal(code, text)
	}
	for _, c := range []struct {
		name string
		env  []string
	}{
		{"before the first set", []string{"CAIRN_EVERY=1h"}},
		{"after one", []string{"CAIRN_EVERY_POINTS=2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProgram(t, path, "append")
			p.env = append(c.env, "CAIRN_DIR=ck")
			if code, _, text := p.start("DIE=1"); code != 9 {
				t.Fatal(code, text)
			}
			if lines := p.files()["lines"]; lines != "line 0\nline 1\nline 2\nline 3\n" {
				t.Fatalf("%q", lines)
			}
			if code, _, text := p.start(); code != 0 {
				t.Fatal(code, text)
			}
			p.same(want)
			if rest, _ := filepath.Glob(filepath.Join(p.dir, "ck", "*.json")); rest != nil {
				t.Error("there is still", rest)
			}
		})
	}
}

// TestPoint_OtherGoroutine shows that nothing is saved while another goroutine
// exists.
func TestPoint_OtherGoroutine(t *testing.T) {
	path := build(t, "./testdata/cases")
	want := newProgram(t, path, "crowd")
	if code, _, text := want.start(); code != 0 {
		t.Fatal(code, text)
	}
	p := newProgram(t, path, "crowd")
	p.env = []string{"CAIRN_DIR=ck", "CAIRN_KILL_AT=2"}
	if _, killed, text := p.start(); !killed {
		t.Fatal("not killed", text)
	}
	// The goroutine exists at point 2; the first point without it is 6.
	if got := p.files()["out"]; got != "crowd 0\ncrowd 1\ncrowd 2\ncrowd 3\ncrowd 4\n" {
		t.Errorf("killed after\n%s", got)
	}
	if code, _, text := p.start(); code != 0 {
		t.Fatal(code, text)
	}
	p.same(want)
}

// TestPoint_Unsavable shows that the user is told once why nothing is saved,
// and that the program continues.
func TestPoint_Unsavable(t *testing.T) {
	path := build(t, "./testdata/cases")
	want := newProgram(t, path, "unsavable")
	want.start()
	p := newProgram(t, path, "unsavable")
	p.env = []string{"CAIRN_DIR=ck", "CAIRN_EVERY_POINTS=1"}
	code, _, text := p.start()
	if told := "cairn: checkpoint not saved: F[1] in main.unsavable (func() (int)) cannot be saved: it is the function main.unsavable.func1 (closures.go:"; code != 0 || strings.Count(text, told) != 1 {
		t.Errorf("status %d: %s", code, text)
	}
	p.same(want)
}

// TestFiles_DirectoriesUndone kills a program after it has made and removed
// directories, twice.
func TestFiles_DirectoriesUndone(t *testing.T) {
	path := build(t, "./testdata/cases")
	want := newProgram(t, path, "dirs")
	want.start()
	for _, every := range []string{"CAIRN_EVERY=1h", "CAIRN_EVERY_POINTS=2"} {
		p := newProgram(t, path, "dirs")
		p.env = []string{"CAIRN_DIR=ck", every}
		for range 2 {
			if code, _, text := p.start("DIE=1"); code != 9 {
				t.Fatal(code, text)
			}
		}
		if code, _, text := p.start(); code != 0 {
			t.Fatal(code, text)
		}
		p.same(want)
	}
}

// TestBegin_OtherArguments shows that a run is not resumed if the program is
// started with other arguments, which would have no effect.
func TestBegin_OtherArguments(t *testing.T) {
	p := newProgram(t, build(t, "./testdata/cases"), "process", "-v", "3", "a")
	p.env = []string{"CAIRN_DIR=ck", "CAIRN_KILL_AT=2"}
	if _, killed, text := p.start(); !killed {
		t.Fatal("not killed", text)
	}
	given := p.args
	p.args = []string{"process", "-v", "4", "a"}
	if code, _, text := p.start(); code != 1 || !strings.Contains(text, `"-v" "3"`) || !strings.Contains(text, `"-v" "4"`) {
		t.Errorf("status %d: %s", code, text)
	}
	p.args = given
	if code, _, text := p.start(); code != 0 {
		t.Errorf("status %d: %s", code, text)
	}
}
