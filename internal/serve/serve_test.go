//go:build linux

package serve

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/mem"
)

// built is what the tests of this package share: the library, the helper and
// the programs, compiled once.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// compile is the command that compiles testdata/NAME.c.
func compile(dir, name string, more ...string) []string {
	args := append([]string{"cc", "-std=c11", "-O1", "-g", "-Wall", "-Werror", "-I../../lib", "-o", filepath.Join(dir, name), "testdata/" + name + ".c"}, more...)
	return append(args, filepath.Join(dir, "libcairn.a"), "-lm", "-lpthread", "-ldl")
}

// build compiles the library, the cairn command and a program with a C
// compiler.
func build(t *testing.T) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler (cc): the tests of libcairn need one")
	}
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "cairn-serve-")
		if err != nil {
			built.err = err
			return
		}
		built.dir = dir
		for _, c := range [][]string{
			{"make", "-s", "-C", "../../lib", "BUILD=" + dir, "CFLAGS=-O1 -g -Werror"},
			{"go", "build", "-o", filepath.Join(dir, "cairn"), "../../cmd/cairn"},
			compile(dir, "plain", wraps, "testdata/kill.c"),
			compile(dir, "parts"),
			compile(dir, "helper", "-Wl,--wrap=fallocate,--wrap=calloc"),
			compile(dir, "mirror", "-Wl,--wrap=recv,--wrap=waitpid,--wrap=cairn__copy_stream"),
			compile(dir, "shared", "-Wl,--wrap=recv,--wrap=realloc"),
		} {
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				built.err = fmt.Errorf("%v: %w\n%s", c, err, out)
				return
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

func TestMain(m *testing.M) {
	if seed := os.Getenv("FAKE_HELPER"); seed != "" && len(os.Args) == 3 {
		fakeHelper(os.Args[2], seed)
		return
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// program is a command that uses the library just built.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	dir := build(t)
	cmd := exec.Command(filepath.Join(dir, name), args...)
	cmd.Env = append(os.Environ(), "CAIRN_HELPER="+filepath.Join(dir, "cairn"))
	cmd.Dir = t.TempDir()
	return cmd
}

// TestC_RestoredByGo loads what a C program saved into variables of Go.
func TestC_RestoredByGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	first := program(t, "plain", dir, "60", "20000", "1")
	first.Env = append(first.Env, "KILL_AT=point#8=15", "KILL_WAIT=1") // SIGTERM: it saves and stops
	if first.Run(); first.ProcessState.ExitCode() != 9 {
		t.Fatalf("exit code %d after SIGTERM", first.ProcessState.ExitCode())
	}
	run, err := cairn.Open(t.Context(), cairn.Options{Dir: dir, Drop: []string{"particles", "wide", "extra"}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var step int32
	var u [][]float64
	var counter int64
	var odd bool
	var z complex128
	var bytes []uint8
	cairn.Protect(run, "step", &step)
	cairn.Protect(run, "u", &u)
	cairn.Protect(run, "counter", &counter)
	cairn.Protect(run, "odd", &odd)
	cairn.Protect(run, "z", &z)
	cairn.Protect(run, "bytes", &bytes)
	if ok, err := run.Restore(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	sum := int64(0)
	for i := range int64(step) {
		sum += i
	}
	if len(u) != 200 || len(u[199]) != 100 || u[0][1] == 0 || len(bytes) != 7 || bytes[6] != 1 {
		t.Errorf("u has %d rows, and bytes are %v", len(u), bytes)
	}
	if step != 7 || counter != sum || odd != (step%2 == 0 && step > 0) {
		t.Errorf("at step %d: counter %d, odd %v", step, counter, odd)
	}
}

// readParts is a Python program that prints what testdata/parts.c does.
const readParts = `
import cairn, numpy, sys
a, b, c = numpy.zeros(1000000), numpy.zeros(1000005), numpy.zeros((), numpy.int32)
with cairn.open(sys.argv[1]) as run:
    for name, v in ("a", a), ("b", b), ("c", c):
        run.protect(name, v)
    assert run.restore()
print("%.17g %g %g %g %g %d" % ((a[1:] * (numpy.arange(1, a.size) % 1000)).sum(), a[0], a[-1], b[0], b[-1], c))
`

// TestParts_RestoresGo loads slices that a Go program saved, at once or one
// after the other, into arrays of C and of Python.
func TestParts_RestoresGo(t *testing.T) {
	for _, incremental := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "ckpt")
		run, err := cairn.Open(t.Context(), cairn.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		a, b, c := make([]float64, 1_000_000), make([]float64, 1_000_005), int32(3)
		a[0], a[999_999], b[0], b[1_000_004] = 1, 2, 3, 4
		cairn.Protect(run, "a", &a)
		cairn.Protect(run, "b", &b)
		cairn.Protect(run, "c", &c)
		if _, err = run.Restore(t.Context()); err == nil {
			if !incremental {
				err = run.Checkpoint(t.Context())
			} else if err = errors.Join(run.Begin(t.Context()), run.Add("b"), run.Add("a")); err == nil {
				clear(a)
				clear(b)
				err = run.Commit(t.Context())
			}
		}
		if err := errors.Join(err, run.Close()); err != nil {
			t.Fatal(err)
		}
		const want = "1998 1 2 3 4 3\n"
		out, err := program(t, "parts", dir, "restore").Output()
		if err != nil {
			t.Fatal(err, failure(err))
		}
		if got := string(out); got != want {
			t.Errorf("incremental %v: C restored %s", incremental, got)
		}
		if exec.Command(python, "-c", "import numpy").Run() == nil {
			if got := output(t, startPython(t, "numpy", "-c", readParts, dir)); got != want {
				t.Errorf("incremental %v: Python restored %s", incremental, got)
			}
		}
	}
}

// TestParts_ContentAtAdd saves checkpoints whose variables are added one after
// the other: each is restored as it was when it was added.
func TestParts_ContentAtAdd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	sum, err := program(t, "parts", dir, "save").Output()
	if err != nil {
		t.Fatal(err, failure(err))
	}
	out, err := program(t, "parts", dir, "restore").Output()
	if err != nil {
		t.Fatal(err, failure(err))
	}
	if got, want := string(out), string(sum)+" 8 8 -1 7 80\n"; got != want {
		t.Errorf("restored %s, want %s", got, want)
	}
	kernel, err := mem.NewTracker()
	if err != nil {
		t.Skip(err)
	}
	kernel.Close()
	text, err := program(t, "cairn", "inspect", filepath.Join(dir, "ckpt-00000007")).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "kernel: it reported which pages") {
		t.Errorf("the helper did not use what the program knows (%v):\n%s", err, text)
	}
}

// TestC_Variables lists what a checkpoint holds, before it is restored.
func TestC_Variables(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	first := program(t, "plain", dir, "60", "20000", "1")
	first.Env = append(first.Env, "PLAIN_LIST=1", "KILL_AT=point#8=15", "KILL_WAIT=1")
	if out, _ := first.Output(); len(out) > 0 || first.ProcessState.ExitCode() != 9 {
		t.Fatalf("without a checkpoint it lists %q, exit code %d", out, first.ProcessState.ExitCode())
	}
	second := program(t, "plain", dir, "60", "20000", "1")
	second.Env = append(second.Env, "PLAIN_LIST=1")
	out, err := second.Output()
	if err != nil {
		t.Fatal(err, failure(err))
	}
	const want = "step 3\nu 10 200 100\nparticles 256 5\ncounter 4\nodd 15\nwide 5 16\nz 12\nbytes 5 7\nextra 10 10001\n"
	if got := string(out); !strings.HasPrefix(got, want) {
		t.Errorf("it lists\n%s, want\n%s", got, want)
	}
}

// TestUnion joins ranges.
func TestUnion(t *testing.T) {
	got := union([][2]uint64{{10, 20}, {0, 5}, {12, 15}, {20, 30}, {40, 41}, {0, 7}})
	if fmt.Sprint(got) != "[[0 7] [10 30] [40 41]]" {
		t.Error(got)
	}
}

// TestHeader_AgreesWithPackage compares what cairn.h and this package say
// twice.
func TestHeader_AgreesWithPackage(t *testing.T) {
	header, err := os.ReadFile("../../lib/cairn.h")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("#define CAIRN_VERSION %q", Release); !bytes.Contains(header, []byte(want)) {
		t.Errorf("cairn.h has another version than %s", Release)
	}
	internal, err := os.ReadFile("../../lib/internal.h")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("WIRE_VERSION = %d,", Version); !bytes.Contains(internal, []byte(want)) {
		t.Errorf("internal.h has another version of the messages than %d", Version)
	}
	names := regexp.MustCompile(`MSG_\w+`).FindAllString(string(internal), -1)
	if got := strings.Join(names, " "); got != "MSG_HELLO MSG_EXTENT MSG_VARS MSG_FILE MSG_STORED MSG_RESTORE MSG_SAVE MSG_FINISH MSG_BYE MSG_GATHERED MSG_LIST MSG_READ MSG_VARIABLES MSG_MAKE MSG_WELCOME MSG_DONE MSG_FAILED MSG_GATHER MSG_NEWS MSG_CHECKED" || msgGathered != 10 || msgChecked != 106 {
		t.Errorf("internal.h has other messages: %s", got)
	}
}
