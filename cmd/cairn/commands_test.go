package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

func testDir(dir string) *store.Dir { return store.Open(vfs.OS(), dir, 0) }

// python runs a script with h5py, or skips the test if there is none.
func python(t *testing.T, script string, args ...string) {
	t.Helper()
	const interpreter = "/usr/bin/python3"
	if err := exec.Command(interpreter, "-c", "import h5py").Run(); err != nil {
		t.Skipf("needs %s with h5py: %v", interpreter, err)
	}
	out, err := exec.Command(interpreter, append([]string{"-c", script}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestList(t *testing.T) {
	dir := makeCheckpoints(t, 3, cairn.Options{})
	r := cairnRun(t, "list", dir).exit(exitFine).says("CHECKPOINT", "OWN FILE", "call", "full", "differential, 1 base", "3 checkpoints, ")
	lines := strings.Split(r.out, "\n")
	if !strings.HasPrefix(lines[1], "3 ") || !strings.HasPrefix(lines[3], "1 ") {
		t.Errorf("not newest first:\n%s", r.out)
	}
	doc := decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFine))
	if len(doc.Checkpoints) != 3 || len(doc.Unfinished) != 0 {
		t.Fatalf("%+v", doc)
	}
	for i, l := range doc.Checkpoints {
		if l.Index != uint64(3-i) || l.Status != "ok" || l.Reason != "call" || l.StateBytes < 8*gridLen || l.Path != checkpointFile(dir, l.Index) {
			t.Errorf("%+v", l)
		}
		if _, err := time.Parse(time.RFC3339, l.Time); err != nil || l.AgeSeconds < 0 || l.AgeSeconds > 60 {
			t.Errorf("time %q, %v s ago", l.Time, l.AgeSeconds)
		}
	}
	full, diff := doc.Checkpoints[2], doc.Checkpoints[0]
	if full.Kind != "full" || full.FileBytes < 4*gridLen || full.BaseBytes != 0 {
		t.Errorf("%+v", full)
	}
	if diff.Kind != "differential" || len(diff.Bases) == 0 || diff.FileBytes > gridLen || diff.BaseBytes < 3*gridLen {
		t.Errorf("%+v", diff)
	}
	// Linked files count once.
	if want := doc.Checkpoints[0].FileBytes + doc.Checkpoints[1].FileBytes + doc.Checkpoints[2].FileBytes; doc.DiskBytes != want {
		t.Errorf("%d bytes on disk, want %d", doc.DiskBytes, want)
	}
}

// TestList_Damaged shows that list names damaged and incomplete checkpoints.
func TestList_Damaged(t *testing.T) {
	dir := makeCheckpoints(t, 4, cairn.Options{MaxBases: -1})
	truncate(t, checkpointFile(dir, 2), 100000)
	write(t, checkpointFile(dir, 3), "garbage")
	write(t, checkpointFile(dir, 1), "")
	if err := os.MkdirAll(filepath.Join(dir, "ckpt-00000009"), 0o777); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "list", dir).exit(exitFound).says("damaged: hdf5: corrupt file", "4 checkpoints", "checkpoint 9 is being written, or a crash has left it")
	doc := decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFound))
	var status []string
	for _, l := range doc.Checkpoints {
		status = append(status, l.Status)
	}
	if want := []string{"ok", "damaged", "damaged", "damaged"}; !slices.Equal(status, want) || doc.Checkpoints[1].Error == "" {
		t.Errorf("%q, want %q", status, want)
	}
	if len(doc.Unfinished) != 1 || doc.Unfinished[0].Index != 9 {
		t.Errorf("unfinished: %v", doc.Unfinished)
	}
}

func TestList_MissingBase(t *testing.T) {
	dir := makeCheckpoints(t, 2, cairn.Options{})
	base := filepath.Join(dir, "ckpt-00000002", "rank-0000.base-00000001.h5")
	if err := os.Remove(base); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "list", dir).exit(exitFound).says("damaged: a file of an older checkpoint that it needs")
	cairnRun(t, "verify", dir).exit(exitFound).says("ckpt-00000002", "base", "avoids the damage: it uses checkpoint 1")
}

