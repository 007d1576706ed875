package hdf5

import (
	"bytes"
	"fmt"
	"testing"
)

// metaFile returns a file with a number of datasets, which have a number of
// chunks each.
func metaFile(b *testing.B, datasets, chunks uint64) (file []byte) {
	w := NewWriter()
	for i := range datasets {
		spec := DatasetSpec{Type: Type{Class: Float, Size: 8}, Dims: []uint64{chunks * 16}, Chunk: []uint64{16}}
		for j := range chunks {
			spec.Chunks = append(spec.Chunks, Chunk{Index: j, Addr: 4096 + j*128, Size: 128})
		}
		if err := w.Dataset(fmt.Sprintf("g/d%d", i), spec); err != nil {
			b.Fatal(err)
		}
	}
	at := 4096 + chunks*128
	super, meta, err := w.Finish(at)
	if err != nil {
		b.Fatal(err)
	}
	return append(append(super, make([]byte, int(at)-len(super))...), meta...)
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range [][2]uint64{{1, 16_000}, {1, 200_000}, {16_000, 2}} {
		b.Run(fmt.Sprintf("%dx%d", n[0], n[1]), func(b *testing.B) {
			for b.Loop() {
				metaFile(b, n[0], n[1])
			}
		})
	}
}

func BenchmarkChunks(b *testing.B) {
	for _, n := range [][2]uint64{{1, 16_000}, {1, 200_000}, {16_000, 2}} {
		file := metaFile(b, n[0], n[1])
		b.Run(fmt.Sprintf("%dx%d", n[0], n[1]), func(b *testing.B) {
			for b.Loop() {
				f := openBytes(b, file)
				for i := range n[0] {
					d, err := f.Dataset(fmt.Sprintf("g/d%d", i))
					if err != nil {
						b.Fatal(err)
					}
					if cs, err := d.Chunks(); err != nil || uint64(len(cs)) != n[1] {
						b.Fatal(len(cs), err)
					}
				}
			}
		})
	}
}

func BenchmarkReadAt(b *testing.B) {
	for name, fs := range map[string][]Filter{"plain": nil, "zstd": {Shuffle(8), Zstd(1)}, "deflate": {Deflate(1)}} {
		bu := newBuilder(b)
		n := 1 << 22
		bu.chunked("x", "<f8", []uint64{uint64(n / 8)}, []uint64{1 << 16}, fs, pattern(n), nil)
		file := bu.bytes()
		b.Run(name, func(b *testing.B) {
			p := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				d, err := openBytes(b, file).Dataset("x")
				if err == nil {
					_, err = d.ReadAt(p, 0)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if !bytes.Equal(p, bu.want["x"].data) {
				b.Error("read differs")
			}
		})
	}
}

func BenchmarkShuffle(b *testing.B) {
	src, dst := pattern(1<<20), make([]byte, 1<<20)
	for _, size := range []int{2, 4, 8, 16} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(1 << 20)
			for b.Loop() {
				shuffle(dst, src, size)
				unshuffle(src, dst, size)
			}
		})
	}
}
