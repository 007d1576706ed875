//go:build linux

package supervise

import (
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
)

// hostOverrides are what is different for ranks on one host: another architecture
// has another program, and other devices are chosen by a variable. They come
// with a move to that host (Migration.Program and Env) and stay.
type hostOverrides struct {
	program string   // "": that of the others
	env     []string // NAME=VALUE
}

// overridesOf are those of a host.
func (s *Supervisor) overridesOf(h *host) hostOverrides { return s.overrides[h.title()] }

// with adds what a move says.
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

// apply changes what a helper is told to start.
func (c hostOverrides) apply(m *control.Start) {
	if c.program != "" {
		m.Command = append([]string{c.program}, m.Command[1:]...)
	}
	m.ExtraEnv = c.env
}
