package mpi

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"sync"

	"github.com/cairnrun/cairn/internal/p2p"
)

// Ranks may run on machines of different byte order. A message has the byte
// order of its sender. The receiver swaps the bytes of each element, as its own
// element type requires.

// settled makes a received message readable: it checks that b holds elements of
// type T, and swaps their bytes if necessary.
func settled[T any](b []byte, s Status, st p2p.Status) error {
	if size := sizeOf[T](1); !st.OtherByteOrder && !st.OtherIntSize && (size == 0 || s.Bytes%size == 0) {
		return nil // nearly always
	}
	return settle(reflect.TypeFor[T](), b, s, st)
}

// settle is settled for a type that is not known at compile time.
func settle(t reflect.Type, b []byte, s Status, st p2p.Status) error {
	if st.OtherIntSize && !portable(t) {
		return fmt.Errorf("mpi: %w: elements of type %s from %s have another memory layout there, because an int has another size; use int32 or int64, and put the largest fields of structs first", ErrArgument, t, whom(s.Source, s.Tag))
	}
	size := int(t.Size())
	if size > 0 && s.Bytes%size != 0 {
		return fmt.Errorf("mpi: %w: a message of %d bytes from %s cannot be received as elements of type %s, which have %d bytes", ErrArgument, s.Bytes, whom(s.Source, s.Tag), t, size)
	}
	if st.OtherByteOrder {
		swapperOf(t).swap(b[:min(s.Bytes, len(b))])
	}
	return nil
}

// swapper changes the byte order of values of one type.
type swapper struct {
	size   int
	width  int // the value consists of words of this many bytes; 1: nothing to do; 0: see elem or fields
	elem   *swapper
	fields []swapField
}

type swapField struct {
	at int
	*swapper
}

var swappers sync.Map // of reflect.Type

func swapperOf(t reflect.Type) *swapper {
	if s, ok := swappers.Load(t); ok {
		return s.(*swapper)
	}
	s := newSwapper(t)
	swappers.Store(t, s)
	return s
}

func newSwapper(t reflect.Type) *swapper {
	s := &swapper{size: int(t.Size())}
	switch t.Kind() {
	case reflect.Array:
		s.elem = newSwapper(t.Elem())
		s.width = s.elem.width
	case reflect.Struct:
		s.width = 1
		for i := range t.NumField() {
			f := t.Field(i)
			part := swapField{int(f.Offset), newSwapper(f.Type)}
			if part.width == 1 || part.size == 0 {
				continue
			}
			s.fields = append(s.fields, part)
		}
		if len(s.fields) > 0 {
			s.width = s.uniform()
		}
	case reflect.Complex64, reflect.Complex128:
		s.width = s.size / 2
	default:
		s.width = s.size
	}
	return s
}

// uniform returns the width of the words that a struct consists of, or 0 if
// they differ.
func (s *swapper) uniform() int {
	w, covered := s.fields[0].width, 0
	for _, f := range s.fields {
		if f.width != w || w == 0 || f.at%w != 0 {
			return 0
		}
		covered += f.size
	}
	if covered != s.size {
		return 0 // there is padding, or there are fields of single bytes
	}
	return w
}

// swap changes the byte order of all values in b, which holds whole values.
func (s *swapper) swap(b []byte) {
	switch {
	case s.width > 1:
		swapWords(b, s.width)
	case s.width == 1 || s.size == 0:
	case s.elem != nil:
		s.elem.swap(b)
	default:
		for ; len(b) >= s.size; b = b[s.size:] {
			for _, f := range s.fields {
				f.swap(b[f.at:][:f.size])
			}
		}
	}
}

func swapWords(b []byte, width int) {
	le := binary.LittleEndian
	switch width {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			le.PutUint32(b, bits.ReverseBytes32(le.Uint32(b)))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			le.PutUint64(b, bits.ReverseBytes64(le.Uint64(b)))
		}
	}
}

// portable reports whether values of a type have the same memory layout on
// machines with 32-bit and with 64-bit ints, apart from the byte order.
func portable(t reflect.Type) bool {
	other := 4 // the alignment of 64-bit values on the other machine
	if bits.UintSize == 32 {
		other = 8
	}
	_, _, same := layoutOf(t, other)
	return same
}

// layoutOf returns size and alignment of a type on machines where no alignment
// exceeds most bytes, and whether the layout there is the same as here.
func layoutOf(t reflect.Type, most int) (size, align int, same bool) {
	switch t.Kind() {
	case reflect.Int, reflect.Uint:
		return most, most, false
	case reflect.Array:
		size, align, same = layoutOf(t.Elem(), most)
		return size * t.Len(), align, same
	case reflect.Struct:
		align, same = 1, true
		up := func(n, to int) int { return (n + to - 1) / to * to }
		for i := range t.NumField() {
			f := t.Field(i)
			n, a, as := layoutOf(f.Type, most)
			size, align = up(size, a), max(align, a)
			same = same && as && size == int(f.Offset)
			if size += n; n == 0 && i == t.NumField()-1 && size > 0 {
				size++ // so that nothing after it has the same address
			}
		}
		size = up(size, align)
		return size, align, same && size == int(t.Size())
	case reflect.Complex64, reflect.Complex128:
		return int(t.Size()), min(int(t.Size())/2, most), true
	}
	return int(t.Size()), min(int(t.Size()), most), true
}
