package ckpt

import (
	"fmt"

	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/mem"
)

// compressor compresses the blocks of segments into a buffer and writes it.
type compressor struct {
	w       *fileWriter
	filters map[int32][]hdf5.Filter // by dataset
	buf     []byte
	scratch []byte
	items   []StagedBlock
	sizes   []int
	masks   []uint32
}

func newCompressor(w *fileWriter) *compressor {
	return &compressor{w: w, filters: make(map[int32][]hdf5.Filter), buf: mem.Aligned(mem.SegmentSize)[:0]}
}

func (z *compressor) add(s Segment) {
	for i, it := range s.Blocks {
		if it.Len == 0 {
			continue
		}
		d := &z.w.job.Header.Datasets[it.Dataset]
		fs, ok := z.filters[it.Dataset]
		if !ok {
			fs = filters(d, z.w.job.Header.Compression)
			z.filters[it.Dataset] = fs
		}
		out, mask, err := hdf5.EncodeChunk(fs, z.w.bytes(&s, i), z.scratch[:0])
		if err != nil {
			z.w.fail(fmt.Errorf("compressing %s: %w", d.Path, err))
			return
		}
		if mask == 0 {
			z.scratch = out
		}
		if len(z.buf)+len(out) > cap(z.buf) {
			z.flush()
		}
		z.buf = append(z.buf, out...)
		z.items, z.sizes, z.masks = append(z.items, it), append(z.sizes, len(out)), append(z.masks, mask)
	}
}

func (z *compressor) flush() {
	if len(z.buf) == 0 || z.w.failed() != nil {
		return
	}
	n := pages(int64(len(z.buf)))
	clear(z.buf[len(z.buf):n])
	at := z.w.end.Add(n) - n
	if _, err := z.w.pending.WriteAt(z.buf[:n], at); err != nil {
		z.w.fail(err)
		return
	}
	z.w.mu.Lock()
	defer z.w.mu.Unlock()
	for i, it := range z.items {
		z.w.place(it, at, z.sizes[i], z.masks[i])
		at += int64(z.sizes[i])
	}
	z.buf, z.items, z.sizes, z.masks = z.buf[:0], z.items[:0], z.sizes[:0], z.masks[:0]
}

// filters returns the HDF5 filters of a dataset. Numbers are shuffled first:
// bytes of the same significance compress better together.
func filters(d *Dataset, c Compression) []hdf5.Filter {
	if d.Chunk == nil || c == None {
		return nil
	}
	t, err := hdf5.ParseType(d.Type)
	if err != nil {
		return nil
	}
	size := t.Size
	var out []hdf5.Filter
	if size > 1 {
		out = append(out, hdf5.Shuffle(size))
	}
	if c == Gzip {
		return append(out, hdf5.Deflate(4))
	}
	return append(out, hdf5.Zstd(1))
}
