//go:build linux

package serve

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"unicode"
	"unicode/utf8"
)

// Codes of types; cairn.h has the same.
const (
	codeBool   = 15
	codeBytes  = 16
	codeStruct = 256
)

var basic = []reflect.Type{
	1:  reflect.TypeFor[int8](),
	2:  reflect.TypeFor[int16](),
	3:  reflect.TypeFor[int32](),
	4:  reflect.TypeFor[int64](),
	5:  reflect.TypeFor[uint8](),
	6:  reflect.TypeFor[uint16](),
	7:  reflect.TypeFor[uint32](),
	8:  reflect.TypeFor[uint64](),
	9:  reflect.TypeFor[float32](),
	10: reflect.TypeFor[float64](),
	11: reflect.TypeFor[complex64](),
	12: reflect.TypeFor[complex128](),
	13: longDouble(),
	14: reflect.ArrayOf(2, longDouble()),
	15: reflect.TypeFor[bool](),
	16: plainBytes(),
}

// plainBytes is the type of a byte of memory whose type is not known. On
// machines of the other byte order it is another type, because they would read
// other values from the same bytes.
func plainBytes() reflect.Type {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return reflect.TypeFor[struct{ BigEndian byte }]()
	}
	return reflect.TypeFor[byte]()
}

// longDouble is a long double as it is in memory: HDF5 and Go have no such
// type. Machines with different representations have different types, so that
// each refuses those of the others.
func longDouble() reflect.Type {
	switch runtime.GOARCH {
	case "amd64", "386":
		return reflect.TypeFor[[16]byte]()
	case "s390x":
		return reflect.TypeFor[struct{ QuadBigEndian [16]byte }]()
	case "ppc64", "ppc64le":
		return reflect.TypeFor[struct{ DoubleDouble [16]byte }]()
	}
	return reflect.TypeFor[struct{ Quad [16]byte }]()
}

const (
	maxDims  = 32
	maxDepth = 16
	maxBytes = 1 << 46
)

// readType reads the type of an element.
func readType(c *cursor, depth int) (reflect.Type, error) {
	code := c.U32()
	if code < codeStruct {
		if int(code) >= len(basic) || basic[code] == nil {
			return nil, fmt.Errorf("%w: type %d", errProtocol, code)
		}
		return basic[code], nil
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: structs in structs, %d deep", errProtocol, depth)
	}
	name, size, n := c.text(), c.U64(), c.count(20)
	if c.Bad() || size == 0 || size > 1<<30 {
		return nil, fmt.Errorf("%w: struct %.100q of %d bytes", errProtocol, name, size)
	}
	var fields []reflect.StructField
	at := uint64(0)
	seen := make(map[string]bool)
	pad := func(to uint64) {
		if to > at {
			fields = append(fields, reflect.StructField{Name: "_", PkgPath: pkgPath, Type: reflect.ArrayOf(int(to-at), basic[5])})
			at = to
		}
	}
	for range n {
		field, off := c.text(), c.U64()
		dims, err := readDims(c)
		if err != nil {
			return nil, err
		}
		t, err := readType(c, depth+1)
		if err != nil {
			return nil, err
		}
		if t, err = arrayOf(t, dims); err != nil {
			return nil, err
		}
		if c.Bad() || off < at || off > size || uint64(t.Size()) > size-off || !isName(field) || seen[field] {
			return nil, fmt.Errorf("%w: member %.100q of struct %.100q", errProtocol, field, name)
		}
		if off%uint64(t.Align()) != 0 {
			return nil, fmt.Errorf("struct %s: member %s at offset %d is not aligned to %d bytes; packed structs cannot be protected member by member: use CAIRN_BYTES", name, field, off, t.Align())
		}
		seen[field] = true
		pad(off)
		f := reflect.StructField{Name: field, Type: t}
		if r, _ := utf8.DecodeRuneInString(field); !unicode.IsUpper(r) {
			f.PkgPath = pkgPath
		}
		fields = append(fields, f)
		at = off + uint64(t.Size())
	}
	pad(size)
	t := reflect.StructOf(fields)
	if uint64(t.Size()) != size {
		return nil, fmt.Errorf("struct %s has %d bytes, and its members make %d", name, size, t.Size())
	}
	return t, nil
}

// pkgPath is the package of members with names that Go does not export.
const pkgPath = "c"

// isName reports whether s can name a member.
func isName(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != "" && s != "_" && len(s) <= 255
}

func readDims(c *cursor) ([]uint64, error) {
	n := c.count(8)
	if n > maxDims {
		return nil, fmt.Errorf("%w: %d dimensions", errProtocol, n)
	}
	dims := make([]uint64, n)
	for i := range dims {
		dims[i] = c.U64()
	}
	return dims, nil
}

// arrayOf is the type of an array of elements, row by row.
func arrayOf(t reflect.Type, dims []uint64) (reflect.Type, error) {
	size := uint64(t.Size())
	for _, d := range dims {
		if d > math.MaxInt32<<16 || d > 0 && size > maxBytes/d {
			return nil, fmt.Errorf("%w: an array of %v elements", errProtocol, dims)
		}
		size *= max(d, 1)
	}
	for i := len(dims) - 1; i >= 0; i-- {
		t = reflect.ArrayOf(int(dims[i]), t)
	}
	return t, nil
}
