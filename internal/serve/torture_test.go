//go:build linux

package serve

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// variants are ways to compile the library and a program.
var variants = map[string]*struct {
	flags []string
	once  sync.Once
	err   error
}{
	"asan": {flags: []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}},
	"tsan": {flags: []string{"-fsanitize=thread"}},
	"omp":  {flags: []string{"-fopenmp"}},
}

// variant compiles programs in another way, and returns their directory.
func variant(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(build(t), name)
	v := variants[name]
	v.once.Do(func() {
		flags := append([]string{"-O1", "-g", "-Werror"}, v.flags...)
		list := [][]string{{"make", "-s", "-C", "../../lib", "BUILD=" + dir, "CFLAGS=" + strings.Join(flags, " "), dir + "/libcairn.a"}}
		programs := []string{"torture"}
		if name == "asan" || os.Getenv("CAIRN_LONG") != "" {
			programs = append(programs, "plain", "parts")
		}
		for _, program := range programs {
			c := compile(dir, program, v.flags...)
			if program == "plain" {
				c = compile(dir, program, append(v.flags, wraps, "testdata/kill.c")...)
			}
			list = append(list, c)
		}
		for _, c := range list {
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				v.err = fmt.Errorf("%v: %w\n%s", c, err, out)
				return
			}
		}
	})
	if v.err != nil {
		t.Skipf("this compiler cannot: %v", v.err)
	}
	return dir
}

