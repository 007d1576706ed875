//go:build linux

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// site is a run directory, and a server that shows it.
type site struct {
	t    *testing.T
	dir  *rundir.Dir
	file *events.File
	*Server
	base string
}

func newSite(t *testing.T, token string) *site {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sim.cairn")
	dir, err := rundir.Open(path, t.TempDir(), vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	rec := &rundir.Record{ID: "x", Command: []string{"/bin/sim"}, Ranks: 2, State: rundir.Stopped, Began: time.Now(), Attempt: 1, Settings: []control.Setting{{Name: "on-event", Value: "curl hooks.example/secret"}},
		CheckpointDir: filepath.Join(path, "ckpt"), RequestedDir: filepath.Join(path, "ckpt"), Output: filepath.Join(path, "output")}
	if err := dir.Write(rec); err != nil {
		t.Fatal(err)
	}
	file, err := events.OpenFile(filepath.Join(path, events.FileName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, dir, file, New(path, token, true), "http://" + l.Addr().String()}
	served := make(chan error, 1)
	go func() { served <- Serve(l, s.Server) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) add(e events.Event) {
	s.t.Helper()
	e.Time = time.Now()
	if err := s.file.Append(&e); err != nil {
		s.t.Fatal(err)
	}
}

// do makes a request and returns its answer.
func (s *site) do(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return a, string(text)
}

// open opens a stream. It returns a function that waits until what the messages
// have said together fits.
func (s *site) open(headers ...string) (next func(fits func(*message) bool) *message) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", s.base+"/stream", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for ; len(headers) > 0; headers = headers[2:] {
		r.Header.Set(headers[0], headers[1])
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { a.Body.Close() })
	lines := bufio.NewReader(a.Body)
	var all message
	return func(fits func(*message) bool) *message {
		s.t.Helper()
		for !fits(&all) {
			line, err := lines.ReadString('\n')
			if err != nil {
				s.t.Fatalf("the stream ends: %v", err)
			}
			text, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var m message
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				s.t.Fatalf("%v: %s", err, text)
			}
			if m.Anew {
				all.Anew, all.Events = true, nil
			}
			all.Events = append(all.Events, m.Events...)
			if m.State != nil {
				all.State, all.Storage = m.State, m.Storage
			}
		}
		return &all
	}
}

// TestStream checks what a visitor gets: the history, new events, another run,
// and another state.
func TestStream(t *testing.T) {
	s := newSite(t, "")
	s.add(events.Event{Kind: events.Start, Ranks: 2, Text: "started <script>alert(1)</script>\ndata: x"})
	next := s.open()
	if m := next(func(m *message) bool { return len(m.Events) > 0 }); !m.Anew || len(m.Events) != 1 || m.Events[0].Ranks != 2 || !strings.HasSuffix(m.Events[0].Text, "\ndata: x") {
		t.Errorf("the history is %+v", m)
	}
	if m := next(func(m *message) bool { return m.State != nil }); m.State.State != rundir.Stopped || len(m.State.Ranks) != 2 || m.Storage == nil || m.Storage.Total == 0 || m.State.Settings != nil {
		t.Errorf("the state is %+v, %+v", m.State, m.Storage)
	}
	s.add(events.Event{Kind: events.Checkpoint, Text: "a long text", Checkpoint: &control.CheckpointState{Index: 7, PauseNS: 2e6, TookNS: 3e6, Written: 100}})
	if m := next(func(m *message) bool { return len(m.Events) > 1 }); m.Events[1].Checkpoint.Index != 7 || m.Events[1].Text != "" {
		t.Errorf("the event is %+v", m)
	}
	// Another run begins in the directory.
	if err := s.file.Clear(); err != nil {
		t.Fatal(err)
	}
	s.add(events.Event{Kind: events.Note, Text: "anew"})
	next(func(m *message) bool { return len(m.Events) == 1 && m.Events[0].Text == "anew" })
	// The record changes.
	rec, err := rundir.ReadRecord(s.dir.Path)
	if err != nil {
		t.Fatal(err)
	}
	rec.State = rundir.Finished
	if err := s.dir.Write(rec); err != nil {
		t.Fatal(err)
	}
	next(func(m *message) bool { return m.State != nil && m.State.State == rundir.Finished })
}