func TestInspect(t *testing.T) {
	dir := makeCheckpoints(t, 2, cairn.Options{})
	cairnRun(t, "inspect", dir).exit(exitFine).says(
		"VARIABLE", "grid", "[]float64", "<f8", "262144", "2.0 MiB", "50.0 %", "[]cairn.particle",
		"differential, 1 base", "checkpoint 1, in rank-0000.base-00000001.h5", "Checkpoint", "tracking")
	doc := decode[inspectDocument](cairnRun(t, "inspect", "--json", dir).exit(exitFine))
	if doc.Index != 2 || doc.Finding == "" || doc.Tracking == "" || doc.PauseMS <= 0 || doc.Format != 4 {
		t.Errorf("%+v", doc)
	}
	i := slices.IndexFunc(doc.Variables, func(v variableInfo) bool { return v.Name == "grid" })
	if i < 0 || len(doc.Variables) != 4 {
		t.Fatalf("%+v", doc.Variables)
	}
	grid := doc.Variables[i]
	if grid.GoType != "[]float64" || grid.Zero != 4*gridLen || grid.Unchanged < 3*gridLen || grid.Stored < 64<<10 || grid.Stored > gridLen || grid.Ratio != 1 {
		t.Errorf("%+v", grid)
	}
	if grid.Zero+grid.Unchanged+grid.Stored != grid.Size {
		t.Errorf("without compression the parts make up the whole: %+v", grid)
	}
	if names := doc.Variables[3]; names.Name != "names" || names.GoType != "map[string]int" {
		t.Errorf("%+v", names)
	}
}

// TestInspect_CompressedWithFile checks what inspect says of compression and of
// open files.
func TestInspect_CompressedWithFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	data := filepath.Join(t.TempDir(), "out.txt")
	p, err := cairn.Open(t.Context(), cairn.Options{Dir: dir, Every: time.Hour, Compression: cairn.Gzip})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	grid := make([]float64, gridLen)
	for i := range grid {
		grid[i] = float64(i % 100)
	}
	cairn.Protect(p, "grid", &grid)
	f, err := p.OpenFile(data, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("hello")
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "inspect", dir).exit(exitFine).says("gzip", "×", "FILE", filepath.ToSlash(data))
	doc := decode[inspectDocument](cairnRun(t, "inspect", "--json", dir).exit(exitFine))
	if v := doc.Variables[0]; v.Ratio < 2 || v.Stored >= v.Size/2 || doc.Compression != "gzip" {
		t.Errorf("%+v", v)
	}
	if len(doc.Files) != 1 || doc.Files[0] != (fileInfo{filepath.ToSlash(data), "rw", 5, 5}) {
		t.Errorf("%+v", doc.Files)
	}
}

// TestResolve shows that every way to name a checkpoint works.
func TestResolve(t *testing.T) {
	dir := makeCheckpoints(t, 3, cairn.Options{})
	out := filepath.Join(t.TempDir(), "plain@2.h5")
	cairnRun(t, "export", dir+"@2", out).exit(exitFine)
	for set, want := range map[string]uint64{
		dir: 3, dir + "/": 3, dir + "@2": 2, dir + "/@2": 2, dir + "@00000001": 1,
		filepath.Join(dir, "ckpt-00000002"): 2, checkpointFile(dir, 1): 1, out: 2,
	} {
		if doc := decode[inspectDocument](cairnRun(t, "inspect", "--json", set).exit(exitFine)); doc.Index != want {
			t.Errorf("%s: set %d, want %d", set, doc.Index, want)
		}
	}
	t.Chdir(filepath.Join(dir, "ckpt-00000002"))
	for set, want := range map[string]uint64{".": 2, "rank-0000.h5": 2, "..": 3, "..@1": 1, filepath.Join("..", "ckpt-00000001"): 1} {
		if doc := decode[inspectDocument](cairnRun(t, "inspect", "--json", set).exit(exitFine)); doc.Index != want {
			t.Errorf("%s: set %d, want %d", set, doc.Index, want)
		}
	}
}

