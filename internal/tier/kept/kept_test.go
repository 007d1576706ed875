package kept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/erasure"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

func open(t testing.TB, fsys vfs.FS, run string) *Store {
	t.Helper()
	s, err := Open(fsys, "/kept", run)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// retain removes everything but the parts of some checkpoints and the files of
// their objects.
func retain(t testing.TB, s *Store, keep ...recovery.Checkpoint) {
	t.Helper()
	needed := map[string]bool{}
	var parts []copies.PartID
	for id, p := range s.parts {
		if !slices.Contains(keep, id.Checkpoint) {
			parts = append(parts, id)
			continue
		}
		for _, o := range p.Objects {
			needed[o.Name] = true
		}
	}
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(s.files)), func(id copies.ID) bool { return needed[id.Object] })
	if err := s.Remove(parts, ids); err != nil {
		t.Fatal(err)
	}
}

// content returns an object of another host: its name and bytes.
func content(seed uint64, size int) (string, []byte) {
	data := make([]byte, size)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return ObjectName(7, tier.File{Index: seed, Header: strings.Repeat("c", 32), Object: tier.Object{Digest: tier.BytesSource(data).Digest}}), data
}

// shard returns a shard of an object.
func shard(t testing.TB, id copies.ID, data []byte) []byte {
	t.Helper()
	digest, err := DigestOf(id.Object)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := make([]io.Writer, id.Data+id.Parity)
	w[id.Shard] = &out
	if err := erasure.Encode(erasure.Source{ReaderAt: bytes.NewReader(data), Size: int64(len(data)), Digest: erasure.Digest(digest)}, code(id), w); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// receive stores bytes as a copy or a shard of an object of some size.
func receive(s *Store, id copies.ID, size int, data []byte) error {
	in, err := s.Receive(id, int64(size))
	if err != nil {
		return err
	}
	for off := in.Offset(); off < int64(len(data)); {
		n, err := in.Write(data[off:min(off+5000, int64(len(data)))])
		if err != nil {
			in.Discard()
			return err
		}
		off += int64(n)
	}
	return in.Commit(context.Background())
}

// sound checks that everything the inventory lists can be read and is right.
func sound(t testing.TB, s *Store) {
	t.Helper()
	ids, _ := s.Have()
	for _, id := range ids {
		if err := s.Verify(t.Context(), id, nil); err != nil {
			t.Error(err)
		}
	}
}

func all(t testing.TB, s *Store, p recovery.Part) {
	t.Helper()
	inv := s.Inventory()
	if !slices.ContainsFunc(inv.Parts, func(x recovery.Part) bool { return reflect.DeepEqual(x, p) }) {
		t.Errorf("the part of rank %d, checkpoint %d is gone", p.Rank, p.Index)
	}
	for _, o := range p.Objects {
		if !slices.Contains(inv.Copies, o.Name) {
			t.Errorf("%s is gone", o.Name)
		}
	}
}

func writeFile(t testing.TB, fsys vfs.FS, name string, text []byte) {
	t.Helper()
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	f, err := fsys.Create(name)
	if err == nil {
		_, err = f.WriteAt(text, 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLink_Pack keeps a rank's pack with its file. A pack that is not what its
// name says is refused, and what is kept can be had back.
func TestLink_Pack(t *testing.T) {
	fsys := vfstest.NewMem()
	prog := tiertest.NewProgram(t, fsys, "/run", 1)
	index := prog.Save()
	s := open(t, fsys, prog.Run)
	text := []byte("files of the program")
	src, err := tier.NewSource(t.Context(), bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	more := More{Packs: []Pack{{fmt.Sprintf("rank-0000-%08d-%s.pack", index, src.Digest), "/pack"}}, Absent: []string{"/gpfs/result"}}
	writeFile(t, fsys, "/pack", []byte("something else, of whatever length"))
	if _, err := s.Link(t.Context(), "/run", index, 0, more); !errors.Is(err, tier.ErrDamaged) {
		t.Fatalf("a damaged pack: %v", err)
	}
	if inv := s.Inventory(); len(inv.Parts) > 0 {
		t.Errorf("there is a part without its pack: %v", inv.Parts)
	}
	writeFile(t, fsys, "/pack", text)
	p, err := s.Link(t.Context(), "/run", index, 0, more)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove("/pack"); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Link(t.Context(), "/run", index, 0, more); err != nil || !reflect.DeepEqual(p, again) {
		t.Errorf("the second time: %v, %v; want %v", again, err, p)
	}
	look, err := Look(fsys, "/kept", prog.Run)
	if err != nil {
		t.Fatal(err)
	}
	all(t, look, p)
	if empty, err := Look(fsys, "/nowhere", prog.Run); err != nil || len(empty.Inventory().Copies) > 0 {
		t.Errorf("a store that is not there: %v", err)
	}
	s = open(t, fsys, prog.Run)
	all(t, s, p)
	sound(t, s)
	if err := s.Export(t.Context(), more.Packs[0].Name, "/back"); err != nil {
		t.Fatal(err)
	}
	if got, err := vfs.ReadFile(fsys, "/back", 1000); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Remove(nil, []copies.ID{{Object: more.Packs[0].Name}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(t.Context(), more.Packs[0].Name, "/back"); !errors.Is(err, tier.ErrNotExist) {
		t.Errorf("what is not here: %v", err)
	}
}

// TestLink_SurvivesPruning links two checkpoints, and restores one when the
// run's own files are gone.
func TestLink_SurvivesPruning(t *testing.T) {
	fsys := vfstest.NewMem()
	prog := tiertest.NewProgram(t, fsys, "/run", 2)
	first, second := prog.Save(), prog.Save()
	s := open(t, fsys, prog.Run)
	var parts []recovery.Part
	for r := range 2 {
		for _, index := range []uint64{first, second, second} { // the second time changes nothing
			p, err := s.Link(t.Context(), "/run", index, r, More{})
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
		}
	}
	if n := len(parts[1].Objects); n != 2 {
		t.Fatalf("a differential checkpoint has %d objects", n)
	}
	if parts[1].Objects[1] != parts[0].Objects[0] {
		t.Errorf("a base is %v, and was linked as %v", parts[1].Objects[1], parts[0].Objects[0])
	}
	if inv := s.Inventory(); len(inv.Parts) != 4 || len(inv.Copies) != 4 {
		t.Errorf("%d parts and %d copies", len(inv.Parts), len(inv.Copies))
	}
	want := tiertest.Load(t, fsys, "/run", second, 1)
	if err := vfs.RemoveAll(fsys, "/run"); err != nil {
		t.Fatal(err)
	}
	s = open(t, fsys, prog.Run)
	sound(t, s)
	if err := fsys.Mkdir("/new"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also if it is there
		if err := s.Place(t.Context(), "/new", parts[4]); err != nil {
			t.Fatal(err)
		}
		if got := tiertest.Load(t, fsys, "/new", second, 1); got.Name != want.Name || !reflect.DeepEqual(got.Grid, want.Grid) {
			t.Error("the placed checkpoint has other values")
		}
	}
	retain(t, s, parts[1].Checkpoint)
	all(t, s, parts[1])
	if inv := s.Inventory(); len(inv.Parts) != 2 || len(inv.Copies) != 4 {
		t.Errorf("%d parts and %d copies after retain", len(inv.Parts), len(inv.Copies))
	}
	retain(t, s)
	if inv := s.Inventory(); len(inv.Parts)+len(inv.Copies) != 0 {
		t.Errorf("%v is left", inv)
	}
}

// TestLink_RealFiles: on a real file system, a copy is the rank's file itself;
// also if a crash left its name.
func TestLink_RealFiles(t *testing.T) {
	dir := t.TempDir()
	prog := tiertest.NewProgram(t, vfs.OS(), filepath.Join(dir, "run"), 1)
	index := prog.Save()
	s, err := Open(vfs.OS(), filepath.Join(dir, "kept"), prog.Run)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p, err := s.Link(t.Context(), prog.Dir, index, 0, More{})
		if err != nil {
			t.Fatal(err)
		}
		id := copies.ID{Object: p.Objects[0].Name}
		a, aerr := os.Stat(store.Open(vfs.OS(), prog.Dir, 0).File(index))
		b, berr := os.Stat(s.file(id))
		if err := errors.Join(aerr, berr); err != nil || !os.SameFile(a, b) {
			t.Errorf("it is another file, %v", err)
		}
		if left, err := os.ReadDir(s.path(incomingDir)); err != nil || len(left) > 0 {
			t.Errorf("%d files are left in incoming, %v", len(left), err)
		}
		sound(t, s)
		delete(s.files, id) // as if it were not known
	}
}

// TestLink_RefusesOtherRun refuses a file of another run.
func TestLink_RefusesOtherRun(t *testing.T) {
	fsys := vfstest.NewMem()
	prog := tiertest.NewProgram(t, fsys, "/run", 1)
	index := prog.Save()
	if _, err := open(t, fsys, store.NewID()).Link(t.Context(), "/run", index, 0, More{}); err == nil {
		t.Error("a file of another run was kept")
	}
}

// TestRemove_SparesLinked removes what a part needs that nobody else knows yet.
func TestRemove_SparesLinked(t *testing.T) {
	fsys := vfstest.NewMem()
	prog := tiertest.NewProgram(t, fsys, "/run", 1)
	s := open(t, fsys, prog.Run)
	p, err := s.Link(t.Context(), "/run", prog.Save(), 0, More{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(nil, []copies.ID{{Object: p.Objects[0].Name}}); err != nil {
		t.Fatal(err)
	}
	all(t, s, p)
	if err := s.Remove([]copies.PartID{partID(&p)}, []copies.ID{{Object: p.Objects[0].Name}}); err != nil || s.Has(copies.ID{Object: p.Objects[0].Name}) {
		t.Error("it was not removed with its part", err)
	}
}

// noLinks is a file system without hard links.
type noLinks struct{ vfs.FS }

func (noLinks) Link(from, to string) error { return vfs.ErrNoLink }

// work does everything that a store can do, and returns what was reported as
// durable, and what may not come back.
type work struct {
	t       testing.TB
	run     string
	indexes []uint64
	parts   []recovery.Part
	ids     []copies.ID
	removed []copies.ID
}

func (w *work) do(fsys vfs.FS) error {
	ctx := context.Background()
	w.parts, w.ids, w.removed = nil, nil, nil
	s, err := Open(fsys, "/kept", w.run)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, index := range w.indexes {
		p, err := s.Link(ctx, "/run", index, 0, More{})
		if err != nil {
			return err
		}
		w.parts = append(w.parts, p)
	}
	a, data := content(1, 20_000)
	b, other := content(2, 9_000)
	id, gone, code := copies.ID{Object: a}, copies.ID{Object: b}, copies.ID{Object: a, Data: 2, Parity: 1, Shard: 2}
	for _, x := range []copies.ID{id, gone} {
		if x == gone {
			data = other
		}
		if err := receive(s, x, len(data), data); err != nil {
			return err
		}
		w.ids = append(w.ids, x)
	}
	_, data = content(1, 20_000)
	if err := receive(s, code, len(data), shard(w.t, code, data)); err != nil {
		return err
	}
	w.ids = append(w.ids, code)
	p := recovery.Part{Checkpoint: recovery.Checkpoint{Index: 9, Attempt: strings.Repeat("d", 32)}, Rank: 7, Ranks: 8, Time: 1, Objects: []recovery.Object{{Name: a, Size: int64(len(data))}}}
	if err := s.StorePart(p); err != nil {
		return err
	}
	w.parts = append(w.parts, p)
	w.ids = slices.DeleteFunc(w.ids, func(x copies.ID) bool { return x == gone })
	if err := s.Remove(nil, []copies.ID{gone}); err != nil {
		return err
	}
	w.removed = []copies.ID{gone}
	old := w.parts[0]
	w.parts = w.parts[1:]
	return s.Remove([]copies.PartID{partID(&old)}, nil)
}

func (w *work) check(fsys vfs.FS) {
	w.t.Helper()
	s := open(w.t, fsys, w.run)
	for _, p := range w.parts {
		all(w.t, s, p)
	}
	for _, id := range w.ids {
		if !s.Has(id) {
			w.t.Errorf("%s is gone", id)
		}
	}
	for _, id := range w.removed {
		if s.Has(id) {
			w.t.Errorf("%s is back", id)
		}
	}
	sound(w.t, s)
	if inv := s.Inventory(); len(inv.Damaged) > 0 {
		w.t.Error(inv.Damaged)
	}
	if left, err := fsys.ReadDir(filepath.Join("/kept", w.run, incomingDir)); err != nil || len(left) > 0 {
		w.t.Errorf("%d files are left in incoming, %v", len(left), err)
	}
}

// TestOperations_PowerLost loses power after every operation: what was reported
// is there, and nothing else is but whole objects. Everything can be done
// again.
func TestOperations_PowerLost(t *testing.T) {
	base := vfstest.NewMem()
	prog := tiertest.NewProgram(t, base, "/run", 1)
	w := &work{t: t, run: prog.Run, indexes: []uint64{prog.Save(), prog.Save()}}
	for _, loss := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
		for name, wrap := range map[string]func(vfs.FS) vfs.FS{
			"links": func(f vfs.FS) vfs.FS { return f }, "no links": func(f vfs.FS) vfs.FS { return noLinks{f} },
		} {
			if name == "no links" && loss != vfstest.LoseAll {
				continue // the content is written in the same way
			}
			t.Run(fmt.Sprint(name, loss), func(t *testing.T) {
				end, last := false, ""
				for at := 0; !end; at++ {
					mem := base.Crash(vfstest.LoseAll)
					n := 0
					err := w.do(wrap(vfstest.Hook(mem, func(op, name string) error {
						if op == "read" || op == "stat" || op == "size" {
							return nil // they change nothing
						}
						if n++; n > at {
							return errors.New("crash")
						}
						last = op + " " + name
						return nil
					})))
					end = n <= at
					if end && err != nil {
						t.Fatal(err)
					}
					after := mem.Crash(loss)
					w.check(after)
					if loss == vfstest.LoseAll {
						if err := w.do(wrap(after)); err != nil {
							t.Error("again:", err)
						}
					}
					if t.Failed() {
						t.Fatalf("after operation %d, %s", at, last)
					}
				}
			})
		}
	}
}

// TestOperations_FailOnce lets every operation fail once: the same process can
// do everything after that, and so can the next one.
func TestOperations_FailOnce(t *testing.T) {
	base := vfstest.NewMem()
	prog := tiertest.NewProgram(t, base, "/run", 1)
	w := &work{t: t, run: prog.Run, indexes: []uint64{prog.Save(), prog.Save()}}
	for at, end := 0, false; !end; at++ {
		mem := base.Crash(vfstest.LoseAll)
		n := 0
		hooked := vfstest.Hook(mem, func(op, name string) error {
			if n++; n == at+1 && !end {
				return syscall.ENOSPC
			}
			return nil
		})
		w.do(hooked)
		end = n <= at
		w.check(mem.Crash(vfstest.LoseAll))
		if err := w.do(hooked); err != nil {
			t.Fatalf("after a failure of operation %d: %v", at, err)
		}
		w.check(mem.Crash(vfstest.LoseAll))
		if t.Failed() {
			t.Fatalf("operation %d failed", at)
		}
	}
}

// TestReceive_Damaged refuses objects and shards with a changed byte.
func TestReceive_Damaged(t *testing.T) {
	fsys := vfstest.NewMem()
	s := open(t, fsys, "run")
	name, data := content(1, 20_000)
	for _, id := range []copies.ID{{Object: name}, {Object: name, Data: 2, Parity: 1, Shard: 1}} {
		good := data
		if id.Data > 0 {
			good = shard(t, id, data)
		}
		for _, at := range []int{0, 70, len(good) - 1} {
			bad := bytes.Clone(good)
			bad[at] ^= 4
			if err := receive(s, id, len(data), bad); !errors.Is(err, tier.ErrDamaged) || s.Has(id) {
				t.Errorf("%s with byte %d changed: %v", id, at, err)
			}
		}
		if err := receive(s, id, len(data), good[:len(good)-1]); err == nil || s.Has(id) {
			t.Errorf("%s without its last byte was stored", id)
		}
		if err := receive(s, id, len(data), append(bytes.Clone(good), 0)); err == nil || s.Has(id) {
			t.Errorf("%s with a byte more was stored", id)
		}
		if err := receive(s, id, len(data), good); err != nil || !s.Has(id) {
			t.Error(err)
		}
	}
	if err := receive(s, copies.ID{Object: name, Data: 2, Parity: 1, Shard: 2}, len(data), shard(t, copies.ID{Object: name, Data: 2, Parity: 1}, data)); err == nil {
		t.Error("shard 0 was stored as shard 2")
	}
}

// TestReceive_Continues continues a transfer where it was paused, unless too
// many others were paused since.
func TestReceive_Continues(t *testing.T) {
	fsys := vfstest.NewMem()
	s := open(t, fsys, "run")
	name, data := content(1, 20_000)
	id := copies.ID{Object: name}
	in, err := s.Receive(id, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(data[:7000]); err != nil {
		t.Fatal(err)
	}
	in.Pause()
	if in, err = s.Receive(id, int64(len(data))); err != nil || in.Offset() != 7000 {
		t.Fatal(in.Offset(), err)
	}
	in.Pause()
	for seed := range uint64(maxIdle) { // others take its place
		name, data := content(10+seed, 3000)
		other, err := s.Receive(copies.ID{Object: name}, int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		other.Write(data[:10])
		other.Pause()
	}
	if left, _ := fsys.ReadDir("/kept/run/incoming"); len(left) != maxIdle {
		t.Errorf("%d are paused", len(left))
	}
	if err := receive(s, id, len(data), data); err != nil {
		t.Error(err)
	}
	sound(t, s)
}

// TestScrub_FindsDamage finds damaged and missing objects once, and does not
// give them to anybody.
func TestScrub_FindsDamage(t *testing.T) {
	fsys := vfstest.NewMem()
	s := open(t, fsys, "run")
	name, data := content(1, 200_000)
	lost, more := content(2, 100)
	fine, _ := content(3, 100)
	ids := []copies.ID{{Object: name}, {Object: name, Data: 2, Parity: 1, Shard: 1}, {Object: lost}, {Object: fine}}
	for i, good := range [][]byte{data, shard(t, ids[1], data), more} {
		if err := receive(s, ids[i], []int{len(data), len(data), len(more)}[i], good); err != nil {
			t.Fatal(err)
		}
	}
	_, small := content(3, 100)
	if err := receive(s, ids[3], len(small), small); err != nil {
		t.Fatal(err)
	}
	p := recovery.Part{Checkpoint: recovery.Checkpoint{Index: 9, Attempt: "a"}, Ranks: 1, Objects: []recovery.Object{{Name: name, Size: int64(len(data))}}}
	if err := s.StorePart(p); err != nil {
		t.Fatal(err)
	}
	sound(t, s)
	for _, id := range ids[:2] {
		if err := fsys.Corrupt(s.file(id), 50_000, 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.Remove(s.file(ids[2])); err != nil {
		t.Fatal(err)
	}
	var found []copies.ID
	for range 2 { // the second time finds nothing
		if err := s.Scrub(t.Context(), func(r Rotten) { found = append(found, r.ID) }); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(found, compareIDs)
	if want := slices.SortedFunc(slices.Values(ids[:3]), compareIDs); !slices.Equal(found, want) {
		t.Errorf("found %v", found)
	}
	for _, id := range ids[:3] {
		if _, _, err := s.OpenFile(id); !errors.Is(err, tier.ErrNotExist) {
			t.Errorf("%s can be read: %v", id, err)
		}
	}
	s = open(t, fsys, "run")
	if inv := s.Inventory(); len(inv.Damaged) != 2 || len(inv.Copies) != 1 {
		t.Errorf("after opening: %v", inv)
	}
	if err := receive(s, ids[0], len(data), data); err != nil {
		t.Fatal(err)
	}
	if inv := s.Inventory(); len(inv.Damaged) != 1 || !s.Has(ids[0]) {
		t.Errorf("after repairing: %v", inv)
	}
	retain(t, s)
	for _, dir := range []string{filesDir, shardsDir, partsDir} {
		if left, _ := fsys.ReadDir(s.path(dir)); len(left) > 0 {
			t.Errorf("%s has %v", dir, left)
		}
	}
}

// TestOpen_Damaged opens a store with a damaged part, a file that was cut, and
// names that are not its own.
func TestOpen_Damaged(t *testing.T) {
	fsys := vfstest.NewMem()
	s := open(t, fsys, "run")
	name, data := content(1, 5000)
	id := copies.ID{Object: name}
	part := func(index uint64) recovery.Part {
		return recovery.Part{Checkpoint: recovery.Checkpoint{Index: index, Attempt: "a"}, Ranks: 1, Objects: []recovery.Object{{Name: name, Size: int64(len(data))}}}
	}
	if err := errors.Join(receive(s, id, len(data), data), s.StorePart(part(1)), s.StorePart(part(2))); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Corrupt(s.path(partsDir, partName(copies.PartID{Checkpoint: part(2).Checkpoint})), 20, 1); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove(s.file(id)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{s.file(id), s.path(filesDir, "notes.txt"), s.path(shardsDir, name+".2+1.3"), s.path(shardsDir, name)} {
		f, err := fsys.Create(path)
		if err == nil {
			_, err = f.WriteAt(data[:100], 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, fsys, "run")
	inv := s.Inventory()
	if len(inv.Parts) != 1 || inv.Parts[0].Index != 1 || len(inv.Copies)+len(inv.Shards) != 0 || len(inv.Damaged) != 1 {
		t.Errorf("%+v", inv)
	}
}

// TestNames_Refused refuses names that could lead elsewhere.
func TestNames_Refused(t *testing.T) {
	s := open(t, vfstest.NewMem(), "run")
	good, _ := content(1, 10)
	for _, id := range []copies.ID{
		{}, {Object: "x"}, {Object: "../" + good}, {Object: "a/" + good}, {Object: good + ".bad"}, {Object: strings.ToUpper(good)}, {Object: good[:len(good)-4] + ".h5"},
		{Object: good, Data: 2}, {Object: good, Data: 2, Parity: 1, Shard: 3}, {Object: good, Data: 300, Parity: 1}, {Object: good, Shard: 1},
	} {
		if _, err := s.Receive(id, 10); err == nil {
			t.Errorf("%+v was accepted", id)
		}
	}
	if _, err := s.Receive(copies.ID{Object: good}, -1); err == nil {
		t.Error("-1 bytes were accepted")
	}
	for _, p := range []recovery.Part{
		{}, {Checkpoint: recovery.Checkpoint{Index: 1, Attempt: "../x"}, Ranks: 1, Objects: []recovery.Object{{Name: good}}},
		{Checkpoint: recovery.Checkpoint{Index: 1, Attempt: "x"}, Ranks: 1, Objects: []recovery.Object{{Name: "x"}}},
		{Checkpoint: recovery.Checkpoint{Index: 1, Attempt: "x"}, Ranks: 1, Objects: []recovery.Object{{Name: good}, {Name: good}}},
		{Checkpoint: recovery.Checkpoint{Index: 1, Attempt: "x"}, Rank: 1, Ranks: 1, Objects: []recovery.Object{{Name: good}}},
	} {
		if err := s.StorePart(p); err == nil {
			t.Errorf("%+v was stored", p)
		}
	}
	for _, run := range []string{"", "..", "a/b", "."} {
		if _, err := Open(vfstest.NewMem(), "/kept", run); err == nil {
			t.Errorf("run %q was opened", run)
		}
	}
}
