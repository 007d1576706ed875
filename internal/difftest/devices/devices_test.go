//go:build linux

// Package devices tests programs that use devices and do not use checkpoints:
// they are built by 'cairn build', killed at points, and restarted on other
// devices.
package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds one start of a program or tool. All take far less.
const patience = 10 * time.Minute

var stress = os.Getenv("CAIRN_LONG") != ""

// scratch is a directory for what the tests build.
var scratch string

// prebuilt is a directory with programs that were built before, or "": for a
// machine with devices and without Go. Tests that have built programs put them
// there with CAIRN_KEEP_PROGRAMS.
var prebuilt = os.Getenv("CAIRN_PROGRAMS")

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cairn-devices-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	if prebuilt != "" {
		scratch = prebuilt
	}
	code := m.Run()
	if keep := os.Getenv("CAIRN_KEEP_PROGRAMS"); keep != "" {
		for _, sub := range []string{"bin", "plain", "made"} {
			if err := os.CopyFS(filepath.Join(keep, sub), os.DirFS(filepath.Join(dir, sub))); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// sources returns a module with the programs. The testbed is that of examples,
// with a plain main function and without the code that protects its state.
var sources = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		return "", err
	}
	to := filepath.Join(scratch, "src")
	if err := os.CopyFS(to, os.DirFS("testdata")); err != nil {
		return "", err
	}
	from := filepath.Join(root, "examples", "testbed")
	list, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	for _, e := range list {
		name := e.Name()
		if name == "main.go" || name == "harness.go" || strings.HasSuffix(name, "_test.go") || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil && strings.HasSuffix(name, ".go") {
			text, err = unprotected(text)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, "testbed", name), text, 0o666)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	const module = "github.com/cairnrun/cairn"
	mod = bytes.Replace(mod, []byte("module "+module), []byte("module plain"), 1)
	mod = fmt.Appendf(mod, "\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	return to, errors.Join(err, os.WriteFile(filepath.Join(to, "go.mod"), mod, 0o666), os.WriteFile(filepath.Join(to, "go.sum"), sum, 0o666))
})

// unprotected returns a source file without its import of Cairn and without the
// method that needs it.
func unprotected(text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	type cut struct{ from, to int }
	var cuts []cut
	drop := func(n ast.Node) {
		cuts = append(cuts, cut{fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset})
	}
	for _, i := range f.Imports {
		if i.Path.Value == `"github.com/cairnrun/cairn"` {
			drop(i)
		}
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Name.Name == "protect" {
			drop(d)
		}
	}
	slices.Reverse(cuts)
	for _, c := range cuts {
		text = slices.Delete(text, c.from, c.to)
	}
	return text, nil
}

func source(t *testing.T) string {
	t.Helper()
	dir, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// command returns a command that is ended if it takes too long.
func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), pocl)
	return cmd
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
	path := filepath.Join(scratch, "bin", "cairn")
	if prebuilt != "" {
		return path, nil
	}
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", path, "./cmd/cairn")
	cmd.Dir = filepath.Join("..", "..", "..")
	cmd.Env = append(cmd.Environ(), lazyGC)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/cairn: %v\n%s", err, out)
	}
	return path, nil
})

// lazyGC lets tools collect garbage more rarely, which takes a fifth less of
// their time.
const lazyGC = "GOGC=400"

// build builds a program, plain and restartable, once.
func build(t *testing.T, name string) (plain, made string) {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	plain, made = filepath.Join(scratch, "plain", name), filepath.Join(scratch, "made", name)
	if built.names[name] || prebuilt != "" {
		return plain, made
	}
	for _, cmd := range []*exec.Cmd{
		command(t, source(t), "go", "build", "-ldflags=-w", "-o", plain, "./"+name),
		command(t, source(t), cairn(t), "build", "--ldflags=-w", "-o", made, "./"+name),
	} {
		cmd.Env = append(cmd.Env, lazyGC)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, text)
		}
	}
	built.names[name] = true
	return plain, made
}

// built are the names of the programs that were built.
var built = struct {
	sync.Mutex
	names map[string]bool
}{names: make(map[string]bool)}

