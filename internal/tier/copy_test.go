package tier_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

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
	record := p.Run + "/attempts/00000001.json"
	if err := a.Create(t.Context(), record, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	files := tiertest.All(t, a, p.Run+"/files/")
	bad := a.Clone()
	bad.Change(files[len(files)-1], func(data []byte) []byte { return append(slices.Clone(data[:len(data)-1]), data[len(data)-1]^1) })
	if _, err := tier.CopyRun(t.Context(), bad, b, p.Run, list[1:], []string{record}); !errors.Is(err, tier.ErrDamaged) {
		t.Fatalf("with a damaged object: %v", err)
	}
	if runs, err := tier.Runs(t.Context(), b); err != nil || len(runs) > 0 || count(t, b, p.Run+"/checkpoints/") > 0 {
		t.Errorf("half a copy counts: %v, %v", runs, err)
	}
	for i := range 2 {
		n, err := tier.CopyRun(t.Context(), a, b, p.Run, list[1:], []string{record})
		if err != nil || (n > 0) != (i == 0) {
			t.Errorf("time %d: %d bytes, %v", i+1, n, err)
		}
	}
	if got := indexes(t, b, p.Run); !slices.Equal(got, []uint64{3, 2}) {
		t.Errorf("checkpoints %v", got)
	}
	for _, m := range list[1:] {
		p.Fetchable(b, m)
		read, err := tier.Verify(t.Context(), b, m, map[string]error{}, func(object string, err error) { t.Errorf("%s: %v", object, err) })
		if err != nil || read == 0 {
			t.Errorf("%d bytes, %v", read, err)
		}
	}
	if !slices.Contains(b.Names(), record) {
		t.Errorf("the record is not there: %v", b.Names())
	}
	// The run continues there: it is not overwritten.
	c := tiertest.NewMem()
	if err := c.Create(t.Context(), record, []byte("another")); err != nil {
		t.Fatal(err)
	}
	if _, err := tier.CopyRun(t.Context(), a, c, p.Run, list, []string{record}); !errors.Is(err, tier.ErrExists) {
		t.Errorf("over another run: %v", err)
	}
	// Damage is found.
	b.Change(tiertest.All(t, b, p.Run+"/files/")[0], func(data []byte) []byte { return data[:len(data)-1] })
	var found []string
	for _, m := range list[1:] {
		if _, err := tier.Verify(t.Context(), b, m, map[string]error{}, func(object string, err error) { found = append(found, object) }); err != nil {
			t.Error(err)
		}
	}
	if len(found) == 0 || !strings.HasPrefix(found[0], p.Run+"/files/") {
		t.Errorf("damage found: %v", found)
	}
}