func TestVerify(t *testing.T) {
	dir := makeCheckpoints(t, 3, cairn.Options{})
	cairnRun(t, "verify", dir).exit(exitFine).says(checkpointFile(dir, 1)+": sound", checkpointFile(dir, 3)+": sound, 2.0 MiB checked")
	doc := decode[verifyDocument](cairnRun(t, "verify", "--json", dir, dir+"@1").exit(exitFine))
	if !doc.Sound || len(doc.Files) != 4 || doc.Files[0].CheckedBytes < 8*gridLen {
		t.Errorf("%+v", doc)
	}

	// Block 7 is in the file of checkpoint 1, which all use. Block 0 is stored
	// by each of them.
	shared := flip(t, checkpointFile(dir, 3), "grid", 7)
	own := flip(t, checkpointFile(dir, 3), "grid", 0)
	r := cairnRun(t, "verify", dir).exit(exitFound).says(
		checkpointFile(dir, 3)+": damaged\n", "/MemBlocks/grid, block 0 of 32", "block 7 of 32", "in rank-0000.base-00000001.h5", "no checkpoint in this directory is sound")
	if strings.Index(r.out, "block 0 of") > strings.Index(r.out, "block 7 of") {
		t.Errorf("not in order:\n%s", r.out)
	}
	doc = decode[verifyDocument](cairnRun(t, "verify", "--json", dir+"@3").exit(exitFound))
	if doc.Sound || len(doc.Files) != 1 || doc.Files[0].Status != "damaged" {
		t.Fatalf("%+v", doc)
	}
	var names []string
	for _, d := range doc.Files[0].Damage {
		names = append(names, d.Block)
	}
	if want := []string{own, shared}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if doc = decode[verifyDocument](cairnRun(t, "verify", "--json", dir+"@2").exit(exitFound)); len(doc.Files[0].Damage) != 1 {
		t.Errorf("checkpoint 2 shares one damaged block: %+v", doc.Files[0].Damage)
	}

	// Damage stops commands that need the values.
	out := filepath.Join(t.TempDir(), "out.h5")
	cairnRun(t, "export", dir, out).exit(exitFailed).complains("cannot export", "damaged", "/MemBlocks/grid, block 0", "cairn verify")
	if left, _ := filepath.Glob(out + "*"); len(left) > 0 {
		t.Errorf("a failed export left %q", left)
	}
	cairnRun(t, "diff", dir+"@2", dir+"@3").exit(exitFailed).complains("damaged")
}

// TestVerify_SaysWhatRestartUses damages one of two checkpoints. Verify names
// the one that a restart would use.
func TestVerify_SaysWhatRestartUses(t *testing.T) {
	dir := makeCheckpoints(t, 2, cairn.Options{MaxBases: -1})
	flip(t, checkpointFile(dir, 2), "grid", 3)
	cairnRun(t, "verify", dir).exit(exitFound).says("avoids the damage: it uses checkpoint 1")
	dir = makeCheckpoints(t, 2, cairn.Options{MaxBases: -1})
	truncate(t, checkpointFile(dir, 1), 70000)
	cairnRun(t, "verify", dir).exit(exitFound).says("uses checkpoint 2, which is sound", "metadata: hdf5: corrupt file")
}

// TestVerify_SeveralArguments shows that an argument that cannot be checked
// outweighs damage, and that the others are checked nevertheless.
func TestVerify_SeveralArguments(t *testing.T) {
	dir := makeCheckpoints(t, 1, cairn.Options{})
	none := filepath.Join(t.TempDir(), "none")
	cairnRun(t, "verify", none, dir, none+"2").exit(exitFailed).says(": sound").complains(none+": no such", none+"2: no such")
	flip(t, checkpointFile(dir, 1), "grid", 3)
	cairnRun(t, "verify", none, dir).exit(exitFailed).says(": damaged")
}

