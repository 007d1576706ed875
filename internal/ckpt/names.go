package ckpt

import (
	"slices"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/hdf5"
)

// A view shows an array under its name, as a virtual dataset. Its elements are
// a part of a dataset.
type view struct {
	name *graph.Name
	path string
	of   *Dataset
	spec hdf5.DatasetSpec
}

// NamePath returns the path of the view of an array.
func NamePath(n *graph.Name) string { return "MemBlocks/" + n.Name }

// NameOf returns the dataset that has the elements of an array, and how many
// there are. It returns -1 if none has.
func (h *Header) NameOf(n *graph.Name) (dataset int, count uint64) {
	dataset = slices.IndexFunc(h.Datasets, func(d Dataset) bool { return d.Pool == n.Pool && d.Pool >= 0 })
	if dataset < 0 {
		return -1, 0
	}
	all := h.Datasets[dataset].Count() // Check has made sure that it fits
	count = 1
	for _, m := range n.Dims {
		if m == 0 || m > all/count {
			return -1, 0
		}
		count *= m
	}
	if len(n.Dims) == 0 || n.Start > all-count {
		return -1, 0
	}
	return dataset, count
}

// view returns the view of a name. Its path is empty if HDF5 cannot show it:
// the dataset is a text, or the array begins and ends inside its rows. ok says
// that the name is valid.
func (h *Header) view(n *graph.Name) (v view, ok bool) {
	i, count := h.NameOf(n)
	if i < 0 {
		return v, false
	}
	d := &h.Datasets[i]
	v = view{name: n, of: d}
	t, err := hdf5.ParseType(d.Type)
	if err != nil || len(d.Dims) == 0 || t.Class == hdf5.String {
		return v, err == nil
	}
	from := hdf5.Box{Start: make([]uint64, len(d.Dims)), Count: slices.Clone(d.Dims)}
	row := uint64(1)
	for _, m := range d.Dims[1:] {
		row *= m
	}
	at := n.Start
	switch {
	case at%row == 0 && count%row == 0:
		from.Start[0], from.Count[0] = at/row, count/row
	case len(d.Dims) == 2 && at%row+count <= row:
		from.Start[0], from.Count[0] = at/row, 1
		from.Start[1], from.Count[1] = at%row, count
	default:
		return v, true
	}
	v.path = NamePath(n)
	v.spec = hdf5.DatasetSpec{Type: t, Dims: n.Dims, Virtual: []hdf5.Mapping{
		{File: ".", Path: "/" + d.Path, Start: make([]uint64, len(n.Dims)), Count: n.Dims, From: &from},
	}}
	return v, true
}

// views returns the views that the file has. A name that is taken has none.
func (h *Header) views() (out []view) {
	taken := make(map[string]bool)
	for i := range h.Datasets {
		taken[h.Datasets[i].Path] = true
		if v := h.Datasets[i].Var; v != "" {
			taken["MemBlocks/"+v] = true
		}
	}
	for i := range h.Names {
		if v, ok := h.view(&h.Names[i]); ok && v.path != "" && !taken[v.path] {
			taken[v.path] = true
			out = append(out, v)
		}
	}
	return out
}
