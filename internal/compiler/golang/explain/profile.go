package explain

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// ErrProfile says that a file is not a CPU profile, or is one that cannot be
// used.
var ErrProfile = errors.New("not a CPU profile")

// maxProfile is how many bytes of a profile are read.
const maxProfile = 256 << 20

// Samples are where a program spent its time, from a profile of runtime/pprof.
type Samples struct {
	stacks []stack
	total  float64
}

type stack struct {
	weight float64
	frames []frameLine
}

type frameLine struct {
	file string
	line int
}

// ReadSamples reads a CPU profile.
func ReadSamples(data []byte) (*Samples, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(z, maxProfile+1))
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProfile, err)
		}
	}
	if len(data) > maxProfile {
		return nil, fmt.Errorf("%w: it is larger than %d MiB; record a shorter one", ErrProfile, maxProfile>>20)
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	s := new(Samples)
	for _, sample := range p.Sample {
		time := sample.Value[len(sample.Value)-1]
		if time <= 0 {
			continue
		}
		k := stack{weight: float64(time)}
		for _, at := range sample.Location {
			for _, line := range at.Line {
				if line.Function != nil {
					k.frames = append(k.frames, frameLine{line.Function.Filename, int(line.Line)})
				}
			}
		}
		s.stacks = append(s.stacks, k)
		s.total += k.weight
	}
	if s.total == 0 {
		return nil, fmt.Errorf("%w: it has no samples; record a longer one", ErrProfile)
	}
	return s, nil
}

// Shares returns the share of the samples that were taken in each loop, or in
// what it calls.
func (s *Samples) Shares(p *lower.Program) map[ir.Pos]float64 {
	files := make(map[string][]lower.Extent) // by the names in the profile
	of := func(name string) []lower.Extent {
		list, ok := files[name]
		if !ok {
			for _, e := range p.Extents {
				if name == e.File || strings.HasSuffix(name, "/"+e.File) {
					list = append(list, e)
				}
			}
			files[name] = list
		}
		return list
	}
	shares := make(map[ir.Pos]float64)
	for _, k := range s.stacks {
		in := make(map[ir.Pos]bool)
		for _, f := range k.frames {
			for _, e := range of(f.file) {
				if e.Line <= f.line && f.line <= e.Last {
					in[e.Pos] = true
				}
			}
		}
		for pos := range in {
			shares[pos] += k.weight / s.total
		}
	}
	return shares
}