// TestVerify_Accept shows that --accept makes changed values count as sound,
// wherever they are stored.
func TestVerify_Accept(t *testing.T) {
	dir := makeCheckpoints(t, 3, cairn.Options{})
	r := cairnRun(t, "verify", "--accept", dir).exit(exitFine).says("sound, ")
	if strings.Contains(r.out, "accepted") {
		t.Errorf("there was nothing to accept: %s", r.out)
	}
	// One value is in the checkpoint's own file, one in the file of an older
	// one, and one in a dataset that is stored with the metadata.
	python(t, `import h5py, sys
with h5py.File(sys.argv[1], "r+") as f:
    f["Changed/MemBlocks/grid"][5] = 4711.5
    f["MemBlocks/step"][()] = 100
with h5py.File(sys.argv[2], "r+") as f:
    f["MemBlocks/grid"][70000] = 815.25
`, checkpointFile(dir, 3), checkpointFile(dir, 1))
	cairnRun(t, "verify", dir+"@3").exit(exitFound).says("/MemBlocks/grid, block 0", "/MemBlocks/grid, block 8", "/MemBlocks/step")

	// It is refused while a run uses the directory.
	lock, err := store.Create(vfs.OS(), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "verify", "--accept", dir+"@3").exit(exitFailed).complains("another process is using this checkpoint directory", "stop it first")
	lock.Close()

	doc := decode[verifyDocument](cairnAccept(t, "verify", "--json", "--accept", dir+"@3").says("grid"))
	if v := doc.Files[0]; !doc.Sound || v.Status != "sound" || len(v.Accepted) != 3 || !slices.Equal(v.Sharing, []uint64{1, 2}) {
		t.Errorf("%+v", doc)
	}
	cairnRun(t, "verify", dir+"@3").exit(exitFine).says("sound")
	if links, _ := filepath.Glob(filepath.Join(dir, "ckpt-00000003", "*base*")); len(links) > 0 {
		t.Errorf("links that are not needed any more: %q", links)
	}
	cairnRun(t, "verify", dir).exit(exitFound).says(checkpointFile(dir, 2)+": damaged", "uses checkpoint 3")
	cairnAccept(t, "verify", "--accept", checkpointFile(dir, 1)).says("accepted the values in 1 changed block", "/MemBlocks/grid, block 8").complains("checkpoint 2 ")

	var s sim
	p, restored := s.begin(t, cairn.Options{Dir: dir})
	defer p.Close()
	if !restored || s.step != 100 || s.grid[5] != 4711.5 || s.grid[70000] != 815.25 || s.grid[6] != 7 {
		t.Errorf("restored: %v, step %d, grid %v %v %v", restored, s.step, s.grid[5], s.grid[70000], s.grid[6])
	}
}

// cairnAccept runs a command that must succeed with a remark on stderr.
func cairnAccept(t *testing.T, args ...string) *result {
	t.Helper()
	r := cairnRun(t, args...)
	if r.code != exitFine {
		t.Fatalf("cairn %q: exit code %d\n%s%s", args, r.code, r.out, r.errors)
	}
	return r.complains("shares files with this checkpoint")
}

// TestVerify_AcceptRefused shows that --accept refuses exported files, and
// files whose structure is damaged.
func TestVerify_AcceptRefused(t *testing.T) {
	dir := makeCheckpoints(t, 1, cairn.Options{})
	out := filepath.Join(t.TempDir(), "out.h5")
	cairnRun(t, "export", dir, out).exit(exitFine)
	cairnRun(t, "verify", "--accept", out).exit(exitFailed).complains("needs a file in a checkpoint directory")
	truncate(t, checkpointFile(dir, 1), 100000)
	cairnRun(t, "verify", "--accept", dir).exit(exitFailed).complains("so changed values cannot be accepted")
}

