package graph

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"

	"github.com/cairnrun/cairn/internal/hdf5"
)

// Root is a variable of the program. Ptr is a *T and not nil.
type Root struct {
	Name string
	Ptr  any
}

// Env connects the package to the rest of the run. Every field is optional.
type Env struct {
	FileID func(f *os.File) (id int, ok bool) // used when saving: the run's number of a file
	FileOf func(id int) (*os.File, error)     // used when restoring
	Types  []reflect.Type                     // registered by the user
	Run    any                                // for Coder.Run
}

// Image is the state of all roots. Everything except the pieces of the pools is
// plain data; the caller chooses how to store it.
type Image struct {
	Vars    []Var     `json:"vars"`
	Types   []DynType `json:"types,omitempty"`
	Regions []Region  `json:"-"` // see PackRegions
	Pools   []Pool    `json:"pools"`
	Names   []Name    `json:"-"` // of arrays, in programs saved as a whole
	firsts  []uint64  // see Region
	rows    [][]int   // the rows of Regions of each pool, once known: see Only
	was     []uint64  // the number that the first region of each row had: see Only
}

// Var is a root.
type Var struct {
	Name   string `json:"name"`
	Type   string `json:"type"`           // description of its static type
	Region uint64 `json:"reg"`            // the region that it lies in
	Off    uint64 `json:"off,omitempty"`  // offset in the region, in slots; not 0 only for a root inside another
	Data   uint64 `json:"data,omitempty"` // for a slice of pointer-free elements: the region of its array, plus 1
}

// DynType is a type found in an interface.
type DynType struct {
	Name string `json:"name"`
	Type string `json:"type"` // description
}

// Region is Count consecutive elements of a pool. A row of Image.Regions
// describes Repeat such regions, with consecutive places and consecutive
// numbers.
type Region struct {
	Pool   int32 // index of the pool, or Unused, or NextSlots
	Repeat uint32
	Start  uint64
	Count  uint64
}

// Values of Region.Pool that are not pools.
const (
	Unused    int32 = -1 // these numbers are not used
	NextSlots int32 = -2 // these numbers continue the number before them, each 1<<32 slots further on
)

// PackRegions flattens r to three numbers each.
func PackRegions(r []Region) []uint64 {
	u := make([]uint64, 0, 3*len(r))
	for _, r := range r {
		u = append(u, uint64(uint32(r.Pool))|uint64(r.Repeat)<<32, r.Start, r.Count)
	}
	return u
}

// UnpackRegions is the inverse of PackRegions. In the first version of the
// format there was no Repeat; it is 0 there.
func UnpackRegions(u []uint64) ([]Region, error) {
	if len(u)%3 != 0 {
		return nil, fmt.Errorf("%w: %d numbers for regions", ErrInvalid, len(u))
	}
	r := make([]Region, len(u)/3)
	for i := range r {
		pool := int32(uint32(u[3*i]))
		if pool < NextSlots {
			return nil, fmt.Errorf("%w: region %d is in pool %d", ErrInvalid, i, uint32(pool))
		}
		r[i] = Region{pool, max(uint32(u[3*i]>>32), 1), u[3*i+1], u[3*i+2]}
	}
	return r, nil
}

// Region returns the region with a number, and whether it exists.
func (img *Image) Region(num uint64) (Region, bool) {
	if len(img.firsts) != len(img.Regions) {
		img.firsts = make([]uint64, len(img.Regions))
		n := uint64(0)
		for i, r := range img.Regions {
			img.firsts[i] = n
			n += uint64(r.Repeat)
		}
	}
	i := sort.Search(len(img.firsts), func(i int) bool { return img.firsts[i] > num }) - 1
	if i < 0 {
		return Region{}, false
	}
	r := img.Regions[i]
	if num-img.firsts[i] >= uint64(r.Repeat) || r.Pool < 0 || int(r.Pool) >= len(img.Pools) {
		return Region{}, false
	}
	r.Start += (num - img.firsts[i]) * r.Count
	r.Repeat = 1
	return r, true
}

