//go:build linux

package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
)

var (
	uploadRun     = strings.Repeat("a", 32)
	uploadAttempt = strings.Repeat("c", 32)
)

// hostWith makes a host's directory with checkpoints 1 … times of one rank.
func hostWith(t *testing.T, times int) *local.Dir {
	t.Helper()
	path := filepath.Join(t.TempDir(), "me", "sim-1")
	release, err := local.Make(path, vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	d, err := local.Claim(path, uploadRun, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := store.Create(vfs.OS(), local.CheckpointDir(path), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := ckpt.NewSaver(dir, nil, ckpt.Options{Ranks: 1, Run: uploadRun, Attempt: uploadAttempt, Keep: times})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	state := make([]uint64, 1000)
	var c graph.Collector
	for k := range times {
		state[k]++
		img, err := c.Collect([]graph.Root{{Name: "state", Ptr: &state}}, new(graph.Env))
		if err == nil {
			_, err = s.Save(context.Background(), img, nil, ckpt.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
		r := <-s.Done()
		if s.Collect(r); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return d
}

// uploads starts an uploader to a tier in memory whose operations may fail.
// What it says comes from the channel.
func uploads(t *testing.T, d *local.Dir, m tier.Tier, fails func(op, name string) tiertest.Fault) (*uploader, chan *control.Stored) {
	t.Helper()
	said := make(chan *control.Stored, 1000)
	u := newUploader("shared", d, func(context.Context) (tier.Tier, error) { return tiertest.Faulty(m, fails), nil }, func(m control.Message) { said <- m.(*control.Stored) })
	t.Cleanup(u.close)
	return u, said
}

// linked returns the checkpoints to which there are links.
func linked(t *testing.T, d *local.Dir) (out []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(d.Path, "held-shared"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// TestUploader_Retry has a tier that fails some times. The uploader says so
// each time, and then succeeds; what it says is enough for the manifest.
func TestUploader_Retry(t *testing.T) {
	d, m := hostWith(t, 1), tiertest.NewMem()
	const failures = 3
	var mu sync.Mutex
	left := failures
	u, said := uploads(t, d, m, func(op, name string) tiertest.Fault {
		mu.Lock()
		defer mu.Unlock()
		// One object only: several are uploaded at a time, and one failure ends
		// the try.
		if op != "put" || !strings.Contains(name, "/files/rank-0000-00000001") || left == 0 {
			return 0
		}
		left--
		return tiertest.Fail
	})
	u.first = time.Millisecond
	u.keep(&control.Keep{Index: 1, Ranks: []int{0}, All: 1})
	for i := range failures {
		if s := <-said; s.Error == "" || s.Over || s.Index != 1 {
			t.Fatalf("failure %d: %+v", i, s)
		}
	}
	s := <-said
	var up tier.Uploaded
	if err := json.Unmarshal(s.Part, &up); err != nil || s.Error != "" || !s.Over {
		t.Fatalf("%+v, %v", s, err)
	}
	mf, err := tier.Commit(context.Background(), m, []tier.Uploaded{up})
	if err != nil || mf.Index != 1 {
		t.Fatalf("%+v, %v", mf, err)
	}
	u.close()
	if left := linked(t, d); left != nil {
		t.Errorf("links are left: %v", left)
	}
}

// TestUploader_Newest gives orders while the tier hangs: only the newest waits,
// and the links to the files of others are removed. The newest is tried again
// when it fails.
func TestUploader_Newest(t *testing.T) {
	const times = 6
	d, m := hostWith(t, times), tiertest.NewMem()
	hangs, reached := make(chan struct{}), make(chan struct{})
	var once, fail sync.Once
	u, said := uploads(t, d, m, func(op, name string) (f tiertest.Fault) {
		once.Do(func() {
			close(reached)
			<-hangs
		})
		if op == "put" && strings.Contains(name, fmt.Sprintf("rank-0000-%08d", times)) {
			fail.Do(func() { f = tiertest.Fail })
		}
		return f
	})
	u.first = time.Millisecond
	u.keep(&control.Keep{Index: 1, Ranks: []int{0}, All: 1})
	<-reached
	for index := uint64(2); index <= times; index++ {
		u.keep(&control.Keep{Index: index, Ranks: []int{0}, All: 1}) // it does not wait
	}
	if got, want := linked(t, d), []string{"ckpt-00000001", fmt.Sprintf("ckpt-%08d", times)}; !slices.Equal(got, want) {
		t.Errorf("linked: %v, want %v", got, want)
	}
	close(hangs)
	for i, want := range []uint64{1, times, times} {
		if s := <-said; s.Index != want || (s.Error != "") != (i == 1) {
			t.Errorf("%d: %+v, want checkpoint %d", i, s, want)
		}
	}
}

// TestUploader_GivesUp has a tier that always fails: a newer order ends the
// tries for the older one, and so does the end of the helper. A checkpoint that
// is not there any more is reported once.
func TestUploader_GivesUp(t *testing.T) {
	d, m := hostWith(t, 2), tiertest.NewMem()
	u, said := uploads(t, d, m, func(op, name string) tiertest.Fault { return tiertest.Fail })
	u.first = LastPause // only a newer order ends the pause
	for index := uint64(1); index <= 2; index++ {
		u.keep(&control.Keep{Index: index, Ranks: []int{0}, All: 1})
		if s := <-said; s.Index != index || s.Error == "" || s.Over {
			t.Fatalf("%+v", s)
		}
	}
	u.keep(&control.Keep{Index: 3, Ranks: []int{0}, All: 1})
	if s := <-said; s.Index != 3 || !s.Over || !strings.Contains(s.Error, "no such file") {
		t.Errorf("%+v", s)
	}
	u.close()
	if left := linked(t, d); left != nil {
		t.Errorf("links are left: %v", left)
	}
	u.keep(&control.Keep{Index: 2, Ranks: []int{0}, All: 1})
	if left := linked(t, d); left != nil {
		t.Errorf("it takes orders after its end: %v", left)
	}
}

// TestOpenShared_NotMounted checks that no directory is made where a file
// system may not be mounted.
func TestOpenShared_NotMounted(t *testing.T) {
	top := filepath.Join(t.TempDir(), "gpfs")
	if _, err := OpenShared(filepath.Join(top, "me", "sim-1"), vfs.Access{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(top, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenShared(filepath.Join(top, "me", "sim-1"), vfs.Access{}); err != nil {
		t.Error(err)
	}
}
