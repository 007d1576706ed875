//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// TestRun_SteeredByHTTP steers a run by its page's requests.
func TestRun_SteeredByHTTP(t *testing.T) {
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	said := &lines{}
	said.some.L = &said.mu
	ended := make(chan int, 1)
	go func() {
		ended <- run(context.Background(), []string{"run", "--run", "r", "--http", "0", self(t), "_counter", "go"}, &out, said)
	}()
	said.await("started: ")
	said.mu.Lock()
	m := regexp.MustCompile(`http://(127.0.0.1:\d+)/#token=(\S+)`).FindStringSubmatch(said.b.String())
	said.mu.Unlock()
	if m == nil {
		t.Fatalf("no address in %q", said.b.String())
	}
	post := func(path string, v any) int {
		t.Helper()
		r, err := http.NewRequest("POST", "http://"+m[1]+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+m[2])
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, _ := io.ReadAll(a.Body)
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatalf("%s: %q: %v", path, text, err)
		}
		return a.StatusCode
	}
	var c control.CheckpointState
	if status := post("/checkpoint", &c); status != 200 || c.Index == 0 || c.Reason != "web page" {
		t.Errorf("%d %+v", status, c)
	}
	var st control.RunState
	if status := post("/stop", &st); status != 200 || st.State != "stopped" {
		t.Errorf("%d %+v", status, st)
	}
	if code := <-ended; code != 75 {
		t.Errorf("the run ended with status %d: %s", code, said.b.String())
	}
	cairnRun(t, "run", "--http", "nowhere.invalid:1", "true").exit(exitUsage).complains("--http nowhere.invalid:1")
	cairnRun(t, "run", "--http", "a:b:c", "true").exit(exitUsage).complains("write HOST:PORT")
}

// TestWeb_EndedRun shows a run that is over.
func TestWeb_EndedRun(t *testing.T) {
	t.Chdir(t.TempDir())
	cairnRun(t, "run", "-q", "--run", "r.cairn", "true").exit(exitFine)
	ctx, cancel := context.WithCancel(context.Background())
	out := &lines{}
	out.some.L = &out.mu
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"web", "--http", ":0"}, out, io.Discard) }()
	out.await("\n")
	out.mu.Lock()
	address := strings.TrimSpace(out.b.String())
	out.mu.Unlock()
	a, err := http.Get(strings.Replace(address, "/#", "/metrics#", 1))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(a.Body)
	a.Body.Close()
	if !strings.Contains(string(text), `cairn_run_state{run="r",state="finished"} 1`) {
		t.Errorf("%s", text)
	}
	cancel()
	if code := <-ended; code != exitFine {
		t.Errorf("cairn web ended with status %d", code)
	}
	cairnRun(t, "web", "nothing.cairn").exit(exitFailed).complains("nothing.cairn")
}
