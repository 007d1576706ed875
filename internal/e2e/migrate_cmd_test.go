//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/interconnects"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestMigrate_SpreadOverHosts moves the ranks of a host to two others, in one
// migration. The result can be queried after the run has ended.
func TestMigrate_SpreadOverHosts(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	net := network(t, 3)
	p := traveller(t, 4, "--hosts", slots(net, 4, 2, 2), "--rsh", interconnects.Shell)
	m := p.moves("--host", net.Hosts[0])
	if m.To != net.Hosts[1]+", "+net.Hosts[2] || len(m.Ranks) != 4 {
		t.Errorf("%+v", m)
	}
	if want := []string{net.Hosts[1], net.Hosts[1], net.Hosts[2], net.Hosts[2]}; !slices.Equal(p.where(), want) {
		t.Errorf("%v, want %v", p.where(), want)
	}
	p.onlyRanks()
	if m := p.moves("--host", net.Hosts[0]); len(m.Ranks) != 0 || m.From != net.Hosts[0] {
		t.Errorf("%+v", m)
	}
	refused := p.asks("--host", "nowhere")
	refused.ends(3)
	must(t, refused.errs.String(), "the run has no host nowhere; it has "+strings.Join(net.Hosts, ", "))
	p.arrives()
	st, err := client.Read(t.Context(), p.run())
	if err != nil || st.State != rundir.Finished || len(st.Moves) != 2 || st.Moves[0].ID != 1 || st.Moves[1].ID != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	late := p.asks("--rank", "1", "--to", net.Hosts[0])
	late.ends(3)
	must(t, late.errs.String(), "it has finished")
	if list, _ := filepath.Glob(filepath.Join(p.run(), "output", ".destination-*")); len(list) > 0 {
		t.Errorf("%v are left", list)
	}
	if _, err := os.Stat(filepath.Join(p.run(), "run.json.tmp")); err == nil {
		t.Error("run.json.tmp is left")
	}
}
