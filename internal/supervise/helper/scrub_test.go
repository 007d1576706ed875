//go:build linux

package helper

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// scrubTest is a scrubber with a clock of the test. What it says comes from
// said.
type scrubTest struct {
	*scrubber
	t     *testing.T
	clock time.Time
	tick  chan time.Time
	idle  chan struct{} // it waits for the next tick
	said  chan *control.Scrubbed
}

// scrubs starts a scrubber for a host, whose ranks' homes are here.
func scrubs(t *testing.T, l *localFiles, text string) *scrubTest {
	t.Helper()
	p, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	x := &scrubTest{t: t, clock: time.Now(), tick: make(chan time.Time), idle: make(chan struct{}), said: make(chan *control.Scrubbed, 100)}
	x.scrubber = newScrubber(l, "a", p, func(m control.Message) { x.said <- m.(*control.Scrubbed) })
	x.now = func() time.Time { return x.clock }
	x.after = func(time.Duration) <-chan time.Time {
		select {
		case x.idle <- struct{}{}:
		case <-x.ctx.Done():
		}
		return x.tick
	}
	go x.work()
	<-x.idle
	x.begin.Do(func() {})
	t.Cleanup(x.close)
	return x
}

// looks lets time pass, and the scrubber look. It returns what the scrubber
// says, joined.
func (x *scrubTest) looks(pass time.Duration) (files int, repaired, lost string) {
	x.t.Helper()
	x.clock = x.clock.Add(pass)
	x.tick <- x.clock
	<-x.idle
	for {
		select {
		case m := <-x.said:
			files += m.Files
			for _, r := range m.Repaired {
				repaired += r.String() + "\n"
			}
			lost = ""
			for _, r := range m.Lost {
				lost += r.String() + "\n"
			}
		default:
			return files, repaired, lost
		}
	}
}

// starts records the start whose checkpoints a host has.
func starts(t *testing.T, d *local.Dir) {
	t.Helper()
	a := (&control.AttemptRecord{Run: uploadRun, Ranks: 1}).Next(0, uploadAttempt)
	a.Homes = []control.Home{{Host: "a", Dir: d.ID}}
	if err := d.SetAttempt(a); err != nil {
		t.Fatal(err)
	}
}

// flips changes a byte in the middle of a file, in place.
func flips(t *testing.T, pattern string) {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatal(pattern, found, err)
	}
	vfstest.Rot(t, found[0])
}

// says checks what a look has found.
func says(t *testing.T, what, got string, want ...string) {
	t.Helper()
	if (got == "") != (len(want) == 0) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s: %q lacks %q", what, got, w)
		}
	}
}

