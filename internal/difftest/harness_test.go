//go:build linux

package difftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds one start of a program or tool. All take far less, except the
// first build, which compiles the standard library, perhaps on a busy machine.
const patience = 10 * time.Minute

var stress = os.Getenv("CAIRN_LONG") != ""

// scratch is a directory for what the tests build.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cairn-difftest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	code := m.Run()
	if os.Getenv("CAIRN_DIFFTEST_KEEP") == "" {
		os.RemoveAll(dir)
	} else {
		fmt.Fprintln(os.Stderr, "kept:", dir)
	}
	os.Exit(code)
}

// program is one of the programs in testdata, or a generated one.
type program struct {
	name   string
	pkg    string   // package to build, relative to dir
	dir    string   // directory to build in
	in     string   // directory of files in its working directory; "": none
	stdin  string   // name of a file in it
	args   []string // of the program
	exit   int      // its exit status
	refuse string   // what the tool must say
	daily  bool     // it is tried every day
	marks  []string // FILE:LINE of loops that must get a point
	missed []string // marks that got none
	killed int      // the last point at which it is killed is this one, or a later one
	dies   bool     // it has moments between its points at which it can be killed
}

// otherLoops matches lines with loops that have no mark.
var otherLoops = regexp.MustCompile(`(?m)^\s*for .*\{$`)

// readPrograms copies a directory of programs to scratch, with comments that
// ask for points in marked loops and exclude all others. It returns the
// programs.
func readPrograms(t *testing.T, from string) []*program {
	t.Helper()
	to := filepath.Join(scratch, filepath.Base(from))
	marked := func(text []byte) []byte {
		text = otherLoops.ReplaceAll(text, []byte("$0 //cairn:skip"))
		return bytes.ReplaceAll(text, []byte("//difftest:loop"), []byte("//cairn:point"))
	}
	if os.Getenv("CAIRN_DIFFTEST_AUTO") != "" {
		marked = func(text []byte) []byte { return text }
	}
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o777)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".go" {
			text = marked(text)
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	var ps []*program
	for _, e := range list {
		if _, err := os.Stat(filepath.Join(to, e.Name(), "main.go")); err == nil {
			ps = append(ps, readProgram(t, to, e.Name()))
		}
	}
	return ps
}

