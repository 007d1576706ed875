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

// TestPins_SurviveCollections pins a checkpoint, and expects that collections
// and the end of the run leave it as it was, until the pin is removed.
func TestPins_SurviveCollections(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	m, ctx := tiertest.NewMem(), t.Context()
	var second *tier.Manifest
	for i := range 5 {
		if mf := p.Publish(m, p.Save()); i == 1 {
			second = mf
		}
	}
	if _, err := tier.AddPin(ctx, m, second, "best"); err != nil {
		t.Fatal(err)
	}
	if _, err := tier.AddPin(ctx, m, second, "best"); err != nil { // again
		t.Error(err)
	}
	collect(t, p, m, 1)
	if got := indexes(t, m, p.Run); !slices.Equal(got, []uint64{5, 2}) {
		t.Errorf("left: %v", got)
	}
	p.Fetchable(m, second)
	if _, err := tier.AddPin(ctx, m, p.Publish(m, 5), "best"); !errors.Is(err, tier.ErrPinned) {
		t.Errorf("a name for two checkpoints: %v", err)
	}
	pins, err := tier.RemoveRun(ctx, m, p.Run)
	if err != nil || len(pins) != 1 || pins[0].Name != "best" || pins[0].Index != 2 {
		t.Errorf("%+v, %v", pins, err)
	}
	if got := indexes(t, m, p.Run); !slices.Equal(got, []uint64{2}) {
		t.Errorf("left: %v", got)
	}
	p.Fetchable(m, second)
	if err := tier.RemovePin(ctx, m, pins[0]); err != nil {
		t.Fatal(err)
	}
	if pins, err := tier.RemoveRun(ctx, m, p.Run); err != nil || len(pins) > 0 || len(m.Names()) > 0 {
		t.Errorf("%v, %v: %v", pins, err, m.Names())
	}
	if _, err := tier.AddPin(ctx, m, second, "late"); !errors.Is(err, tier.ErrNotExist) || len(m.Names()) > 0 {
		t.Errorf("a checkpoint that is gone: %v; %v", err, m.Names())
	}
}

// TestPins_Names refuses names that users could not write after PLACE@, or that
// a tier cannot keep.
func TestPins_Names(t *testing.T) {
	for _, name := range []string{"best", "ckpt-00000012", "v1.2_a", "12a"} {
		if err := tier.CheckPinName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "12", ".x", "a/b", "a b", "é", "../x", strings.Repeat("a", 300)} {
		if tier.CheckPinName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// TestPins_Damaged removes nothing if a pin cannot be read: it may pin
// anything.
func TestPins_Damaged(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	m, ctx := tiertest.NewMem(), t.Context()
	first := p.Publish(m, p.Save())
	p.Publish(m, p.Save())
	if _, err := tier.AddPin(ctx, m, first, "best"); err != nil {
		t.Fatal(err)
	}
	m.Change(p.Run+"/pins/best.json", func(text []byte) []byte {
		text[len(text)/2] ^= 1
		return text
	})
	before := m.Names()
	if _, err := tier.Collect(ctx, m, p.Run, tier.CollectOptions{Keep: 1}); !errors.Is(err, tier.ErrDamaged) {
		t.Errorf("collection: %v", err)
	}
	if _, err := tier.RemoveRun(ctx, m, p.Run); !errors.Is(err, tier.ErrDamaged) {
		t.Errorf("end of the run: %v", err)
	}
	if got := m.Names(); !slices.Equal(got, before) {
		t.Errorf("removed: left %v of %v", got, before)
	}
}
