package resume_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/graph"
)

// damageState has functions and channels.
type damageState struct {
	a, b   func() int
	op     unaryOp
	static func(string) string
	ring   chan []string
	recv   <-chan []string
	any    any
}

// TestRestore_DamagedState changes every byte of the references in a state.
// Restoring must end, with an error or without.
func TestRestore_DamagedState(t *testing.T) {
	e := &env{1, 2}
	v := damageState{a: makeCounter(e), op: double, static: strings.ToLower, ring: make(chan []string, 3)}
	v.b, v.recv, v.any = v.a, v.ring, v.ring
	v.ring <- []string{"x"}
	img, err := graph.Collect([]graph.Root{{Name: "v", Ptr: &v}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := json.Marshal(img)
	if err != nil {
		t.Fatal(err)
	}
	var pools [][]byte
	for _, p := range img.Pools {
		pools = append(pools, bytes.Join(p.Pieces, nil))
	}
	regions := graph.PackRegions(img.Regions)
	restore := func() error {
		var img graph.Image
		if err := json.Unmarshal(meta, &img); err != nil {
			t.Fatal(err)
		}
		img.Regions, _ = graph.UnpackRegions(regions)
		b, err := graph.Prepare([]graph.Root{{Name: "v", Ptr: new(damageState)}}, &img, nil, graph.Options{Limit: 1 << 20})
		if err != nil {
			return err
		}
		defer b.Close()
		for _, target := range b.Targets() {
			if err := target.Fill(0, pools[target.Pool]); err != nil {
				return err
			}
		}
		return b.Finish()
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for _, p := range pools {
		for i := range p {
			for _, x := range []byte{1, 0x80, 0xff} {
				p[i] ^= x
				if restore() != nil {
					wrong++
				}
				p[i] ^= x
			}
		}
	}
	if wrong < 100 {
		t.Errorf("only %d changes were noticed", wrong)
	}
}
