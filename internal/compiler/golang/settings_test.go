package golang

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/gobuild"
	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
)

// settled prints the settings that a program was built with, and the effect of
// those that concern math/rand.
const settled = `package main

import (
	"fmt"
	"math/rand"
	"runtime/debug"
)

func main() {
	sum := 0
	for i := 0; i < 20; i++ {
		for k := 0; k < 1000; k++ {
			sum += i ^ k
		}
	}
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "DefaultGODEBUG" {
			fmt.Println(s.Value)
		}
	}
	fmt.Println(sum, rand.Int63() == rand.New(rand.NewSource(1)).Int63())
	SEED
}
`

// TestMake_SettingsOfPlainBuild compares the settings of programs with those of
// a plain build, and what rand.Seed and the generator of math/rand do.
func TestMake_SettingsOfPlainBuild(t *testing.T) {
	seeds := strings.ReplaceAll(settled, "SEED", "rand.Seed(5)\n\tfmt.Println(rand.Int63() == rand.New(rand.NewSource(5)).Int63())")
	cache := t.TempDir()
	for i, c := range []struct{ name, mod, src string }{
		{"go1.19", "go 1.19\n", seeds},
		{"go1.26", "go 1.26\n", seeds},
		{"lines", "go 1.26\n\ngodebug randseednop=0\n", "//go:debug panicnil=1\n" + seeds},
		{"unsaved", "go 1.26\n", strings.ReplaceAll(settled, "SEED", "")},
		{"autoseed", "go 1.26\n", "//go:debug randautoseed=0\n" + strings.ReplaceAll(settled, "SEED", "")},
	} {
		if i < 2 && os.Getenv("CAIRN_LONG") == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := programtest.Tree(t, "go.mod", "module example.com/settled\n\n"+c.mod, "main.go", c.src)
			plain := filepath.Join(t.TempDir(), "plain")
			cmd := exec.Command("go", "build", "-o", plain, ".")
			cmd.Dir, cmd.Env = dir, programtest.Offline()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			m, err := Make(context.Background(), dir, nil, MakeOptions{Options: gobuild.Options{Env: programtest.Offline(), Cache: cache}})
			if err != nil {
				t.Fatal(err)
			}
			if c.name == "unsaved" { // it was not built for a generator that starts with seed 1
				cmd := exec.Command(m.Path)
				cmd.Env = append(os.Environ(), "GODEBUG=randautoseed=0", "CAIRN_DIR="+t.TempDir())
				out, err := cmd.CombinedOutput()
				if err == nil || !strings.Contains(string(out), "begin again after a restart") {
					t.Errorf("%v\n%s", err, out)
				}
			}
			for _, env := range []string{"", "randseednop=0", "randseednop=1", "randautoseed=0", "randautoseed=1,randseednop=0", "randseednop=1,randseednop=0"} {
				run := func(program string) string {
					cmd := exec.Command(program)
					cmd.Env = append(os.Environ(), "GODEBUG="+env)
					out, err := cmd.CombinedOutput()
					if err != nil {
						t.Errorf("GODEBUG=%s: %v\n%s", env, err, out)
					}
					return string(out)
				}
				if want, got := run(plain), run(m.Path); got != want {
					t.Errorf("GODEBUG=%s: the plain program says\n%sand here\n%s", env, want, got)
				}
			}
		})
	}
}