// plainly returns the output of a program that runs without Cairn.
func plainly(t *testing.T, binary, devices string, args ...string) string {
	t.Helper()
	cmd := command(t, t.TempDir(), binary, args...)
	cmd.Env = append(cmd.Env, "CAIRN_DEVICES="+devices)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, errs.Bytes())
	}
	return out.String()
}

// restarts is a run that is killed and restarted, each time on other devices.
type restarts struct {
	devices []string // devices of each start; the last entry holds for all later starts
	killAt  string
}

// run executes the restarts. It returns the program's output, how often it was
// killed, and the messages of the last start.
func (j *restarts) run(t *testing.T, binary string, args ...string) (out string, kills int, said string) {
	t.Helper()
	dir := t.TempDir()
	var all bytes.Buffer
	for n := 0; ; n++ {
		cmd := command(t, t.TempDir(), binary, args...)
		cmd.Env = append(cmd.Env, "CAIRN_DIR="+dir, "CAIRN_KILL_AT="+j.killAt, "CAIRN_DEVICES="+j.devices[min(n, len(j.devices)-1)])
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &all, &errs
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && exit.Sys().(syscall.WaitStatus).Signaled() {
			continue
		}
		if err != nil {
			t.Fatalf("start %d of %s on %s: %v\n%s", n+1, cmd, j.devices[min(n, len(j.devices)-1)], err, errs.Bytes())
		}
		return all.String(), n, errs.String()
	}
}

// PoCL has as many devices as words.
const (
	pocl        = "POCL_DEVICES=pthread pthread pthread pthread"
	poclDevices = 4
)

// opencl reports whether there is OpenCL with these devices.
var opencl = sync.OnceValue(func() bool { return available("opencl:0.0,opencl:0.3") })

// cuda reports whether there is an NVIDIA GPU.
var cuda = sync.OnceValue(func() bool { return available("cuda:0") })

// available reports whether all devices of a list are there and work.
func available(list string) bool {
	path, err := buildCairn()
	if err != nil {
		return false
	}
	cmd := exec.Command(path, "devices", list)
	cmd.Env = append(os.Environ(), pocl)
	return cmd.Run() == nil
}

// travel returns lists of devices for the restarts.
func travel(t *testing.T) [][]string {
	t.Helper()
	js := [][]string{
		{"host", "host,host", "discrete"},
		{"host,host", "host", "discrete,discrete,discrete"},
		{"discrete,discrete,discrete", "host,host"},
	}
	if opencl() {
		js = append(js, []string{"host,host", "opencl:0.0", "opencl"}, []string{"opencl", "discrete", "host"})
	} else {
		t.Log("there is no OpenCL with several devices here, so it was not tried")
	}
	return js
}

// restartOver runs a program over lists of devices. A malleable program ends on
// as many devices as its last list has, and launches kernels on all of them
// (or on the first, if all is false).
func restartOver(t *testing.T, over [][]string, plain, made, killAt string, least int, malleable, all bool, args ...string) {
	t.Helper()
	plainOut := make(map[string]string)
	for _, devices := range over {
		first, last := devices[0], devices[len(devices)-1]
		if plainOut[first] == "" {
			plainOut[first] = plainly(t, plain, first, args...)
		}
		j := restarts{devices, killAt}
		got, kills, said := j.run(t, made, args...)
		if got != plainOut[first] {
			t.Errorf("over %v, killed %d times: it prints\n%swant\n%s", devices, kills, got, plainOut[first])
		}
		if kills < least {
			t.Errorf("over %v: killed %d times only", devices, kills)
		}
		// As many devices as at first or at last, all of the last kind.
		want := number(first)
		if malleable {
			want = number(last)
		}
		if idle := strings.Count(said, "launches: 0\n"); all && malleable && idle > 0 {
			t.Errorf("over %v: it ended with %d idle devices:\n%s", devices, idle, said)
		}
		n, seen := 0, make(map[string]bool)
		for id := range strings.SplitSeq(strings.ReplaceAll(last, "discrete", "host"), ",") {
			if backend, _, _ := strings.Cut(id, ":"); !seen[backend] {
				seen[backend] = true
				n += strings.Count(said, backend+":")
			}
		}
		if n != want {
			t.Errorf("over %v: it ended on %d devices, not %d:\n%s", devices, n, want, said)
		}
	}
}

