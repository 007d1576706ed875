//go:build linux

package supervise

import (
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
)

// hostOverrides are the program path and variables for ranks on one host, which
// may have another architecture or other devices. A move to that host sets them
// (Migration.Program and Env), and they stay.
type hostOverrides struct {
	program string   // "": that of the other hosts
	env     []string // NAME=VALUE
}

// overridesOf returns the overrides of a host.
func (s *Supervisor) overridesOf(h *host) hostOverrides { return s.overrides[h.title()] }

// with returns the overrides with those of a move added.
func (c hostOverrides) with(m *control.Migrate) hostOverrides {
	if m.Program != "" {
		c.program = m.Program
	}
	c.env = slices.Clone(c.env)
	for _, v := range m.Env {
		name, _, _ := strings.Cut(v, "=")
		c.env = slices.DeleteFunc(c.env, func(x string) bool { return strings.HasPrefix(x, name+"=") })
		c.env = append(c.env, v)
	}
	return c
}

// apply changes an order to a helper.
func (c hostOverrides) apply(m *control.Start) {
	if c.program != "" {
		m.Command = append([]string{c.program}, m.Command[1:]...)
	}
	m.ExtraEnv = c.env
}