func TestDiff(t *testing.T) {
	dir := makeCheckpoints(t, 3, cairn.Options{})
	cairnRun(t, "diff", dir+"@2", dir+"@2").exit(exitFine).says("all values are equal")
	cairnRun(t, "diff", dir+"@2", dir).exit(exitFound).says("1 of 262144", "grid[3000]", "parts[1].Y", "step")
	doc := decode[diffDocument](cairnRun(t, "diff", "--json", dir+"@1", dir).exit(exitFound))
	if doc.Equal || doc.First.Index != 1 || doc.Second.Index != 3 || len(doc.Differences) != 3 {
		t.Fatalf("%+v", doc)
	}
	i := slices.IndexFunc(doc.Differences, func(d difference) bool { return d.Variable == "grid" })
	d := doc.Differences[i]
	if d.Values != gridLen || d.Differ != 2 || d.First != "grid[2000]" || *d.MaxAbs != 3002 || *d.MaxRel != 2002.0/2001 {
		t.Errorf("%+v, %v, %v", d, *d.MaxAbs, *d.MaxRel)
	}
	if doc := decode[diffDocument](cairnRun(t, "diff", "--json", dir, dir+"@3").exit(exitFine)); !doc.Equal || len(doc.Differences) != 0 {
		t.Errorf("%+v", doc)
	}
}

func TestDiff_OtherVariables(t *testing.T) {
	a := makeCheckpoints(t, 1, cairn.Options{})
	b := filepath.Join(t.TempDir(), "other")
	p, err := cairn.Open(t.Context(), cairn.Options{Dir: b, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	step, grid, extra := 1, make([]float64, 10), nan()
	cairn.Protect(p, "step", &step)
	cairn.Protect(p, "grid", &grid)
	cairn.Protect(p, "extra", &extra)
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "diff", a, b).exit(exitFound).says("only in the first checkpoint", "only in the second checkpoint", "shape [262144] in the first checkpoint, [10] in the second")
	extra = 1
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc := decode[diffDocument](cairnRun(t, "diff", "--json", b+"@1", b+"@2").exit(exitFound))
	if len(doc.Differences) != 1 || doc.Differences[0].MaxAbs != nil {
		t.Errorf("a difference to NaN is no number: %+v", doc)
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

func TestExport(t *testing.T) {
	dir := makeCheckpoints(t, 2, cairn.Options{})
	for _, how := range []string{"none", "gzip", "zstd"} {
		out := filepath.Join(t.TempDir(), how+".h5")
		doc := decode[exportDocument](cairnRun(t, "export", "--json", "--compress", how, dir, out).exit(exitFine))
		if doc.Index != 2 || doc.Output != out || doc.Compression != how || doc.FileBytes <= 0 {
			t.Errorf("%+v", doc)
		}
		cairnRun(t, "verify", out).exit(exitFine).says("sound")
		cairnRun(t, "diff", dir, out).exit(exitFine)
		cairnRun(t, "inspect", out).exit(exitFine).says("full", how)
		cairnRun(t, "export", dir, out).exit(exitFailed).complains("exists; name another")
	}
	tmp := t.TempDir()
	cairnRun(t, "export", dir, filepath.Join(tmp, "a.h5")).exit(exitFine).says("checkpoint 2, 2.0 MiB of state")
	cairnRun(t, "export", dir, tmp).exit(exitFailed).complains("this is a directory; name the file")
	cairnRun(t, "export", dir, filepath.Join(tmp, "no", "a.h5")).exit(exitFailed).complains("make it first")
	write(t, filepath.Join(tmp, "b.h5.tmp"), "")
	cairnRun(t, "export", dir, filepath.Join(tmp, "b.h5")).exit(exitFailed).complains("b.h5.tmp", "remove it")
	python(t, `import h5py, sys
f = h5py.File(sys.argv[1], "r")
assert f["MemBlocks/grid"][2000] == -1 and f["MemBlocks/grid"][5] == 6 and f["MemBlocks/step"][()] == 2
`, filepath.Join(tmp, "a.h5"))
}

func indices(t *testing.T, dir string) []uint64 {
	t.Helper()
	checkpoints, err := testDir(dir).Committed()
	if err != nil {
		t.Fatal(err)
	}
	return checkpoints
}

func TestGC(t *testing.T) {
	dir := makeCheckpoints(t, 5, cairn.Options{})
	half := write(t, filepath.Join(dir, "ckpt-00000007", "rank-0000.tmp"), "half")
	stray := write(t, filepath.Join(dir, "ckpt-00000005", "rank-0000.tmp"), strings.Repeat("x", 5000))
	link := write(t, filepath.Join(dir, "ckpt-00000005", "rank-0000.base-00000099.h5"), "link")

	dry := decode[gcDocument](cairnRun(t, "gc", "--dry-run", "--json", dir).exit(exitFine))
	if !dry.DryRun || !slices.Equal(dry.Kept, []uint64{5, 4}) || len(dry.Removed) != 3 || len(dry.Unfinished) != 1 || !slices.Equal(dry.Files, []string{link, stray}) {
		t.Errorf("%+v", dry)
	}
	if got := indices(t, dir); len(got) != 5 {
		t.Errorf("--dry-run left %v", got)
	}
	cairnRun(t, "gc", "--dry-run", dir).exit(exitFine).says("would remove checkpoint 3 (older", "would remove checkpoint 7 (unfinished)", "would be freed; kept checkpoints 5 and 4")

	before := decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFine)).DiskBytes
	cairnRun(t, "gc", dir).exit(exitFine).says("removed checkpoint 1 (older", "removed "+stray, "freed; kept checkpoints 5 and 4")
	after := decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFine)).DiskBytes
	if before-after != dry.FreedBytes || dry.FreedBytes < 5000 {
		t.Errorf("freed %d bytes, announced %d", before-after, dry.FreedBytes)
	}
	if got := indices(t, dir); !slices.Equal(got, []uint64{5, 4}) {
		t.Errorf("kept %v", got)
	}
	for _, path := range []string{filepath.Dir(half), stray, link} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	cairnRun(t, "verify", dir).exit(exitFine) // with the bases that they need of the removed ones
	cairnRun(t, "gc", "--keep", "1", dir).exit(exitFine).says("kept checkpoint 5")
	cairnRun(t, "gc", dir).exit(exitFine).says("nothing to remove; kept checkpoint 5")
	cairnRun(t, "verify", dir).exit(exitFine)
}