// TestStream_FreshState shows that a visitor does not get the state that an
// earlier visitor saw last.
func TestStream_FreshState(t *testing.T) {
	s := newSite(t, "")
	s.watch.look()
	rec, err := rundir.ReadRecord(s.dir.Path)
	if err != nil {
		t.Fatal(err)
	}
	rec.State = rundir.Finished
	if err := s.dir.Write(rec); err != nil {
		t.Fatal(err)
	}
	s.watch.looking.Lock()
	s.watch.asked = time.Time{}
	s.watch.looking.Unlock()
	next := s.open()
	if m := next(func(m *message) bool { return m.State != nil }); m.State.State != rundir.Finished {
		t.Errorf("the first state is %s", m.State.State)
	}
}

// TestStream_TooMany shows that visitors can use up neither the machine nor the
// places of those who have the token.
func TestStream_TooMany(t *testing.T) {
	s := newSite(t, "secret")
	for range maxWatching {
		next := s.open()
		next(func(m *message) bool { return m.Anew })
	}
	if a, text := s.do("GET", "/stream", ""); a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "others watch") {
		t.Errorf("%d %s", a.StatusCode, text)
	}
	next := s.open("Authorization", "Bearer secret")
	next(func(m *message) bool { return m.Anew })
}

// TestServe_TooManyConnections shows that connections without a request make
// room for others.
func TestServe_TooManyConnections(t *testing.T) {
	s := newSite(t, "")
	var first net.Conn
	for range maxConnections + 1 {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if first == nil {
			first = c
		}
	}
	if _, err := first.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the first connection is not closed: %v", err)
	}
	if a, _ := s.do("GET", "/", ""); a.StatusCode != http.StatusOK {
		t.Error(a.Status)
	}
}

// TestPage_NeedsNothingElse shows that the page loads nothing from elsewhere,
// and that its policy allows its own parts.
func TestPage_NeedsNothingElse(t *testing.T) {
	s := newSite(t, "")
	a, text := s.do("GET", "/", "")
	policy := a.Header.Get("Content-Security-Policy")
	for _, tag := range []string{"script", "style"} {
		m := regexp.MustCompile(`(?s)<` + tag + `>(.*)</` + tag + `>`).FindStringSubmatch(text)
		if m == nil || !strings.Contains(policy, "'"+digest(m[1])+"'") {
			t.Errorf("the policy %q does not allow the page's own %s", policy, tag)
		}
	}
	if out := regexp.MustCompile(`(src|href)="(https?:)?//`).FindString(text); out != "" || strings.Contains(text, "/*page.") {
		t.Errorf("the page needs something else: %q", out)
	}
	if a, _ := s.do("GET", "/nothing", ""); a.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", a.StatusCode)
	}
}

// TestSteer_Refused has requests that must change nothing.
func TestSteer_Refused(t *testing.T) {
	s := newSite(t, "secret")
	for _, c := range []struct {
		name, path, body string
		headers          []string
		status           int
		want             string
	}{
		{"no token", "/stop", "{}", nil, 403, "needs the token"},
		{"wrong token", "/stop", "{}", []string{"Authorization", "Bearer secres"}, 403, "needs the token"},
		{"no scheme", "/stop", "{}", []string{"Authorization", "secret"}, 403, "needs the token"},
		{"another page", "/stop", "{}", []string{"Authorization", "Bearer secret", "Sec-Fetch-Site", "cross-site"}, 403, "another page"},
		{"another name", "/stop", "{}", []string{"Authorization", "Bearer secret", "Host", "evil.example:80"}, 403, "this machine only"},
		{"no body", "/checkpoint", "", []string{"Authorization", "Bearer secret"}, 400, "not understood"},
		{"unknown field", "/migrate", `{"cmd":"rm"}`, []string{"Authorization", "Bearer secret"}, 400, "not understood"},
		{"too long", "/migrate", `{"to":"` + strings.Repeat("x", 2*requestLimit) + `"}`, []string{"Authorization", "Bearer secret"}, 400, "not understood"},
		{"nothing to move", "/migrate", `{}`, []string{"Authorization", "Bearer secret"}, 409, "name ranks"},
		{"not running", "/checkpoint", `{}`, []string{"Authorization", "Bearer secret"}, 409, "not running"},
		{"not running", "/stop", `{}`, []string{"Authorization", "Bearer secret"}, 409, "not running"},
	} {
		if a, text := s.do("POST", c.path, c.body, c.headers...); a.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s; want %d and %q", c.name, a.StatusCode, text, c.status, c.want)
		}
	}
	if a, _ := s.do("GET", "/stop", ""); a.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET /stop: %d", a.StatusCode)
	}
	open := newSite(t, "")
	if a, _ := open.do("POST", "/stop", "{}", "Authorization", "Bearer "); a.StatusCode != 403 {
		t.Errorf("without a token, an empty one is accepted: %d", a.StatusCode)
	}
}

