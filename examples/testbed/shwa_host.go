package main

import "github.com/cairnrun/cairn/device"

// The kernels of shwa.cl in Go.

func shwaLimit(w *device.Work) {
	peak, n := device.Slice[float32](w, 0), int(device.Value[int32](w, 1))
	old, clock := device.Slice[float32](w, 3), device.Slice[float32](w, 4)
	size, rise := device.Value[float32](w, 5), device.Value[float32](w, 6)
	fastest := float32(0)
	for _, p := range peak[:n] {
		fastest = larger(fastest, p)
	}
	copy(clock, old)
	tick(clock, fastest, size, rise)
}

func shwaFluxes(w *device.Work) {
	u, bed, clock := device.Slice[float32](w, 0), device.Slice[float32](w, 1), device.Slice[float32](w, 2)
	rate, gate := device.Slice[float32](w, 3), device.Slice[float32](w, 4)
	arg := func(i int) int { return int(device.Value[int32](w, i)) }
	nx, rows, skip, view, open := arg(5), arg(6), arg(7), arg(8), arg(9) != 0
	lo, hi := w.Range(1)
	hi = min(hi, rows)
	if lo >= hi {
		return
	}
	// Cells of this row and of the next one, and the flows into this row
	// from the row before.
	line := func(to []water, y int) {
		row := u[4*y*nx:][:4*nx]
		for i := range to {
			to[i] = still(row[i], row[nx+i], row[2*nx+i], row[3*nx+i], bed[y*nx+i])
		}
	}
	cells, next, south := make([]water, nx), make([]water, nx), make([]flow, nx)
	line(cells, lo+skip)
	if lo+skip > 0 {
		line(next, lo+skip-1)
	}
	for i, c := range cells {
		c = c.turned()
		if lo+skip > 0 {
			south[i] = face(next[i].turned(), c)
		} else {
			south[i] = face(c.mirrored(), c)
		}
	}
	for j := lo; j < hi; j++ {
		wall := j+skip+1 == view
		if !wall {
			line(next, j+skip+1)
		}
		to := rate[4*j*nx:][:4*nx]
		sea, river := cells[0].mirrored(), cells[nx-1].mirrored()
		if open {
			sea, river = cells[0].outside(clock[clockTide]), cells[nx-1].outside(clock[clockRiver])
		}
		west := face(sea, cells[0])
		gate[3*j] = west.mass
		for i, c := range cells {
			behind := river
			if i+1 < nx {
				behind = cells[i+1]
			}
			east := face(c, behind)
			c = c.turned()
			if wall {
				behind = c.mirrored()
			} else {
				behind = next[i].turned()
			}
			north := face(c, behind)
			to[i], to[nx+i], to[2*nx+i], to[3*nx+i] = change(west, east, south[i], north)
			west, south[i] = east, north
		}
		gate[3*j+1] = west.mass
		cells, next = next, cells
	}
}

func shwaUpdate(w *device.Work) {
	u, rate, clock := device.Slice[float32](w, 0), device.Slice[float32](w, 1), device.Slice[float32](w, 2)
	gate, peak := device.Slice[float32](w, 3), device.Slice[float32](w, 4)
	arg := func(i int) int { return int(device.Value[int32](w, i)) }
	nx, rows, first, si, sj, r2 := arg(6), arg(7), arg(8), arg(9), arg(10), arg(11)
	groups := (nx + shwaGroup - 1) / shwaGroup
	lo, hi := w.Range(1)
	for j := lo; j < min(hi, rows); j++ {
		at, by := u[4*j*nx:][:4*nx], rate[4*j*nx:][:4*nx]
		dj := j + first - sj
		for g := range groups {
			most := float32(0)
			for i := g * shwaGroup; i < min(nx, (g+1)*shwaGroup); i++ {
				var speed float32
				at[i], at[nx+i], at[2*nx+i], at[3*nx+i], speed = settle(at[i], at[nx+i], at[2*nx+i], at[3*nx+i],
					by[i], by[nx+i], by[2*nx+i], by[3*nx+i], clock, (i-si)*(i-si)+dj*dj <= r2)
				most = larger(most, speed)
			}
			peak[j*groups+g] = most
		}
		gate[3*j+2] += float32(clock[clockStep] * (gate[3*j] - gate[3*j+1]))
	}
}
