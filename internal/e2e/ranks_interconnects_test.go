//go:build linux

package e2e

import (
	"runtime"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/interconnects"
)

// TestRanks_Interconnects moves one run through shared memory, TCP between
// hosts, mixtures of both, and two MPI libraries. It must end with the result
// of a run that stayed in place, and the messages must have used the expected
// transports.
func TestRanks_Interconnects(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	o := interconnects.Options{
		Cairn: build(t, "./cmd/cairn", runtime.GOARCH), Ring: program(t, "ring"),
		Dir: t.TempDir(), Steps: 100, SampleSteps: 20, Report: func(s string) { t.Log(s) },
	}
	phases, last, err := interconnects.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	routes := map[string]string{
		"A": "shm shm shm shm shm shm shm shm",
		"B": "tcp tcp tcp tcp tcp tcp tcp tcp",
		"C": "shm tcp shm tcp shm tcp shm tcp",
		"D": "shm shm shm tcp shm shm shm tcp",
		"E": "mpi mpi mpi mpi mpi mpi mpi mpi",
		"F": "mpi mpi mpi mpi mpi mpi mpi mpi",
		"G": "shm shm shm shm shm shm shm shm",
	}
	if len(phases) != len(routes) {
		t.Errorf("%d phases of %d", len(phases), len(routes))
	}
	steps, went := 0, 0
	for _, p := range phases {
		if p.From != steps {
			t.Errorf("phase %s begins at step %d, the one before ended at %d", p.Label, p.From, steps)
		}
		steps = p.To
		if p.Skipped != "" {
			continue
		}
		went++
		if got := strings.Join(p.Routes, " "); got != routes[p.Label] {
			t.Errorf("phase %s went by %s", p.Label, got)
		}
		if len(p.Samples) == 0 || p.To <= p.From {
			t.Errorf("phase %s did nothing: steps %d to %d", p.Label, p.From, p.To)
		}
	}
	if want := strings.TrimSpace(undisturbed(t, interconnects.Ranks, o.Ring, "-steps", "2700", "-report", "0")); last != want {
		t.Errorf("it ended with %q, a run that stayed with %q", last, want)
	}
	picture := interconnects.Picture(phases)
	if strings.Count(picture, "<circle") < went || !strings.HasSuffix(picture, "</svg>\n") {
		t.Error("the picture shows too little")
	}
	if went < len(phases) {
		t.Skipf("%d of %d phases were possible here", went, len(phases))
	}
}
