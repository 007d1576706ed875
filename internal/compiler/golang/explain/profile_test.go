package explain

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// profileOf makes a profile of stacks, by weight. A stack is a list of lines of
// one file, innermost first.
func profileOf(file string, stacks map[int64][]int64) []byte {
	fun := &profile.Function{ID: 7, Filename: file}
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu"}}, Function: []*profile.Function{fun}}
	for weight, lines := range stacks {
		sample := &profile.Sample{Value: []int64{1, weight}}
		for _, line := range lines {
			at := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: fun, Line: line}}}
			p.Location, sample.Location = append(p.Location, at), append(sample.Location, at)
		}
		p.Sample = append(p.Sample, sample)
	}
	var z bytes.Buffer
	p.Write(&z)
	return z.Bytes()
}

// TestExplain_Profile shows that the samples of a profile count for the loops
// whose lines they are in.
func TestExplain_Profile(t *testing.T) {
	ld, err := load.Load(t.Context(), "..", []string{"./testdata/src/plain"}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(ld, callgraph.Resolve(ld))
	if err != nil {
		t.Fatal(err)
	}
	// Lines 12 to 16 are the first loop, 30 to 35 the second.
	data := profileOf("/home/somebody/testdata/src/plain/main.go", map[int64][]int64{10: {14, 13}, 70: {33}, 20: {9}})
	s, err := ReadSamples(data)
	if err != nil {
		t.Fatal(err)
	}
	got := s.Shares(p)
	near := func(line int, want float64) {
		for pos, share := range got {
			if pos.Line == line && math.Abs(share-want) < 1e-12 {
				return
			}
		}
		t.Errorf("line %d: %v, want %v", line, got, want)
	}
	near(12, 0.1)
	near(30, 0.7)
	e := Explain(p, Options{Samples: s})
	for _, l := range e.Loops {
		if !l.Chosen { // both have a tenth
			t.Errorf("line %d: %s", l.Line, l.Why)
		}
	}
	for _, bad := range [][]byte{nil, {0x1f, 0x8b, 1}, {0x12, 200}, {0x0b}, {0x09, 1}, profileOf("x", nil)} {
		if _, err := ReadSamples(bad); !errors.Is(err, ErrProfile) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// FuzzReadSamples shows that bytes are refused, or give valid shares of time.
func FuzzReadSamples(f *testing.F) {
	z, err := gzip.NewReader(bytes.NewReader(profileOf("main.go", map[int64][]int64{3: {1, 2}})))
	if err != nil {
		f.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte{0x12, 0})
	p := &lower.Program{Extents: []lower.Extent{{Pos: ir.Pos{File: "main.go", Line: 1}, Last: 2}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1 && data[0] == 0x1f {
			return // not gzip
		}
		s, err := ReadSamples(data)
		if err != nil {
			if !errors.Is(err, ErrProfile) {
				t.Fatal(err)
			}
			return
		}
		for pos, share := range s.Shares(p) {
			if !(share > 0 && share < 1.001) {
				t.Errorf("%s has %v", pos, share)
			}
		}
	})
}
