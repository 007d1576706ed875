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

// ErrProfile says that a file is not a CPU profile, or is one that cannot be
// used.
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
	profile, err := decode(data)
	if err != nil {
		return nil, err
	}
	files := make(map[uint64]string) // by function
	for _, f := range profile[5] {
		function, err := decode(f.bytes)
		if err != nil {
			return nil, err
		}
		if i := function.number(4); i < uint64(len(profile[6])) {
			files[function.number(1)] = string(profile[6][i].bytes)
		}
	}
	locations := make(map[uint64][]frameLine)
	for _, f := range profile[4] {
		location, err := decode(f.bytes)
		if err != nil {
			return nil, err
		}
		var lines []frameLine
		for _, f := range location[4] {
			line, err := decode(f.bytes)
			if err != nil {
				return nil, err
			}
			lines = append(lines, frameLine{files[line.number(1)], int(int64(line.number(2)))})
		}
		locations[location.number(1)] = lines
	}
	s := new(Samples)
	for _, f := range profile[2] {
		sample, err := decode(f.bytes)
		if err != nil {
			return nil, err
		}
		ids, err1 := sample.numbers(1)
		values, err2 := sample.numbers(2)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if len(values) == 0 || int64(values[len(values)-1]) <= 0 {
			continue
		}
		k := stack{weight: float64(values[len(values)-1])}
		for _, id := range ids {
			k.frames = append(k.frames, locations[id]...)
		}
		s.stacks = append(s.stacks, k)
		s.total += k.weight
	}
	if s.total == 0 {
		return nil, fmt.Errorf("%w: it has no samples; record a longer one", ErrProfile)
	}
	return s, nil
}

// record is a decoded message: its fields, by number.
type record map[uint64][]field

// field is a field's value: a number, or bytes, which are nil for a number.
type field struct {
	value uint64
	bytes []byte
}

// number returns the last value of a field, 0 if there is none.
func (r record) number(n uint64) uint64 {
	if list := r[n]; len(list) > 0 {
		return list[len(list)-1].value
	}
	return 0
}

// numbers returns all values of a field, packed or not.
func (r record) numbers(n uint64) (list []uint64, err error) {
	for _, f := range r[n] {
		if f.bytes == nil {
			list = append(list, f.value)
		}
		for b := f.bytes; len(b) > 0; {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return nil, fmt.Errorf("%w: a number is truncated", ErrProfile)
			}
			list, b = append(list, v), b[n:]
		}
	}
	return list, nil
}

// decode returns the fields of a message.
func decode(b []byte) (record, error) {
	r := make(record)
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: a field is truncated", ErrProfile)
		}
		b = b[n:]
		var f field
		size := uint64(0) // size of what follows
		switch key & 7 {
		case 0:
			if f.value, n = binary.Uvarint(b); n <= 0 {
				return nil, fmt.Errorf("%w: a number is truncated", ErrProfile)
			}
			b = b[n:]
		case 1:
			size = 8
		case 5:
			size = 4
		case 2:
			if size, n = binary.Uvarint(b); n <= 0 {
				return nil, fmt.Errorf("%w: a field is truncated", ErrProfile)
			}
			b = b[n:]
		default:
			return nil, fmt.Errorf("%w: unknown wire type %d", ErrProfile, key&7)
		}
		if size > uint64(len(b)) {
			return nil, fmt.Errorf("%w: a field is longer than the file", ErrProfile)
		}
		if key&7 == 2 {
			f.bytes = b[:size:size]
		}
		if b = b[size:]; key&7 == 0 || key&7 == 2 {
			r[key>>3] = append(r[key>>3], f)
		}
	}
	return r, nil
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
