//go:build linux

package supervise

import (
	"net"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestLocal_TidyAndMove checks that files of ranks are not removed from a host
// while a rank moves there, and that a move waits for a helper that removes
// files: the destination's output would be among them.
func TestLocal_TidyAndMove(t *testing.T) {
	s := &Supervisor{n: 2, a: new(attempt), rec: &rundir.Record{Started: startedOn("a", "a")}, local: &localRun{commits: tidyAfter}}
	var got []chan control.Message
	for _, id := range []string{"a", "b"} {
		here, there := net.Pipe()
		defer there.Close()
		messages := make(chan control.Message, 10)
		go func() {
			for c := control.New(there); ; {
				m, err := c.Recv()
				if err != nil {
					return
				}
				messages <- m
			}
		}()
		got = append(got, messages)
		d := dirNamed(id)
		d.Parts = []control.Part{{Rank: 1, Index: 1}}
		h := &host{s: s, name: d.host, slots: 1, state: hostUp, files: d.HostFiles, queue: control.NewSendQueue(control.New(here), 10)}
		defer h.queue.Finish()
		s.hosts = append(s.hosts, h)
	}
	a, b := s.hosts[0], s.hosts[1]
	s.move = &move{moving: []*movingRank{{rank: 1, from: a, to: b}}}
	if s.tidyHosts(); s.local.tidied || len(b.asked) > 0 {
		t.Fatal("files are removed during a move")
	}
	s.move = nil
	s.tidyHosts()
	m, ok := (<-got[1]).(*control.Discard)
	if !ok || m.All || len(m.Keep) > 0 || !s.dirBusy(b) {
		t.Fatalf("%+v, busy %v", m, s.dirBusy(b))
	}
	if len(a.asked) > 0 || s.dirBusy(a) { // it has nothing but the files of its own ranks
		t.Error("files are removed from the ranks' home")
	}
	other := &host{s: s, slots: 1, state: hostUp, files: b.files} // of the same directory
	if s.hosts = append(s.hosts, other); !s.dirBusy(other) {
		t.Error("another helper of the directory is not busy")
	}
	b.answers(new(control.Discarded))
	if s.dirBusy(b) || s.dirBusy(other) {
		t.Error("it is busy after the answer")
	}
	if s.tidyHosts(); len(b.asked) > 0 || slices.ContainsFunc(s.hosts, s.dirBusy) {
		t.Error("files are removed twice")
	}
}
