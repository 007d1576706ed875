package graph

import (
	"fmt"
	"sort"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// Target is a pool that the caller has to fill before it calls Finish, either
// by reading the pool's bytes into Pieces, one after the other, or by Fill.
type Target struct {
	Pool   int
	Direct bool // Pieces are the final memory
	Remote bool // the addresses stand for bytes elsewhere: see mem.Remote
	// Pieces receive the raw bytes of the pool. There are none for pointer-free
	// pools in a foreign form: use Fill.
	Pieces [][]byte
	b      *Builder
}

// Targets lists the pools that have to be filled.
func (b *Builder) Targets() []Target {
	var ts []Target
	for i := range b.pools {
		p, pool := &b.pools[i], &b.img.Pools[i]
		if pool.Form.Size == 0 || pool.Count == 0 || p.p == nil {
			continue
		}
		t := Target{Pool: i, Direct: p.direct, Remote: p.p.remote && p.direct, b: b}
		switch {
		case p.direct:
			t.Pieces = make([][]byte, 0, len(p.regions))
			for _, k := range p.regions {
				if g := &b.regs[k]; g.n > 0 {
					t.Pieces = append(t.Pieces, view(g.ptr, int(g.n)*int(p.p.size)))
				}
			}
		case p.p.enc:
			if p.scratch == nil {
				p.scratch = make([]byte, pool.Bytes())
			}
			t.Pieces = [][]byte{p.scratch}
		}
		ts = append(ts, t)
	}
	return ts
}

// Fill stores a part of the pool: the bytes of the file from off on. off and
// the length of src are multiples of the element size in the file. Parts may
// come in any order and concurrently.
func (t *Target) Fill(off int64, src []byte) error {
	p, pool := &t.b.pools[t.Pool], &t.b.img.Pools[t.Pool]
	size := pool.Form.Size
	if off < 0 || uint64(off) > pool.Bytes() || uint64(len(src)) > pool.Bytes()-uint64(off) || off%int64(size) != 0 || len(src)%size != 0 {
		return fmt.Errorf("bytes %d+%d are no elements of a pool of %d × %d bytes", off, len(src), pool.Count, size)
	}
	if p.p.enc {
		copy(p.scratch[off:], src)
		return nil
	}
	at := uint64(off) / uint64(size)
	i := sort.Search(len(p.regions), func(i int) bool {
		r := &t.b.regs[p.regions[i]]
		return r.start+r.n > at
	})
	for ; len(src) > 0; i++ {
		k := p.regions[i]
		g := &t.b.regs[k]
		if g.n == 0 {
			continue
		}
		skip := at - g.start
		n := min(g.n-skip, uint64(len(src)/size))
		dst := unsafe.Add(g.ptr, uintptr(skip)*p.p.size)
		part := src[:int(n)*size]
		if p.p.remote {
			r, off := mem.FindRemote(dst)
			if r == nil {
				return fmt.Errorf("%s: its memory is gone", t.b.img.Vars[pool.Var].Name)
			}
			host, err := r.Target(off, off+int64(n)*int64(p.p.size))
			if err != nil {
				return err
			}
			dst = unsafe.Pointer(unsafe.SliceData(host))
		}
		if p.direct {
			copy(view(dst, len(part)), part)
		} else if err := convert(p.ops, p.p.size, dst, part, size); err != nil {
			return fmt.Errorf("%s: %w", t.b.img.Vars[pool.Var].Name, err)
		}
		src, at = src[len(part):], at+n
	}
	return nil
}

// convert executes the steps without references for all elements in src.
func convert(ops []op, msize uintptr, dst unsafe.Pointer, src []byte, fsize int) error {
	for {
		if err := convertOne(ops, dst, src); err != nil {
			return err
		}
		if src = src[fsize:]; len(src) == 0 {
			return nil
		}
		dst = unsafe.Add(dst, msize)
	}
}

func convertOne(ops []op, mem unsafe.Pointer, file []byte) error {
	for i := range ops {
		o := &ops[i]
		dst, src := unsafe.Add(mem, o.moff), file[o.foff:]
		switch o.kind {
		case opLoop:
			for k := range o.n {
				if err := convertOne(o.sub, unsafe.Add(dst, uintptr(k)*o.mstep), src[k*o.fstep:]); err != nil {
					return err
				}
			}
		default:
			if err := o.scalar(dst, src); err != nil {
				return err
			}
		}
	}
	return nil
}

// scalar executes one step without a reference.
func (o *op) scalar(dst unsafe.Pointer, src []byte) error {
	switch o.kind {
	case opCopy:
		copy(view(dst, o.n), src)
	case opSwap:
		d := view(dst, o.n)
		for k := range d {
			d[k] = src[o.n-1-k]
		}
	case opInt:
		if !o.convertInt(dst, src) {
			return fmt.Errorf("an integer of %d bytes does not fit in %d", o.fsize, o.msize)
		}
	}
	return nil
}