// number returns how many devices a list stands for.
func number(list string) int {
	if list == "opencl" {
		return poclDevices
	}
	return strings.Count(list, ",") + 1
}

// TestTestbed_KilledAtPoints kills the programs of the testbed at some of their
// points.
func TestTestbed_KilledAtPoints(t *testing.T) {
	t.Parallel()
	plain, made := build(t, "testbed")
	all := travel(t)
	for i, name := range []string{"floyd", "spmv", "summa", "mg", "ftmd", "ft", "shwa"} {
		if i >= len(all) && !stress {
			break // each list of devices is tried once a day
		}
		t.Run(name, func(t *testing.T) {
			over, killAt := all[i%len(all):][:1], "2,4,75"
			if stress {
				over, killAt = all, "each"
			}
			restartOver(t, over, plain, made, killAt, 2, name != "summa" && name != "mg", name != "floyd" && name != "ft", name)
		})
	}
}

// TestTestbed_OtherNumberOfDevices kills malleable programs on k devices and
// resumes them on m. They divide their work anew, and use all m.
func TestTestbed_OtherNumberOfDevices(t *testing.T) {
	t.Parallel()
	plain, made := build(t, "testbed")
	lists := func(name string) (out []string) {
		for i := range 4 {
			if name == "opencl" {
				out = append(out, strings.Join([]string{"opencl:0.0", "opencl:0.1", "opencl:0.2", "opencl:0.3"}[:i+1], ","))
			} else {
				out = append(out, strings.Repeat(name+",", i)+name)
			}
		}
		return out
	}
	if prebuilt != "" {
		t.Log("without sources, cairn explain was not tried")
	} else if text, err := command(t, source(t), cairn(t), "explain", "--json", "./testbed").CombinedOutput(); err != nil || !strings.Contains(string(text), "it divides the work among the devices, which is not interrupted") {
		t.Errorf("cairn explain does not say why the loop in (*spmv).spread has no point: %v\n%s", err, text)
	}
	host, other := lists("host"), lists("discrete")
	if opencl() {
		other = lists("opencl")
	}
	if cuda() {
		// The GPU, through CUDA and, if it is there, also through OpenCL, and
		// the host.
		other = []string{"cuda:0", "cuda:0,host", "host,cuda:0,host", "cuda:0,discrete,host,host"}
		if available("opencl:0.0") {
			other = []string{"cuda:0", "cuda:0,opencl:0.0", "cuda:0,host,opencl:0.0", "opencl:0.0,cuda:0,host,host"}
		}
		t.Logf("with a GPU: %v", other)
	}
	for i, name := range []string{"shwa", "ftmd", "spmv"} {
		t.Run(name, func(t *testing.T) {
			over := [][]string{{host[i], other[3], host[2-i]}}
			if stress {
				over = nil
				for k := range 4 {
					for m := range 4 {
						over = append(over, []string{other[k], other[m]}, []string{host[k], other[m]})
						if k == m || !cuda() { // the rest is tried where time on a GPU is not scarce
							over = append(over, []string{other[k], host[m]}, []string{host[k], host[m]})
						}
					}
				}
			}
			restartOver(t, over, plain, made, "2,4", 2, true, true, name)
		})
	}
}

