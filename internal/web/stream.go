//go:build linux

package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

const (
	maxWatching = 64               // streams at a time, without those of visitors who have the token
	maxOwners   = 16               // streams of these
	stateEvery  = time.Second / 2  // time between two states in a stream
	aliveEvery  = 15 * time.Second // a stream is never silent for longer
	outputLimit = 64 << 10         // bytes of output that are shown
)

// message is one server-sent event. The fields that are not nil are new.
type message struct {
	Anew    bool              `json:"anew,omitempty"`   // forget all events: another run has begun
	Events  []events.Event    `json:"events,omitempty"` // checkpoints have no text
	State   *control.RunState `json:"state,omitempty"`
	Storage *storage          `json:"storage,omitempty"`
	Error   string            `json:"error,omitempty"` // why the state is not known
	Now     time.Time         `json:"now"`
	Steer   bool              `json:"steer"` // requests are accepted, with the token
}

// stream sends the history of the run, and what is new, until the visitor
// leaves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	limit := maxWatching
	owner := s.owner(r)
	if owner {
		limit = maxOwners
	}
	if !s.watch.begin(owner, limit) {
		http.Error(w, fmt.Sprintf("%d others watch this run already.", limit), http.StatusServiceUnavailable)
		return
	}
	defer s.watch.end(owner)
	s.watch.look() // what it has is as old as the last visitor
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	// send ends the stream if the visitor does not read.
	send := func(format string, args ...any) bool {
		out.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && out.Flush() == nil
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	life, seen, version, sent := -1, 0, -1, time.Time{}
	for last := false; ; {
		v := s.watch.since(life, seen)
		m := message{Anew: v.life != life, Events: short(v.events), Now: time.Now(), Steer: s.token != ""}
		if v.life != life {
			life, seen = v.life, 0
		}
		seen += len(v.events)
		var later <-chan time.Time
		if v.version != version && v.state != nil {
			if wait := stateEvery - time.Since(sent); wait > 0 && !last {
				later = time.After(wait)
			} else {
				m.State, m.Storage, version, sent = v.state, &v.storage, v.version, time.Now()
			}
		}
		if v.err != nil {
			m.Error = v.err.Error()
		}
		if m.Anew || len(m.Events) > 0 || m.State != nil || m.Error != "" && v.version != version {
			if v.state == nil {
				version = v.version
			}
			text, err := json.Marshal(&m)
			if err != nil {
				return
			}
			if !send("data: %s\n\n", text) {
				return
			}
		}
		if last {
			return
		}
		select {
		case <-v.next:
		case <-later:
		case <-alive.C:
			if !send(": still there\n\n") {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.watch.over:
			last = true
		}
	}
}

// short leaves out the text of checkpoints. There may be very many of them, and
// the page needs only the figures.
func short(list []events.Event) []events.Event {
	out := make([]events.Event, len(list))
	for i, e := range list {
		if e.Kind == events.Checkpoint && e.Checkpoint != nil {
			e.Text = ""
		}
		out[i] = e
	}
	return out
}

// output sends the last lines that a rank has written to stdout (stream=1) or
// stderr (stream=2).
func (s *Server) output(w http.ResponseWriter, r *http.Request) {
	rank, err := strconv.Atoi(r.FormValue("rank"))
	stream, serr := strconv.Atoi(r.FormValue("stream"))
	if err != nil || serr != nil || rank < 0 || stream < 1 || stream > 2 {
		http.Error(w, "Name a rank and a stream: /output?rank=0&stream=1", http.StatusBadRequest)
		return
	}
	if s.watch.since(0, 0).state == nil {
		s.watch.look()
	}
	st := s.watch.since(0, 0).state
	if st == nil || st.Output == "" {
		http.Error(w, "The run has no output yet.", http.StatusNotFound)
		return
	}
	text, err := tail(rundir.OutputFile(st.Output, rank, stream), outputLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, fmt.Sprintf("Rank %d has no output yet.", rank), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write(text)
	}
}
