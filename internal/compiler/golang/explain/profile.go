package explain

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// ErrProfile says that a file is no CPU profile, or one that cannot be used.
var ErrProfile = errors.New("not a CPU profile")

// maxProfile is how many bytes of a profile are read.
const maxProfile = 256 << 20

// Samples are where a program spent its time, from a profile of runtime/pprof.
//
// The format is Protocol Buffers, compressed with gzip. Only these fields are
// read:
//
//	Profile   2 sample …, 4 location …, 5 function …, 6 string …
//	Sample    1 location id …, innermost first   2 value …, the last is time
//	Location  1 id   4 line …
//	Line      1 function id   2 line
//	Function  1 id   4 file, an index of the strings
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
	type location struct {
		function uint64
		line     int
	}
	var names []string
	var samples [][]byte
	locations := make(map[uint64][]location)
	files := make(map[uint64]uint64)
	err := fields(data, func(n uint64, v uint64, b []byte) error {
		switch n {
		case 2:
			samples = append(samples, b)
		case 4:
			var id uint64
			var lines []location
			err := fields(b, func(n, v uint64, b []byte) error {
				switch n {
				case 1:
					id = v
				case 4:
					var l location
					err := fields(b, func(n, v uint64, _ []byte) error {
						switch n {
						case 1:
							l.function = v
						case 2:
							l.line = int(int64(v))
						}
						return nil
					})
					lines = append(lines, l)
					return err
				}
				return nil
			})
			locations[id] = lines
			return err
		case 5:
			var id, file uint64
			err := fields(b, func(n, v uint64, _ []byte) error {
				switch n {
				case 1:
					id = v
				case 4:
					file = v
				}
				return nil
			})
			files[id] = file
			return err
		case 6:
			names = append(names, string(b))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := new(Samples)
	for _, b := range samples {
		var ids, values []uint64
		err := fields(b, func(n, v uint64, b []byte) error {
			to := &ids
			switch n {
			case 1:
			case 2:
				to = &values
			default:
				return nil
			}
			if b == nil {
				*to = append(*to, v)
			}
			for len(b) > 0 {
				v, n := binary.Uvarint(b)
				if n <= 0 {
					return fmt.Errorf("%w: a number is truncated", ErrProfile)
				}
				*to, b = append(*to, v), b[n:]
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(values) == 0 || int64(values[len(values)-1]) <= 0 {
			continue
		}
		k := stack{weight: float64(values[len(values)-1])}
		for _, id := range ids {
			for _, l := range locations[id] {
				if i := files[l.function]; i < uint64(len(names)) {
					k.frames = append(k.frames, frameLine{names[i], l.line})
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

// fields calls f for the fields of a message, with the field's number and its
// value or its bytes. The bytes are nil for a value.
func fields(b []byte, f func(n, v uint64, b []byte) error) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("%w: a field is truncated", ErrProfile)
		}
		b = b[n:]
		var v uint64
		var inner []byte
		switch key & 7 {
		case 0:
			if v, n = binary.Uvarint(b); n <= 0 {
				return fmt.Errorf("%w: a number is truncated", ErrProfile)
			}
			b = b[n:]
		case 1, 5:
			size := map[uint64]int{1: 8, 5: 4}[key&7]
			if len(b) < size {
				return fmt.Errorf("%w: a number is truncated", ErrProfile)
			}
			b = b[size:]
			continue
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return fmt.Errorf("%w: a field is longer than the file", ErrProfile)
			}
			inner, b = b[n:n+int(size):n+int(size)], b[n+int(size):]
		default:
			return fmt.Errorf("%w: unknown wire type %d", ErrProfile, key&7)
		}
		if err := f(key>>3, v, inner); err != nil {
			return err
		}
	}
	return nil
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
