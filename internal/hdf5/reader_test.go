package hdf5

import (
	"fmt"
	"slices"
)

// Attrs returns the names of an object's attributes, sorted. It includes
// attributes whose values Attr cannot return.
func (f *File) Attrs(path string) ([]string, error) {
	var names []string
	err := f.attributes(path, func(a rawAttr) error {
		names = append(names, a.name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("attributes of %q: %w", path, err)
	}
	slices.Sort(names)
	return names, nil
}

// Contiguous returns the file offset of the bytes if the file holds all of them
// in one piece. It does not for a dataset that is empty or was never written.
func (d *Dataset) Contiguous() (addr uint64, ok bool) {
	if d.layout.class != layoutContiguous || d.layout.addr == undef {
		return 0, false
	}
	return d.layout.addr, true
}

// List returns the names in a group, sorted. It includes soft and external
// links, wherever they lead.
func (f *File) List(path string) ([]string, error) {
	at, err := f.lookup(path)
	var g *links
	if err == nil {
		g, err = f.links(at)
	}
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", path, err)
	}
	names := make([]string, 0, len(g.find))
	for name := range g.find {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Fletcher32 appends a checksum, which the reader verifies.
func Fletcher32() Filter { return Filter{ID: FilterFletcher32} }
