package s3

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestPublish_RequestsFail publishes, fetches and collects checkpoints in a
// store of which one request of five goes wrong.
func TestPublish_RequestsFail(t *testing.T) {
	for _, fault := range []s3test.Fault{s3test.None, s3test.Error500, s3test.Error500After, s3test.SlowDown, s3test.Reset, s3test.ResetAfter, s3test.Truncate, s3test.Short, s3test.LosePart} {
		s := server(t)
		o := options(s)
		o.Retry.Tries = 20
		m := open(t, o)
		r := rand.New(rand.NewPCG(uint64(fault), 1))
		faults(s, func(op string, n int) s3test.Fault {
			if r.IntN(5) == 0 {
				return fault
			}
			return s3test.None
		})
		p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
		for range 4 {
			p.Publish(m, p.Save())
		}
		if _, err := tier.Collect(t.Context(), m, p.Run, tier.CollectOptions{Keep: 2}); err != nil {
			t.Fatalf("fault %d: %v", fault, err)
		}
		all, err := tier.Checkpoints(t.Context(), m, p.Run)
		if err != nil || len(all) != 2 || all[0].Index != 4 || all[1].Index != 3 {
			t.Fatalf("fault %d: %v, %v", fault, all, err)
		}
		for _, mf := range all {
			p.Fetchable(m, mf)
		}
		if up := s.Uploads(); len(up) > 0 && fault == s3test.None {
			t.Errorf("unfinished uploads: %v", up)
		}
	}
}

// TestCollect_StaleLists shows that a collection removes nothing that is needed
// if lists do not have what was written last.
func TestCollect_StaleLists(t *testing.T) {
	s := server(t)
	m := open(t, options(s))
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	for range 3 {
		p.Publish(m, p.Save())
	}
	// The last change that is not seen: the manifest of checkpoint 4.
	p.Save()
	up, err := tier.Upload(t.Context(), m, p.Upload(4))
	if err != nil {
		t.Fatal(err)
	}
	up.Claim = "none" // so that its removal is no later change
	if _, err := tier.Commit(t.Context(), m, []tier.Uploaded{up}); err != nil {
		t.Fatal(err)
	}
	for _, claim := range tiertest.All(t, m, p.Run+"/claims/") {
		s.Forget("a/prefix/" + claim)
	}
	frozen := s.Freeze("a/prefix/" + p.Run + "/checkpoints/00000004.json")
	s.Fault = func(op, key string) s3test.Fault {
		if op == "ListObjects" {
			return s3test.Stale
		}
		return s3test.None
	}
	_, err = tier.Collect(t.Context(), m, p.Run, tier.CollectOptions{Keep: 2})
	if err == nil || !strings.Contains(err.Error(), "is not listed") {
		t.Errorf("collect: %v", err)
	}
	s.Fault = nil
	frozen()
	all, err := tier.Checkpoints(t.Context(), m, p.Run)
	if err != nil || len(all) == 0 || all[0].Index != 4 {
		t.Fatal(all, err)
	}
	for _, mf := range all {
		p.Fetchable(m, mf)
	}
	if n := slices.IndexFunc(all, func(mf *tier.Manifest) bool { return mf.Index == 3 }); n != 1 {
		t.Errorf("%d checkpoints", len(all))
	}
}
