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

// snippets returns the code blocks of a language in a page, as they are
// printed.
func snippets(t *testing.T, page, language string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		list = append(list, m[1])
	}
	return list
}

// write writes a file of a test.
func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDocs_C compiles and runs the programs of docs/c.md, with what they leave
// out.
func TestDocs_C(t *testing.T) {
	const before = `static int cudaMalloc(void **p, size_t n) { return !(*p = calloc(1, n)); }
int main(void)
{
	(void)cudaMalloc;
`
	const open = "cairn_run *run;\nsize_t n = 100;\nif (cairn_open(&run, \"ckpt\", NULL) < 0) return 1;\n"
	for i, text := range snippets(t, "c.md", "c") {
		compiler, first, last := "cc", before, "}\n"
		switch {
		case strings.Contains(text, "int main"):
			first, last = "", ""
			text = strings.Replace(text, "100000", "20", 1)
		case strings.Contains(text, "MPI_COMM_WORLD"):
			compiler, first, last = "mpicc.mpich", before+"cairn_run *run;\nMPI_Init(NULL, NULL);\n", "\nint rc = cairn_restore(run); cairn_close(run); MPI_Finalize(); return rc < 0;\n}\n"
		case strings.Contains(text, "cudaMalloc"):
			first, last = before+open, "\nreturn cairn_restore(run) < 0 || cairn_checkpoint(run) < 0 || cairn_close(run) < 0;\n}\n"
		}
		if _, err := exec.LookPath(compiler); err != nil {
			t.Log(err)
			continue
		}
		includes := regexp.MustCompile(`(?m)^#include.*\n`)
		header := strings.Join(append(includes.FindAllString(text, -1), "#include <cairn.h>\n#include <stdlib.h>\n"), "")
		source := write(t, "sim.c", header+first+includes.ReplaceAllString(text, "")+last)
		path := filepath.Join(t.TempDir(), "sim")
		output(t, exec.Command(compiler, "-std=c11", "-Wall", "-Werror", "-I../../lib", "-o", path, source, filepath.Join(build(t), "libcairn.a"), "-lpthread", "-ldl"))
		if got := output(t, start(t, path)); got != "" {
			t.Errorf("program %d says %s", i+1, got)
		}
	}
}

// TestDocs_Fortran does the same with docs/fortran.md.
func TestDocs_Fortran(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("TestInstall_Fortran compiles an example every day: set CAIRN_LONG=1")
	}
	list := snippets(t, "fortran.md", "fortran")
	if len(list) != 4 || !strings.HasPrefix(list[3], "use cairn\n") {
		t.Fatal("docs/fortran.md has other programs")
	}
	programs := map[string]string{
		"gfortran":     strings.Replace(list[0], "100000", "20", 1),
		"gfortran 2":   "program two\nuse cairn\nimplicit none\ntype(cairn_run) :: run\ninteger :: stat, out\ncharacter(len=200) :: message\ncall cairn_open(run, \"ckpt\")\n" + strings.Replace(list[2], "call cairn_restore(run)\n", list[1], 1) + "close (out)\ncall cairn_close(run)\nend program\n",
		"mpif90.mpich": "program three\n" + strings.Replace(list[3], "call MPI_Init()", "implicit none\ntype(cairn_run) :: run\ncall MPI_Init()", 1) + "call cairn_restore(run)\ncall cairn_close(run)\ncall MPI_Finalize()\nend program\n",
	}
	for name, text := range programs {
		t.Run(name, func(t *testing.T) {
			compiler, _, _ := strings.Cut(name, " ")
			sources := fortranSources[:2:2]
			if compiler != "gfortran" {
				sources = append(sources, mpiSources...)
			}
			if got := output(t, start(t, compileFortran(t, compiler, append(sources, write(t, "sim.f90", text))...))); got != "" {
				t.Errorf("it says %s", got)
			}
		})
	}
}

// TestDocs_Python does the same with docs/python.md and docs/coming-from.md.
func TestDocs_Python(t *testing.T) {
	onlyLong(t, "TestDocs_C runs the programs of a page every day")
	startPython(t, "numpy")
	const before = `
import cairn, numpy as np, random, types, sys
class Thing:
    def __init__(self): self.w = np.ones(9)
    def state_dict(self): return {"w": self.w, "n": 3}
    def load_state_dict(self, d): self.w = d["w"]
    def step(self): self.w += 1
def train(*of): pass
train_one_step, steps, step, path = train, 20, 0, "path"
model, opt, optimizer, scheduler = Thing(), Thing(), Thing(), Thing()
torch = types.SimpleNamespace(default_generator=random.Random(3), save=train)
`
	programs := append(snippets(t, "python.md", "python"), snippets(t, "coming-from.md", "python")...)
	if len(programs) != 6 {
		t.Fatalf("the pages have %d programs", len(programs))
	}
	for i, text := range programs {
		first := before
		switch {
		case strings.Contains(text, "mpi4py"):
			if exec.Command(python, "-c", "import mpi4py").Run() != nil {
				continue
			}
		case strings.Contains(text, "run.variables"):
			first += "run = cairn.open('ckpt')\n"
			text += "\nassert u == {}\nrun.close()\n"
		case strings.Contains(text, "open_file"):
			text = strings.Replace(text, "    run.restore()\n", "    run.state.step = 7\n    run.restore()\n", 1)
		}
		if i == 0 {
			text = strings.Replace(text, "10_000", "20", 1) // relax takes some time
		}
		cmd := start(t, python, write(t, "sim.py", first+text))
		cmd.Env = append(cmd.Env, pythonEnv(t)...)
		if got := output(t, cmd); got != "" {
			t.Errorf("program %d says %s", i+1, got)
		}
	}
}
