//go:build linux

package helper

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/local"
)

// TestHelpers_FirstOfHostLeads sets up several helpers on a host, as mpirun and
// srun start them. The first one works for other hosts. Those of another launch
// wait until it has ended.
func TestHelpers_FirstOfHostLeads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sim-1")
	if err := os.MkdirAll(filepath.Join(dir, "hosts"), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := local.Claim(dir, "run", nil)
	if err != nil {
		t.Fatal(err)
	}
	opens := func(launch string) (*localFiles, error) {
		l := &localFiles{Dir: d, secret: []byte("secret"), requests: make(chan control.Message), done: make(chan struct{})}
		_, err := l.openTiers("a-rank-0000", &control.LocalDir{Dir: dir, Run: "run", Supervisor: "s", Peer: "a", Launch: launch, Policy: "local=/x, partner"}, func(control.Message) {})
		close(l.done)
		if err == nil {
			t.Cleanup(l.close)
		}
		return l, err
	}
	first, err := opens("1")
	if err != nil || first.holder == nil || !first.scrubber.leads() || first.holder.host != "a" {
		t.Fatalf("the first helper: %+v, %v", first, err)
	}
	if second, err := opens("1"); err != nil || second.holder != nil || second.scrubber.leads() || second.holder.addresses() != nil {
		t.Errorf("another one of the same launch: %+v, %v", second, err)
	}
	if _, err := opens("2"); !errors.Is(err, rundir.ErrBusy) {
		t.Errorf("one of another launch: %v", err)
	}
	first.requests = make(chan control.Message)
	first.endUploads()
	first.lead.Close()
	if next, err := opens("2"); err != nil || next.holder == nil {
		t.Errorf("after the end of the first: %+v, %v", next, err)
	}
}
