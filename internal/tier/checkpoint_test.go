package tier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/dir"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestPublish_SharesFiles shows that a file that several checkpoints need is
// stored once, and that each checkpoint can be fetched.
func TestPublish_SharesFiles(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	m := tiertest.NewMem()
	var all []*tier.Manifest
	for range 4 {
		all = append(all, p.Publish(m, p.Save()))
	}
	// Of each rank the full file, and one for each differential checkpoint.
	if n := count(t, m, p.Run+"/files/"); n != 2*4 {
		t.Errorf("%d files: %v", n, tiertest.All(t, m, ""))
	}
	if got := indexes(t, m, p.Run); !slices.Equal(got, []uint64{4, 3, 2, 1}) {
		t.Errorf("checkpoints %v", got)
	}
	for _, mf := range all {
		p.Fetchable(m, mf)
	}
	if n := count(t, m, p.Run+"/claims/") + count(t, m, p.Run+"/condemned/"); n != 0 {
		t.Errorf("left: %v", tiertest.All(t, m, ""))
	}
	if runs, err := tier.Runs(t.Context(), m); err != nil || !slices.Equal(runs, []string{p.Run}) {
		t.Errorf("runs %v, %v", runs, err)
	}
	// The same again is nothing new.
	before := m.Names()
	if mf := p.Publish(m, 4); mf.Token != all[3].Token {
		t.Error("another manifest")
	}
	added := slices.DeleteFunc(m.Names(), func(n string) bool { return slices.Contains(before, n) })
	if len(added) != 1 || !strings.Contains(added[0], "/parts/") {
		t.Errorf("added: %v", added)
	}
	if _, err := tier.RemoveRun(t.Context(), m, p.Run); err != nil || len(m.Names()) > 0 {
		t.Errorf("%v: %v", err, m.Names())
	}
}

