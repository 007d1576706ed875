//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// cairnBuilds runs 'cairn build' on a package of this module, with env added to
// the environment. It returns the program and the messages.
func cairnBuilds(t *testing.T, pkg string, env ...string) (program, said string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), "build", "-o", program, pkg)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", lazyGC), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("cairn build %s: %v\n%s", pkg, err, out)
	}
	return program, string(out)
}

// TestCompiled_MessagesInflight kills ranks of a program that has messages in
// flight at its points, communicators of some ranks, contexts, and its run in a
// struct.
func TestCompiled_MessagesInflight(t *testing.T) {
	t.Parallel()
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/token")
	want := undisturbed(t, 4, program(t, "token"))
	must(t, want, "world true", "traced 8")
	for _, v := range []struct{ transport, kills, rank string }{
		{"shm", "1,5,77,200", "2"}, {"tcp", "6,399,400", "0"},
	} {
		if v.transport == "tcp" && !stressed() { // "stopped" continues over TCP
			continue
		}
		t.Run(v.transport, func(t *testing.T) {
			r := newRun(t, made)
			s := r.startIn([]string{"CAIRN_KILL_AT=" + v.kills, "CAIRN_KILL_RANK=" + v.rank}, "-n", "4", "--transport", v.transport)
			s.finishes()
			if n, kills := strings.Count(s.text(), "restored checkpoint"), strings.Count(v.kills, ",")+1; n != kills {
				t.Errorf("%d starts from a checkpoint after %d kills:\n%s", n, kills, s.text())
			}
			sameOutput(t, r.output(), want)
		})
	}
	t.Run("stopped", func(t *testing.T) { // then resumed over another transport
		r := newRun(t, made, "-steps", "2000")
		s := r.start("-n", "4", "--transport", "shm")
		s.awaits("committed")
		s.stops()
		r.start("-n", "4", "--transport", "tcp", "--every-points", "100").finishes()
		sameOutput(t, r.output(), undisturbed(t, 4, program(t, "token"), "-steps", "2000"))
	})
}

// TestCompiled_OwnPointsBuiltUnchanged shows that a program which takes its own
// checkpoints is built unchanged.
func TestCompiled_OwnPointsBuiltUnchanged(t *testing.T) {
	made, said := cairnBuilds(t, "./examples/heat")
	must(t, said, "the program takes its own checkpoints", "it is built unchanged")
	r := newRun(t, made, "-n", "64", "-steps", "200")
	r.start("-n", "2", "--every-points", "50").finishes()
	must(t, r.output(), "heat ok")
}

// TestCompiled_OtherArchitecture moves a program of 'cairn build' between
// machines, as TestRestart_OtherArchitecture does, and continues it in another
// build.
func TestCompiled_OtherArchitecture(t *testing.T) {
	t.Parallel()
	const source = "./internal/e2e/testdata/words"
	others := emulators(t)
	here, _ := cairnBuilds(t, source)
	route := [][]string{{here}}
	for _, e := range others {
		made, _ := cairnBuilds(t, source, "GOARCH="+e.goarch)
		route = append(route, []string{e.name, made})
	}
	again, _ := cairnBuilds(t, source, "GOFLAGS=-gcflags=-l") // another build
	route = append(route, []string{again}, []string{here})
	want, err := exec.Command(build(t, source, runtime.GOARCH), "-rounds", "90").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, want)
	}
	dir := filepath.Join(t.TempDir(), "ckpt")
	for i, argv := range route {
		cmd := exec.Command(argv[0], append(argv[1:], "-rounds", "90")...)
		last := i == len(route)-1
		if cmd.Env = append(os.Environ(), "CAIRN_DIR="+dir); !last {
			cmd.Env = append(cmd.Env, fmt.Sprint("CAIRN_KILL_AT=", 15*(i+1)))
		}
		got, err := cmd.CombinedOutput()
		if last {
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("at last it ended with %v and printed\n%s\ninstead of\n%s", err, got, want)
			}
			return
		}
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
			t.Fatalf("leg %d, %s: %v instead of SIGKILL\n%s", i, argv[0], err, got)
		}
		verifyCheckpoints(t, dir)
	}
}

// TestMigrate_CompiledOtherArchitecture moves a running program of 'cairn
// build' with open files to a big-endian host, and back.
func TestMigrate_CompiledOtherArchitecture(t *testing.T) {
	t.Parallel()
	onlyLong(t) // it compiles a standard library
	e := bigEndian
	need(t, e.name)
	const source = "./internal/e2e/testdata/clerk"
	made, _ := cairnBuilds(t, source)
	there, _ := cairnBuilds(t, source, "GOARCH="+e.goarch)
	abroad := script(t, "clerk", fmt.Sprintf("exec %s %s \"$@\"", e.name, there))
	plain := t.TempDir()
	want := tool(t, build(t, source, runtime.GOARCH), "-dir", plain, "-steps", "300")
	r := newRun(t)
	books := filepath.Join(r.root, "books")
	if err := os.Mkdir(books, 0o777); err != nil {
		t.Fatal(err)
	}
	r.command = []string{made, "-dir", books, "-steps", "300", "-pause", "5ms"}
	p := r.travels(1, r.start("-n", "1", "--every", "100ms", "--hosts", "a:1", "--rsh", hereRemote(t)+" {host}"))
	p.s.awaits("started")
	p.moves("--rank", "0", "--to", "far", "--program", abroad)
	if exe := executes(p.pidOf(0)); !strings.HasPrefix(exe, "qemu-") {
		t.Fatalf("rank 0 is run by %s", exe)
	}
	p.moves("--rank", "0", "--to", "a", "--program", made)
	p.s.finishes()
	sameOutput(t, r.output(), want)
	sameTree(t, books, plain)
}
