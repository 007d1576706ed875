package driver

import "fmt"

// Rect is a block of Planes times Rows runs of Width bytes each, which lies in
// one way at its source and in another one at its destination.
type Rect struct {
	Width, Rows, Planes int64
	Src, Dst            Layout
}

// Layout is how a Rect lies in a buffer.
type Layout struct {
	Off   int64 // of the first byte
	Row   int64 // from the begin of a row to that of the next one
	Plane int64 // the same for planes
}

// Packed returns the layout of a block without gaps.
func (r *Rect) Packed(off int64) Layout { return Layout{off, r.Width, r.Width * r.Rows} }

// Bytes returns the number of bytes of the block.
func (r *Rect) Bytes() int64 { return r.Width * r.Rows * r.Planes }

// Extent returns the range of bytes in a buffer from the first byte of the
// block to its last one: off…off+n.
func (r *Rect) Extent(l Layout) (off, n int64) {
	return l.Off, (r.Planes-1)*l.Plane + (r.Rows-1)*l.Row + r.Width
}

// Check returns the text of an error if the block is impossible, or "".
func (r *Rect) Check() string {
	if r.Width <= 0 || r.Rows <= 0 || r.Planes <= 0 {
		return fmt.Sprintf("a block of %d × %d × %d bytes; all sizes are at least 1", r.Planes, r.Rows, r.Width)
	}
	for _, l := range []Layout{r.Src, r.Dst} {
		if l.Off < 0 || r.Rows > 1 && l.Row < r.Width || r.Planes > 1 && (l.Plane < (r.Rows-1)*l.Row+r.Width || l.Row <= 0 || l.Plane%l.Row != 0) {
			return fmt.Sprintf("rows of %d bytes at distances of %d, and planes at distances of %d: rows and planes must not overlap, and a plane must be a multiple of rows", r.Width, l.Row, l.Plane)
		}
	}
	return ""
}

// Each calls f for each row.
func (r *Rect) Each(f func(src, dst int64)) {
	for z := range r.Planes {
		for y := range r.Rows {
			f(r.Src.Off+z*r.Src.Plane+y*r.Src.Row, r.Dst.Off+z*r.Dst.Plane+y*r.Dst.Row)
		}
	}
}