// TestGC_Damaged shows that damaged checkpoints are removed, unless no sound
// one would remain.
func TestGC_Damaged(t *testing.T) {
	dir := makeCheckpoints(t, 4, cairn.Options{MaxBases: -1})
	truncate(t, checkpointFile(dir, 4), 100000)
	cairnRun(t, "gc", "--keep", "2", dir).exit(exitFine).says("removed checkpoint 4 (damaged: ", "removed checkpoint 1 (older", "kept checkpoints 3 and 2")
	// If no sound checkpoint remains, nothing is removed.
	truncate(t, checkpointFile(dir, 3), 100000)
	truncate(t, checkpointFile(dir, 2), 100000)
	cairnRun(t, "gc", dir).exit(exitFailed).complains("nothing was removed")
	if got := indices(t, dir); !slices.Equal(got, []uint64{3, 2}) {
		t.Errorf("kept %v", got)
	}
}

// TestGC_InUse shows that a directory in use is refused, except to commands
// that only read.
func TestGC_InUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	var s sim
	p, _ := s.begin(t, cairn.Options{Dir: dir})
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "gc", dir).exit(exitFailed).complains("another process is using this checkpoint directory", "stop it first")
	for _, cmd := range []string{"list", "inspect", "verify"} { // reading is fine
		cairnRun(t, cmd, dir).exit(exitFine)
	}
	cairnRun(t, "gc", "--dry-run", dir).exit(exitFine)
	p.Finish()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "gc", dir).exit(exitFine).says("nothing to remove")
	cairnRun(t, "list", dir).exit(exitFailed).complains("no checkpoints here")
}