// TestFetch_Links shows, on the real file system, that checkpoints that were
// fetched share files, and that what is there is not fetched again.
func TestFetch_Links(t *testing.T) {
	root := t.TempDir()
	p := tiertest.NewProgram(t, vfs.OS(), filepath.Join(root, "ckpt"), 1)
	d, err := dir.Open(vfs.OS(), filepath.Join(root, "tier"), vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*tier.Manifest
	for range 3 {
		all = append(all, p.Publish(d, p.Save()))
	}
	to := filepath.Join(root, "new")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	gets := 0
	counted := tiertest.Faulty(d, func(op, name string) tiertest.Fault {
		if op == "get" && strings.Contains(name, "/files/") {
			gets++
		}
		return tiertest.None
	})
	for i, want := range []int{1, 2, 3, 3} {
		if err := tier.Fetch(t.Context(), counted, all[min(i, 2)], tier.FetchOptions{Dir: to}); err != nil {
			t.Fatal(err)
		}
		if gets != want {
			t.Errorf("after fetch %d: %d files were fetched, want %d", i+1, gets, want)
		}
	}
	first, err := os.Stat(filepath.Join(to, "ckpt-00000001", "rank-0000.h5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []string{"ckpt-00000002", "ckpt-00000003"} {
		if st, err := os.Stat(filepath.Join(to, index, "rank-0000.base-00000001.h5")); err != nil || !os.SameFile(st, first) {
			t.Errorf("%s does not share its base: %v", index, err)
		}
	}
	for i := uint64(1); i <= 3; i++ {
		tiertest.Load(t, vfs.OS(), to, i, 0)
	}
	if id, err := store.Open(vfs.OS(), to, 0).ID(); err != nil || id != p.Run {
		t.Errorf("identity %q, %v", id, err)
	}
	// Damage and loss are repaired.
	bad := filepath.Join(to, "ckpt-00000003", "rank-0000.h5")
	text, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(bad, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(to, "ckpt-00000003", "rank-0000.base-00000001.h5")); err != nil {
		t.Fatal(err)
	}
	if err := tier.Fetch(t.Context(), counted, all[2], tier.FetchOptions{Dir: to}); err != nil || gets != 4 {
		t.Errorf("%v; %d files were fetched", err, gets)
	}
	tiertest.Load(t, vfs.OS(), to, 3, 0)
	// A directory of another run is refused.
	other := filepath.Join(root, "other")
	q := tiertest.NewProgram(t, vfs.OS(), other, 1)
	q.Save()
	if err := store.ForHelper(vfs.OS(), other, 0, nil).SetID(q.Run); err != nil {
		t.Fatal(err)
	}
	if err := tier.Fetch(t.Context(), d, all[2], tier.FetchOptions{Dir: other}); err == nil || !strings.Contains(err.Error(), "belongs to run "+q.Run) {
		t.Errorf("into a directory of another run: %v", err)
	}
}

// TestUpload_SeveralHosts uploads from two directories, each with the files of
// some ranks, and fetches into two others.
func TestUpload_SeveralHosts(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 4)
	m := tiertest.NewMem()
	for range 2 {
		index := p.Save()
		var parts []tier.Uploaded
		for host, ranks := range [][]int{{3, 1}, {0, 2}} {
			o := p.Upload(index, ranks...)
			o.Part = fmt.Sprintf("host-%d", host)
			up, err := tier.Upload(t.Context(), m, o)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, up)
		}
		if _, err := tier.Commit(t.Context(), m, parts[:1]); !errors.Is(err, tier.ErrDamaged) || !strings.Contains(err.Error(), "files of 2 ranks; there are 4") {
			t.Errorf("a part is missing: %v", err)
		}
		if _, err := tier.Commit(t.Context(), m, append(parts, parts[0])); !errors.Is(err, tier.ErrDamaged) {
			t.Errorf("a part is there twice: %v", err)
		}
		if index == 2 {
			wrong := slices.Clone(parts)
			wrong[1].Index = 1
			if _, err := tier.Commit(t.Context(), m, wrong); err == nil || !strings.Contains(err.Error(), "others are of") {
				t.Errorf("parts of two checkpoints: %v", err)
			}
		}
		mf, err := tier.Commit(t.Context(), m, parts)
		if err != nil {
			t.Fatal(err)
		}
		p.Fetchable(m, mf)
	}
	if n := count(t, m, p.Run+"/files/"); n != 4*2 {
		t.Errorf("%d files", n)
	}
	all, err := tier.Checkpoints(t.Context(), m, p.Run)
	if err != nil || len(all) != 2 || len(all[0].Parts) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	fsys := vfstest.NewMem()
	if err := fsys.Mkdir("/new"); err != nil {
		t.Fatal(err)
	}
	if err := tier.Fetch(t.Context(), m, all[0], tier.FetchOptions{FS: fsys, Dir: "/new", Ranks: []int{2, 3}}); err != nil {
		t.Fatal(err)
	}
	if members, err := store.Members(fsys, "/new"); err != nil || !slices.Equal(members[2], []int{2, 3}) {
		t.Errorf("fetched: %v, %v", members, err)
	}
	if err := tier.Fetch(t.Context(), m, all[0], tier.FetchOptions{FS: fsys, Dir: "/new", Ranks: []int{4}}); err == nil || !strings.Contains(err.Error(), "no rank 4") {
		t.Errorf("rank 4 of 4: %v", err)
	}
}

