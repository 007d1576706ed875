package ckpt

import (
	"encoding/json"
	"slices"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/hdf5"
)

// metadata writes the metadata after the data, and then the superblock. It
// returns the size of the file and the digest of its header.
func (w *fileWriter) metadata(h *Header, tail Tail) (size int64, digest string, err error) {
	at := w.end.Load()
	super, meta, digest, err := buildMetadata(h, w.table, w.chunks, tail.Inline, uint64(at))
	if err != nil {
		return 0, "", err
	}
	if _, err := w.pending.WriteAt(meta, at); err != nil {
		return 0, "", err
	}
	size = at + int64(len(meta))
	if err := w.pending.Truncate(size); err != nil {
		return 0, "", err
	}
	_, err = w.pending.WriteAt(super, 0)
	return size, digest, err
}

// buildMetadata returns the HDF5 metadata of a file, which is to be written at
// offset at, and the digest of the header. chunks says where the blocks are in
// the file.
func buildMetadata(h *Header, table []Block, chunks [][]hdf5.Chunk, inline map[int32][]byte, at uint64) (super, meta []byte, digest string, err error) {
	rows := encodeBlocks(table)
	h.Blocks = DigestText(rows)
	text, err := json.Marshal(h)
	if err != nil {
		return nil, nil, "", err
	}
	digest = DigestText(text)
	f := hdf5.NewWriter()
	add := func(path string, spec hdf5.DatasetSpec) {
		if err == nil {
			err = f.Dataset(path, spec)
		}
	}
	attr := func(path, name string, v any) {
		if err == nil {
			err = f.Attr(path, name, v)
		}
	}
	for _, g := range []string{"FileMap", "Context", "MemBlocks"} {
		if err == nil {
			err = f.Group(g)
		}
	}
	add("Header", hdf5.DatasetSpec{Type: hdf5.Type{Class: hdf5.String, Size: len(text)}, Data: text})
	attr("Header", "digest", digest)
	add("Blocks", hdf5.DatasetSpec{Type: blockType, Dims: []uint64{uint64(len(table))}, Data: rows})
	for i := range h.Datasets {
		d := &h.Datasets[i]
		t, perr := hdf5.ParseType(d.Type)
		if perr != nil {
			return nil, nil, "", perr
		}
		spec := hdf5.DatasetSpec{Type: t, Dims: d.Dims}
		switch {
		case d.Chunk == nil:
			spec.Data = inline[int32(i)]
			if spec.Data == nil { // a block of zeros
				spec.Data = make([]byte, d.Size)
			}
		default:
			slices.SortFunc(chunks[i], func(a, b hdf5.Chunk) int { return int(int64(a.Index) - int64(b.Index)) })
			spec.Chunk, spec.Filters, spec.Chunks = d.Chunk, filters(d, h.Compression), chunks[i]
			if len(h.Bases) > 0 {
				if len(chunks[i]) > 0 {
					add(d.changedPath(), spec)
				}
				if m := mappings(h, d, table); m != nil { // otherwise all blocks are zeros, and there is no chunk
					spec = hdf5.DatasetSpec{Type: t, Dims: d.Dims, Virtual: m}
				}
			}
		}
		add(d.Path, spec)
		if d.Go != "" {
			attr(d.Path, "go", d.Go)
		}
	}
	for _, v := range h.views() {
		add(v.path, v.spec)
		attr(v.path, "go", v.name.Go)
	}
	if err == nil {
		super, meta, err = f.Finish(at)
	}
	return super, meta, digest, err
}

// Check reports whether an image fits into an HDF5 file, which has limits that
// Go types can exceed.
func Check(img *graph.Image) error {
	l, err := planImage(img, nil, new(Description))
	if err != nil {
		return err
	}
	_, _, _, err = buildMetadata(&Header{Datasets: l.Datasets}, make([]Block, l.blocks), make([][]hdf5.Chunk, len(l.Datasets)), nil, page)
	return err
}

// mappings returns the parts of a virtual dataset: runs of blocks from one file
// each. Zero blocks are in no part. It returns nil if all blocks are zeros.
func mappings(h *Header, d *Dataset, table []Block) []hdf5.Mapping {
	var out []hdf5.Mapping
	n := d.NumBlocks()
	perRow := 1 // chunks in a row of a matrix
	if len(d.Dims) == 2 && d.Chunk[1] < d.Dims[1] {
		perRow = int(d.Dims[1] / d.Chunk[1])
	}
	for k := 0; k < n; {
		src := table[d.First+k].Source
		end := k + 1
		for end < n && table[d.First+end].Source == src && (perRow == 1 || end%perRow != 0) {
			end++
		}
		if src != SourceZero {
			m := hdf5.Mapping{File: ".", Path: "/" + d.changedPath()}
			if src >= SourceBase {
				b := h.Bases[src-SourceBase]
				m.File = b.File
				if !b.Diff {
					m.Path = "/" + d.Path
				}
			}
			m.Start = make([]uint64, len(d.Dims))
			m.Count = slices.Clone(d.Dims)
			if perRow == 1 {
				m.Start[0] = uint64(k) * d.Chunk[0]
				m.Count[0] = min(uint64(end)*d.Chunk[0], d.Dims[0]) - m.Start[0]
			} else {
				m.Start[0], m.Count[0] = uint64(k/perRow), 1
				m.Start[1] = uint64(k%perRow) * d.Chunk[1]
				m.Count[1] = uint64(end-k) * d.Chunk[1]
			}
			out = append(out, m)
		}
		k = end
	}
	return out
}