// Only returns the image of variable i alone. pools are the indices of the
// pools whose Var is i. It returns nil if the variable lies in another one, or
// if its types are those of another variable. If the variable refers to memory
// of other variables, or to types in interfaces, the image cannot be restored.
func (img *Image) Only(i int, pools []int) *Image {
	if img.rows == nil {
		img.rows = make([][]int, len(img.Pools))
		for k, r := range img.Regions {
			if r.Pool >= 0 && int(r.Pool) < len(img.Pools) {
				img.rows[r.Pool] = append(img.rows[r.Pool], k)
			}
		}
	}
	var rows []int
	one := &Image{Vars: []Var{img.Vars[i]}}
	place := make(map[int32]int32, len(pools))
	for _, k := range pools {
		p := img.Pools[k]
		if p.Owner != i {
			return nil
		}
		p.Var, p.Owner = 0, 0
		place[int32(k)] = int32(len(one.Pools))
		one.Pools = append(one.Pools, p)
		rows = append(rows, img.rows[k]...)
	}
	img.Region(0) // computes firsts
	slices.Sort(rows)
	for _, k := range rows {
		for n := k; n == k || n < len(img.Regions) && img.Regions[n].Pool == NextSlots; n++ {
			r := img.Regions[n]
			if r.Pool != NextSlots {
				r.Pool = place[r.Pool]
			}
			one.Regions = append(one.Regions, r)
			one.was = append(one.was, img.firsts[n])
		}
	}
	v := &one.Vars[0]
	var ok bool
	if v.Region, ok = one.number(v.Region); !ok || v.Off != 0 {
		return nil
	}
	if v.Data > 0 {
		if v.Data, ok = one.number(v.Data - 1); !ok {
			return nil
		}
		v.Data++
	}
	return one
}

// number returns the number that a region has in an image that Only has made.
func (img *Image) number(was uint64) (uint64, bool) {
	i := sort.Search(len(img.was), func(i int) bool { return img.was[i] > was }) - 1
	if i < 0 || was-img.was[i] >= uint64(img.Regions[i].Repeat) {
		return 0, false
	}
	img.Region(0)
	return img.firsts[i] + was - img.was[i], true
}

// Pool is a sequence of elements of one type: all regions of that type that
// were reached first from the same root.
type Pool struct {
	Var   int       `json:"var"`           // index of the root that reached it first
	Owner int       `json:"own"`           // the type that leads to the element type: that of Vars[Owner], or of Types[^Owner]
	Nth   int       `json:"nth"`           // index of the element type among the types that the owner leads to
	Elem  string    `json:"elem"`          // name of the element type
	Form  hdf5.Type `json:"form"`          // form of one element; Size 0: nothing to store
	Count uint64    `json:"n"`             // elements
	Shape []uint64  `json:"dim,omitempty"` // a natural shape of Count elements, nil: a single value
	Text  bool      `json:"txt,omitempty"` // bytes that are all reached as strings
	// Pointers says that the pool is encoded, and Pieces is one fresh buffer,
	// valid until the next Collect. Otherwise Pieces are live memory.
	Pointers bool     `json:"ptr,omitempty"`
	Remote   bool     `json:"-"` // the pieces are addresses of a mem.Remote, which stand for bytes elsewhere
	Dataset  int      `json:"-"` // which dataset of a file holds the elements; only the caller of Prepare uses it
	Pieces   [][]byte `json:"-"`
	// Copy, if not nil, is a copy of the bytes that nothing changes; Pieces are
	// parts of it. See Copies.
	Copy []byte `json:"-"`
	// Gather, if not nil, replaces Pieces: it encodes the bytes of the pool
	// from off on. off and the length of dst are multiples of the element size.
	// Several goroutines may call it at the same time, until the next Collect.
	// The roots must not change meanwhile.
	Gather func(dst []byte, off int64) error `json:"-"`
}

// Bytes is the size of the pool's elements in its form.
func (p *Pool) Bytes() uint64 { return p.Count * uint64(p.Form.Size) }

// ErrInvalid is wrapped by all errors about images that Collect cannot have
// made.
var ErrInvalid = errors.New("damaged or foreign state")

// UnsupportedError reports a value that cannot be saved.
type UnsupportedError struct {
	Path   string // as in Go: model.layers[3].done
	Type   string
	Reason string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s (%s) cannot be saved: %s", e.Path, e.Type, e.Reason)
}

// Handle reports whether the value is a handle of something outside the
// program, or memory of unknown content: a program can make it again.
func (e *UnsupportedError) Handle() bool { return handleReasons[e.Reason] }

// MismatchError reports a variable or dynamic type that differs between the
// checkpoint and the program.
type MismatchError struct {
	Name   string // name of the variable or type
	Path   string // the place in it, starting with Name
	Detail string
	// Added: only the program has the variable. Removed: only the checkpoint
	// has it.
	Added, Removed bool
}

func (e *MismatchError) Error() string { return e.Path + ": " + e.Detail }