// TestUpload_Extra uploads further files. What has not changed is stored once,
// and paths that lead elsewhere are refused.
func TestUpload_Extra(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	m := tiertest.NewMem()
	journal := tiertest.Pattern(1, 5000)
	extra := []tier.ExtraFile{{Kind: "journal", Path: "journal.kept/7", Source: tier.BytesSource(journal)}, {Kind: "record", Path: "run.json", Source: tier.BytesSource([]byte("{}"))}}
	for i := range 2 {
		o := p.Upload(p.Save())
		o.Extra = extra
		if i == 1 {
			o.Extra[1].Source = tier.BytesSource([]byte("{1}"))
		}
		mf, err := tier.Publish(t.Context(), m, o)
		if err != nil {
			t.Fatal(err)
		}
		part, err := mf.Part(t.Context(), m, 0)
		if err != nil || len(part.Extra) != 2 {
			t.Fatalf("%v, %v", part, err)
		}
		var b bytes.Buffer
		if err := tier.Download(t.Context(), m, part.Extra[0].Object, &b); err != nil || !bytes.Equal(b.Bytes(), journal) {
			t.Errorf("%v; %d bytes", err, b.Len())
		}
	}
	if n := count(t, m, p.Run+"/files/extra-"); n != 3 {
		t.Errorf("%d extra objects; the one that did not change is to be stored once", n)
	}
	for _, path := range []string{"/etc/passwd", "../x", "a/../b", "", "a\\b", "C:x", "a\n"} {
		o := p.Upload(p.Save())
		o.Extra = []tier.ExtraFile{{Kind: "file", Path: path, Source: tier.BytesSource(nil)}}
		if _, err := tier.Publish(t.Context(), m, o); err == nil {
			t.Errorf("path %q was not refused", path)
		}
	}
}

// TestCommit_TwoWriters shows that the second writer of a checkpoint is
// refused, and that the first one's is whole.
func TestCommit_TwoWriters(t *testing.T) {
	m := tiertest.NewMem()
	a := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	a.Publish(m, a.Save())
	// The same run, by another process that does not know of it.
	b := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	b.Run = a.Run
	b.Full()
	index := b.Save()
	_, err := tier.Publish(t.Context(), m, b.Upload(index))
	if !errors.Is(err, tier.ErrExists) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the second writer: %v", err)
	}
	all, err := tier.Checkpoints(t.Context(), m, a.Run)
	if err != nil || len(all) != 1 || all[0].Attempt != a.Attempt {
		t.Errorf("%v, %v", all, err)
	}
	a.Fetchable(m, all[0])
}

// TestUpload_Refuses checks the errors for names and checkpoints that cannot be
// uploaded.
func TestUpload_Refuses(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	m := tiertest.NewMem()
	p.Save()
	o := p.Upload(1)
	for _, part := range []string{"", "a/b", "..", "ü", strings.Repeat("x", 65)} {
		o.Part = part
		if _, err := tier.Upload(t.Context(), m, o); err == nil || !strings.Contains(err.Error(), "no name for a part") {
			t.Errorf("part %q: %v", part, err)
		}
	}
	if _, err := tier.Upload(t.Context(), m, p.Upload(2)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a checkpoint that does not exist: %v", err)
	}
	if err := p.FS.(*vfstest.Mem).Corrupt("/ckpt/ckpt-00000001/rank-0001.h5", 9, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := tier.Upload(t.Context(), m, p.Upload(1)); !errors.Is(err, ckpt.ErrCorrupt) {
		t.Errorf("a damaged file: %v", err)
	}
	p = tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	p.Save()
	if err := p.FS.Rename("/ckpt/ckpt-00000001/rank-0001.h5", "/ckpt/ckpt-00000001/rank-0000.h5"); err != nil {
		t.Fatal(err)
	}
	if _, err := tier.Upload(t.Context(), m, p.Upload(1)); !errors.Is(err, ckpt.ErrForeign) || !strings.Contains(err.Error(), "in the place of rank 0's part") {
		t.Errorf("a file in the place of another: %v", err)
	}
	if len(m.Names()) > 0 {
		t.Errorf("objects: %v", m.Names())
	}
}

// TestPublish_Crash stops Publish at every operation, and begins anew: nothing
// counts that is not whole, what was uploaded is used, and nothing is left.
func TestPublish_Crash(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	base := tiertest.NewMem()
	p.Publish(base, p.Save())
	p.Save()
	for at, end := 0, false; !end; at++ {
		m := base.Clone()
		n, puts := 0, 0
		dead := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
			if n++; n > at {
				return tiertest.Refuse
			}
			return tiertest.None
		})
		_, err := tier.Publish(t.Context(), dead, p.Upload(2))
		end = n <= at
		if err := complete(m, p.Run); err != nil {
			t.Fatalf("after operation %d: %v", at, err)
		}
		if got := indexes(t, m, p.Run); err == nil && !slices.Contains(got, 2) || n <= at && err != nil {
			t.Fatalf("after operation %d: %v, and checkpoints %v", at, err, got)
		}
		before := count(t, m, p.Run+"/files/")
		counted := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
			if _, err := m.Stat(t.Context(), name); op == "put" && err != nil && strings.Contains(name, "/files/") {
				puts++
			}
			return tiertest.None
		})
		if _, err := tier.Publish(t.Context(), counted, p.Upload(2)); err != nil {
			t.Fatalf("again after operation %d: %v", at, err)
		}
		if count(t, m, p.Run+"/files/") != 4 || puts != 4-before {
			t.Fatalf("after operation %d: %d files, then %d more, and now %v", at, before, puts, m.Names())
		}
		all, err := tier.Checkpoints(t.Context(), m, p.Run)
		if err != nil || len(all) != 2 {
			t.Fatalf("after operation %d: %v, %v", at, all, err)
		}
		p.Fetchable(m, all[0])
		if _, err := tier.Collect(t.Context(), m, p.Run, tier.CollectOptions{Keep: 2}); err != nil {
			t.Fatal(err)
		}
		if n := count(t, m, p.Run+"/"); n != 4+2+2 {
			t.Fatalf("after operation %d: %v", at, m.Names())
		}
	}
}

