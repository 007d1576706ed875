//go:build linux && (amd64 || arm64)

package serve

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// buildFakeCUDA builds a CUDA driver that needs no GPU, once for all tests, and
// returns its directory.
var buildFakeCUDA = sync.OnceValues(func() (dir string, err error) {
	gxx, err := exec.LookPath("g++")
	if err != nil {
		return "", err
	}
	dir = filepath.Join(built.dir, "cuda")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	out, err := exec.Command(gxx, "-std=c++17", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"),
		"../driver/cuda/testdata/fake/fake.cpp", "-lpthread", "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// builtGPU has a function for each directory that builds its program gpu once.
var builtGPU sync.Map

// fakeCUDA builds a program that uses a CUDA driver without a GPU. It returns a
// function that runs the program. The driver does what streams are given as
// late as it may. flags are those of a variant, whose library is in dir.
func fakeCUDA(t *testing.T, dir string, flags ...string) func(t *testing.T, env string, args ...string) (out string, code int) {
	t.Helper()
	driver, err := buildFakeCUDA()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no g++: a CUDA driver without a GPU needs one")
	} else if err != nil {
		t.Fatal(err)
	}
	gpu := filepath.Join(dir, "gpu")
	once, _ := builtGPU.LoadOrStore(dir, sync.OnceValue(func() error {
		cc := exec.Command("cc", append(flags[:len(flags):len(flags)], "-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-I../../lib", "-o", gpu,
			"testdata/gpu.c", filepath.Join(dir, "libcairn.a"), "-lpthread", "-ldl")...)
		if out, err := cc.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cc, err, out)
		}
		return nil
	}))
	if err := once.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, env string, args ...string) (string, int) {
		t.Helper()
		cmd := program(t, "cairn")
		cmd.Path, cmd.Args = gpu, append([]string{gpu}, args...)
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+driver, "FAKE_CUDA_LAZY=1", env)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code > 0 {
			t.Errorf("%v: exit code %d\n%s%s", args, code, stdout.String(), stderr.String())
		} else if code < 0 {
			t.Logf("%v: %v\n%s%s", args, cmd.ProcessState, stdout.String(), stderr.String())
		}
		return stdout.String(), cmd.ProcessState.ExitCode()
	}
}

// TestGPU_ChangedAroundSave changes memory of every kind on a stream of the
// program right before a save and right after it. The checkpoint has what the
// stream had been given before, and nothing of what it was given after.
func TestGPU_ChangedAroundSave(t *testing.T) {
	run := fakeCUDA(t, build(t))
	tear := func(env, kinds, size, rounds string) {
		run(t, env, filepath.Join(t.TempDir(), "ckpt"), "tear", kinds, size, rounds)
	}
	// Each kind by itself: waiting for one would hide that another is not
	// waited for.
	for _, kind := range []string{"d", "m", "c", "h", "p", "n", "s"} {
		tear("", kind, "5", "1")
	}
	rounds := "1"
	if os.Getenv("CAIRN_LONG") != "" {
		rounds = "2"
	}
	tear("", "dmchpnsd", "5", rounds)
	tear("FAKE_CUDA_EXCLUSIVE=1", "dmchpnsd", "5", rounds) // no copies on the device
	tear("", "ede", "5", "1")                              // two devices
	tear("FAKE_CUDA_PAGEABLE=1", "dhn", "5", rounds)       // devices write any memory
	tear("", "dsf", "5", rounds)                           // no room for copies on the device
}

// TestGPU_TwoRanks does that in two ranks. Each has variables on its own device
// and on the other one, whichever context is the current one.
func TestGPU_TwoRanks(t *testing.T) {
	fakeCUDA(t, build(t))(t, "", filepath.Join(t.TempDir(), "ckpt"), "ranks", "dse", "2", "3")
}

// TestGPU_Lost loses the device before a save and during one: the program is
// told, continues, and saves again.
func TestGPU_Lost(t *testing.T) {
	run := fakeCUDA(t, build(t))
	dir := filepath.Join(t.TempDir(), "ckpt")
	out, _ := run(t, "", dir, "lost", "ds", "8", "0")
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "-3 ") || !strings.Contains(lines[0], "CUDA_ERROR_ILLEGAL_ADDRESS") || !strings.Contains(lines[0], "start it again") {
		t.Fatalf("before the save: %s", out)
	}
	if !strings.HasPrefix(lines[1], "-3 ") || !strings.Contains(lines[1], "CUDA error 719") {
		t.Errorf("during the save: %s", lines[1])
	}
	if out, _ := run(t, "", dir, "check", "ds", "8", "400"); out != "restored\n" {
		t.Error(out)
	}
}

