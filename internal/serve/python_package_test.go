//go:build linux

package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python is the interpreter with the system's NumPy and mpi4py.
const python = "/usr/bin/python3"

// startPython is a command with package cairn of this source.
func startPython(t *testing.T, needs string, args ...string) *exec.Cmd {
	t.Helper()
	if err := exec.Command(python, "-c", "import "+needs).Run(); err != nil {
		t.Skipf("%s has no %s", python, needs)
	}
	cmd := start(t, python, args...)
	cmd.Env = append(cmd.Env, pythonEnv(t)...)
	return cmd
}

// pythonEnv lets Python find package cairn and the library, and what PYTHONPATH
// says: an mpi4py of another MPI library, for example.
func pythonEnv(t *testing.T) []string {
	t.Helper()
	return []string{"PYTHONPATH=" + source(t, "../../python") + ":" + os.Getenv("PYTHONPATH"), "PYTHONDONTWRITEBYTECODE=1", "CAIRN_LIBRARY=" + filepath.Join(build(t), "libcairn.so")}
}

// source returns the absolute path of a file beside the tests.
func source(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPython_Package runs the tests of the package.
func TestPython_Package(t *testing.T) {
	out := output(t, startPython(t, "numpy", "-m", "unittest", "discover", source(t, "../../python/tests")))
	if !strings.Contains(out, "\nOK") || strings.Contains(out, "Ran 0 tests") {
		t.Error(out)
	}
}

// useCairn is a program that uses the package, and prints its versions.
const useCairn = `
import array, cairn, importlib.metadata, importlib.resources
a = array.array("d", [0, 0])
with cairn.open("ckpt") as run:
    run.protect("a", a)
    run.restore()
    run.checkpoint()
print(importlib.metadata.version("cairn"), cairn.__version__, importlib.resources.files("cairn").joinpath("py.typed").is_file())
`

// checkUse runs useCairn with an interpreter.
func checkUse(t *testing.T, interpreter string, env ...string) {
	t.Helper()
	cmd := start(t, interpreter, "-c", useCairn)
	cmd.Env = append(append(cmd.Env, "CAIRN_LIBRARY="+filepath.Join(build(t), "libcairn.so")), env...)
	if got, want := output(t, cmd), Release+" "+Release+" True\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPython_Wheel makes a wheel, and uses the package in it.
func TestPython_Wheel(t *testing.T) {
	dir := t.TempDir()
	cmd := startPython(t, "zipfile", "-c", "import backend, sys; print(backend.build_wheel(sys.argv[1]))", dir)
	wheel := filepath.Join(dir, strings.TrimSpace(output(t, cmd)))
	checkUse(t, python, "PYTHONPATH="+wheel)
}

// TestPython_Installed installs the package with pip, without a network, in a
// new virtual environment, and uses it there.
func TestPython_Installed(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("it takes seconds to make a virtual environment: set CAIRN_LONG=1")
	}
	dir := t.TempDir()
	venv := filepath.Join(dir, "venv")
	var interpreter string
	for _, interpreter = range []string{python, "python3"} { // the system's may have no ensurepip
		if exec.Command(interpreter, "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 9))").Run() == nil {
			break
		}
	}
	if out, err := exec.Command(interpreter, "-m", "venv", venv).CombinedOutput(); err != nil {
		t.Skipf("no virtual environment can be made: %s", out)
	}
	// pip writes beside the source: it gets a copy.
	if err := os.CopyFS(filepath.Join(dir, "python"), os.DirFS("../../python")); err != nil {
		t.Fatal(err)
	}
	install := exec.Command(filepath.Join(venv, "bin/python"), "-m", "pip", "install", "--no-index", "--disable-pip-version-check", "-q", filepath.Join(dir, "python"))
	install.Env = append(os.Environ(), "PIP_CONFIG_FILE=/dev/null")
	output(t, install)
	checkUse(t, filepath.Join(venv, "bin/python"))
}
