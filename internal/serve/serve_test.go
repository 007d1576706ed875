//go:build linux

package serve

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn"
)

// built is what the tests of this package share: the library, the helper and
// the programs, compiled once.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// build compiles the library, the cairn command and a program with a C compiler.
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
			{"go", "build", "-trimpath", "-o", filepath.Join(dir, "cairn"), "../../cmd/cairn"},
			{"cc", "-std=c11", "-O1", "-g", "-Wall", "-Werror", "-I../../lib", "-o", filepath.Join(dir, "plain"), "testdata/plain.c", filepath.Join(dir, "libcairn.a"), "-lm", "-lpthread", "-ldl"},
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

// long skips a test that kills programs: one that is killed while it finishes, or
// that is quicker than its test, is not told apart yet.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("it depends on when a program is killed: set CAIRN_LONG=1")
	}
}

// TestPlain_Killed kills a C program again and again, and compares its output
// and its file with those of an undisturbed run.
func TestPlain_Killed(t *testing.T) {
	long(t)
	steps, kills := "400", 4
	if os.Getenv("CAIRN_LONG") != "" {
		steps, kills = "3000", 200
	}
	want, out := undisturbed(t, steps)
	dir, file := filepath.Join(t.TempDir(), "ckpt"), filepath.Join(t.TempDir(), "out")
	resumed := 0
	for n := 0; ; n++ {
		cmd := program(t, "plain", dir, steps, "200000", "1", file)
		var stdout bytes.Buffer
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = &stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 1000)
		k, _ := stderr.Read(text) // "started at step 0" or "restored at step 120"
		if bytes.HasPrefix(text[:k], []byte("restored")) {
			resumed++
		}
		if n < kills {
			time.Sleep(rand.N(300 * time.Millisecond)) // any moment will do
			cmd.Process.Kill()
		}
		err = cmd.Wait()
		if err == nil {
			if got := stdout.String(); got != want {
				t.Errorf("after %d kills: %s, want %s", n, got, want)
			}
			break
		}
		if n >= kills || errors.As(err, new(*exec.ExitError)) && cmd.ProcessState.ExitCode() >= 0 {
			t.Fatalf("start %d: %v: %s", n, err, text[:k])
		}
	}
	if got, _ := os.ReadFile(file); !bytes.Equal(got, out) {
		t.Errorf("the file has %d bytes, want %d", len(got), len(out))
	}
	t.Logf("resumed %d times", resumed)
}

func undisturbed(t *testing.T, steps string) (stdout string, file []byte) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	cmd := program(t, "plain", filepath.Join(t.TempDir(), "ckpt"), steps, "200000", "1000000", out)
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if file, err = os.ReadFile(out); err != nil {
		t.Fatal(err)
	}
	return string(text), file
}

// TestPlain_Terminated sends SIGTERM: the program saves, stops, and resumes.
func TestPlain_Terminated(t *testing.T) {
	long(t)
	want, _ := undisturbed(t, "400")
	dir := filepath.Join(t.TempDir(), "ckpt")
	for terminated := false; !terminated; {
		first := program(t, "plain", dir, "400", "200000", "1000000")
		stderr, err := first.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		stderr.Read(make([]byte, 100)) // it is in its loop
		first.Process.Signal(syscall.SIGTERM)
		first.Wait()
		switch code := first.ProcessState.ExitCode(); code {
		case 9:
			terminated = true
		case 0: // it was quicker
			os.RemoveAll(dir)
		default:
			t.Fatalf("exit code %d after SIGTERM", code)
		}
	}
	got, err := program(t, "plain", dir, "400", "200000", "1000000").Output()
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// TestPlain_HelperKilled kills the helper: the program is told, and gets another.
func TestPlain_HelperKilled(t *testing.T) {
	long(t)
	want, _ := undisturbed(t, "400")
	cmd := program(t, "plain", filepath.Join(t.TempDir(), "ckpt"), "400", "200000", "5")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for helper := 0; helper == 0; { // as soon as there is one
		if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)); bytes.Contains(stat, []byte(") Z ")) {
			cmd.Wait()
			t.Skip("the program ended before its helper was seen")
		}
		helper = childOf(cmd.Process.Pid)
		if helper > 0 {
			syscall.Kill(helper, syscall.SIGKILL)
		}
	}
	err := cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case err == nil && stdout.String() != want:
		t.Errorf("%s, want %s", stdout.String(), want)
	case err != nil && code != 3: // killed before the run was open
		t.Errorf("%v\n%s", err, stderr.String())
	case !strings.Contains(stderr.String(), "helper process is gone"):
		t.Errorf("nobody was told:\n%s", stderr.String())
	}
}

func childOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	child := 0
	fmt.Sscan(string(text), &child)
	return child
}

// TestPlain_RestoredByGo loads what a C program saved into variables of Go.
func TestPlain_RestoredByGo(t *testing.T) {
	long(t)
	dir := filepath.Join(t.TempDir(), "ckpt")
	first := program(t, "plain", dir, "100000", "20000", "1")
	stderr, err := first.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	stderr.Read(make([]byte, 100))
	first.Process.Signal(syscall.SIGTERM)
	if first.Wait(); first.ProcessState.ExitCode() != 9 {
		t.Fatalf("exit code %d after SIGTERM", first.ProcessState.ExitCode())
	}
	run, err := cairn.Open(t.Context(), cairn.Options{Dir: dir, Drop: []string{"particles", "wide", "extra"}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var step int32
	var u [200][100]float64
	var counter int64
	var odd bool
	var z complex128
	var bytes [7]uint8
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
	if counter != sum || odd != (step%2 == 0 && step > 0) {
		t.Errorf("at step %d: counter %d, odd %v", step, counter, odd)
	}
}

// TestHeader_Agrees compares what cairn.h and this package say twice.
func TestHeader_Agrees(t *testing.T) {
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
	if got := strings.Join(names, " "); got != "MSG_HELLO MSG_EXTENT MSG_VARS MSG_FILE MSG_STORED MSG_RESTORE MSG_SAVE MSG_FINISH MSG_BYE MSG_GATHERED MSG_LIST MSG_READ MSG_WELCOME MSG_DONE MSG_FAILED MSG_GATHER MSG_NEWS" || msgGathered != 10 || msgNews != 105 {
		t.Errorf("internal.h has other messages: %s", got)
	}
}

// FuzzSession lets anybody send anything: the session ends, and takes no memory
// for what is only announced.
func FuzzSession(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x04\x00\x00\x00crn1"))
	f.Add([]byte("\x03\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs, err := pair()
		if err != nil {
			t.Skip(err)
		}
		go func() {
			theirs.Write(data)
			theirs.CloseWrite()
			buf := make([]byte, 4096)
			for {
				if _, err := theirs.Read(buf); err != nil {
					break
				}
			}
			theirs.Close()
		}()
		Serve(t.Context(), ours)
	})
}

// FuzzType reads descriptions of types.
func FuzzType(f *testing.F) {
	f.Add([]byte("\x0a\x00\x00\x00"))
	f.Add([]byte("\x00\x01\x00\x00\x01\x00\x00\x00s\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00x\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &cursor{p: data}
		if typ, err := readType(c, 0); err == nil && !c.bad && typ.Size() > 1<<30 {
			t.Errorf("%v has %d bytes", typ, typ.Size())
		}
	})
}

func pair() (a, b *net.UnixConn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1], nil
}

// TestInstall_FoundByPkgConfig compiles a program in another directory with an
// installed library, which finds the installed helper.
func TestInstall_FoundByPkgConfig(t *testing.T) {
	dir := build(t)
	if _, err := exec.LookPath("pkg-config"); err != nil {
		t.Skip("no pkg-config")
	}
	prefix := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "../../lib", "install", "BUILD="+dir, "PREFIX="+prefix, "CFLAGS=-O1 -g -Werror").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	os.Mkdir(filepath.Join(prefix, "bin"), 0o755)
	if err := os.Symlink(filepath.Join(dir, "cairn"), filepath.Join(prefix, "bin", "cairn")); err != nil {
		t.Fatal(err)
	}
	flags := exec.Command("pkg-config", "--cflags", "--libs", "cairn")
	flags.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(prefix, "lib/pkgconfig"))
	list, err := flags.Output()
	if err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	args := append([]string{"-std=c11", "-o", plain, "testdata/plain.c"}, strings.Fields(string(list))...)
	if out, err := exec.Command("cc", append(args, "-lm", "-Wl,-rpath,"+filepath.Join(prefix, "lib"))...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(plain, filepath.Join(t.TempDir(), "ckpt"), "20", "1000", "5")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