// TestGPU_CopiesOnlyChanges changes a few elements between saves: only their
// blocks are copied to the host. After a save that failed, everything is.
func TestGPU_CopiesOnlyChanges(t *testing.T) {
	run := fakeCUDA(t, build(t))
	for _, env := range []string{"", "FAKE_CUDA_EXCLUSIVE=1"} {
		out, _ := run(t, env, filepath.Join(t.TempDir(), "ckpt"), "sparse", "d", "8", "10")
		var n [10]int
		var end string
		args := []any{&n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8], &n[9], &end}
		if _, err := fmt.Sscan(out, args...); err != nil || end != "restored" {
			t.Fatalf("%v: %s", err, out)
		}
		for i, n := range n {
			switch whole := i == 0 || i == 6 && env == ""; {
			case i == 5 && env == "": // it failed
			case whole && n < 8<<20, !whole && n > 200<<10:
				t.Errorf("save %d moves %d bytes: %s", i, n, out)
			}
		}
	}
}

// TestGPU_KilledDuringCopy kills the program when its save has returned, and
// its copy has not reached the mirror: the checkpoint before counts.
func TestGPU_KilledDuringCopy(t *testing.T) {
	run := fakeCUDA(t, build(t))
	dir := filepath.Join(t.TempDir(), "ckpt")
	if _, code := run(t, "", dir, "killed", "dsn", "8", "0"); code != -1 {
		t.Fatal("not killed:", code)
	}
	if out, _ := run(t, "", dir, "check", "dsn", "8", "100"); out != "restored\n" {
		t.Error(out)
	}
}

// TestGPU_VariablesMovedWhileSaving moves and resizes variables while a
// checkpoint is being written, and reads single ones.
func TestGPU_VariablesMovedWhileSaving(t *testing.T) {
	run := fakeCUDA(t, build(t))
	run(t, "", filepath.Join(t.TempDir(), "ckpt"), "change", "dmhpns", "8", "5")
}

// TestGPU_CompiledEarly compiles the kernel when a variable on a device is
// protected, once, and not in the first save. A program that saves nothing
// leaves nothing behind.
func TestGPU_CompiledEarly(t *testing.T) {
	run := fakeCUDA(t, build(t))
	for _, kinds := range []string{"d", "m", "ds", "nd"} {
		for _, saves := range []string{"3", "0"} {
			if _, code := run(t, "", filepath.Join(t.TempDir(), "ckpt"), "compile", kinds, "8", saves); code != 0 {
				t.Errorf("%s, %s saves: %d", kinds, saves, code)
			}
		}
	}
}

// TestGPU_Reset resets the device: what Cairn had there is gone, too, and is
// not used any more.
func TestGPU_Reset(t *testing.T) {
	run := fakeCUDA(t, build(t))
	run(t, "", filepath.Join(t.TempDir(), "ckpt"), "reset", "dmps", "8", "0")
}

// TestGPU_CaptureUndisturbed captures a graph while the library copies and
// pins: the capture is not disturbed.
func TestGPU_CaptureUndisturbed(t *testing.T) {
	run := fakeCUDA(t, build(t))
	run(t, "", filepath.Join(t.TempDir(), "ckpt"), "capture", "ds", "40", "4")
}

// TestGPU_Sanitizers looks for races of the library's thread, and for wrong
// accesses to memory.
func TestGPU_Sanitizers(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("it takes many seconds to compile for sanitizers: set CAIRN_LONG=1")
	}
	for _, name := range []string{"asan", "tsan"} {
		run := fakeCUDA(t, variant(t, name), variants[name].flags...)
		for _, mode := range []string{"change", "sparse"} {
			run(t, "ASAN_OPTIONS=detect_leaks=0", filepath.Join(t.TempDir(), "ckpt"), mode, "ds", "5", "4")
		}
	}
}

// TestGPU_NotReadable protects memory that neither the process nor a driver
// knows.
func TestGPU_NotReadable(t *testing.T) {
	run := fakeCUDA(t, build(t))
	out, _ := run(t, "", filepath.Join(t.TempDir(), "ckpt"), "unreadable", "-", "0", "0")
	if !strings.HasPrefix(out, "-2 ") || !strings.Contains(out, "libcuda.so.1") {
		t.Error(out)
	}
	out, _ = run(t, "", filepath.Join(t.TempDir(), "ckpt"), "unreadable", "x", "0", "0")
	if !strings.HasPrefix(out, "-2 ") || !strings.Contains(out, "the CUDA driver does not know them") {
		t.Error(out)
	}
}

// TestWave_Killed kills the host path of examples/c/wave.cu. Its other path
// needs a GPU.
func TestWave_Killed(t *testing.T) {
	dir := build(t)
	wave := filepath.Join(t.TempDir(), "wave")
	output(t, exec.Command("cc", "-x", "c", "-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Werror", "-I../../lib", "-o", wave, wraps,
		"../../examples/c/wave.cu", "testdata/kill.c", "-x", "none", filepath.Join(dir, "libcairn.a"), "-lpthread", "-ldl"))
	v := &victim{start: func(ckpt, _ string) *exec.Cmd { return start(t, wave, "40", "100", "5", ckpt) }}
	v.undisturbed(t)
	v.survive(t, []kill{{at: "committed#1", resumes: true}, {at: "point#20"}})
}
