//go:build unix

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// pythonPath is the interpreter that the distribution's h5py belongs to.
const pythonPath = "/usr/bin/python3"

func python(t *testing.T, script string, args ...string) string {
	t.Helper()
	return tool(t, pythonPath, append([]string{"-c", script}, args...)...)
}

func needH5py(t *testing.T) {
	t.Helper()
	if err := exec.Command(pythonPath, "-c", "import h5py").Run(); err != nil {
		t.Skip("python3-h5py is not installed; scripts/deps installs it")
	}
}

// kinds are the files that tools must be able to read.
var kinds = []struct {
	name string
	args []string
	is   func(h ckpt.Header) bool
}{
	{"full", []string{"-full"}, func(h ckpt.Header) bool { return len(h.Bases) == 0 && h.Compression == ckpt.None }},
	{"gzip", []string{"-full", "-compress", "gzip"}, func(h ckpt.Header) bool { return len(h.Bases) == 0 && h.Compression == ckpt.Gzip }},
	{"differential", nil, func(h ckpt.Header) bool { return len(h.Bases) > 0 }},
	{"differential-gzip", []string{"-compress", "gzip"}, func(h ckpt.Header) bool { return len(h.Bases) > 0 && h.Compression == ckpt.Gzip }},
}

// runSurvivor runs the survivor with three checkpoints and returns its
// directories. It saves last at step 80 and ends there.
func runSurvivor(t *testing.T, args []string) (dir, out string) {
	t.Helper()
	dir, out = filepath.Join(t.TempDir(), "ckpt"), t.TempDir()
	d := drive(t, []string{survivor(t)}, append(append(small, "-dir", dir, "-out", out), args...)...)
	d.do("run 70", "save", "run 5", "save", "run 5", "save")
	d.finish()
	return dir, out
}

// compareValues compares what h5py reads with the program's values.
const compareValues = `
import sys, h5py
f = h5py.File(sys.argv[1], "r")
sparse = f["MemBlocks/sparse"][:]
dense = f["MemBlocks/state/float64"][:]
steps = f["MemBlocks/state/int"][:]
phases = f["MemBlocks/state/complex128"][:]
want = {"dense": {}, "sparse": {}}
for line in open(sys.argv[2]):
    w = line.split()
    if w[0] in want:
        want[w[0]][int(w[1])] = float(w[2])
assert len(sparse) == 50000 and len(want["dense"]) == 5000 and len(want["sparse"]) > 200
for i, x in enumerate(sparse):
    assert x == want["sparse"].get(i, 0.0), ("sparse", i, x)
for i, x in want["dense"].items():
    assert dense[i] == x, ("dense", i, dense[i], x)
assert len(phases) == 16 and str(phases.dtype) == "complex128", phases.dtype
print("equal")
`

// TestHDF5_Tools shows that h5dump, h5ls, h5stat and h5py read every kind of
// checkpoint, and find the program's values in it.
func TestHDF5_Tools(t *testing.T) {
	t.Parallel()
	need(t, "h5dump", "h5ls", "h5stat")
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			dir, out := runSurvivor(t, k.args)
			if h := verifyCheckpoints(t, dir)[0]; !k.is(h) {
				t.Fatalf("not that kind of checkpoint: %+v", h.Note)
			}
			file := newest(t, dir)
			must(t, tool(t, "h5ls", "-r", file), "/Header", "/Blocks", "/FileMap/0", "/Context/Variables", "/MemBlocks/sparse        Dataset {50000}")
			must(t, tool(t, "h5dump", file), `DATASET "sparse"`, "H5T_IEEE_F64LE")
			must(t, tool(t, "h5dump", "-p", "-H", file), "STORAGE_LAYOUT")
			must(t, tool(t, "h5stat", file), "File metadata")
			needH5py(t)
			must(t, python(t, compareValues, file, filepath.Join(out, "result.txt")), "equal")
		})
	}
}

// TestHDF5_Repacked shows that a file which h5repack wrote again, in another
// layout and with other filters, restores like the original.
func TestHDF5_Repacked(t *testing.T) {
	t.Parallel()
	need(t, "h5repack")
	ways := map[string][]string{
		"as-is":      nil,
		"gzip":       {"-f", "SHUF", "-f", "GZIP=6"},
		"contiguous": {"-l", "CONTI"},
		"latest":     {"-L"},
	}
	want := reference(t, append(small, "-steps", "120")...)
	for _, k := range kinds {
		for way, args := range ways {
			t.Run(k.name+"/"+way, func(t *testing.T) {
				dir, out := runSurvivor(t, k.args)
				file := newest(t, dir)
				tool(t, "h5repack", append(args, file, file+".new")...)
				if err := os.Rename(file+".new", file); err != nil {
					t.Fatal(err)
				}
				verifyCheckpoints(t, dir)
				d := drive(t, []string{survivor(t)}, append(append(small, "-dir", dir, "-out", out), k.args...)...)
				must(t, d.ready, "ready step=80 resumed=true")
				d.do("run 20", "save", "run 20")
				d.finish()
				verifyCheckpoints(t, dir)
				compare(t, out, want)
			})
		}
	}
}

const edit = `
import sys, h5py
with h5py.File(sys.argv[1], "r+") as f:
    f["MemBlocks/sparse"][3] = 123.5
`

// TestHDF5_Edited shows that a value which was changed in a file counts as
// damage until it is accepted.
func TestHDF5_Edited(t *testing.T) {
	onlyLong(t)
	needH5py(t)
	for _, compress := range []string{"", "gzip"} {
		t.Run("compress="+compress, func(t *testing.T) {
			args := []string{"-full", "-compress", compress}
			dir, out := runSurvivor(t, args)
			args = append(append(small, "-dir", dir, "-out", out), args...)
			file := newest(t, dir)
			python(t, edit, file)

			said, code := cairnTool(t, "verify", dir)
			must(t, said, "damaged", "/MemBlocks/sparse", "does not match its digest")
			if code != 1 {
				t.Fatalf("cairn verify: exit status %d for a damaged checkpoint", code)
			}
			d := drive(t, []string{survivor(t)}, args...)
			must(t, d.ready, "ready step=75 resumed=true")
			d.kill()
			must(t, d.stderr.String(), "skipping a damaged checkpoint", "/MemBlocks/sparse")

			older := filepath.Join(dir, "ckpt-00000002")
			if err := os.Rename(older, filepath.Join(t.TempDir(), "away")); err != nil {
				t.Fatal(err)
			}
			refused, err := exec.Command(survivor(t), args...).CombinedOutput()
			if err == nil {
				t.Fatal("it resumed from a damaged checkpoint, or started over")
			}
			must(t, string(refused), "none of 1 checkpoints", "can be loaded")

			if said, code := cairnTool(t, "verify", "--accept", fmt.Sprintf("%s@%d", dir, 3)); code != 0 {
				t.Fatalf("cairn verify --accept: exit status %d\n%s", code, said)
			}
			verifyCheckpoints(t, dir)
			d = drive(t, []string{survivor(t)}, args...)
			must(t, d.ready, "ready step=80 resumed=true")
			d.finish()
			result, err := os.ReadFile(filepath.Join(out, "result.txt"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(result), "\nsparse 3 123.5\n") {
				t.Fatal("the edited value was not restored")
			}
		})
	}
}
