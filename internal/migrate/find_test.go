package migrate

import (
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// TestFinder_BatchSizes shows that batches begin and end small, do not exceed
// their bound, and are not many more than necessary.
func TestFinder_BatchSizes(t *testing.T) {
	for _, c := range []struct{ size, chunk int64 }{{1 << 30, 64 << 20}, {1 << 30, 4 << 20}, {40 << 20, 64 << 20}, {1 << 10, 64 << 20}, {100 << 20, 4 << 10}} {
		f := &finder{l: &ckpt.Layout{Bytes: c.size}, batchSize: c.chunk}
		n, first, last := int64(0), int64(0), int64(0)
		for done := int64(0); done < c.size; n++ {
			last = min(f.nextBatch(done), c.size-done)
			if last < 1 || last > c.chunk {
				t.Fatalf("%+v: a chunk of %d", c, last)
			}
			if done == 0 {
				first = last
			}
			done += last
		}
		if most := min(c.size, c.chunk, minBatch); first > most || last > most {
			t.Errorf("%+v: the first chunk has %d bytes, the last %d", c, first, last)
		}
		if most := c.size/c.chunk + 20; n > most {
			t.Errorf("%+v: %d chunks", c, n)
		}
	}
}
