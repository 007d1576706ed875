package hdf5

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Import adds everything that a file has below a group. The chunks of its
// datasets are not copied: all bytes of the file are part of the one that is
// being written, from offset shift on. Other contents become part of the
// metadata. source returns the group that has the content of another file to
// which virtual datasets refer, or "" if none has.
func (w *Writer) Import(group string, f *File, shift uint64, source func(file string) string) error {
	if err := w.Group(group); err != nil {
		return err
	}
	return w.importGroup(group, "", f, f.root, shift, source, 0)
}

const maxDepth = 64 // of groups that are imported

// importGroup adds what the group of a file at an address has.
func (w *Writer) importGroup(group, path string, f *File, at, shift uint64, source func(string) string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("hdf5: group %q: %w: too deep", path, ErrUnsupported)
	}
	g, err := f.links(at)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(g.find)) {
		l := g.find[name]
		if l.kind != linkHard {
			return fmt.Errorf("hdf5: link %q: %w", path+"/"+name, ErrUnsupported)
		}
		from := path + "/" + name
		if _, err := f.links(l.addr); errors.Is(err, ErrNotFound) {
			err = w.importDataset(group, from, f, shift, source)
			if err != nil {
				return err
			}
		} else if err != nil {
			return err
		} else {
			if err := w.Group(group + from); err != nil {
				return err
			}
			if err := w.importGroup(group, from, f, l.addr, shift, source, depth+1); err != nil {
				return err
			}
		}
		err := f.attributes(from, func(a rawAttr) error {
			v, err := f.value(a)
			if err == nil {
				err = w.Attr(group+from, a.name, v)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// importDataset adds a dataset of a file.
func (w *Writer) importDataset(group, path string, f *File, shift uint64, source func(string) string) error {
	d, err := f.Dataset(path)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(d.fill, func(b byte) bool { return b != 0 }) {
		return fmt.Errorf("hdf5: dataset %q: %w: its fill value is not zero", path, ErrUnsupported)
	}
	spec := DatasetSpec{Type: d.Type, Dims: d.Dims, Chunk: d.Chunk, Filters: d.Filters}
	switch d.layout.class {
	case layoutChunked:
		chunks, err := d.Chunks()
		if err != nil {
			return err
		}
		for _, c := range chunks {
			c.Addr += shift
			spec.Chunks = append(spec.Chunks, c)
		}
	case layoutVirtual:
		for _, m := range d.Virtual {
			if m.File == "." {
				m.Path = group + m.Path
			} else if in := source(m.File); in != "" {
				m.File, m.Path = ".", in+m.Path
			}
			spec.Virtual = append(spec.Virtual, m)
		}
	default:
		spec.Data = make([]byte, d.Size())
		if len(spec.Data) > 0 {
			if _, err := d.ReadAt(spec.Data, 0); err != nil {
				return err
			}
		}
	}
	return w.Dataset(group+path, spec)
}
