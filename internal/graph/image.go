package graph

import (
	"errors"
	"fmt"
	"os"
	"reflect"
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
	firsts  []uint64  // see Region
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
// pools whose Var is i. It returns nil if the variable is not in one region that
// holds nothing else, or has pointers.
func (img *Image) Only(i int, pools []int) *Image {
	v := img.Vars[i]
	r, ok := img.Region(v.Region)
	if !ok || len(pools) != 1 || int(r.Pool) != pools[0] || v.Off != 0 || v.Data != 0 {
		return nil
	}
	p := img.Pools[r.Pool]
	if p.Pointers || p.Owner != i || r.Start != 0 || r.Count != p.Count {
		return nil
	}
	v.Region, p.Var, p.Owner, r.Pool = 0, 0, 0, 0
	return &Image{Vars: []Var{v}, Regions: []Region{r}, Pools: []Pool{p}}
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
