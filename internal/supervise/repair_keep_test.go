//go:build linux

package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
)

// TestRepairer_HelperEnds kills the helper of the only other host that an order
// waits for. The order fails, and names the host: nobody waits for it.
func TestRepairer_HelperEnds(t *testing.T) {
	m := &matrix{t: t, top: t.TempDir(), tier: "partner", run: store.NewID()}
	m.build()
	r := m.open(m.state(sixCopied))
	defer r.v.Close()
	r.tellPeers()
	group := m.groups[0]
	var owner, holder *ViewedHost
	rank := 0
	for i, h := range r.v.Hosts {
		switch h.Name {
		case group[0]:
			owner, rank = h, i
		case group[1]:
			holder = h
		}
	}
	if err := os.RemoveAll(filepath.Join(m.dir(m.state(sixCopied), holder.Name), "kept")); err != nil {
		t.Fatal(err)
	}
	if err := holder.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := r.keep(t.Context(), owner, &control.Keep{Tier: "partner", Index: 3, Ranks: []int{rank}, All: len(matrixHosts)})
	if err == nil || !strings.Contains(err.Error(), "the helper of host "+holder.Name+" has ended") {
		t.Errorf("the holder's helper was killed: %v", err)
	}
}
