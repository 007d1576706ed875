//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/journal"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
)

// attempt is the ID of a start.
var attempt = strings.Repeat("c", 32)

// prints writes a rank's standard output.
func prints(t *testing.T, d *Dir, rank int, text []byte) {
	t.Helper()
	name := filepath.Join(d.Path, filepath.FromSlash(stdoutName(rank)))
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// publish uploads a checkpoint of ranks on two hosts, and commits it.
func publish(t *testing.T, m tier.Tier, index uint64, hosts ...*Dir) *tier.Manifest {
	t.Helper()
	var parts []tier.Uploaded
	for r, d := range hosts {
		if err := d.Hold("shared", index, []int{r}); err != nil {
			t.Fatal(err)
		}
		up, err := d.Upload(context.Background(), m, "shared", index, []int{r}, len(hosts), 0)
		if err != nil {
			t.Fatal(err)
		}
		d.Release("shared", index)
		parts = append(parts, up)
	}
	mf, err := tier.Commit(context.Background(), m, parts)
	if err != nil {
		t.Fatal(err)
	}
	return mf
}

// TestShared_Fetch loses a host with its directory. Another one gets the rank's
// file and output from the tier.
func TestShared_Fetch(t *testing.T) {
	ctx := context.Background()
	a, b, m := newHost(t), newHost(t), tiertest.NewMem()
	save(t, a, 0, 2, 3, attempt)
	save(t, b, 1, 2, 3, attempt)
	text := bytes.Repeat([]byte("0123456789abcde\n"), 4<<20/16)
	prints(t, a, 0, []byte("hello\n"))
	prints(t, b, 1, text[:len(text)-1600])
	publish(t, m, 2, a, b)
	before := len(tiertest.All(t, m, run+"/files/"))
	prints(t, b, 1, text)
	mf := publish(t, m, 3, a, b)
	// The bases are there, and most of the output.
	if got := len(tiertest.All(t, m, run+"/files/")); got != before+4 {
		t.Errorf("the second checkpoint added %d objects, want 4: two files and two packs", got-before)
	}
	sizes := make(map[bool]int64)
	for i := range mf.Parts {
		p, err := mf.Part(ctx, m, i)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Extra {
			if e.Rank == 1 {
				sizes[strings.HasPrefix(e.Path, "rank-0001-00000003-")] += e.Size
			}
		}
	}
	if sizes[true] > 10_000 || sizes[false] < 4<<20-1600 {
		t.Errorf("the pack has %d bytes, its base %d; the output has grown by 1600", sizes[true], sizes[false])
	}
	c := newHost(t)
	prints(t, c, 1, []byte("of an older start\n"))
	if err := c.FetchShared(ctx, m, mf, 1, true, 0, ProgramFiles{}); err != nil {
		t.Fatal(err)
	}
	if err := c.VerifyPart(ctx, 1, 3, attempt); err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(filepath.Join(c.Path, filepath.FromSlash(stdoutName(1))))
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes of output, %v; want %d", len(got), err, len(text))
	}
	if err := c.FetchShared(ctx, m, mf, 1, true, 4, ProgramFiles{}); err != nil { // after a crash
		t.Error(err)
	}
	if files, err := c.Scan(); err != nil || len(files.Lines) != 1 || files.Lines[0].Index != 4 {
		t.Errorf("%+v, %v; want the recovery line", files, err)
	}
	// Its home has the output, and only the file is brought.
	if err := b.FetchShared(ctx, m, mf, 0, false, 0, ProgramFiles{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(b.Path, filepath.FromSlash(stdoutName(0)))); err == nil {
		t.Error("the output of rank 0 was brought, too")
	}
	if left, _ := filepath.Glob(filepath.Join(c.Path, "incoming*")); left != nil {
		t.Errorf("left: %v", left)
	}
}

// TestShared_Damaged checks that a damaged object is refused, and that nothing
// of it is published.
func TestShared_Damaged(t *testing.T) {
	a, m := newHost(t), tiertest.NewMem()
	save(t, a, 0, 1, 1, attempt)
	prints(t, a, 0, []byte("hello\n"))
	mf := publish(t, m, 1, a)
	for _, name := range tiertest.All(t, m, run+"/files/") {
		bad := m.Clone()
		bad.Change(name, func(data []byte) []byte {
			data = bytes.Clone(data)
			data[len(data)/2] ^= 1
			return data
		})
		c := newHost(t)
		prints(t, c, 0, []byte("before"))
		if err := c.FetchShared(context.Background(), bad, mf, 0, true, 0, ProgramFiles{}); !errors.Is(err, tier.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasSuffix(name, ".h5") {
			if there, err := store.Holds(vfs.OS(), CheckpointDir(c.Path)); there || err != nil {
				t.Errorf("%s: a damaged file was published, %v", name, err)
			}
		}
		if got, _ := os.ReadFile(filepath.Join(c.Path, filepath.FromSlash(stdoutName(0)))); string(got) != "before" {
			t.Errorf("%s: the output was replaced: %q", name, got)
		}
	}
}

// openJournal starts a rank of two that changes files. The other one is
// elsewhere.
func openJournal(t *testing.T, d *Dir, home string, rank int) *journal.Journal {
	t.Helper()
	gather := func(text []byte) ([][]byte, error) {
		all := [][]byte{text, text}
		all[1-rank] = bytes.Replace(text, []byte(`"Host":"here"`), []byte(`"Host":"there"`), 1)
		return all, nil
	}
	j, err := journal.Open(journal.Config{Dir: CheckpointDir(d.Path), Home: home, Rank: rank, Ranks: 2, Host: "here", Gather: gather, Warn: t.Logf, Fatal: t.Fatalf})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestShared_Journal loses a host whose rank has changed files there. Another
// host gets them as they were at the checkpoint.
func TestShared_Journal(t *testing.T) {
	ctx := context.Background()
	a, b, m := newHost(t), newHost(t), tiertest.NewMem()
	save(t, a, 0, 2, 1, attempt)
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.MakeCheckpoints(); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, b, home, 1)
	in := func(name string) string { return filepath.Join(home, name) }
	write := func(name, text string) {
		t.Helper()
		if err := j.WriteFile(in(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("result", "1\n")
	write("removed", "before\n")
	epoch, recorded, err := j.BeginEpoch(0)
	if err != nil {
		t.Fatal(err)
	}
	save(t, b, 1, 2, 1, attempt)
	write("result", "2\n")
	write("new", "new\n")
	if err := j.Remove(in("removed")); err != nil {
		t.Fatal(err)
	}
	mf := publish(t, m, 1, a, b)
	j.End()
	for r := range 2 {
		if got, err := Absent(ctx, m, mf, r); err != nil || got != nil {
			t.Errorf("rank %d: %v, %v", r, got, err)
		}
	}
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	for _, elsewhere := range []string{"", t.TempDir()} { // also started in another directory
		c := newHost(t)
		if err := c.FetchShared(ctx, m, mf, 1, true, 1, ProgramFiles{Home: elsewhere, Outside: true}); err != nil {
			t.Fatal(err)
		}
		if elsewhere != "" {
			home = elsewhere
		}
		j = openJournal(t, c, home, 1)
		if err := j.Restored(epoch, recorded); err != nil {
			t.Error(err)
		}
		j.End()
		list, err := os.ReadDir(home)
		if err != nil || len(list) != 2 {
			t.Errorf("%v, %v", list, err)
		}
		for name, want := range map[string]string{"result": "1\n", "removed": "before\n"} {
			if got, err := os.ReadFile(in(name)); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v; want %q", name, got, err, want)
			}
		}
	}
	// What is not trusted does not choose where files are put.
	c := newHost(t)
	if err := c.FetchShared(ctx, m, mf, 1, true, 1, ProgramFiles{}); err == nil || !strings.Contains(err.Error(), "./") {
		t.Errorf("not trusted: %v", err)
	}
}

// TestShared_Absent has a file of the program that was not uploaded: the rank
// cannot be restored without its home, and the refusal names the file.
func TestShared_Absent(t *testing.T) {
	ctx := context.Background()
	a, c, m := newHost(t), newHost(t), tiertest.NewMem()
	save(t, a, 0, 1, 1, attempt)
	const name = "/gpfs/result"
	absent := tier.ExtraFile{Kind: absentKind, Path: "absent-0000", Source: tier.BytesSource([]byte(`["` + name + `"]`))}
	mf, err := tier.Publish(ctx, m, tier.UploadOptions{Dir: CheckpointDir(a.Path), Index: 1, Part: a.ID, Extra: []tier.ExtraFile{absent}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Absent(ctx, m, mf, 0); err != nil || !slices.Equal(got, []string{name}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := c.FetchShared(ctx, m, mf, 0, true, 0, ProgramFiles{}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("with output: %v", err)
	}
	if there, err := store.Holds(vfs.OS(), CheckpointDir(c.Path)); there || err != nil {
		t.Errorf("the file was published, %v", err)
	}
	if err := c.FetchShared(ctx, m, mf, 0, false, 0, ProgramFiles{}); err != nil { // its home has the file
		t.Error(err)
	}
}

// TestHold_Removed removes a checkpoint while it is held: it can be uploaded
// nevertheless. One that is not there cannot be held.
func TestHold_Removed(t *testing.T) {
	a, m := newHost(t), tiertest.NewMem()
	save(t, a, 0, 1, 2, attempt)
	if err := a.Hold("shared", 2, []int{0}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(CheckpointDir(a.Path)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Upload(context.Background(), m, "shared", 2, []int{0}, 1, 0); err != nil {
		t.Error(err)
	}
	a.Release("shared", 2)
	if err := a.Hold("shared", 2, []int{0}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after that: %v", err)
	}
	if left, _ := os.ReadDir(a.heldDir("shared")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
