//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

var (
	run    = strings.Repeat("a", 32)
	secret = bytes.Repeat([]byte("s"), 32)
)

// newHost makes a directory as a host has one.
func newHost(t *testing.T) *Dir {
	t.Helper()
	path := filepath.Join(t.TempDir(), "me", "sim-1")
	release, err := Make(path, vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	d, err := Claim(path, run, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// save saves checkpoints of a rank: the later ones are differential.
func save(t *testing.T, d *Dir, rank, ranks, times int, attempt string) {
	t.Helper()
	dir, err := store.Create(vfs.OS(), CheckpointDir(d.Path), rank)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := ckpt.NewSaver(dir, nil, ckpt.Options{Rank: rank, Ranks: ranks, Run: run, Attempt: attempt, Keep: times})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	grid := make([]uint64, 300_000)
	rng := rand.New(rand.NewPCG(1, uint64(rank)))
	for i := range grid {
		grid[i] = rng.Uint64()
	}
	var c graph.Collector
	for k := range times {
		grid[k*1000]++
		img, err := c.Collect([]graph.Root{{Name: "grid", Ptr: &grid}}, new(graph.Env))
		if err == nil {
			_, err = s.Save(context.Background(), img, nil, ckpt.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
		r := <-s.Done()
		s.Collect(r)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if err := dir.SetID(run); err != nil {
		t.Fatal(err)
	}
}

// client serves one directory and connects to it.
func client(t *testing.T, d *Dir) *Client {
	t.Helper()
	s, err := d.Serve(secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := Dial(context.Background(), s.Addresses(), secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestClaim checks when a directory can be had for a run: it is new, the run's
// own, or its run may be discarded.
func TestClaim(t *testing.T) {
	d := newHost(t)
	again, err := Claim(d.Path, run, nil)
	if err != nil || again.ID != d.ID {
		t.Fatalf("the second time: %+v, %v", again, err)
	}
	save(t, d, 0, 1, 1, "x")
	other := strings.Repeat("b", 32)
	if _, err := Claim(d.Path, other, []string{"c"}); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("for another run: %v", err)
	}
	if err := os.Remove(hostPath(d.Path)); err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(d.Path, run, nil); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("without its record: %v", err)
	}
	os.WriteFile(hostPath(d.Path), []byte("{"), 0o600)
	if _, err := Claim(d.Path, run, []string{run}); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("with a damaged record: %v", err)
	}
	now, err := Claim(d.Path, other, []string{control.AnyRun})
	if err != nil || now.ID == d.ID {
		t.Fatalf("with --fresh: %+v, %v", now, err)
	}
	if left, err := os.ReadDir(CheckpointDir(d.Path)); err == nil {
		t.Errorf("left: %v", left)
	}
	if _, err := Claim(d.Path, run, []string{other}); err != nil {
		t.Errorf("in place of a named run: %v", err)
	}
	if _, err := Claim(d.Path, other, nil); err != nil {
		t.Errorf("in place of a run that has nothing there: %v", err)
	}
	kept := filepath.Join(d.Path, "kept", other, "files")
	if err := errors.Join(os.MkdirAll(kept, 0o700), os.WriteFile(filepath.Join(kept, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var has *OtherRunError
	if _, err := Claim(d.Path, run, nil); !errors.As(err, &has) || has.Run != other {
		t.Errorf("in place of a run that keeps something there for other hosts: %v", err)
	}
	if _, err := Make(filepath.Join(t.TempDir(), "unmounted", "me", "sim"), vfs.Access{}); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("without a parent: %v", err)
	}
}

// TestScan finds the parts, the lines and the record of a directory, and which
// parts are damaged.
func TestScan(t *testing.T) {
	d := newHost(t)
	save(t, d, 1, 2, 3, "x")
	own := store.Open(vfs.OS(), CheckpointDir(d.Path), 1)
	own.PerHost()
	if err := own.SetLine(store.Line{Index: 3, Ranks: 2, Run: run, Attempt: "x"}); err != nil {
		t.Fatal(err)
	}
	record := (&control.AttemptRecord{Run: run, Ranks: 2}).Next(0, "x")
	record.Homes = make([]control.Home, 2)
	if err := d.SetAttempt(record); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(own.File(2), 1000); err != nil {
		t.Fatal(err)
	}
	got, err := d.Scan()
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != d.ID || got.Attempt == nil || got.Attempt.Number != 1 || len(got.Lines) != 1 || got.Lines[0] != (control.RankLine{Rank: 1, Index: 3}) {
		t.Errorf("%+v", got)
	}
	for i, index := range []uint64{3, 2, 1} {
		p := got.Parts[i]
		if p.Rank != 1 || p.Index != index || p.Bytes == 0 || (p.Error != "") != (index == 2) || p.Error == "" && p.Attempt != "x" {
			t.Errorf("part %d: %+v", i, p)
		}
	}
	older := *record
	older.Number = 0
	if err := d.SetAttempt(&older); err != nil {
		t.Fatal(err)
	}
	if a, err := d.Attempt(); err != nil || a.Number != 1 {
		t.Errorf("an older record has replaced a newer one: %+v, %v", a, err)
	}
}

// TestFetchPart brings a differential checkpoint with its bases.
func TestFetchPart(t *testing.T) {
	a, b := newHost(t), newHost(t)
	save(t, a, 3, 4, 4, "x")
	c := client(t, a)
	ctx := context.Background()
	if err := b.FetchPart(ctx, c, 3, 4, 4, "x"); err != nil {
		t.Fatal(err)
	}
	if err := b.VerifyPart(ctx, 3, 4, "x"); err != nil {
		t.Error(err)
	}
	files, err := b.partFiles(3, 4)
	if err != nil || len(files) < 2 {
		t.Errorf("there should be bases: %v, %v", files, err)
	}
	for name := range files {
		was, err1 := os.ReadFile(filepath.Join(a.Path, name))
		is, err2 := os.ReadFile(filepath.Join(b.Path, name))
		if err1 != nil || err2 != nil || !bytes.Equal(was, is) {
			t.Errorf("%s differs: %v %v", name, err1, err2)
		}
	}
	if id, err := store.Open(vfs.OS(), CheckpointDir(b.Path), 0).ID(); err != nil || id != run {
		t.Errorf("run-id: %s, %v", id, err)
	}
	// Again, in the place of a file of another attempt.
	os.RemoveAll(CheckpointDir(b.Path))
	save(t, b, 3, 4, 4, "y")
	if err := b.FetchPart(ctx, c, 3, 4, 4, "x"); err != nil {
		t.Error(err)
	}
	if err := b.VerifyPart(ctx, 3, 4, "x"); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"attempt":    b.FetchPart(ctx, c, 3, 4, 4, "z"),
		"checkpoint": b.FetchPart(ctx, c, 3, 4, 9, "x"),
		"rank":       b.FetchPart(ctx, c, 2, 4, 4, "x"),
	} {
		if err == nil {
			t.Errorf("another %s was brought", what)
		}
	}
}

// TestFetchPart_Damage changes bytes of the file and of its bases: nothing that
// is damaged is published.
func TestFetchPart_Damage(t *testing.T) {
	a := newHost(t)
	save(t, a, 0, 1, 3, "x")
	c := client(t, a)
	files, err := a.partFiles(0, 3)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	found := 0
	for name, at := range files {
		good, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			bad := bytes.Clone(good)
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			if err := os.WriteFile(at, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			b := newHost(t)
			err := b.FetchPart(context.Background(), c, 0, 1, 3, "x")
			if err != nil {
				found++
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("%s: %v", name, err)
				}
				if list, _ := store.Open(vfs.OS(), CheckpointDir(b.Path), 0).Committed(); len(list) > 0 {
					t.Errorf("%s is damaged, and was published", name)
				}
			} else if err := b.VerifyPart(context.Background(), 0, 3, "x"); err != nil { // a byte that means nothing
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := os.WriteFile(at, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no damage was found")
	}
}

// TestFetchOwn brings what a rank has besides its checkpoints, and replaces
// what was there.
func TestFetchOwn(t *testing.T) {
	a, b := newHost(t), newHost(t)
	put := func(d *Dir, name, text string) {
		t.Helper()
		at := filepath.Join(d.Path, name)
		os.MkdirAll(filepath.Dir(at), 0o700)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(a, "output/rank-0001.out", "a long output\n")
	put(a, "output/rank-0000.out", "of another rank\n")
	put(a, "ckpt/journal-0001.kept/17", "the old content")
	old := time.Unix(1e9, 5)
	os.Chtimes(filepath.Join(a.Path, "ckpt/journal-0001.kept/17"), old, old)
	put(b, "output/rank-0001.out", "a shorter\n")
	put(b, "output/rank-0001.err", "old")
	put(b, "output/rank-0000.out", "its own\n")
	put(b, "ckpt/journal-0001.kept/16", "older")
	own := store.Open(vfs.OS(), CheckpointDir(a.Path), 1)
	if err := own.SetWrittenFiles(7, []string{"/data/x"}); err != nil {
		t.Fatal(err)
	}
	if err := b.FetchOwn(client(t, a), 1, 2, true); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"output/rank-0001.out": "a long output\n", "output/rank-0001.err": "", "output/rank-0000.out": "its own\n",
		"ckpt/journal-0001.kept/17": "the old content", "ckpt/journal-0001.kept/16": "",
	} {
		if got, _ := os.ReadFile(filepath.Join(b.Path, name)); string(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if st, err := os.Stat(filepath.Join(b.Path, "ckpt/journal-0001.kept/17")); err != nil || !st.ModTime().Equal(old) {
		t.Errorf("the kept file has another time: %v, %v", st.ModTime(), err)
	}
	st, err := os.Stat(CheckpointDir(b.Path))
	if err != nil {
		t.Fatal(err)
	}
	if got := store.Open(vfs.OS(), CheckpointDir(b.Path), 1).WrittenFiles(control.Inode(st)); !slices.Equal(got, []string{"/data/x"}) {
		t.Errorf("files that the rank writes: %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(b.Path, "incoming-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDiscard removes what ranks without a home there have, and then
// everything.
func TestDiscard(t *testing.T) {
	d := newHost(t)
	for r := range 3 {
		save(t, d, r, 3, 2, "x")
	}
	if err := d.Discard(3, []int{1}); err != nil {
		t.Fatal(err)
	}
	got, err := d.Scan()
	if err != nil || len(got.Parts) != 2 || got.Parts[0].Rank != 1 || got.Parts[1].Rank != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := d.DiscardAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(d.Path); err == nil {
		t.Error("its record is still there")
	}
}

// TestServer_Strangers lets peers connect that do not know the secret, and ask
// for files that are not theirs.
func TestServer_Strangers(t *testing.T) {
	d := newHost(t)
	save(t, d, 0, 1, 1, "x")
	s, err := d.Serve(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Dial(context.Background(), s.Addresses(), bytes.Repeat([]byte("x"), 32)); !errors.Is(err, control.ErrRefused) && !strings.Contains(fmt.Sprint(err), "EOF") {
		t.Errorf("with another secret: %v", err)
	}
	outside := filepath.Join(filepath.Dir(d.Path), "outside")
	os.WriteFile(outside, []byte("not for others"), 0o600)
	os.Symlink(outside, filepath.Join(CheckpointDir(d.Path), "link"))
	c, err := Dial(context.Background(), s.Addresses(), secret)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"../outside", "ckpt/../../outside", "/etc/passwd", "host", "hosts/x.lock", "ckpt", "", "ckpt/link", "ckpt/./run-id"} {
		var buf bytes.Buffer
		if _, err := c.Get(name, 0, &buf); err == nil || buf.Len() > 0 {
			t.Errorf("%q: %q, %v", name, buf.String(), err)
		}
	}
	var buf bytes.Buffer
	if n, err := c.Get("ckpt/run-id", 3, &buf); err != nil || n == 0 || int64(buf.Len()) != n {
		t.Errorf("run-id: %d bytes, %v", n, err)
	}
	if n, err := c.Get("ckpt/run-id", 1<<40, io.Discard); err != nil || n != 0 {
		t.Errorf("beyond its end: %d bytes, %v", n, err)
	}
}

// TestReceive_Altered changes every byte of a transfer: no alteration goes
// unnoticed, and none makes the receiver wait for ever or allocate much.
func TestReceive_Altered(t *testing.T) {
	data := []byte("some bytes of a file")
	chunk := tier.NewChunk(int64(len(data)))
	copy(chunk.Data(), data)
	var whole bytes.Buffer
	if err := chunk.Send(&whole, len(data)); err != nil {
		t.Fatal(err)
	}
	sent := whole.Bytes()
	for i := range sent {
		for _, flip := range []byte{1, 0x80} {
			bad := bytes.Clone(sent)
			bad[i] ^= flip
			here, there := net.Pipe()
			go func() {
				there.Write(bad)
				there.Close()
			}()
			var got bytes.Buffer
			if err := receive(here, &got, int64(len(data))); err == nil {
				t.Errorf("byte %d changed: %q", i, got.String())
			}
			here.Close()
		}
	}
}

// TestName checks that the name has that of the run, and differs for equal
// names elsewhere.
func TestName(t *testing.T) {
	a, b := Name("/home/me/sim.cairn"), Name("/home/me/other/sim.cairn")
	if !strings.HasPrefix(a, "sim-") || len(a) != len("sim-")+8 || a == b || a != Name("/home/me/sim.cairn") {
		t.Errorf("%s, %s", a, b)
	}
}
