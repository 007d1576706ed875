//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/interconnects"
)

// TestMigrate_AroundHosts moves ranks that exchange messages all the time from
// host to host: one, some, all of a host, back and forth, between hosts and
// within one.
func TestMigrate_AroundHosts(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	net := network(t, 3)
	a, b, c := net.Hosts[0], net.Hosts[1], net.Hosts[2]
	for _, v := range []struct {
		name  string
		flags []string
	}{
		{"mixed", nil},
		{"tcp", []string{"--transport", "tcp"}},
	} {
		if v.name == "tcp" && !stressed() {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			p := traveller(t, 8, append(v.flags, "--hosts", slots(net, 4, 4), "--rsh", interconnects.Shell)...)
			p.moves("--rank", "1", "--to", b) // one
			p.onlyRanks()
			p.moves("--rank", "2-3", "--to", c, "--rounds", "0") // a half
			p.moves("--host", a, "--to", c)                      // a whole host
			p.onlyRanks()
			p.moves("--rank", "0,2,3", "--to", a, "--chunk", "64K")
			p.moves("--host", b, "--to", c)
			p.moves("--rank", "1,4-7", "--to", a) // all are together
			p.onlyRanks()
			for r, h := range p.where() {
				if h != a {
					t.Errorf("rank %d is on %s", r, h)
				}
			}
			p.moves("--rank", "0", "--to", c)
			p.moves("--rank", "0", "--to", c) // from one process to another
			p.arrives()
			// Ranks on one host share memory, if that is allowed.
			for r := range p.n {
				b, err := os.ReadFile(filepath.Join(p.root, fmt.Sprintf("routes-%d", r)))
				if err != nil {
					t.Fatal(err)
				}
				for i, way := range strings.Split(string(b), " ") {
					want := "tcp"
					if i == r {
						want = ""
					} else if v.flags == nil && i != 0 && r != 0 {
						want = "shm"
					}
					if way != want {
						t.Errorf("from rank %d to %d by %s, not %s", r, i, way, want)
					}
				}
			}
		})
	}
}

// TestMigrate_MessagesInflight moves ranks whose points are between sends and
// receives of all kinds.
func TestMigrate_MessagesInflight(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	net := network(t, 3)
	want := undisturbed(t, 4, program(t, "flight"), "-steps", "250")
	for _, flags := range []string{"--every 1h", "--every-points 50", "--transport tcp --every 1h"} {
		if !stressed() && flags != "--every-points 50" {
			continue
		}
		t.Run(flags, func(t *testing.T) {
			moved, said := 0, ""
			for try := 0; try < 4 && moved < 3; try++ { // it may end before it is moved often enough
				r := newRun(t, program(t, "flight"), "-steps", "250")
				p := r.travels(4, r.start(append(strings.Fields(flags), "-n", "4", "--hosts", slots(net, 2, 2), "--rsh", interconnects.Shell)...))
				moved = p.movesAround(6, net.Hosts)
				p.s.finishes()
				said = p.s.text()
				sameOutput(t, r.output(), want)
			}
			if moved < 3 {
				t.Errorf("%d moves:\n%s", moved, said)
			}
		})
	}
}

// TestMigrate_NPBKernels moves ranks of the NPB kernels while they compute,
// over TCP, over shared memory and TCP, and in a run on Open MPI.
func TestMigrate_NPBKernels(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	net := network(t, 3)
	const n = 8
	for _, k := range []string{"cg", "ft", "mg"} {
		args := []string{program(t, "npb"), "-kernel", k, "-class", "W"}
		want := steady(undisturbed(t, n, args...))
		must(t, want, verified)
		for _, v := range []struct {
			name, flags string
			env, hosts  []string
		}{
			{"tcp", "--transport tcp --hosts " + slots(net, 4, 4), nil, net.Hosts},
			{"mixed", "--hosts " + slots(net, 4, 4), nil, net.Hosts},
			{"apart", "--hosts " + slots(net, 8), nil, net.Hosts[:2]},
			{"mpi", "--launcher mpirun --transport mpi --launcher-args=--oversubscribe", nil, []string{"localhost"}},
		} {
			t.Run(k+" "+v.name, func(t *testing.T) {
				flags := append(strings.Fields(v.flags), "-n", strconv.Itoa(n), "--every", "1h")
				if v.name == "mpi" {
					need(t, "mpirun.openmpi")
					v.env = launcherNamed(t, "mpirun.openmpi")
				} else {
					flags = append(flags, "--rsh", interconnects.Shell)
				}
				moved := 0
				for range 3 { // it may end before it is moved often enough
					r := newRun(t, args...)
					p := r.travels(n, r.startIn(v.env, flags...))
					moved = max(moved, p.movesAround(5, v.hosts))
					p.s.finishes()
					if got := steady(r.output()); got != want {
						t.Fatalf("the output differs after %d moves: %s", moved, firstDifference([]byte(got), []byte(want)))
					}
					if moved >= 2 {
						break
					}
				}
				if moved < 2 {
					t.Errorf("%d moves", moved)
				}
				t.Logf("%d moves", moved)
			})
		}
	}
}
