package cairn

import (
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/mpi"
)

// embeds has no state of its own: its fields are saved one by one.
type embeds struct {
	*device.Group
	*mpi.Comm
	X int
}

// overrides embeds types that describe their state, and describes its own.
type overrides struct {
	device.Group
	X, lost int
}

func (o *overrides) CairnState(c *Coder) error {
	Field(c, "x", &o.X)
	if c.Restoring() {
		o.lost = -1
	}
	return nil
}

// inherits has the CairnState of what it embeds only by promotion.
type inherits struct {
	overrides
	Y int
}

// TestState_EmbeddedMethodNotUsed shows that a struct is not saved by the
// method of a field that it embeds, which knows nothing of the other fields.
func TestState_EmbeddedMethodNotUsed(t *testing.T) {
	dir := t.TempDir()
	devs, err := device.Open("host,host")
	if err != nil {
		t.Fatal(err)
	}
	for _, restored := range []bool{false, true} {
		run, err := Open(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		var a embeds
		var b overrides
		var c inherits
		if !restored {
			a = embeds{device.NewGroup(devs...), run.World(), 3}
			b = overrides{*device.NewGroup(devs...), 4, 5}
			c = inherits{overrides{X: 6, lost: 7}, 8}
		} else {
			run.World()
		}
		Protect(run, "a", &a)
		Protect(run, "b", &b)
		Protect(run, "c", &c)
		if ok, err := run.Restore(t.Context()); ok != restored || err != nil {
			t.Fatal(ok, err)
		}
		if restored {
			if a.X != 3 || a.Group.Len() != 2 || a.Comm.Size() != 1 {
				t.Errorf("restored %+v", a)
			}
			if b.X != 4 || b.lost != -1 || b.Len() != 0 {
				t.Errorf("restored %+v", b)
			}
			if c.X != 6 || c.lost != -1 || c.Y != 8 {
				t.Errorf("restored %+v", c)
			}
		} else if err := run.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