// TestDivision_OtherNumberOfDevices has divisions that another number of
// devices cannot continue: each device has an element of an array, or an array
// whose values live on. The first shows when the work is divided anew, and the
// program keeps its old division. The second shows when a kernel reads the new
// array; the program ends, and its next start keeps the old number.
func TestDivision_OtherNumberOfDevices(t *testing.T) {
	t.Parallel()
	plain, made := build(t, "parts")
	over := [][]string{{"host,host", "host,host,host"}, {"host,host,host", "discrete"}}
	restartOver(t, over, plain, made, "3,6", 2, false, false, "element")

	text, err := command(t, source(t), cairn(t), "explain", "./parts").CombinedOutput()
	if err != nil || !strings.Contains(string(text), "malleable: on another number of devices it divides its work anew, at parts/main.go:68, as at parts/main.go:62, parts/main.go:63, parts/main.go:67\n") ||
		!strings.Contains(string(text), "run at its point at parts/main.go:68\n") {
		t.Errorf("cairn explain: %v\n%s", err, text)
	}
	for _, devices := range over {
		dir := t.TempDir()
		start := func(devices, killAt string) (string, string, error) {
			cmd := command(t, dir, made, "own")
			cmd.Env = append(cmd.Env, "CAIRN_DIR="+dir, "CAIRN_KILL_AT="+killAt, "CAIRN_DEVICES="+devices)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			return out.String(), errs.String(), err
		}
		if _, said, err := start(devices[0], "4"); err == nil {
			t.Fatalf("it was not killed:\n%s", said)
		}
		out, said, err := start(devices[1], "")
		if err == nil || out != "" || !strings.Contains(said, "The next start keeps the number of devices that the run had") {
			t.Fatalf("on %s: %v\n%s%s", devices[1], err, out, said)
		}
		out, said, err = start(devices[1], "")
		if want := plainly(t, plain, devices[0], "own"); err != nil || out != want {
			t.Errorf("on %s again: %v\n%s\nit prints\n%swant\n%s", devices[1], err, said, out, want)
		}
	}
}

// TestDeviceState_AllFeatures has all features of package device in the state:
// the page of an array that the program keeps, kernels with captured variables,
// arguments that were made before, devices as keys of a map.
func TestDeviceState_AllFeatures(t *testing.T) {
	t.Parallel()
	plain, made := build(t, "mixed")
	all := travel(t)
	restartOver(t, all[:1], plain, made, "each", 12, false, false)
	more := all[len(all)-2:]
	if stress {
		more = all[1:]
	}
	restartOver(t, more, plain, made, "2,3,7", 3, false, false)

	supervised(t, plain, made)

	// Data that no kernel writes is stored in one checkpoint; the others refer
	// to it.
	dir := t.TempDir()
	for _, killAt := range []string{"3", "6"} {
		cmd := command(t, dir, made)
		cmd.Env = append(cmd.Env, "CAIRN_DIR="+dir, "CAIRN_KILL_AT="+killAt, "CAIRN_DEVICES=discrete")
		if err := cmd.Run(); err == nil {
			t.Fatalf("it was not killed at point %s", killAt)
		}
	}
	text, err := command(t, dir, cairn(t), "list", "--json", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Checkpoints []struct{ FileBytes, BaseBytes int64 }
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list.Checkpoints) == 0 {
		t.Fatalf("cairn list: %v\n%s", err, text)
	}
	if s := list.Checkpoints[0]; s.BaseBytes < 4<<20 || s.FileBytes > 1<<20 {
		t.Errorf("the last set has %d bytes and %d from others, and the table of 4 MiB never changes", s.FileBytes, s.BaseBytes)
	}
}

// supervised runs a program under cairn run, which restarts it.
func supervised(t *testing.T, plain, made string) {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	cmd := command(t, dir, cairn(t), "run", "--run", filepath.Join(dir, "run"), "-o", out, "--every-points", "1", made)
	cmd.Env = append(cmd.Env, "CAIRN_DEVICES=host,host", "CAIRN_KILL_AT=2,7")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, text)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := plainly(t, plain, "host,host"); string(got) != want {
		t.Errorf("it prints\n%swant\n%s", got, want)
	}
}

// TestRawMemory_NotRestored shows that memory which the program allocates
// itself cannot be restored.
func TestRawMemory_NotRestored(t *testing.T) {
	t.Parallel()
	text, err := command(t, source(t), cairn(t), "build", "-o", filepath.Join(t.TempDir(), "raw"), "./raw").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "main.go:27: device.Raw makes an array of memory that a restarted program must provide again") {
		t.Errorf("cairn build: %v\n%s", err, text)
	}
}
