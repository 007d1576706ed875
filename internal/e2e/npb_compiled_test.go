//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/plain"
)

// 'cairn build' must find everything that was removed from the copies of
// examples/npb that package plain makes.

// kernelPoints lists the points of each kernel at which a rank is killed.
var kernelPoints = []struct {
	name  string
	kills string
}{
	{"ep", "1,31,64"}, {"is", "1,6,10"}, {"cg", "1,8,15"}, {"ft", "2,6"}, {"mg", "1,4"},
}

const compiledRanks = 4

// plainNPB is the copy, with the loops that had a point.
type plainNPB struct {
	dir    string
	loops  map[string]bool // FILE:LINE
	built  string          // built by go build
	made   string          // built by cairn build
	points []string        // points that cairn build has chosen
}

// plainSource makes the copy in a directory of the test.
func plainSource(t *testing.T, top map[string]string) *plainNPB {
	t.Helper()
	p := &plainNPB{dir: t.TempDir(), loops: make(map[string]bool)}
	loops, err := plain.NPB(filepath.Join("..", ".."), p.dir, top)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		p.loops[l] = true
	}
	return p
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// goBuild builds the copy with the go command.
func (p *plainNPB) goBuild(t *testing.T) {
	t.Helper()
	p.built = filepath.Join(p.dir, "plain")
	p.runs(t, "go", "build", "-o", p.built, ".")
}

// cairnBuild makes it restartable.
func (p *plainNPB) cairnBuild(t *testing.T) {
	t.Helper()
	p.made = filepath.Join(p.dir, "made")
	out := p.runs(t, build(t, "./cmd/cairn", runtime.GOARCH), "build", "--json", "-o", p.made, ".")
	var doc struct {
		Points []struct {
			File string
			Line int
		}
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, at := range doc.Points {
		p.points = append(p.points, fmt.Sprintf("%s:%d", at.File, at.Line))
	}
}

// runs runs a tool in the copy's directory, and returns its output.
func (p *plainNPB) runs(t *testing.T, argv ...string) []byte {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), lazyGC), plain.Env()...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, complaint.String())
	}
	return out
}

// compiledNPB is the copy, built in both ways, once for all tests.
var compiledNPB struct {
	sync.Mutex
	p *plainNPB
}

func newCompiledNPB(t *testing.T) *plainNPB {
	t.Helper()
	compiledNPB.Lock()
	defer compiledNPB.Unlock()
	if compiledNPB.p == nil {
		p := plainSource(t, nil)
		p.goBuild(t)
		p.cairnBuild(t)
		for _, file := range []*string{&p.built, &p.made} { // they outlive the first test
			to := filepath.Join(binaries.dir, "npb-"+filepath.Base(*file))
			if err := os.Rename(*file, to); err != nil {
				t.Fatal(err)
			}
			*file = to
		}
		compiledNPB.p = p
	}
	return compiledNPB.p
}

// TestNPBCompiled_PointsAsByHand shows that 'cairn build' chooses the loops
// that have points by hand.
func TestNPBCompiled_PointsAsByHand(t *testing.T) {
	p := newCompiledNPB(t)
	if len(p.points) != len(p.loops) || len(p.loops) != len(kernelPoints) {
		t.Errorf("points at %v; by hand at %v", p.points, p.loops)
	}
	for _, at := range p.points {
		if !p.loops[at] {
			t.Errorf("there is a point at %s, and by hand only at %v", at, p.loops)
		}
	}
}

// TestNPBCompiled_Killed kills one rank of each kernel at several points, and
// compares the results with the plain program's.
func TestNPBCompiled_Killed(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	p := newCompiledNPB(t)
	for i, k := range kernelPoints {
		output := sync.OnceValue(func() string {
			return steady(undisturbed(t, compiledRanks, p.built, "-kernel", k.name, "-class", "S"))
		})
		for j, transport := range []string{"shm", "tcp"} {
			if !stressed() && i+j != 4 { // MG and FT
				continue
			}
			t.Run(k.name+"-"+transport, func(t *testing.T) {
				want := output()
				must(t, want, verified)
				r := newRun(t, p.made, "-kernel", k.name, "-class", "S")
				victim := strconv.Itoa((i + j) % compiledRanks)
				s := r.startIn([]string{"CAIRN_KILL_AT=" + k.kills, "CAIRN_KILL_RANK=" + victim},
					"-n", strconv.Itoa(compiledRanks), "--transport", transport, "--every-points", "3")
				s.finishes()
				kills := strings.Count(k.kills, ",") + 1
				if n := strings.Count(s.text(), "restored checkpoint"); n != kills {
					t.Errorf("%d starts from a checkpoint, and rank "+victim+" was to be killed %d times:\n%s", n, kills, s.text())
				}
				if got := steady(r.output()); got != want {
					t.Errorf("the output differs: %s", firstDifference([]byte(got), []byte(want)))
				}
			})
		}
	}
}

// TestNPBCompiled_KilledAtRandom kills processes at random moments.
func TestNPBCompiled_KilledAtRandom(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	p := newCompiledNPB(t)
	const most = 60
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CAIRN_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("CAIRN_SEED=%d", seed)
	for i, v := range []struct{ kernel, class, flags string }{
		{"cg", "W", "--transport tcp --every-points 1"},
		{"ep", "S", "--transport shm --every-points 2"},
		{"ft", "S", "--transport tcp --every 10ms"}, // coordinated, wherever the ranks are
		{"is", "W", "--transport shm --every 10ms"},
		{"mg", "W", "--transport shm --every-points 1"},
	} {
		t.Run(v.kernel, func(t *testing.T) {
			args := []string{"-kernel", v.kernel, "-class", v.class}
			k := &hunter{t: t, n: compiledRanks, command: append([]string{p.made}, args...), dice: rand.New(rand.NewPCG(seed, uint64(i))), most: most}
			k.flags = append(strings.Fields(v.flags), "-n", strconv.Itoa(compiledRanks), "--grace", "5s")
			k.want = steady(undisturbed(t, compiledRanks, append([]string{p.built}, args...)...))
			must(t, k.want, verified)
			for tries := 0; k.blows.all < k.most && tries < 3*most; tries++ { // a run may end before it is hit
				k.hunt()
			}
			if k.blows.all == 0 {
				t.Error("it was never killed")
			}
			t.Logf("%d kills in %d runs: %s", k.blows.all, k.runs, k.blows)
		})
	}
}
