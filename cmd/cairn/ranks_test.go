package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// makeRanks makes checkpoints 1 … n of a run with several ranks, which keeps
// all of them, and returns its directory.
func makeRanks(t *testing.T, ranks, n int) string {
	t.Helper()
	return makeRanksOf(t, ranks, n, store.NewID())
}

// makeRanksOf does the same for a run with an identity.
func makeRanksOf(t *testing.T, ranks, n int, run string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ckpt")
	var savers []*ckpt.Saver
	attempt := store.NewID()
	for r := range ranks {
		d, err := store.Create(vfs.OS(), dir, r)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.SetID(run); err != nil {
			t.Fatal(err)
		}
		s, err := ckpt.NewSaver(d, nil, ckpt.Options{Rank: r, Ranks: ranks, Run: run, Attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		savers = append(savers, s)
	}
	grid := make([]float64, 20_000)
	grid[19_999] = 1 // in a block that does not change, so that later checkpoints have a base
	for set := range n {
		for r, s := range savers {
			grid[1000*set] = float64(r + 1)
			img, err := graph.Collect([]graph.Root{{Name: "grid", Ptr: &grid}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(t.Context(), img, nil, ckpt.Note{Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			res := <-s.Done()
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			s.Collect(res)
		}
	}
	return dir
}

// rankFile returns the path of a rank's file of a checkpoint.
func rankFile(dir string, rank int, index uint64) string {
	return store.Open(vfs.OS(), dir, rank).File(index)
}

// loses removes a rank's part of a checkpoint.
func loses(t *testing.T, dir string, rank int, index uint64) {
	t.Helper()
	if err := store.Open(vfs.OS(), dir, rank).Remove(index); err != nil {
		t.Fatal(err)
	}
}

func TestList_Ranks(t *testing.T) {
	dir := makeRanks(t, 3, 3)
	cairnRun(t, "list", dir).exit(exitFine).says("RANKS", "3/3", "recovery line", "3 checkpoints")
	loses(t, dir, 0, 3) // checkpoints that rank 0 lacks are shown, too
	cairnRun(t, "list", dir).exit(exitFine).says("2/3", "incomplete", "recovery line")
	doc := decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFine))
	if doc.Line != 2 || len(doc.Checkpoints) != 3 || doc.Checkpoints[0].Status != "incomplete" || !slices.Equal(doc.Checkpoints[0].Have, []int{1, 2}) || doc.Checkpoints[1].Status != "ok" {
		t.Errorf("%+v", doc)
	}
	truncate(t, rankFile(dir, 1, 2), 100)
	doc = decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFound))
	if doc.Line != 1 || doc.Checkpoints[1].Status != "damaged" {
		t.Errorf("%+v", doc)
	}
	cairnRun(t, "list", dir).exit(exitFound).says("damaged: rank-0001.h5: ")
	for r := range 3 {
		loses(t, dir, r, 1)
	}
	cairnRun(t, "list", dir).exit(exitFound).says("no checkpoint is complete")
}

// TestList_NoneComplete shows that list says so when no checkpoint is complete.
func TestList_NoneComplete(t *testing.T) {
	dir := makeRanks(t, 2, 2)
	loses(t, dir, 1, 1)
	cairnRun(t, "list", dir).exit(exitFine)
	loses(t, dir, 0, 2)
	cairnRun(t, "list", dir).exit(exitFound).says("no checkpoint is complete")
}

// TestVerify_Ranks shows that every rank's file of every checkpoint is checked,
// and that missing ones are named.
func TestVerify_Ranks(t *testing.T) {
	dir := makeRanks(t, 3, 3)
	var all []string
	for set := uint64(1); set <= 3; set++ {
		for r := range 3 {
			all = append(all, rankFile(dir, r, set)+": sound, ")
		}
	}
	cairnRun(t, "verify", dir).exit(exitFine).says(all...)
	for _, set := range []string{dir + "@2", filepath.Join(dir, "ckpt-00000002")} {
		if doc := decode[verifyDocument](cairnRun(t, "verify", "--json", set).exit(exitFine)); len(doc.Files) != 3 || doc.Files[2].Rank != 2 || doc.Files[2].Ranks != 3 || !doc.Sound {
			t.Errorf("%s: %+v", set, doc)
		}
	}

	loses(t, dir, 1, 3)
	cairnRun(t, "verify", dir).exit(exitFine).says("checkpoint 3 is incomplete: of its 3 ranks, there is no file of rank 1\n")
	cairnRun(t, "verify", dir+"@3").exit(exitFound).says("checkpoint 3 is incomplete")
	cairnRun(t, "verify", rankFile(dir, 0, 3)).exit(exitFine)
	doc := decode[verifyDocument](cairnRun(t, "verify", "--json", dir).exit(exitFine))
	if len(doc.Files) != 8 || len(doc.Incomplete) != 1 || doc.Incomplete[0].Index != 3 || !slices.Equal(doc.Incomplete[0].Missing, []int{1}) {
		t.Errorf("%+v", doc)
	}

	flip(t, rankFile(dir, 2, 2), "grid", 0)
	cairnRun(t, "verify", dir).exit(exitFound).says(rankFile(dir, 2, 2)+": damaged", rankFile(dir, 0, 2)+": sound", "/MemBlocks/grid, block 0 of ")
	cairnRun(t, "verify", dir+"@2").exit(exitFound)
	cairnRun(t, "verify", rankFile(dir, 0, 2)).exit(exitFine)

	dir = makeRanks(t, 2, 2)
	truncate(t, rankFile(dir, 1, 2), 100)
	cairnRun(t, "verify", dir).exit(exitFound).says("avoids the damage: it uses checkpoint 1")
	loses(t, dir, 0, 1)
	loses(t, dir, 1, 2)
	cairnRun(t, "verify", dir).exit(exitFound).says("no checkpoint in this directory is complete")
}

// TestVerify_FilesOfAnotherRun puts sound files in the place of others.
func TestVerify_FilesOfAnotherRun(t *testing.T) {
	const base = "ckpt-00000002/rank-0001.base-00000001.h5"
	move := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			os.Remove(to)
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		harm func(dir, other string)
		says string
	}{
		"rank":       {func(dir, _ string) { move(rankFile(dir, 0, 2), rankFile(dir, 1, 2)) }, "it is rank 0's part of checkpoint 2"},
		"checkpoint": {func(dir, _ string) { move(rankFile(dir, 1, 1), rankFile(dir, 1, 2)) }, "it is rank 1's part of checkpoint 1"},
		"run":        {func(dir, other string) { move(rankFile(other, 1, 2), rankFile(dir, 1, 2)) }, "saved it, but the directory belongs to run"},
		"start": {func(dir, other string) {
			move(rankFile(other, 1, 2), rankFile(dir, 1, 2))
			move(filepath.Join(other, base), filepath.Join(dir, base))
		}, "another start of the run has saved it than"},
		"run, no record": {func(dir, other string) {
			os.Remove(filepath.Join(dir, "run-id"))
			move(rankFile(other, 1, 2), rankFile(dir, 1, 2))
			move(filepath.Join(other, base), filepath.Join(dir, base))
		}, "it belongs to run"},
		"base": {func(dir, other string) {
			move(rankFile(other, 1, 1), filepath.Join(dir, base))
		}, "is not the file of checkpoint 1 that this one was saved with"},
	} {
		t.Run(name, func(t *testing.T) {
			run := store.NewID()
			dir, other := makeRanksOf(t, 2, 2, run), store.NewID()
			if name == "start" {
				other = run
			}
			c.harm(dir, makeRanksOf(t, 2, 2, other))
			cairnRun(t, "verify", dir).exit(exitFound).says(c.says, "avoids the damage: it uses checkpoint 1")
		})
	}
}

func TestVerify_AcceptRanks(t *testing.T) {
	dir := makeRanks(t, 2, 1)
	flip(t, rankFile(dir, 1, 1), "grid", 0)
	cairnRun(t, "verify", dir).exit(exitFound)
	cairnRun(t, "verify", "--accept", dir).exit(exitFine).says(rankFile(dir, 0, 1)+": sound, ", rankFile(dir, 1, 1)+": sound now: accepted")
	cairnRun(t, "verify", dir).exit(exitFine)
}

func TestDiff_Ranks(t *testing.T) {
	dir := makeRanks(t, 3, 2)
	cairnRun(t, "diff", dir+"@1", dir+"@1").exit(exitFine).says("all values of 3 ranks are equal")
	cairnRun(t, "diff", dir+"@1", dir).exit(exitFound).says("RANK", "grid[1000]")
	doc := decode[diffDocument](cairnRun(t, "diff", "--json", dir+"@1", dir).exit(exitFound))
	if len(doc.Differences) != 3 || doc.Differences[2].Rank != 2 || doc.First.Ranks != 3 || doc.First.Path != filepath.Join(dir, "ckpt-00000001") {
		t.Errorf("%+v", doc)
	}
	// A file is compared with the file of the same rank.
	out := filepath.Join(t.TempDir(), "two.h5")
	cairnRun(t, "export", "--rank", "2", dir, out).exit(exitFine).says("rank 2 of 3 ranks")
	cairnRun(t, "diff", dir, out).exit(exitFine)
	cairnRun(t, "diff", out, dir).exit(exitFine)
	cairnRun(t, "diff", rankFile(dir, 2, 2), dir).exit(exitFine)
	cairnRun(t, "diff", rankFile(dir, 1, 2), rankFile(dir, 2, 2)).exit(exitFound)
	loses(t, dir, 1, 2)
	cairnRun(t, "diff", dir+"@2", dir+"@1").exit(exitFound).says("only the second checkpoint has this rank")
	loses(t, dir, 2, 2)
	cairnRun(t, "diff", dir+"@2", out).exit(exitFailed).complains("rank 2 has none in")
}

// TestArguments_RankSelected selects the file of one rank with --rank. Ranks
// that are not there, and numbers that are none, are refused.
func TestArguments_RankSelected(t *testing.T) {
	dir := makeRanks(t, 3, 2)
	tmp := t.TempDir()
	cairnRun(t, "inspect", dir).exit(exitFine).says("0 of 3 ranks; --rank N shows another")
	cairnRun(t, "inspect", "--rank", "2", dir).exit(exitFine).says("2 of 3 ranks", "rank-0002.h5")
	cairnRun(t, "inspect", "--rank", "3", dir).exit(exitFailed).complains("no file of rank 3 here, but of ranks 0, 1 and 2")
	cairnRun(t, "inspect", "--rank", "1", rankFile(dir, 2, 1)).exit(exitFailed).complains("rank 2's file")
	cairnRun(t, "inspect", "--rank", "-1", dir).exit(exitUsage).complains("a whole number")
	cairnRun(t, "export", dir, filepath.Join(tmp, "a.h5")).exit(exitFine).says("rank 0 of 3 ranks (--rank N exports another one)")
	doc := decode[exportDocument](cairnRun(t, "export", "--json", "--rank", "1", dir, filepath.Join(tmp, "b.h5")).exit(exitFine))
	if doc.Rank != 1 || doc.Ranks != 3 {
		t.Errorf("%+v", doc)
	}
	loses(t, dir, 0, 2) // an older one that rank 0 has
	if doc := decode[inspectDocument](cairnRun(t, "inspect", "--json", dir).exit(exitFine)); doc.Index != 1 {
		t.Errorf("%+v", doc)
	}
}

func TestGC_Ranks(t *testing.T) {
	dir := makeRanks(t, 2, 7)
	loses(t, dir, 1, 7) // above the line: it stays
	loses(t, dir, 0, 5) // below it: no restart can use it
	truncate(t, rankFile(dir, 1, 4), 100)
	half := write(t, filepath.Join(dir, "ckpt-00000009", "rank-0001.tmp"), "half")
	stray := write(t, filepath.Join(dir, "ckpt-00000007", "rank-0001.tmp"), "stray")

	dry := decode[gcDocument](cairnRun(t, "gc", "--dry-run", "--json", dir).exit(exitFine))
	if !slices.Equal(dry.Kept, []uint64{6, 3}) || !slices.Equal(dry.Incomplete, []uint64{7}) || !slices.Equal(dry.Files, []string{stray}) || len(dry.Unfinished) != 1 || len(dry.Removed) != 4 {
		t.Errorf("%+v", dry)
	}
	before := decode[listDocument](cairnRun(t, "list", "--json", dir)).DiskBytes
	cairnRun(t, "gc", dir).exit(exitFine).says("removed checkpoint 5 (not all ranks have it)", "removed checkpoint 4 (damaged: rank-0001.h5: ", "removed checkpoint 2 (older", "removed checkpoint 9 (unfinished)", "kept checkpoints 6 and 3; left checkpoint 7, which not all ranks have")
	if after := decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFine)).DiskBytes; before-after != dry.FreedBytes {
		t.Errorf("freed %d bytes, announced %d", before-after, dry.FreedBytes)
	}
	members, err := store.Members(vfs.OS(), dir)
	if err != nil || len(members) != 3 || !slices.Equal(members[6], []int{0, 1}) || !slices.Equal(members[3], []int{0, 1}) || !slices.Equal(members[7], []int{0}) {
		t.Errorf("left %v, %v", members, err)
	}
	for _, path := range []string{filepath.Dir(half), stray} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	for r := range 2 {
		cairnRun(t, "verify", rankFile(dir, r, 6)).exit(exitFine)
	}
	cairnRun(t, "gc", dir).exit(exitFine).says("nothing to remove; kept checkpoints 6 and 3; left checkpoint 7")
	loses(t, dir, 0, 6)
	loses(t, dir, 0, 3)
	cairnRun(t, "gc", dir).exit(exitFailed).complains("is complete, so nothing was removed")

	d, err := store.Create(vfs.OS(), dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cairnRun(t, "gc", dir).exit(exitFailed).complains("another process is using")
}