// in returns a command of a variant, which is killed after some minutes.
func in(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	cmd := program(t, "cairn")
	cmd.Path, cmd.Args = filepath.Join(dir, name), append([]string{name}, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	limited := exec.CommandContext(ctx, cmd.Path, args...)
	limited.Env, limited.Dir = cmd.Env, cmd.Dir
	return limited
}

// TestClient_ManyVariablesAndThreads runs programs with many variables,
// children, signal handlers and threads, as they are and under sanitizers.
func TestClient_ManyVariablesAndThreads(t *testing.T) {
	many, vanishing := "2000", "500"
	if os.Getenv("CAIRN_LONG") != "" {
		many, vanishing = "100000", "20000"
	}
	for _, c := range []struct {
		variant string
		args    []string
	}{
		{"asan", []string{"many", "200"}},
		{"asan", []string{"fork"}},
		{"asan", []string{"signals"}},
		{"asan", []string{"threads"}},
		{"asan", []string{"unsaid"}},
		{"asan", []string{"incomplete"}},
		{"asan", []string{"lost"}},
		{"asan", []string{"files"}},
		{"asan", []string{"again"}},
		{"asan", []string{"finished"}},
		{"asan", []string{"blocks", "40"}},
		{"asan", []string{"pages"}},
		{"tsan", []string{"fork"}},
		{"tsan", []string{"signals"}},
		{"tsan", []string{"threads"}},
		{"tsan", []string{"pages"}},
		{"omp", []string{"many", many}},
		{"omp", []string{"vanish", vanishing}},
		{"omp", []string{"threads"}},
	} {
		t.Run(c.variant+" "+c.args[0], func(t *testing.T) {
			dir := variant(t, c.variant)
			args := append([]string{filepath.Join(t.TempDir(), "ckpt")}, c.args...)
			if out, err := in(t, dir, "torture", args...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestClient_Valgrind runs the same under valgrind, which takes its time.
func TestClient_Valgrind(t *testing.T) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil || os.Getenv("CAIRN_LONG") == "" {
		t.Skip("valgrind runs in the long suite (CAIRN_LONG=1)")
	}
	dir := variant(t, "omp")
	for _, args := range [][]string{{"torture", "many", "300"}, {"torture", "fork"}, {"torture", "signals"}, {"torture", "pages"}, {"parts", "save"}, {"plain", "20", "2000", "1"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			cmd := in(t, dir, args[0])
			cmd.Path, cmd.Args = valgrind, append([]string{valgrind, "-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite", filepath.Join(dir, args[0]), filepath.Join(t.TempDir(), "ckpt")}, args[1:]...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestClient_LimitedMemory limits the address space of a program and of its
// helper, and their descriptors: it works, or it is told why not.
func TestClient_LimitedMemory(t *testing.T) {
	dir := variant(t, "omp")
	worked := false
	for _, mib := range []int{60, 100, 150, 300, 600, 1200, 3000, 20000} {
		cmd := in(t, dir, "torture")
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf("ulimit -v %d && exec %s/torture %s/ckpt alloc 40", mib<<10, dir, t.TempDir())}
		out, err := cmd.CombinedOutput()
		switch code := cmd.ProcessState.ExitCode(); {
		case code == 0:
			worked = true
		case code != 3 || len(out) == 0 && mib > 100:
			t.Errorf("with %d MiB: %v: %s", mib, err, out)
		}
	}
	if !worked {
		t.Error("it never worked")
	}
	cmd := in(t, dir, "torture")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf("ulimit -n 64 && exec %s/torture %s/ckpt alloc 40", dir, t.TempDir())}
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), "see ulimit -n") {
		t.Errorf("with 64 files: %v: %s", cmd.ProcessState, out)
	}
}

// TestClient_HostileHelper lets a helper answer with anything: the program is
// told, and nothing else happens to it.
func TestClient_HostileHelper(t *testing.T) {
	dir := variant(t, "asan")
	seeds := 30
	if os.Getenv("CAIRN_LONG") != "" {
		seeds = 1000
	}
	for i := range seeds {
		seed := rand.Uint64()
		if i < 10 {
			seed = uint64(i)
		}
		args := []string{filepath.Join(t.TempDir(), "ckpt"), "5", "2000", "1", filepath.Join(t.TempDir(), "out")}
		cmd := in(t, dir, "plain", args...)
		cmd.Env = append(cmd.Env, "CAIRN_HELPER="+os.Args[0], fmt.Sprint("FAKE_HELPER=", seed), "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1") // it does not close what failed
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code < 0 || code > 9 || strings.Contains(string(out), "Sanitizer: ") || strings.Contains(string(out), "runtime error: ") {
			t.Fatalf("seed %d: %v\n%s", seed, err, out)
		}
	}
}

// TestClient_OlderHelper lets a program find a helper of another version.
func TestClient_OlderHelper(t *testing.T) {
	cmd := program(t, "plain", filepath.Join(t.TempDir(), "ckpt"), "5", "2000", "1")
	cmd.Env = append(cmd.Env, "CAIRN_HELPER="+os.Args[0], "FAKE_HELPER=older")
	out, err := cmd.CombinedOutput()
	if want := "the helper is cairn 0.0.9, and the library is of version " + Release; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}

// fakeHelper is a helper that answers as the seed says, or an older one.
func fakeHelper(descriptor, seed string) {
	fd, _ := strconv.Atoi(descriptor)
	n, _ := strconv.ParseUint(seed, 10, 64)
	rng := rand.New(rand.NewPCG(n, uint64(time.Now().UnixNano())))
	conn, err := net.FileConn(os.NewFile(uintptr(fd), "program"))
	if err != nil {
		return
	}
	w := wire{conn: conn.(*net.UnixConn)}
	anything := func() []byte {
		b := make([]byte, rng.IntN(100))
		for i := range b {
			if rng.IntN(3) == 0 {
				b[i] = byte(rng.Uint32())
			}
			if rng.IntN(20) == 0 {
				b[i] = 0xff
			}
		}
		return b
	}
	for {
		m, err := w.receive()
		if err != nil {
			return
		}
		m.close()
		if m.kind == msgExtent || m.kind == msgBye || m.kind == msgGathered {
			continue
		}
		if m.kind == msgHello && seed == "older" {
			b := appendText(binary.LittleEndian.AppendUint32(nil, Version-1), "0.0.9")
			w.send(msgWelcome, append(b, make([]byte, 28)...))
			continue
		}
		if m.kind == msgHello && rng.IntN(5) > 0 {
			b := appendText(binary.LittleEndian.AppendUint32(nil, Version), Release)
			b = append(b, make([]byte, 24)...)
			for i := range rng.IntN(3) {
				b[len(b)-1-i*4] = byte(rng.Uint32())
			}
			b = binary.LittleEndian.AppendUint32(b, rng.Uint32())
			if rng.IntN(10) == 0 {
				b = b[:rng.IntN(len(b))]
			}
			w.send(msgWelcome, b)
			continue
		}
		for final := false; !final; {
			switch rng.IntN(9) {
			case 0:
				w.send(msgFailed, anything())
				final = true
			case 1:
				w.send(msgNews, anything())
			case 2:
				w.send(msgGather, anything())
			case 3:
				w.send(kind(rng.Uint32()), anything())
				return
			case 4: // a length, and less than that
				conn.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(msgDone)), rng.Uint32()))
				return
			case 5:
				conn.Write(anything())
				return
			case 6:
				w.send(msgChecked, anything())
			default:
				w.send(msgDone, anything())
				final = true
			}
		}
	}
}
