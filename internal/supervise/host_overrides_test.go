//go:build linux

package supervise

import (
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// TestHostOverrides_Add shows that programs and variables of several migrations
// to a host add up, and change no earlier ones.
func TestHostOverrides_Add(t *testing.T) {
	var c hostOverrides
	start := func(c hostOverrides) *control.Start {
		m := &control.Start{Command: []string{"/bin/sim", "-n", "3"}}
		c.apply(m)
		return m
	}
	if m := start(c.with(new(control.Migrate))); !slices.Equal(m.Command, []string{"/bin/sim", "-n", "3"}) || len(m.ExtraEnv) != 0 {
		t.Errorf("%+v", m)
	}
	one := c.with(&control.Migrate{Program: "/arm/sim", Env: []string{"A=1", "AB=2"}})
	two := one.with(&control.Migrate{Env: []string{"A=3", "C="}})
	if m := start(two); !slices.Equal(m.Command, []string{"/arm/sim", "-n", "3"}) || !slices.Equal(m.ExtraEnv, []string{"AB=2", "A=3", "C="}) {
		t.Errorf("%+v", m)
	}
	if m := start(one); !slices.Equal(m.ExtraEnv, []string{"A=1", "AB=2"}) {
		t.Errorf("what holds for another move has changed: %+v", m)
	}
}
