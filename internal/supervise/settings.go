//go:build linux

package supervise

import (
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
)

// librarySettings returns the settings for the ranks.
func (s *Supervisor) librarySettings() map[string]string {
	given := make(map[string]string)
	for _, x := range s.o.Settings {
		if slices.Contains(engine.Settings(), x.Name) {
			given[x.Name] = x.Value
		}
	}
	return given
}

// recordSettings records the options of the command, and what rank 0 has
// reported about its own. A rank does not know where the supervisor has a value
// from.
func (s *Supervisor) recordSettings(reported []control.Setting) {
	list := slices.Clone(s.o.Settings)
	for _, x := range reported {
		if i := slices.IndexFunc(list, func(y control.Setting) bool { return y.Name == x.Name }); i >= 0 {
			list[i].Value = x.Value
		} else {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b control.Setting) int { return strings.Compare(a.Name, b.Name) })
	s.rec.Settings = list
}