func readProgram(t *testing.T, root, name string) *program {
	t.Helper()
	p := &program{name: name, dir: root, pkg: "./" + name}
	if _, err := os.Stat(filepath.Join(root, name, "go.mod")); err == nil {
		p.dir, p.pkg = filepath.Join(root, name), "."
	}
	if _, err := os.Stat(filepath.Join(root, name, "in")); err == nil {
		p.in = filepath.Join(root, name, "in")
	}
	text, err := os.ReadFile(filepath.Join(root, name, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		said, ok := strings.CutPrefix(strings.TrimSpace(line), "//difftest:")
		if !ok {
			continue
		}
		switch key, value, _ := strings.Cut(said, " "); key {
		case "args":
			p.args = strings.Fields(value)
		case "stdin":
			p.stdin = value
		case "refuse":
			p.refuse = value
		case "daily":
			p.daily = true
		case "killed":
			if p.killed, err = strconv.Atoi(value); err != nil {
				t.Fatalf("%s: %s: %v", name, line, err)
			}
		case "supervised": // used by package oracle
		case "exit":
			if p.exit, err = strconv.Atoi(value); err != nil {
				t.Fatalf("%s: %s: %v", name, line, err)
			}
		default:
			t.Fatalf("%s: unknown line %s", name, line)
		}
	}
	p.dies = bytes.Contains(text, []byte("moment.Pass()"))
	p.marks = findMarks(t, filepath.Join(root, name), p.dir)
	return p
}

// findMarks returns the loops with requested points, as the tool names them.
func findMarks(t *testing.T, dir, base string) (marks []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(base, path)
		if err != nil {
			return err
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if n++; strings.Contains(line, "{ //cairn:point") && !strings.Contains(line, "//cairn:point unsaved") {
				marks = append(marks, fmt.Sprintf("%s:%d", rel, n))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return marks
}

// outcome is what a run of a program leaves behind.
type outcome struct {
	stdout string
	exit   int
	files  map[string]string

	stderr string // not compared
	kills  int    // kills under cairn run
}

// differs describes how another outcome differs from o, or returns "".
func (o *outcome) differs(from *outcome) string {
	if o.exit != from.exit {
		return fmt.Sprintf("exit status %d, plain %d", o.exit, from.exit)
	}
	if o.stdout != from.stdout {
		return "stdout " + firstDifference(o.stdout, from.stdout)
	}
	for name, want := range from.files {
		got, ok := o.files[name]
		if !ok {
			return fmt.Sprintf("file %s is missing", name)
		}
		if got != want {
			return fmt.Sprintf("file %s %s", name, firstDifference(got, want))
		}
	}
	for name := range o.files {
		if _, ok := from.files[name]; !ok {
			return fmt.Sprintf("there is a file %s, which the plain program does not leave", name)
		}
	}
	return ""
}

// firstDifference describes the first line in which two texts differ.
func firstDifference(got, want string) string {
	g, w := strings.SplitAfter(got, "\n"), strings.SplitAfter(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "the end", "the end"
		if i < len(g) && g[i] != "" {
			a = strconv.Quote(g[i])
		}
		if i < len(w) && w[i] != "" {
			b = strconv.Quote(w[i])
		}
		if a != b {
			return fmt.Sprintf("line %d: %s, plain %s", i+1, a, b)
		}
	}
	return "the same"
}

// workDir returns a fresh working directory with the program's files.
func (p *program) workDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "work")
	if p.in == "" {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	} else if err := os.CopyFS(dir, os.DirFS(p.in)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readFiles returns the contents of all files in a directory. The names of
// directories end in /.
func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			files[rel+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(path)
		files[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// command returns a command that is ended if it takes too long.
func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	return cmd
}

// compiler returns a command that compiles a program. Tools collect garbage
// more rarely, which takes a fifth less of their time.
func compiler(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, dir, name, args...)
	cmd.Env = append(cmd.Environ(), "GOGC=400")
	return cmd
}

// status returns the exit status of a finished command, or fails the test.
func status(t *testing.T, cmd *exec.Cmd, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", cmd, err)
	}
	return cmd.ProcessState.ExitCode()
}

// plain runs a program by itself.
func (p *program) plain(t *testing.T, binary string) *outcome {
	t.Helper()
	dir := p.workDir(t)
	cmd := command(t, dir, binary, p.args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if p.stdin != "" {
		in, err := os.Open(filepath.Join(dir, p.stdin))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		cmd.Stdin = in
	}
	err := cmd.Run()
	return &outcome{exit: status(t, cmd, err), stdout: out.String(), stderr: errs.String(), files: readFiles(t, dir)}
}

// protection says how a program is run under cairn run.
type protection struct {
	every  int                                               // points between checkpoints; 0: none is due, and points are not counted
	killAt string                                            // the point at which it kills itself, or "each"
	dieAt  int                                               // the moment after that point at which it kills itself
	during func(supervisor *exec.Cmd, ended <-chan struct{}) // called while it runs
}

// protected runs a program under cairn run.
func (p *program) protected(t *testing.T, binary string, how protection) *outcome {
	t.Helper()
	dir := p.workDir(t)
	side := t.TempDir() // the run directory is not one of the program's files
	out := filepath.Join(side, "stdout")
	// With --every-points each point is counted. Without it, what continues
	// after a restart runs as fast as it can: that is other code.
	due := []string{"--every", "1h"}
	if how.every > 0 {
		due = []string{"--every-points", strconv.Itoa(how.every)}
	}
	retries := "10"
	if p.exit == 2 { // it panics in every attempt
		retries = "1"
	}
	args := slices.Concat([]string{"run", "--json", "--retries", retries, "--run", filepath.Join(side, "run"), "-o", out}, due, []string{binary}, p.args)
	cmd := command(t, dir, cairn(t), args...)
	var doc, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &doc, &errs
	if how.killAt != "" {
		cmd.Env = append(os.Environ(), "CAIRN_KILL_AT="+how.killAt)
	}
	if how.dieAt > 0 {
		cmd.Env = append(cmd.Environ(), fmt.Sprint("DIFFTEST_DIE_AT=", how.dieAt), "DIFFTEST_DIED="+filepath.Join(side, "died"))
	}
	if p.stdin != "" {
		in, err := os.Open(filepath.Join(dir, p.stdin))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		cmd.Stdin = in
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		if how.during != nil {
			how.during(cmd, ended)
		}
	}()
	err := cmd.Wait()
	close(ended)
	<-watched
	o := &outcome{exit: status(t, cmd, err), stderr: errs.String(), files: readFiles(t, dir)}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, o.stderr)
	}
	o.stdout = string(text)
	if text, err := os.ReadFile(filepath.Join(side, "run", "output", "rank-0000.err")); err == nil && len(text) > 0 {
		o.stderr += "the program:\n" + string(text)
	}
	if !json.Valid(doc.Bytes()) {
		t.Fatalf("cairn run --json prints no JSON:\n%s%s", doc.Bytes(), o.stderr)
	}
	o.kills = strings.Count(o.stderr, "was killed by signal 9")
	return o
}

// cairn builds the command, once.
func cairn(t *testing.T) string {
	t.Helper()
	path, err := buildCairn()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var buildCairn = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CAIRN_DIFFTEST_COMMAND"); path != "" {
		return path, nil
	}
	path := filepath.Join(scratch, "bin", "cairn")
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", path, "./cmd/cairn")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(cmd.Environ(), "GOGC=400")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/cairn: %v\n%s", err, out)
	}
	return path, nil
})

