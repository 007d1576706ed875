package device

import "github.com/cairnrun/cairn/internal/driver"

// region is the bytes of an array or view: planes of rows of width bytes each.
// Contiguous bytes are one row.
type region struct {
	lo           int64 // first byte, in the memory
	width        int64
	rows, planes int64
	row, plane   int64 // from one to the next
	unit         int64 // bytes of an element
}

// region returns where the array's bytes are.
func (a *Array[T]) region() region {
	elem := sizeOf[T]()
	g := region{lo: a.lo, width: a.hi - a.lo, rows: 1, planes: 1, unit: elem}
	if a.strides == nil {
		return g
	}
	g.width = elem
	for i := len(a.dims) - 1; i >= 0; i-- {
		n, s := int64(a.dims[i]), a.strides[i]
		switch {
		case n == 1:
		case g.rows == 1 && s == g.width:
			g.width *= n
		case g.rows == 1 && g.planes == 1:
			g.rows, g.row = n, s
		case g.planes == 1 && s == g.rows*g.row:
			g.rows *= n
		default:
			g.planes, g.plane = n, s
		}
	}
	return g
}

// contiguous reports whether the bytes have no gaps.
func (g *region) contiguous() bool { return g.rows == 1 && g.planes == 1 }

// size returns the number of bytes, without gaps.
func (g *region) size() int64 { return g.width * g.rows * g.planes }

// hi returns the end of the last byte.
func (g *region) hi() int64 {
	return g.lo + (g.planes-1)*g.plane + (g.rows-1)*g.row + g.width
}

// before returns how many bytes of the region are before byte off of the
// memory.
func (g *region) before(off int64) int64 {
	x := off - g.lo
	if x <= 0 {
		return 0
	}
	var p, r int64
	if g.planes > 1 {
		p = min(x/g.plane, g.planes-1)
		x -= p * g.plane
	}
	if g.rows > 1 {
		r = min(x/g.row, g.rows-1)
		x -= r * g.row
	}
	return (p*g.rows+r)*g.width + min(x, g.width)
}

// at returns where byte i of the region is in the memory.
func (g *region) at(i int64) int64 {
	w := i / g.width
	return g.lo + w/g.rows*g.plane + w%g.rows*g.row + i%g.width
}

// part is a part of a region: a block in the memory, which is packed elsewhere.
type part struct {
	off   int64 // in the memory
	at    int64 // in the region without gaps
	block driver.Rect
}

// contiguous reports whether the part has no gaps.
func (p *part) contiguous() bool { return p.block.Rows == 1 && p.block.Planes == 1 }

// layout returns how the part lies in a buffer that begins at byte lo of the
// memory.
func (p *part) layout(g *region, lo int64) driver.Layout {
	return driver.Layout{Off: p.off - lo, Row: g.row, Plane: g.plane}
}

// each calls f for bytes from…to of the region without gaps, in parts that are
// blocks.
func (g *region) each(from, to int64, f func(part) error) error {
	for from < to {
		run, c := from/g.width, from%g.width
		p := part{off: g.at(from), at: from, block: driver.Rect{Width: g.width, Rows: 1, Planes: 1}}
		runs := (to - from) / g.width
		switch {
		case c != 0 || runs == 0:
			p.block.Width = min(g.width-c, to-from)
		case run%g.rows == 0 && runs >= g.rows:
			p.block.Rows, p.block.Planes = g.rows, runs/g.rows
		default:
			p.block.Rows = min(runs, g.rows-run%g.rows)
		}
		if err := f(p); err != nil {
			return err
		}
		from += p.block.Bytes()
	}
	return nil
}

// copyRows copies the rows of a part between host memory that begins at byte lo
// of the memory, and packed memory that begins at byte at of the region.
func (g *region) copyRows(p part, host []byte, lo int64, packed []byte, at int64, in bool) {
	b := p.block
	b.Src, b.Dst = p.layout(g, lo), b.Packed(p.at-at)
	b.Each(func(src, dst int64) {
		if in {
			copy(host[src:src+b.Width], packed[dst:])
		} else {
			copy(packed[dst:dst+b.Width], host[src:])
		}
	})
}