// TestScrub_Shared flips bytes of a checkpoint on the host and on the shared
// tier. Nothing is read before it is old enough. Then each is found, and
// repaired from the other; if both are damaged, that is reported.
func TestScrub_Shared(t *testing.T) {
	d := hostWith(t, 2)
	starts(t, d)
	shared := filepath.Join(t.TempDir(), "gpfs")
	x, err := OpenShared(filepath.Join(shared, "sim-1"), vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tier.Publish(t.Context(), x, tier.UploadOptions{Dir: local.CheckpointDir(d.Path), Index: 2, Part: "a"}); err != nil {
		t.Fatal(err)
	}
	l := &localFiles{Dir: d, uploaders: map[string]*uploader{"shared": {open: func(context.Context) (tier.Tier, error) { return x, nil }}}}
	s := scrubs(t, l, "local=/scratch,shared="+shared+",scrub=1d")
	const day = 25 * time.Hour
	file := func(index string) string { return filepath.Join(local.CheckpointDir(d.Path), index, "rank-0000*.h5") }
	object := filepath.Join(shared, "sim-1", "*", "files", "rank-0000-00000002-*")
	sound := func(index uint64) {
		t.Helper()
		path := store.Open(vfs.OS(), local.CheckpointDir(d.Path), 0).File(index)
		if err := d.Sound(t.Context(), path, 0, index, nil); err != nil {
			t.Error(err)
		}
	}

	flips(t, filepath.Join(local.CheckpointDir(d.Path), "ckpt-00000002", "rank-0000.h5"))
	if files, repaired, lost := s.looks(time.Hour); files > 0 || repaired+lost != "" {
		t.Errorf("%d files were read that are not old: %s%s", files, repaired, lost)
	}
	_, repaired, lost := s.looks(day)
	says(t, "repaired", repaired, "local: checkpoint 2: repaired: rank 0's file on host a, from shared="+shared)
	says(t, "lost", lost)
	sound(2)
	if files, repaired, lost := s.looks(time.Hour); files > 0 || repaired+lost != "" {
		t.Errorf("%d files were read twice: %s%s", files, repaired, lost)
	}

	path := filepath.Join(local.CheckpointDir(d.Path), "ckpt-00000002", "rank-0000.h5")
	flips(t, path)
	future := time.Now().AddDate(5, 0, 0) // the host's clock was wrong
	if err := os.Chtimes(path, future, future); err != nil {
		t.Fatal(err)
	}
	_, repaired, lost = s.looks(day)
	says(t, "repaired", repaired, "local: checkpoint 2: repaired: rank 0's file on host a")
	says(t, "lost", lost)

	flips(t, object)
	_, repaired, lost = s.looks(day)
	says(t, "repaired", repaired, "shared="+shared+": checkpoint 2: repaired: rank 0's file of checkpoint 2", "from host a")
	says(t, "lost", lost)
	if files, repaired, lost := s.looks(day); files == 0 || repaired+lost != "" {
		t.Errorf("after the repair, %d files were read: %s%s", files, repaired, lost)
	}

	// Checkpoint 1 is nowhere else, and both copies of checkpoint 2 are
	// damaged.
	flips(t, file("ckpt-00000001"))
	flips(t, filepath.Join(local.CheckpointDir(d.Path), "ckpt-00000002", "rank-0000.h5"))
	flips(t, object)
	_, repaired, lost = s.looks(day)
	says(t, "repaired", repaired)
	says(t, "lost", lost, "local: checkpoint 1: cannot be repaired", "local: checkpoint 2: cannot be repaired", "shared="+shared+": checkpoint 2: cannot be repaired")
	if _, repaired, lost := s.looks(time.Hour); repaired+lost != "" {
		t.Errorf("the same is said again: %s%s", repaired, lost)
	}
	if left, _ := filepath.Glob(filepath.Join(d.Path, "scrub*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// TestScrub_Partner flips bytes of a checkpoint at its owner, and of the copy
// that another host has. Each gets it again from the other.
func TestScrub_Partner(t *testing.T) {
	const text = "local=/scratch,partner,scrub=1d"
	p, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan *control.Stored, 100)
	host := func(name string, d *local.Dir) *localFiles {
		h, err := newHolder(d, name, []byte(strings.Repeat("s", 32)), p, func(m control.Message) {
			if m, ok := m.(*control.Stored); ok && m.Error == "" {
				stored <- m
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.close)
		return &localFiles{Dir: d, holder: h}
	}
	d := hostWith(t, 1)
	starts(t, d)
	path := filepath.Join(t.TempDir(), "me", "sim-1")
	release, err := local.Make(path, vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	release()
	other, err := local.Claim(path, uploadRun, nil)
	if err != nil {
		t.Fatal(err)
	}
	record, err := d.Attempt()
	if err == nil {
		err = other.SetAttempt(record)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, b := host("a", d), host("b", other)
	peers := []control.PeerHost{{Name: "a", Addresses: a.holder.addresses()}, {Name: "b", Addresses: b.holder.addresses()}}
	a.holder.setPeers(&control.Peers{Hosts: peers, Holders: map[string][]string{"partner": {"b"}}})
	b.holder.setPeers(&control.Peers{Hosts: peers, Holders: map[string][]string{"partner": {"a"}}})
	a.holder.keep(&control.Keep{Tier: "partner", Index: 1, Ranks: []int{0}, All: 1})
	<-stored
	const day = 25 * time.Hour
	onA, onB := scrubs(t, a, text), scrubs(t, b, text)

	flips(t, filepath.Join(local.CheckpointDir(d.Path), "ckpt-00000001", "rank-0000.h5"))
	_, repaired, lost := onA.looks(day)
	says(t, "repaired", repaired, "partner=1: checkpoint 1: repaired: rank 0's file that host a keeps, from host b")
	says(t, "lost", lost)
	file := store.Open(vfs.OS(), local.CheckpointDir(d.Path), 0).File(1)
	if err := d.Sound(t.Context(), file, 0, 1, nil); err != nil {
		t.Error("the checkpoint directory has still the damaged file: ", err)
	}

	flips(t, filepath.Join(keptDir(other), uploadRun, "files", "rank-0000-00000001-*.h5"))
	if _, repaired, lost := onB.looks(day); repaired+lost != "" {
		t.Errorf("%s%s", repaired, lost)
	}
	<-stored // the owner has sent it again
	_, repaired, lost = onB.looks(time.Hour)
	says(t, "repaired", repaired, "partner=1: checkpoint 1: repaired: rank 0's file that host a keeps, from the host that saved it")
	says(t, "lost", lost)
	files, repaired, lost := onB.looks(day)
	if says(t, "after the repair", repaired+lost); files == 0 {
		t.Error("nothing was read")
	}

	// Both are damaged: nobody has it any more.
	flips(t, filepath.Join(keptDir(other), uploadRun, "files", "rank-0000-00000001-*.h5"))
	flips(t, file)
	_, repaired, lost = onA.looks(day)
	says(t, "repaired", repaired)
	says(t, "lost", lost, "partner=1: checkpoint 1: cannot be repaired: rank 0's file that host a keeps: no other host has it", "local: checkpoint 1: cannot be repaired")
}
