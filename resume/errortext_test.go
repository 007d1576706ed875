package resume

import (
	"errors"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/engine"
	"github.com/cairnrun/cairn/internal/graph"
)

// TestErrorText shows that values which cannot be saved are named as in the
// program's source.
func TestErrorText(t *testing.T) {
	unsupported := func(path string) error {
		return &graph.UnsupportedError{Path: path, Type: "net.Conn", Reason: "it is open"}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{unsupported("frames.Frames[3].(*main.cairn_frame_main).conn"), "conn in main.main"},
		{unsupported("frames.Frames[0].(*example.org∕a-b∕net.cairn_frame_peer_read).p.conn[2]"), "p.conn[2] in example.org/a-b/net.peer_read"},
		{unsupported("main.connections[2].(*main.conn).fd"), "main.connections[2].(*main.conn).fd"},
	} {
		want := (&graph.UnsupportedError{Path: c.want, Type: "net.Conn", Reason: "it is open"}).Error()
		if got := errorText(c.err); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := errorText(errors.Join(engine.ErrNotSaved, c.err)); got != engine.ErrNotSaved.Error()+": "+want {
			t.Errorf("%s, want %s of a set that was not saved", got, want)
		}
	}
	handle := errorText(&graph.UnsupportedError{Path: "frames.Frames[3].(*main.cairn_frame_main).conn", Type: "net.TCPConn", Reason: "it is a network connection"})
	if !strings.Contains(handle, "conn in main.main") || !strings.Contains(handle, "//cairn:rebuild") {
		t.Errorf("no remedy: %s", handle)
	}
	if got := errorText(errors.New("cairn: no room")); got != "no room" {
		t.Errorf("%q, want %q", got, "no room")
	}
}