// needBuild skips the test if the command cannot build programs.
func needBuild(t *testing.T) {
	t.Helper()
	if text, err := exec.Command(cairn(t), "help", "build").CombinedOutput(); err != nil {
		t.Skipf("'cairn build' is not there, so only the plain program was tried: %s", bytes.TrimSpace(text))
	}
}

// buildPlain builds a program with the go command alone.
func (p *program) buildPlain(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(scratch, "plain", p.name)
	cmd := compiler(t, p.dir, "go", "build", "-ldflags=-s -w", "-o", binary, p.pkg)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build of %s: %v\n%s", p.name, err, text)
	}
	return binary
}

// buildProtected builds a program with cairn build. It returns the program, or
// "", and the tool's messages.
func (p *program) buildProtected(t *testing.T) (binary, said string) {
	t.Helper()
	binary = filepath.Join(scratch, "protected", p.name)
	cmd := compiler(t, p.dir, cairn(t), "build", "--json", "--ldflags=-s -w", "-o", binary, p.pkg)
	var doc, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &doc, &errs
	ended := status(t, cmd, cmd.Run())
	// A mistake that a pass or verify finds in the compiler's own work is not a
	// refusal of the program.
	if why := regexp.MustCompile(`.*\binternal: .*`).FindString(errs.String()); why != "" {
		t.Errorf("a mistake of the compiler: %s", why)
	}
	if ended != 0 {
		return "", errs.String()
	}
	var made struct {
		Points []struct {
			File string
			Line int
		}
	}
	if err := json.Unmarshal(doc.Bytes(), &made); err != nil {
		t.Fatalf("cairn build --json: %v\n%s", err, doc.Bytes())
	}
	p.missed = slices.DeleteFunc(slices.Clone(p.marks), func(mark string) bool {
		for _, at := range made.Points {
			if mark == fmt.Sprintf("%s:%d", at.File, at.Line) {
				return true
			}
		}
		return false
	})
	return binary, errs.String()
}
