//go:build linux

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/interconnects"
)

// These tests move programs that do not use checkpoints and were made by 'cairn
// build'.

// TestMigrate_Galaxies moves the plain example, started from its source.
func TestMigrate_Galaxies(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	net := network(t, 2)
	a, b := net.Hosts[0], net.Hosts[1]
	args := []string{"-stars", "3000", "-steps", "30000", "-every", "5000", "-path"}
	plain := t.TempDir()
	want := tool(t, build(t, "./examples/galaxies", runtime.GOARCH), append(args, filepath.Join(plain, "path"))...)

	src, err := filepath.Abs(filepath.Join("..", "..", "examples", "galaxies"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(t, src)
	path := filepath.Join(r.root, "path")
	r.command = append(append(r.command, args...), path)
	p := r.travels(1, r.start("-n", "1", "--every", "1h", "--hosts", slots(net, 1, 1), "--rsh", interconnects.Shell))
	p.s.awaits("started")
	// Without a checkpoint, and with one.
	p.moves("--rank", "0", "--to", b)
	p.moves("--host", b, "--to", a, "--rounds", "0")
	if out, code := cairnTool(t, "checkpoint", p.run()); code != 0 {
		t.Fatalf("%s\n%s", out, p.s.text())
	}
	p.moves("--rank", "0", "--to", b)
	p.s.finishes()
	sameOutput(t, r.output(), want)
	compareFiles(t, path, filepath.Join(plain, "path"))
}

// TestMigrate_ChangedFiles moves a program that changes files in all ways, and
// kills it between moves.
func TestMigrate_ChangedFiles(t *testing.T) {
	t.Parallel()
	net := network(t, 2)
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/clerk")
	plain := t.TempDir()
	want := tool(t, build(t, "./internal/e2e/testdata/clerk", runtime.GOARCH), "-dir", plain, "-steps", "600")
	for _, v := range []struct{ name, every string }{{"with checkpoints", "40ms"}, {"without", "1h"}} {
		if v.name == "without" && !stressed() {
			break
		}
		t.Run(v.name, func(t *testing.T) {
			r := newRun(t)
			books := filepath.Join(r.root, "books")
			if err := os.Mkdir(books, 0o777); err != nil {
				t.Fatal(err)
			}
			r.command = []string{made, "-dir", books, "-steps", "600", "-pause", "2ms"}
			p := r.travels(1, r.start("-n", "1", "--every", v.every, "--hosts", slots(net, 1, 1), "--rsh", interconnects.Shell))
			p.s.awaits("started")
			for i := range 4 {
				p.moves("--rank", "0", "--to", net.Hosts[(i+1)%2], "--rounds", strconv.Itoa(i%3))
				if i == 1 {
					syscall.Kill(p.pidOf(0), syscall.SIGKILL)
					p.s.awaits("started again")
				}
			}
			p.s.finishes()
			sameOutput(t, r.output(), want)
			sameTree(t, books, plain)
		})
	}
}

// sameTree compares all files below two directories.
func sameTree(t *testing.T, got, want string) {
	t.Helper()
	list := func(root string) map[string]string {
		all := make(map[string]string)
		err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var b []byte
				b, err = os.ReadFile(filepath.Join(root, path))
				all[path] = string(b)
			} else if err == nil {
				all[path] = d.Type().String()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	a, b := list(got), list(want)
	for name, text := range b {
		if a[name] != text {
			t.Errorf("%s differs: %s", name, firstDifference([]byte(a[name]), []byte(text)))
		}
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}

// TestMigrate_CompiledRanks moves ranks of programs that exchange messages.
func TestMigrate_CompiledRanks(t *testing.T) {
	t.Parallel()
	net := network(t, 3)
	flags := []string{"-n", strconv.Itoa(compiledRanks), "--hosts", slots(net, 2, 2), "--rsh", interconnects.Shell}
	npb, crew := &plainNPB{}, ""
	if stressed() {
		npb = newCompiledNPB(t)
		crew, _ = cairnBuilds(t, "./internal/e2e/testdata/crew")
	}
	token, _ := cairnBuilds(t, "./internal/e2e/testdata/token")
	for _, v := range []struct {
		name, plain, made string
		args              string
	}{
		{"cg", npb.built, npb.made, "-kernel cg -class W"},
		{"ft", npb.built, npb.made, "-kernel ft -class W"},
		{"mg", npb.built, npb.made, "-kernel mg -class W"},
		{"token", program(t, "token"), token, "-steps 20000"},
		{"crew", program(t, "crew"), crew, "-steps 20000"},
	} {
		for i, every := range []string{"--every=1h", "--every-points=2"} {
			if !stressed() && (i == 0 || v.name != "token") || i == 1 && v.name == "ft" {
				continue
			}
			if (v.name == "token" || v.name == "crew") && every != "--every=1h" {
				every = "--every-points=500"
			}
			t.Run(v.name+every, func(t *testing.T) {
				args := strings.Fields(v.args)
				want := steady(undisturbed(t, compiledRanks, append([]string{v.plain}, args...)...))
				r := newRun(t, append([]string{v.made}, args...)...)
				p := r.travels(compiledRanks, r.start(append(flags, every)...))
				moved := p.movesAround(4, net.Hosts)
				if every != "--every=1h" && strings.Contains(p.s.text(), "committed") { // checkpoints that moved ranks took are good
					if st := p.s.state(); st != nil && len(st.Ranks) > 0 && syscall.Kill(st.Ranks[0].Pid, syscall.SIGKILL) == nil {
						p.s.sees(0, "started again")
					}
				}
				p.s.finishes()
				if moved < 2 {
					t.Errorf("%d moves:\n%s", moved, p.s.text())
				}
				if got := steady(r.output()); got != want {
					t.Errorf("the output differs after %d moves: %s", moved, firstDifference([]byte(got), []byte(want)))
				}
			})
		}
	}
}
