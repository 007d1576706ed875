//go:build linux

package e2e

import (
	"testing"

	"github.com/cairnrun/cairn/internal/journey"
)

// Ranks that exchange messages all the time go from host to host: one, some, all
// of a host, forth and back, between hosts and within one.
func TestMigrateAround(t *testing.T) {
	net := network(t, 3)
	a, b, c := net.Hosts[0], net.Hosts[1], net.Hosts[2]
	for _, v := range []struct {
		name  string
		flags []string
	}{
		{"mixed", nil},
		{"tcp", []string{"--transport", "tcp"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := traveller(t, 8, nil, append(v.flags, "--hosts", slots(net, 4, 4), "--rsh", journey.Shell)...)
			p.moves("--rank", "1", "--to", b) // one
			p.onlyRanks()
			p.moves("--rank", "2-3", "--to", c, "--rounds", "0") // a half
			p.moves("--host", a, "--to", c)                      // a whole host
			p.onlyRanks()
			p.moves("--rank", "0,2,3", "--to", a, "--chunk", "64K")
			p.moves("--host", b, "--to", c)
			p.moves("--rank", "1,4-7", "--to", a) // all are together
			p.onlyRanks()
			for r, h := range p.where() {
				if h != a {
					t.Errorf("rank %d is on %s", r, h)
				}
			}
			p.moves("--rank", "0", "--to", c)
			p.moves("--rank", "0", "--to", c) // from one process to another
			p.arrives()
		})
	}
}
