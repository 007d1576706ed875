package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// latticeSource fails in its 35th step.
const latticeSource = `package main

import "os"

type model struct {
	grid [][]float64
	mass []float32
}

func walk(depth int, lattice []float64, m *model) {
	own := make([]int32, 5+depth)
	if depth > 0 {
		walk(depth-1, lattice, m)
		os.Exit(int(own[0]))
	}
	seen := make([]uint8, 9)
	visit := func(i int) { seen[i%9]++ }
	for step := 1; step <= 40; step++ {
		for i := range lattice {
			lattice[i] = float64(step * i)
		}
		own[1], m.grid[1][2] = int32(step), float64(step)
		visit(step)
		if step == 35 {
			panic("a defect")
		}
	}
	os.Exit(int(m.mass[0]) + int(seen[0]))
}

func main() {
	m := &model{mass: make([]float32, 7)}
	for range 3 {
		m.grid = append(m.grid, make([]float64, 4))
	}
	walk(2, make([]float64, 10000), m)
}
`

// TestNames_AsInSource checks that inspect, diff and HDF5 tools find the
// variables of a compiled program under the names of its source.
func TestNames_AsInSource(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "go.mod", "module example.com/lattice\n\ngo 1.24\n")
	write(t, "main.go", latticeSource)
	t.Setenv("CAIRN_KILL_AT", "10,20,30")
	cairnRun(t, "run", "--run", "r", "--retries", "1", ".").complains("killed by signal 9", "restored checkpoint 3")
	t.Setenv("CAIRN_KILL_AT", "")

	doc := decode[inspectDocument](cairnRun(t, "inspect", "--json", "r").exit(exitFine))
	got := map[string]nameInfo{}
	for _, v := range doc.Variables {
		for _, n := range v.Names {
			got[n.Name] = n
		}
	}
	for name, shape := range map[string]string{
		"main.walk[0].lattice": "10000", "main.walk[2].own": "5", "main.walk[1].own": "6",
		"main.walk[0].m.grid": "3×4", "main.walk[2].m.mass": "7", "main.walk[2].seen": "9",
	} {
		if n, ok := got[name]; !ok || text(n) != shape {
			t.Errorf("%s: %+v, want shape %s", name, n, shape)
		}
	}
	cairnRun(t, "inspect", "r").exit(exitFine).says("  main.walk[0].lattice ", "[]float64", "10000 ", "  main.walk[0].m.grid ", "3×4 ")
	out := cairnRun(t, "diff", "r@2", "r@3").exit(exitFound)
	out.says("main.walk[0].lattice[1] ", "9999 of 10000", "/MemBlocks/main.walk[0].lattice", "main.walk[2].own[1] ", "main.walk[0].m.grid[1][2] ")
	if strings.Contains(out.out, "/MemBlocks/frames/float64") {
		t.Errorf("an array with a name is not shown under it:\n%s", out.out)
	}

	cairnRun(t, "export", "r", "last.h5").exit(exitFine)
	for _, file := range []string{"last.h5", filepath.Join("r", "ckpt", "ckpt-00000003", "rank-0000.h5"), filepath.Join("r", "ckpt", "ckpt-00000002", "rank-0000.h5")} {
		python(t, `import h5py, sys
f = h5py.File(sys.argv[1], "r")["MemBlocks"]
step = f["main.walk[2].own"][1]
assert 5 < step < 35, step
assert f["main.walk[0].lattice"].shape == (10000,) and f["main.walk[0].lattice"][7] == 7 * step
assert (f["main.walk[0].lattice"][100:9000:3] == [step * i for i in range(100, 9000, 3)]).all()
assert f["main.walk[0].m.grid"].shape == (3, 4) and f["main.walk[0].m.grid"][1, 2] == step and f["main.walk[0].m.grid"][:].sum() == step
assert f["main.walk[2].seen"][:].sum() == step
`, file)
	}
}

func text(n nameInfo) string { return shape(n.Shape) }