// TestText_SizesAgesShares checks the texts for sizes, ages and percentages.
func TestText_SizesAgesShares(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1 << 20: "1.0 MiB", 5 << 30: "5.0 GiB", 1 << 60: "1024.0 PiB"} {
		if got := control.BytesText(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Hour: "in the future", 0: "now", 59 * time.Second: "59 s ago", 90 * time.Minute: "1 h 30 min ago", 100 * time.Hour: "4 days ago"} {
		now := time.Now()
		if got := age(now, now.Add(-d)); got != want {
			t.Errorf("age %v: %q, want %q", d, got, want)
		}
	}
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 10, "-"}, {10, 10, "100 %"}, {1, 1 << 20, "<0.1 %"}, {1<<20 - 1, 1 << 20, ">99.9 %"}, {1, 3, "33.3 %"}} {
		if got := percent(c.part, c.whole); got != c.want {
			t.Errorf("percent(%d, %d) = %q, want %q", c.part, c.whole, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"int": "int", "[]github.com/x/y-z.Model": "[]y-z.Model", "a/b.T[c/d.U]": "b.T[d.U]", "struct { X int }": "struct { X int }", "": "-",
	} {
		if got := cut(text); got != want {
			t.Errorf("cut(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"int": "int", `@0 @0"github.com/x/y.Model"={w []@1,} @1"y.W"=int`: "github.com/x/y.Model", `[]@0 @0"a.B"={x int,}`: "[]a.B", "[3]float64": "[3]float64", "@7": "@7",
	} {
		if got := goType(text); got != want {
			t.Errorf("goType(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestProgress_Line checks the text of the progress line, and that it is not
// written too often.
func TestProgress_Line(t *testing.T) {
	var b bytes.Buffer
	began := time.Now()
	p := &progress{c: &call{stderr: &b}, label: "checking checkpoint 12", total: 100 << 20, began: began, next: began.Add(-1)}
	if got, want := p.line(50<<20, began.Add(2*time.Second)), "checking checkpoint 12: 50.0 MiB of 100.0 MiB, 50 %, 25.0 MiB/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.at(50 << 20)
	p.at(51 << 20) // too soon
	p.end()
	lines := strings.Split(b.String(), "\r")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "checking checkpoint 12: 50.0 MiB") || strings.TrimSpace(lines[2]) != "" || len(lines[2]) != len(lines[1]) || lines[3] != "" {
		t.Errorf("%q", lines)
	}
	c := &call{stderr: &b}
	if hidden := c.progress("x", 1); hidden.c != nil {
		t.Error("progress without a terminal")
	}
	hidden := &progress{}
	hidden.at(1)
	hidden.end()
}

// TestVerify_DamageAnywhere shows that no damage makes a command panic or end
// with an unknown exit code.
func TestVerify_DamageAnywhere(t *testing.T) {
	dir := makeCheckpoints(t, 2, cairn.Options{})
	file := checkpointFile(dir, 2)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "ckpt-00000002", "rank-0000.h5")
	write(t, copied, "")
	base := "rank-0000.base-00000001.h5"
	if err := os.Link(filepath.Join(filepath.Dir(file), base), filepath.Join(filepath.Dir(copied), base)); err != nil {
		t.Skip(err)
	}
	check := func(what string, at int, content []byte) {
		write(t, copied, string(content))
		for _, args := range [][]string{{"list", filepath.Dir(filepath.Dir(copied))}, {"inspect", copied}, {"verify", copied}, {"diff", file, copied}} {
			if r := cairnRun(t, args...); r.code == exitUsage || r.code > exitFailed || (r.code == exitFailed) != (r.errors != "") {
				t.Errorf("%s at %d: cairn %q: exit code %d, %s", what, at, args, r.code, r.errors)
			}
		}
	}
	meta := len(whole) - 18000 // the metadata is at the end
	places, stride := 40, 389  // internal/ckpt tries every byte
	if os.Getenv("CAIRN_LONG") != "" {
		places, stride = 150, 97
	}
	for at := 0; at < len(whole); at += 1 + len(whole)/places {
		content := bytes.Clone(whole)
		content[at] ^= 0x41
		check("a flipped byte", at, content)
		check("the end", at, whole[:at])
	}
	for at := max(meta, 0); at < len(whole); at += stride {
		content := bytes.Clone(whole)
		content[at] ^= 0xff
		check("a flipped byte", at, content)
	}
}