// TestPublish_Faults lets each operation fail in every way: Publish reports it,
// or the checkpoint is sound. Repeated, it succeeds.
func TestPublish_Faults(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	base := tiertest.NewMem()
	p.Publish(base, p.Save())
	p.Save()
	for _, fault := range tiertest.Faults {
		t.Run(fault.String(), func(t *testing.T) {
			for at, end := 1, false; !end; at++ {
				ctx, cancel := context.WithCancel(t.Context())
				m := base.Clone()
				n := 0
				faulty := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
					if n++; n == at {
						if fault == tiertest.Hang {
							cancel()
						}
						return fault
					}
					return tiertest.None
				})
				mf, err := tier.Publish(ctx, tier.Retrying(faulty, soon), p.Upload(2))
				cancel()
				end = n < at
				if fault == tiertest.Fail || fault == tiertest.FailAfter || fault == tiertest.Cut {
					if err != nil {
						t.Fatalf("operation %d: a temporary failure was not repeated: %v", at, err)
					}
				}
				if cerr := complete(m, p.Run); cerr != nil {
					t.Fatalf("operation %d: %v (%v)", at, cerr, err)
				}
				if err == nil {
					p.Fetchable(m, mf)
				}
				p.Fetchable(m, p.Publish(m, 2))
			}
		})
	}
}

// TestFetch_Faults lets each operation of the tier fail in every way: the
// directory never has a file that is not whole.
func TestFetch_Faults(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	m := tiertest.NewMem()
	p.Save()
	mf := p.Publish(m, p.Save())
	for _, fault := range tiertest.Faults {
		t.Run(fault.String(), func(t *testing.T) {
			for at, end := 1, false; !end; at++ {
				ctx, cancel := context.WithCancel(t.Context())
				fsys := vfstest.NewMem()
				if err := fsys.Mkdir("/new"); err != nil {
					t.Fatal(err)
				}
				n := 0
				faulty := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
					if n++; n == at {
						if fault == tiertest.Hang {
							cancel()
						}
						return fault
					}
					return tiertest.None
				})
				o := tier.FetchOptions{FS: fsys, Dir: "/new", Parallel: 1}
				err := tier.Fetch(ctx, faulty, mf, o)
				cancel()
				end = n < at
				if err == nil {
					tiertest.Load(t, fsys, "/new", 2, 0)
				} else if members, merr := store.Members(fsys, "/new"); merr != nil || len(members[2]) > 0 {
					t.Fatalf("operation %d: %v, and the file is there: %v", at, err, members)
				} else if left := filesIn(t, fsys, "/new"); len(left) > 1 { // run-id
					t.Fatalf("operation %d: left %v", at, left)
				}
				if err := tier.Fetch(t.Context(), m, mf, o); err != nil {
					t.Fatal(err)
				}
				tiertest.Load(t, fsys, "/new", 2, 0)
			}
		})
	}
}

