//go:build linux

package helper

import (
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// TestHolder_ReportsTrouble checks that the supervisor learns what could not be
// stored, where, and of which tier it is: it ignores tiers that the policy
// lacks.
func TestHolder_ReportsTrouble(t *testing.T) {
	var got *control.Stored
	h := &holder{kind: policy.RS, send: func(m control.Message) { got = m.(*control.Stored) }}
	for _, c := range []struct {
		copies.Trouble
		tier, text string
	}{
		{copies.Trouble{Peer: "b", ID: copies.ID{Object: "x"}, Why: "full"}, "partner", "x on b: full"},
		{copies.Trouble{Peer: "b", ID: copies.ID{Object: "x", Shard: 1, Data: 2, Parity: 1}, Why: "full"}, "rs", "x.2+1.1 on b: full"},
		{copies.Trouble{Peer: "b", Of: copies.PartID{Checkpoint: recovery.Checkpoint{Index: 7}, Rank: 3}, Tier: copies.RS, Why: "full"}, "rs", "the part of rank 3 of checkpoint 7 on b: full"},
		{copies.Trouble{Peer: "b", Why: "broken"}, "rs", "b: broken"},
	} {
		if h.trouble(c.Trouble); got.Tier != c.tier || got.Error != c.text || got.Index != 0 {
			t.Errorf("%+v: %+v", c.Trouble, got)
		}
	}
}
