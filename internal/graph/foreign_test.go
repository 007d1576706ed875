package graph

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/hdf5"
)

// foreignForm returns the form that another machine would write: the other byte
// order, packed, fields in reverse order, and ints of 4 bytes if small is set.
func foreignForm(t hdf5.Type, small bool) hdf5.Type {
	switch t.Class {
	case hdf5.Int, hdf5.Uint, hdf5.Float:
		if t.Size > 1 {
			t.Big = !t.Big
		}
		if small && t.Size == 8 && t.Class == hdf5.Int {
			t.Size = 4
		}
	case hdf5.Array:
		e := foreignForm(*t.Elem, small)
		n := t.Size / t.Elem.Size
		t.Elem, t.Size = &e, n*e.Size
	case hdf5.Compound:
		u := hdf5.Type{Class: hdf5.Compound, Size: 3}
		for i := len(t.Fields) - 1; i >= 0; i-- {
			f := t.Fields[i]
			f.Type = foreignForm(f.Type, small && f.Name != "sec")
			f.Offset = u.Size
			u.Size += f.Type.Size
			u.Fields = append(u.Fields, f)
		}
		t = u
	}
	return t
}

func translate(from, to hdf5.Type, src, dst []byte) {
	switch from.Class {
	case hdf5.Array:
		for i := range from.Size / from.Elem.Size {
			translate(*from.Elem, *to.Elem, src[i*from.Elem.Size:], dst[i*to.Elem.Size:])
		}
	case hdf5.Compound:
		for _, f := range from.Fields {
			g := to.Fields[member(to, f.Name)]
			translate(f.Type, g.Type, src[f.Offset:], dst[g.Offset:])
		}
	default:
		for i := range to.Size {
			k := i
			if from.Big {
				k = from.Size - 1 - i
			}
			l := i
			if to.Big {
				l = to.Size - 1 - i
			}
			dst[l] = src[k]
		}
	}
}

func emigrate(t testing.TB, f *file, small bool) (*Image, [][]byte) {
	img, err := f.image()
	if err != nil {
		t.Fatal(err)
	}
	var data [][]byte
	for i := range img.Pools {
		p := &img.Pools[i]
		if p.Form.Size == 0 {
			data = append(data, nil)
			continue
		}
		form := foreignForm(p.Form, small)
		b := make([]byte, int(p.Count)*form.Size)
		for k := range int(p.Count) {
			translate(p.Form, form, f.data[i][k*p.Form.Size:], b[k*form.Size:])
		}
		p.Form = form
		data = append(data, b)
	}
	return img, data
}

