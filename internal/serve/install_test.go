//go:build linux

package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// install installs the library and the cairn command under a new prefix.
func install(t *testing.T) (prefix string) {
	t.Helper()
	dir := build(t)
	prefix = t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "../../lib", "install", "BUILD="+dir, "PREFIX="+prefix, "CFLAGS=-O1 -g -Werror").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	os.Mkdir(filepath.Join(prefix, "bin"), 0o755)
	if err := os.Symlink(filepath.Join(dir, "cairn"), filepath.Join(prefix, "bin", "cairn")); err != nil {
		t.Fatal(err)
	}
	return prefix
}

// runs runs a program that was compiled as plain.c.
func runs(t *testing.T, plain string) {
	t.Helper()
	cmd := exec.Command(plain, filepath.Join(t.TempDir(), "ckpt"), "20", "1000", "5")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInstall_FoundByPkgConfig compiles a program in another directory with an
// installed library, which finds the installed helper.
func TestInstall_FoundByPkgConfig(t *testing.T) {
	if _, err := exec.LookPath("pkg-config"); err != nil {
		t.Skip("no pkg-config")
	}
	prefix := install(t)
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
	runs(t, plain)
}

// TestInstall_FoundByCMake does the same with find_package, for the shared
// library and for the static one.
func TestInstall_FoundByCMake(t *testing.T) {
	if _, err := exec.LookPath("cmake"); err != nil {
		t.Skip("no cmake")
	}
	prefix, dir := install(t), t.TempDir()
	source, err := filepath.Abs("testdata/plain.c")
	if err != nil {
		t.Fatal(err)
	}
	text := `cmake_minimum_required(VERSION 3.10)
project(sim C)
find_package(cairn REQUIRED)
foreach(kind cairn static)
  add_executable(plain-${kind} ` + source + `)
  target_link_libraries(plain-${kind} cairn::${kind} m)
endforeach()
`
	if err := os.WriteFile(filepath.Join(dir, "CMakeLists.txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-S", dir, "-B", dir, "-DCMAKE_PREFIX_PATH=" + prefix}, {"--build", dir}} {
		if out, err := exec.Command("cmake", args...).CombinedOutput(); err != nil {
			t.Fatalf("cmake %v: %v\n%s", args, err, out)
		}
	}
	runs(t, filepath.Join(dir, "plain-cairn"))
	t.Setenv("CAIRN_HELPER", filepath.Join(prefix, "bin", "cairn"))
	runs(t, filepath.Join(dir, "plain-static"))
}

// TestInstall_Pages looks for the manual page of every function.
func TestInstall_Pages(t *testing.T) {
	prefix := install(t)
	header, err := os.ReadFile("../../lib/cairn.h")
	if err != nil {
		t.Fatal(err)
	}
	groff, _ := exec.LookPath("groff")
	for _, m := range regexp.MustCompile(`(?m)^[a-zA-Z].*[ *](cairn_[a-z_]+)\(.*;`).FindAllStringSubmatch(string(header), -1) {
		page := filepath.Join("share/man/man3", m[1]+".3")
		text, err := os.ReadFile(filepath.Join(prefix, page))
		if err != nil {
			t.Error(err)
			continue
		}
		if other, ok := strings.CutPrefix(string(text), ".so "); ok {
			if text, err = os.ReadFile(filepath.Join(prefix, "share/man", strings.TrimSpace(other))); err != nil {
				t.Error(err)
			}
		}
		if !strings.Contains(string(text), m[1]+"(") {
			t.Errorf("%s does not show %s:\n%s", page, m[1], text)
		}
		if groff != "" {
			cmd := exec.Command(groff, "-man", "-ww", "-Tutf8", "-")
			cmd.Stdin = strings.NewReader(string(text))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil || stderr.Len() > 0 {
				t.Errorf("%s: %v: %s", page, err, &stderr)
			}
		}
	}
}

// TestHeader_CPlusPlus compiles the headers as C++.
func TestHeader_CPlusPlus(t *testing.T) {
	const text = `#include HEADER
#include <vector>
int main()
{
	cairn_options options = CAIRN_OPTIONS;
	cairn_run *run;
	std::vector<double> u(10);
	size_t n = u.size();
	return cairn_open(&run, "x", &options) < 0 || cairn_protect(run, "u", u.data(), CAIRN_DOUBLE, 1, &n) < 0;
}
`
	source := filepath.Join(t.TempDir(), "sim.cc")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for compiler, header := range map[string]string{"c++": "cairn.h", "mpic++.openmpi": "cairn_mpi.h", "mpicxx.mpich": "cairn_mpi.h"} {
		if _, err := exec.LookPath(compiler); err != nil {
			t.Logf("no %s", compiler)
			continue
		}
		for _, std := range []string{"c++11", "c++20"} {
			if out, err := exec.Command(compiler, "-std="+std, "-Wall", "-Wextra", "-Wno-cast-function-type", "-Werror", "-fsyntax-only", "-I../../lib", "-DHEADER=<"+header+">", source).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", compiler, std, err, out)
			}
		}
	}
}