// TestOutput shows the end of a rank's output. Anything but a rank and a stream
// is refused.
func TestOutput(t *testing.T) {
	s := newSite(t, "")
	if a, text := s.do("GET", "/output?rank=0&stream=1", ""); a.StatusCode != 404 || !strings.Contains(text, "no output yet") {
		t.Errorf("%d %s", a.StatusCode, text)
	}
	long := strings.Repeat("a line of output\n", outputLimit/8) + "the last one\n"
	name := rundir.OutputFile(filepath.Join(s.dir.Path, "output"), 1, control.Stdout)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	a, text := s.do("GET", "/output?rank=1&stream=1", "")
	if a.StatusCode != 200 || len(text) > outputLimit || !strings.HasPrefix(text, "a line") || !strings.HasSuffix(text, "the last one\n") || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%d %d bytes, %s", a.StatusCode, len(text), a.Header.Get("Content-Type"))
	}
	for _, q := range []string{"", "?rank=-1&stream=1", "?rank=0&stream=3", "?rank=../../x&stream=1"} {
		if a, _ := s.do("GET", "/output"+q, ""); a.StatusCode != 400 {
			t.Errorf("%q: %d", q, a.StatusCode)
		}
	}
}

// TestMetrics checks the metrics, also after a second look.
func TestMetrics(t *testing.T) {
	s := newSite(t, "")
	s.add(events.Event{Kind: events.Start, Attempt: 1, Ranks: 2, Text: "started"})
	for i := range 3 {
		s.add(events.Event{Kind: events.Checkpoint, Text: "x", Checkpoint: &control.CheckpointState{Index: uint64(i + 1), PauseNS: 2e6, TookNS: 3e8, Written: 1000}})
	}
	s.add(events.Event{Kind: events.Failure, Text: "x"})
	s.add(events.Event{Kind: events.Restore, Index: 3, LostNS: 15e8, Text: "x"})
	for range 2 { // a second look counts nothing twice
		a, text := s.do("GET", "/metrics", "")
		if a.StatusCode != 200 {
			t.Fatalf("%d %s", a.StatusCode, text)
		}
		for _, line := range []string{
			`cairn_checkpoints_total{run="sim"} 3`,
			`cairn_checkpoint_written_bytes_total{run="sim"} 3000`,
			`cairn_checkpoint_pause_seconds_bucket{run="sim",le="0.001"} 0`,
			`cairn_checkpoint_pause_seconds_bucket{run="sim",le="0.002"} 3`,
			`cairn_checkpoint_durable_seconds_count{run="sim"} 3`,
			`cairn_failures_total{run="sim"} 1`,
			`cairn_starts_total{run="sim"} 1`,
			`cairn_lost_work_seconds_total{run="sim"} 1.5`,
			`cairn_run_state{run="sim",state="stopped"} 1`,
			`cairn_run_state{run="sim",state="running"} 0`,
			`cairn_checkpoints_failing{run="sim"} 0`,
		} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("the metrics lack %q:\n%s", line, text)
			}
		}
	}
	// What is not known any more is left out.
	if err := os.RemoveAll(s.dir.Path); err != nil {
		t.Fatal(err)
	}
	s.watch.looking.Lock()
	s.watch.asked = time.Time{}
	s.watch.looking.Unlock()
	if _, text := s.do("GET", "/metrics", ""); strings.Contains(text, "cairn_run_state{") || !strings.Contains(text, `cairn_checkpoints_total{run="sim"} 3`) {
		t.Errorf("the metrics of a run that was removed:\n%s", text)
	}
}

// TestMetrics_Documented shows that the table of docs/watching.md has the
// metrics that exist, and that the dashboard for Grafana uses no others.
func TestMetrics_Documented(t *testing.T) {
	names := func(path, form string) (all []string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	exist := names("metrics.go", `"(cairn_\w+)"`)
	if listed := names("../../docs/watching.md", `\b(cairn_\w+)`); !slices.Equal(listed, exist) {
		t.Errorf("docs/watching.md has %q, want %q", listed, exist)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile("../../examples/grafana/cairn.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil || len(board.Panels) == 0 || len(board.Panels[0].Targets) == 0 || board.Panels[0].Targets[0].Expr == "" {
		t.Fatalf("%v, %+v", err, board)
	}
	for _, name := range names("../../examples/grafana/cairn.json", `\b(cairn_\w+)`) {
		if !slices.Contains(exist, strings.TrimSuffix(name, "_bucket")) {
			t.Errorf("the dashboard uses %s, which does not exist", name)
		}
	}
}