// TestForeign_AllKinds restores values of all kinds from a machine with another
// byte order, and from one with 32-bit words.
func TestForeign_AllKinds(t *testing.T) {
	type all struct {
		a []float64
		b [][3]int32
		c []struct {
			x int8
			y int
			z [2]complex128
			w bool
		}
		d map[string]int
		e []any
		f *node
		g []string
		h time.Time
		i [4]uint16
		j []int
		k *float64
	}
	v := all{a: []float64{1, math.Inf(-1), 3}, b: [][3]int32{{1, 2, 3}, {-4, 5, 6}}, d: map[string]int{"x": 1, "y": -2}, e: []any{1, "s", 2.5, nil, &node{Val: 3}},
		f: &node{Val: -7, name: "n"}, g: []string{"", "abc"}, h: time.Now().Round(0), i: [4]uint16{1, 2}, j: []int{1, -2, math.MaxInt32}}
	v.c = make([]struct {
		x int8
		y int
		z [2]complex128
		w bool
	}, 3)
	v.c[1].x, v.c[1].y, v.c[2].z[1], v.c[2].w = -3, -70000, complex(1, -2), true
	v.f.Next = v.f
	v.k = &v.a[2]
	f := save(t, []Root{{"v", &v}}, nil)
	for _, small := range []bool{false, true} {
		img, data := emigrate(t, f, small)
		var w all
		if err := restore(img, data, []Root{{"v", &w}}, nil, Options{}); err != nil {
			t.Fatal(err)
		}
		if err := isomorphic(&v, &w); err != nil {
			t.Fatal(err)
		}
	}
	// A value that does not fit.
	x := []int16{1, 2}
	f = save(t, []Root{{"x", &x}}, nil)
	img, _ := f.image()
	for i := range img.Pools {
		if img.Pools[i].Elem == "int16" {
			img.Pools[i].Form = hdf5.Type{Class: hdf5.Int, Size: 8, Big: true}
			f.data[i] = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 5), math.MaxInt16+1)
		}
	}
	err := restore(img, f.data, []Root{{"x", &x}}, nil, Options{})
	want(t, err, "x: an integer of 8 bytes does not fit in 2")
	img.Pools[1].Form = hdf5.Type{Class: hdf5.Float, Size: 8}
	if _, err := Prepare([]Root{{"x", &x}}, img, nil, Options{}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// TestPool_Shapes checks the type and the dimensions of the datasets that
// values become.
func TestPool_Shapes(t *testing.T) {
	type pt struct{ x, y float64 }
	rows := make([][]float64, 5)
	for i := range rows {
		rows[i] = make([]float64, 7)
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{new(float64), "float64 <f8 []"},
		{&[]float64{1, 2}, "[]float64 {} []; float64 <f8 [2]"},
		{&[3][4]float64{}, "float64 <f8 [3 4]"},
		{&[][3]float32{{}, {}}, "[][3]float32 {} []; float32 <f4 [2 3]"},
		{&rows, "[][]float64 {} []; []float64 {} [5]; float64 <f8 [5 7]"},
		{&[]string{"ab", "cd"}, "[]string {} []; string {} [2]; uint8 |u1 [4] text"},
		{&[]pt{{}, {}}, `[]pt {} []; pt {"x":0<f8,"y":8<f8}16 [2]`},
		{&struct{ a, b []int32 }{make([]int32, 2), make([]int32, 3)}, "struct { a []int32; b []int32 } {} []; int32 <i4 [5]"},
		{&[2]complex64{}, `complex64 {"r":0<f4,"i":4<f4}8 [2]`},
		{new(struct{}), "struct { } [1]"},
	} {
		img, err := Collect([]Root{{"v", c.v}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, p := range img.Pools {
			form := p.Form.String()
			if p.Pointers {
				form = "{}"
			}
			x := strings.ReplaceAll(p.Elem, "github.com/cairnrun/cairn/internal/graph.", "")
			if p.Form.Size > 0 {
				x += " " + form
			}
			x += fmt.Sprint(" ", p.Shape)
			if p.Text {
				x += " text"
			}
			s = append(s, x)
		}
		if got := strings.Join(s, "; "); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestTarget_InPlace shows that an array keeps its memory when it is restored,
// unless two variables share it.
func TestTarget_InPlace(t *testing.T) {
	a, b := []float64{1, 2, 3}, []float64{4, 5}
	f := save(t, []Root{{"a", &a}, {"b", &b}}, nil)
	backing := make([]float64, 3)
	c, d := backing, make([]float64, 7)
	if err := f.load([]Root{{"a", &c}, {"b", &d}}, nil); err != nil {
		t.Fatal(err)
	}
	if &c[0] != &backing[0] || backing[2] != 3 || len(d) != 2 || cap(d) != 2 || d[1] != 5 {
		t.Error("not in place")
	}
	// Two roots share the array, so it is not restored in place.
	c, d = backing[:3:3], backing[1:3:3]
	if err := f.load([]Root{{"a", &c}, {"b", &d}}, nil); err != nil {
		t.Fatal(err)
	}
	if &c[0] == &backing[0] || &d[0] == &c[1] || c[2] != 3 || d[1] != 5 {
		t.Error("in place")
	}
}

// TestTarget_DamagedBools shows that a restored bool is true or false, whatever
// byte the checkpoint has.
func TestTarget_DamagedBools(t *testing.T) {
	v := struct {
		b []bool
		s []struct {
			n int
			f [2]bool
		}
		d bool
	}{b: make([]bool, 3), s: make([]struct {
		n int
		f [2]bool
	}, 2)}
	f := save(t, []Root{{"v", &v}}, nil)
	img, _ := f.image()
	for i, p := range img.Pools {
		if p.Pointers {
			f.data[i][p.Form.Fields[member(p.Form, "d")].Offset] = 7
			continue
		}
		for k := range f.data[i] {
			f.data[i][k] = 0x80
		}
	}
	if err := f.load([]Root{{"v", &v}}, nil); err != nil {
		t.Fatal(err)
	}
	if x := v.b[2]; *(*byte)(unsafe.Pointer(&x)) != 1 || *(*byte)(unsafe.Pointer(&v.s[1].f[1])) != 1 || *(*byte)(unsafe.Pointer(&v.d)) != 1 {
		t.Error("bools that are neither")
	}
}

// TestForeign_BigIntWords restores a big.Int from a machine with 32-bit words.
// It must keep its value or be refused; words must not be read as larger ones.
func TestForeign_BigIntWords(t *testing.T) {
	if reflect.TypeFor[big.Word]().Size() != 8 {
		t.Skip("words have 32 bits on this machine, too")
	}
	v := new(big.Int).Lsh(big.NewInt(3), 64) // the words 0 and 3
	f := save(t, []Root{{"v", v}}, nil)
	img, err := f.image()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for i := range img.Pools {
		if img.Pools[i].Elem != "math/big.Word" {
			continue
		}
		found = true
		img.Pools[i].Form = hdf5.Type{Class: hdf5.Uint, Size: 4}
		var words []byte
		for k := 0; k < len(f.data[i]); k += 8 {
			words = append(words, f.data[i][k:k+4]...)
		}
		f.data[i] = words
	}
	if !found {
		t.Fatal("the image has no pool of words")
	}
	w := new(big.Int)
	err = restore(img, f.data, []Root{{"v", w}}, nil, Options{})
	if want := new(big.Int).Lsh(big.NewInt(3), 32); err == nil && w.Cmp(want) != 0 {
		t.Errorf("restored %v without an error, want %v", w, want)
	}
}
