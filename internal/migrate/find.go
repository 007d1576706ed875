package migrate

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/mem"
)

// batch is the content of one frame of blocks.
type batch struct {
	runs    []blockRun
	digests []xxh3.Uint128
	blocks  int
	raw     [][]byte      // bytes of the sent blocks, in order
	buffer  []byte        // memory of some of them
	back    chan<- []byte // where buffer goes when they are sent
	wait    func() error  // waits for the bytes; nil: they are there
}

// add adds a block and its state.
func (p *batch) add(dataset, k int, fate uint32, digest xxh3.Uint128) {
	p.blocks++
	if fate != blockZero {
		p.digests = append(p.digests, digest)
	}
	if n := len(p.runs); n > 0 {
		if r := &p.runs[n-1]; r.dataset == dataset && r.lo+r.n == k && r.state == fate {
			r.n++
			return
		}
	}
	p.runs = append(p.runs, blockRun{dataset, k, 1, fate})
}

// attach adds bytes. It joins them with the last ones if they are adjacent.
func (p *batch) attach(b []byte) {
	if n := len(p.raw); n > 0 {
		if q := p.raw[n-1]; cap(q)-len(q) >= len(b) && &q[:len(q)+1][len(q)] == &b[0] {
			p.raw[n-1] = q[:len(q)+len(b)]
			return
		}
	}
	p.raw = append(p.raw, b)
}

// release returns the buffer.
func (p *batch) release() {
	if p.back != nil {
		p.back <- p.buffer
	}
}

// errCanceled means that a round was canceled.
var errCanceled = errors.New("the round was canceled")

// finder goes through the blocks of an image, finds those that the destination
// lacks, and passes them on in batches. They are sent while it works on the
// next ones.
type finder struct {
	l         *ckpt.Layout
	host      []ckpt.Memory      // per dataset, the bytes in host memory
	runs      [][]ckpt.Placement // per dataset, the blocks elsewhere
	tables    []*table           // what the destination has
	batchSize int64
	precopy   bool // the program is running: copy, and list only what is sent
	zeros     mem.ZeroDigests
	buffers   chan []byte // two buffers for copies, of at most a batch
	out       chan<- batch
	quit      <-chan struct{} // closed when no more batches are sent
	stop      func() error    // returns an error if the round is canceled

	zeroBytes int64
	workNS    int64
}

// candidate is a block that may have to be sent.
type candidate struct {
	dataset, k, n int
	data          []byte
	copy          bool // data is in a buffer
	zero          bool
	digest        xxh3.Uint128
}

// run passes on batches of all blocks.
func (f *finder) run() error {
	if err := f.hostBlocks(); err != nil || f.precopy {
		return err
	}
	return f.deviceBlocks()
}

