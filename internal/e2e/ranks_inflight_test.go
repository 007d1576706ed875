//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// route is a way to start a run, and the transport that it uses.
type route struct {
	by    string
	flags []string
}

// TestRanks_MessagesInflight saves while messages are unexpected, announced,
// half received and awaited from any rank, and continues with another transport
// each time. All of them must arrive once, unaltered and in order.
func TestRanks_MessagesInflight(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	need(t, "mpirun.openmpi", "mpirun.mpich")
	command := []string{program(t, "flight"), "-steps", "700", "-big", "131072"}
	want := undisturbed(t, 4, command...)
	must(t, want, "flight ok ranks=4 steps=700 ")
	r := newRun(t, command...)
	shm := route{"shm", []string{"--transport", "shm"}}
	tcp := route{"tcp", []string{"--transport", "tcp"}}
	openMPI := route{"mpi", []string{"--transport", "mpi", "--launcher", "mpirun.openmpi", "--launcher-args=--oversubscribe"}}
	mpich := route{"mpi", []string{"--transport", "mpi", "--launcher", "mpirun.mpich"}}
	routes := []route{shm, openMPI, tcp, mpich}
	if !stressed() {
		routes = routes[:2] // TestRanks_Interconnects has all of them every day
	}
	for _, to := range routes {
		s := r.start(append([]string{"-n", "4"}, to.flags...)...)
		s.awaits("by " + to.by)
		index, code := cairnTool(t, "checkpoint", r.run())
		if code != 0 {
			t.Fatalf("cairn checkpoint: exit status %d: %s\n%s", code, index, s.text())
		}
		inflight(t, r.checkpoints(), 4)
		// The same transport restores it …
		line, _, _ := s.said()
		st := s.state()
		if st == nil || len(st.Ranks) != 4 {
			t.Fatalf("no ranks: %v\n%s", st, s.text())
		}
		syscall.Kill(st.Ranks[3].Pid, syscall.SIGKILL)
		for _, text := range []string{"restored checkpoint", "by " + to.by} {
			if _, ok := s.sees(line, text); !ok {
				t.Fatalf("it ended:\n%s", s.text())
			}
		}
		s.stops() // … and then the next one
		inflight(t, r.checkpoints(), 4)
	}
	s := r.start("-n", "4", "--transport", "tcp")
	s.finishes()
	sameOutput(t, r.output(), want)
}

// inflight checks that the newest checkpoint of flight has, on each rank, the
// small messages of all others and a large one. They were sent before the point
// and are received after it.
func inflight(t *testing.T, dir string, ranks int) {
	t.Helper()
	indices, err := store.Open(vfs.OS(), dir, 0).Committed()
	if err != nil || len(indices) == 0 {
		t.Fatalf("no checkpoints in %s: %v", dir, err)
	}
	for r := range ranks {
		file := filepath.Join(dir, fmt.Sprintf("ckpt-%08d", indices[0]), fmt.Sprintf("rank-%04d.h5", r))
		out, code := cairnTool(t, "inspect", "--json", file)
		if code != 0 {
			t.Fatalf("cairn inspect %s: exit status %d: %s", file, code, out)
		}
		var index struct {
			Variables []struct {
				Name     string
				Datasets []struct {
					GoType string
					Shape  []int
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &index); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		kept := 0
		for _, v := range index.Variables {
			for _, d := range v.Datasets {
				if v.Name == "cairn.inflight" && strings.HasSuffix(d.GoType, "p2p.SavedMessage") && len(d.Shape) == 1 {
					kept = d.Shape[0]
				}
			}
		}
		if want := 6*(ranks-1) + 1; kept != want {
			t.Fatalf("%s holds %d messages in flight instead of %d", file, kept, want)
		}
	}
}

// TestRanks_KilledAfterCopying shows that a checkpoint which all ranks have
// copied is published even if they die at that moment, and that the run
// continues from it.
func TestRanks_KilledAfterCopying(t *testing.T) {
	t.Parallel()
	// A run without deaths: -die names a rank that does not exist.
	quiet := newRun(t, program(t, "last"), "-die", "9")
	quiet.start("-n", "4").finishes()
	for i, die := range []string{"-1", "0", "3"} {
		for j, transport := range []string{"shm", "tcp"} {
			if i%2 != j && !stressed() {
				continue
			}
			r := newRun(t, program(t, "last"), "-die", die)
			s := r.start("-n", "4", "--transport", transport)
			s.finishes()
			must(t, s.text(), "restored checkpoint 1", "last: resumed at step 2")
			if n := strings.Count(s.text(), "started again"); n != 1 {
				t.Errorf("%d restarts:\n%s", n, s.text())
			}
			must(t, r.output(), "last ok steps=6")
			sameOutput(t, r.output(), quiet.output())
		}
	}
}