// TestFetch_Crash loses power after every operation of the file system.
func TestFetch_Crash(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	m := tiertest.NewMem()
	p.Save()
	mf := p.Publish(m, p.Save())
	for _, loss := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
		for at, end := 0, false; !end; at++ {
			mem := vfstest.NewMem()
			if err := errors.Join(mem.Mkdir("/new"), mem.SyncDir("/")); err != nil {
				t.Fatal(err)
			}
			n := 0
			fsys := vfstest.Hook(mem, func(op, name string) error {
				if n++; n > at {
					return errors.New("crash")
				}
				return nil
			})
			err := tier.Fetch(t.Context(), m, mf, tier.FetchOptions{FS: fsys, Dir: "/new", Parallel: 1})
			end = n <= at
			after := mem.Crash(loss)
			members, merr := store.Members(after, "/new")
			if merr != nil || err == nil && len(members[2]) != 1 {
				t.Fatalf("after operation %d: %v, %v, %v", at, err, members, merr)
			}
			if len(members[2]) == 1 {
				tiertest.Load(t, after, "/new", 2, 0)
			}
			if lost, lerr := store.Open(after, "/new", 0).Lost(); lerr != nil || len(lost) > 0 {
				t.Fatalf("after operation %d: taken for lost: %v, %v", at, lost, lerr)
			}
			if err := tier.Fetch(t.Context(), m, mf, tier.FetchOptions{FS: after, Dir: "/new"}); err != nil {
				t.Fatalf("again after operation %d: %v", at, err)
			}
			tiertest.Load(t, after, "/new", 2, 0)
		}
	}
}

// TestFetch_Damage changes each object of a checkpoint: fetching it is an error
// that names the object.
func TestFetch_Damage(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	m := tiertest.NewMem()
	p.Save()
	mf := p.Publish(m, p.Save())
	for _, name := range m.Names() {
		if !strings.Contains(name, "/files/") && !strings.Contains(name, "/parts/") {
			continue
		}
		for what, change := range map[string]func([]byte) []byte{
			"first byte": func(b []byte) []byte { b[0] ^= 1; return b }, "last byte": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			"middle": func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "cut": func(b []byte) []byte { return b[:len(b)-1] }, "empty": func(b []byte) []byte { return nil },
			"zeros": func(b []byte) []byte { clear(b); return b },
		} {
			bad := m.Clone()
			bad.Change(name, change)
			fsys := vfstest.NewMem()
			if err := fsys.Mkdir("/new"); err != nil {
				t.Fatal(err)
			}
			err := tier.Fetch(t.Context(), bad, mf, tier.FetchOptions{FS: fsys, Dir: "/new"})
			if !errors.Is(err, tier.ErrDamaged) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
		gone := m.Clone()
		if err := gone.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		fsys := vfstest.NewMem()
		if err := fsys.Mkdir("/new"); err != nil {
			t.Fatal(err)
		}
		if err := tier.Fetch(t.Context(), gone, mf, tier.FetchOptions{FS: fsys, Dir: "/new"}); !errors.Is(err, tier.ErrNotExist) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestPublish_Hangs shows that a context ends an upload to a tier that hangs.
func TestPublish_Hangs(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	index := p.Save()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	hanging := tiertest.Faulty(tiertest.NewMem(), func(op, name string) tiertest.Fault {
		if op == "put" {
			return tiertest.Hang
		}
		return tiertest.None
	})
	if _, err := tier.Publish(ctx, hanging, p.Upload(index)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