// hostBlocks goes through the blocks in host memory, and through zeros that are
// stored nowhere.
func (f *finder) hostBlocks() error {
	var items []candidate
	var bytes, side, done int64
	flush := func() error {
		if len(items) == 0 {
			return nil
		}
		err := f.digestBatch(items, int(side))
		done += bytes
		items, bytes, side = items[:0], 0, 0
		return err
	}
	put := func(it candidate) error {
		if bytes+int64(it.n) > f.nextBatch(done) && bytes > 0 || len(items) == maxListed {
			if err := flush(); err != nil {
				return err
			}
		}
		if it.copy {
			side += int64(it.n)
		}
		bytes += int64(it.n)
		items = append(items, it)
		return nil
	}
	for i := range f.l.Datasets {
		d, b := &f.l.Datasets[i], &f.host[i]
		if f.precopy && f.l.Remote[i] {
			continue
		}
		at := 0
		for _, r := range append(f.runs[i], ckpt.Placement{Lo: d.NumBlocks(), Hi: d.NumBlocks()}) {
			for ; at < r.Hi; at++ {
				it := candidate{dataset: i, k: at, n: d.BlockLen(at)}
				switch {
				case at < r.Lo:
					var whole bool
					it.data, whole = b.View(int64(at)*d.Block, it.n)
					it.copy = f.precopy || !whole
				case r.Place.Zero:
					it.zero = true
				case r.Place.Host != nil:
					it.data = r.Place.Host[int64(at-r.Lo)*d.Block:][:it.n]
				default:
					continue // deviceBlocks does these
				}
				if err := put(it); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// minBatch is the smallest size into which batches are divided.
const minBatch = 1 << 20

// nextBatch returns the size of the next batch. The first ones are small, so
// that sending begins early. The last ones are small, so that the destination
// has little to do after they are sent.
func (f *finder) nextBatch(done int64) int64 {
	return min(f.batchSize, max(minBatch, min(done, (f.l.Bytes-done)/2)))
}

// digestBatch digests blocks and passes on those that the destination lacks.
func (f *finder) digestBatch(items []candidate, side int) error {
	if err := f.stop(); err != nil {
		return err
	}
	var p batch
	var room []byte
	if side > 0 {
		var err error
		if room, err = f.take(side); err != nil {
			return err
		}
		p.buffer, p.back = room, f.buffers
	}
	began := time.Now()
	for i := range items {
		if it := &items[i]; it.copy {
			it.data, room = room[:it.n], room[it.n:]
		}
	}
	err := divide(len(items), func(i int) {
		it := &items[i]
		if it.zero {
			return
		}
		if it.copy {
			copyRunning(&f.host[it.dataset], it.data, int64(it.k)*f.l.Datasets[it.dataset].Block)
		}
		if it.zero = mem.IsZero(it.data); !it.zero {
			it.digest = mem.Digest(it.data)
		}
	})
	if err != nil {
		return err
	}
	for i := range items {
		it := &items[i]
		if it.zero {
			it.digest = f.zeros.Of(it.n)
		}
		if f.classify(&p, it.dataset, it.k, it.n, it.digest, it.zero) {
			p.attach(it.data)
		}
	}
	f.workNS += int64(time.Since(began))
	return f.pass(p)
}

// classify adds a block to the batch, and reports whether its bytes must be
// sent.
func (f *finder) classify(p *batch, dataset, k, n int, digest xxh3.Uint128, zero bool) bool {
	t := f.tables[dataset]
	had := t.has(k, digest)
	t.set(k, digest)
	switch {
	case zero:
		f.zeroBytes += int64(n)
		if !f.precopy || !had {
			p.add(dataset, k, blockZero, digest)
		}
		return false
	case had:
		if !f.precopy {
			p.add(dataset, k, blockKept, digest)
		}
		return false
	}
	p.add(dataset, k, blockSent, digest)
	return true
}

// take waits for a buffer of n bytes.
func (f *finder) take(n int) ([]byte, error) {
	select {
	case p := <-f.buffers:
		if cap(p) < n {
			p = mem.Aligned(int(max(int64(n), min(f.batchSize, f.l.Bytes)))) // once
		}
		return p[:n], nil
	case <-f.quit:
		return nil, errCanceled
	}
}

// pass passes a batch on.
func (f *finder) pass(p batch) error {
	if len(p.runs) == 0 {
		p.release()
		return nil
	}
	select {
	case f.out <- p:
		return nil
	case <-f.quit:
		return errCanceled
	}
}

// copyRunning copies memory that the program may be writing to. It does not
// matter whether it gets old or new bytes: the copy is what is digested and
// sent.
func copyRunning(m *ckpt.Memory, dst []byte, off int64) {
	m.Each(off, len(dst), func(p []byte) {
		copyRacy(dst[:len(p)], p)
		dst = dst[len(p):]
	})
}

// copyRacy copies bytes. The builtin would report a race in programs that look
// for them.
//
//go:norace
func copyRacy(dst, src []byte) {
	ne := binary.NativeEndian
	for len(src) >= 32 {
		s, d := (*[32]byte)(src), (*[32]byte)(dst)
		a, b, c, e := ne.Uint64(s[:8]), ne.Uint64(s[8:16]), ne.Uint64(s[16:24]), ne.Uint64(s[24:])
		ne.PutUint64(d[:8], a)
		ne.PutUint64(d[8:16], b)
		ne.PutUint64(d[16:24], c)
		ne.PutUint64(d[24:], e)
		src, dst = src[32:], dst[32:]
	}
	for i := range src { //nolint:staticcheck // copy would be seen by the race detector
		dst[i] = src[i]
	}
}

// divide calls f for 0…n-1, with several goroutines if that is faster.
// Unreadable memory is an error.
func divide(n int, f func(i int)) error {
	const step = 8
	workers := min(runtime.GOMAXPROCS(0), 4, n/step)
	var next atomic.Int64
	work := func() error {
		return mem.Readable(func() error {
			for lo := int(next.Add(step)) - step; lo < n; lo = int(next.Add(step)) - step {
				for i := lo; i < min(lo+step, n); i++ {
					f(i)
				}
			}
			return nil
		})
	}
	if workers < 2 {
		return work()
	}
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() { errs[w] = work() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
