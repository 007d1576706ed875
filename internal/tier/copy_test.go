package tier_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestCopyRun copies some checkpoints of a run to another tier. A copy that
// fails does not count, and can be repeated.
func TestCopyRun(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	a, b := tiertest.NewMem(), tiertest.NewMem()
	var list []*tier.Manifest
	for range 3 {
		list = append(list, p.Publish(a, p.Save()))
	}
	as := store.NewID()
	files := tiertest.All(t, a, p.Run+"/files/")
	bad := a.Clone()
	bad.Change(files[len(files)-1], func(data []byte) []byte { return append(slices.Clone(data[:len(data)-1]), data[len(data)-1]^1) })
	if _, err := tier.CopyRun(t.Context(), bad, b, as, list[1:]); !errors.Is(err, tier.ErrDamaged) {
		t.Fatalf("with a damaged object: %v", err)
	}
	if runs, err := tier.Runs(t.Context(), b); err != nil || len(runs) > 0 || count(t, b, as+"/checkpoints/") > 0 {
		t.Errorf("half a copy counts: %v, %v", runs, err)
	}
	for i := range 2 {
		n, err := tier.CopyRun(t.Context(), a, b, as, list[1:])
		if err != nil || (n > 0) != (i == 0) {
			t.Errorf("time %d: %d bytes, %v", i+1, n, err)
		}
	}
	if got := indexes(t, b, as); !slices.Equal(got, []uint64{3, 2}) {
		t.Errorf("checkpoints %v", got)
	}
	made, err := tier.Checkpoints(t.Context(), b, as)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		read, err := tier.Verify(t.Context(), b, m, map[string]error{}, func(object string, err error) { t.Errorf("%s: %v", object, err) })
		if err != nil || read == 0 || m.Origin != p.Run || m.Run != as {
			t.Errorf("%d bytes, %v; of run %s, from %s", read, err, m.Run, m.Origin)
		}
	}
	if left := tiertest.All(t, b, p.Run); len(left) > 0 {
		t.Errorf("under the name of the run that was copied: %v", left)
	}
	// The run continues there: it is not overwritten.
	c := tiertest.NewMem()
	if err := c.Create(t.Context(), as+"/checkpoints/00000002.json", []byte("another")); err != nil {
		t.Fatal(err)
	}
	if _, err := tier.CopyRun(t.Context(), a, c, as, list); !errors.Is(err, tier.ErrExists) {
		t.Errorf("over another run: %v", err)
	}
	// A copy of the copy knows where the files are from.
	again := store.NewID()
	if _, err := tier.CopyRun(t.Context(), b, c, again, made[:1]); err != nil {
		t.Error(err)
	}
	if twice, err := tier.Checkpoints(t.Context(), c, again); err != nil || len(twice) != 1 || twice[0].Origin != p.Run {
		t.Errorf("the copy of a copy: %v, %v", twice, err)
	}
	// Damage is found, and repaired by another copy.
	whole := b.Clone()
	b.Change(tiertest.All(t, b, as+"/files/")[0], func(data []byte) []byte { return data[:len(data)-1] })
	var found []string
	for _, m := range made {
		if _, err := tier.Verify(t.Context(), b, m, map[string]error{}, func(object string, err error) { found = append(found, object) }); err != nil {
			t.Error(err)
		}
	}
	if len(found) == 0 || !strings.HasPrefix(found[0], as+"/files/") {
		t.Errorf("damage found: %v", found)
	}
	for _, m := range made {
		if err := tier.CopyCheckpoint(t.Context(), whole, b, m); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(b.Names(), whole.Names()) {
		t.Errorf("after the repair: %v, want %v", b.Names(), whole.Names())
	}
	for _, m := range made {
		tier.Verify(t.Context(), b, m, map[string]error{}, func(object string, err error) { t.Errorf("after the repair: %s: %v", object, err) })
	}
}
