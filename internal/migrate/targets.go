package migrate

import (
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/mem"
)

// targetBuffer is where the bytes of a dataset go.
type targetBuffer struct {
	used   bool        // the program has the variable
	memory ckpt.Memory // their final memory, if fill is nil
	fill   func(off int64, src []byte) error
	// remote is the memory that fill writes to, if it is elsewhere.
	remote *ckpt.Memory
	// whole collects elements that are larger than a block: fill takes whole
	// elements.
	whole []byte
}

func (b *targetBuffer) setWhole(p []byte) { b.whole, b.memory = p, ckpt.NewMemory([][]byte{p}) }

// direct reports whether bytes can be received into memory.
func (b *targetBuffer) direct() bool { return b.used && (b.fill == nil || b.whole != nil) }

// allocate gives every dataset its target buffer.
func (n *destination) allocate() error {
	at := make(map[int]int, len(n.datasets)) // pool → dataset
	for i := range n.datasets {
		at[n.datasets[i].Pool] = i
	}
	n.targets = make([]targetBuffer, len(n.datasets))
	for _, t := range n.builder.Targets() {
		i, ok := at[t.Pool]
		if !ok {
			return fmt.Errorf("%w: pool %d has no dataset", ckpt.ErrCorrupt, t.Pool)
		}
		b, d := &n.targets[i], &n.datasets[i]
		b.used = true
		switch {
		case t.Remote:
			far := ckpt.NewMemory(t.Pieces)
			b.remote, b.fill = &far, ckpt.FillRemote(far)
		case t.Direct || len(t.Pieces) > 0:
			b.memory = ckpt.NewMemory(t.Pieces)
		default:
			b.fill = t.Fill
			if size := int64(n.img.Pools[t.Pool].Form.Size); d.Block%size != 0 {
				if d.Size > mem.Total() {
					return fmt.Errorf("%w: /%s has %d bytes", ckpt.ErrCorrupt, d.Path, d.Size)
				}
				b.setWhole(make([]byte, d.Size))
			}
		}
	}
	return nil
}

// receivedBatch is the blocks of one frame.
type receivedBatch struct {
	blocks []receivedBlock
	buffer []byte
	done   chan<- struct{} // if not nil, only a request: close it when all batches before it are verified
}

// receivedBlock is a block of a batch.
type receivedBlock struct {
	dataset, k int
	state      uint32
	digest     xxh3.Uint128
	data       []byte
	deliver    bool // data must be put into its target buffer
}

// blocks receives the blocks of a frame.
func (n *destination) blocks(payload []byte) error {
	runs, digests, err := decodeRuns(payload, n.datasets)
	if err != nil {
		return err
	}
	a := &receivedBatch{}
	var sum, side int64
	for _, r := range runs {
		d, b := &n.datasets[r.dataset], &n.targets[r.dataset]
		for k := r.lo; k < r.lo+r.n; k++ {
			if n.seen[r.dataset][k] {
				return fmt.Errorf("%w: %s was sent twice", ckpt.ErrCorrupt, blockName(d, k))
			}
			n.seen[r.dataset][k] = true
			it := receivedBlock{dataset: r.dataset, k: k, state: r.state}
			size := d.BlockLen(k)
			switch r.state {
			case blockZero:
				it.digest = n.zeros.Of(size)
				if n.head.Last {
					n.zeroBytes += int64(size)
				}
			case blockSent:
				it.deliver = true
				if b.direct() {
					var ok bool
					it.data, ok = b.memory.View(int64(k)*d.Block, size)
					it.deliver = !ok
				}
				if sum += int64(size); it.deliver {
					side += int64(size)
				}
				fallthrough
			case blockKept:
				it.digest, digests = digests[0], digests[1:]
			}
			a.blocks = append(a.blocks, it)
		}
	}
	if sum > n.hello.BatchSize+ckpt.MaxBlock {
		return fmt.Errorf("%w: %d bytes of blocks at a time", ckpt.ErrCorrupt, sum)
	}
	if side > 0 {
		a.buffer = <-n.buffers
		if int64(cap(a.buffer)) < side {
			a.buffer = make([]byte, max(side, min(n.hello.BatchSize, n.bytes))) // once
		}
		a.buffer = a.buffer[:side]
	}
	if err := n.take(a); err != nil {
		return err
	}
	n.queue <- a
	return n.verified.failed()
}

// take reads the bytes of all sent blocks, many at a time if they are adjacent.
func (n *destination) take(a *receivedBatch) error {
	var p batch
	room := a.buffer
	for i := range a.blocks {
		it := &a.blocks[i]
		if it.state != blockSent {
			continue
		}
		if it.deliver {
			size := n.datasets[it.dataset].BlockLen(it.k)
			it.data, room = room[:size], room[size:]
		}
		p.attach(it.data)
	}
	for _, b := range p.raw {
		if err := n.s.full(b); err != nil {
			return err
		}
	}
	return nil
}

// waitVerified waits until everything received is verified.
func (n *destination) waitVerified() error {
	done := make(chan struct{})
	n.queue <- &receivedBatch{done: done}
	<-done
	return n.verified.failed()
}

// verifier has the first error of verifyLoop, and its time.
type verifier struct {
	mu   sync.Mutex
	err  error
	work int64 // ns
}

func (c *verifier) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

func (c *verifier) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// verifyLoop verifies the blocks in the queue.
func (n *destination) verifyLoop() {
	for a := range n.queue {
		if a.done != nil {
			close(a.done)
			continue
		}
		began := time.Now()
		err := divide(len(a.blocks), func(i int) {
			if n.verified.failed() != nil {
				return
			}
			if err := n.verify(&a.blocks[i]); err != nil {
				n.verified.fail(err)
			}
		})
		if err != nil {
			n.verified.fail(err)
		}
		n.verified.work += int64(time.Since(began))
		if a.buffer != nil {
			n.buffers <- a.buffer
		}
	}
}

// verify checks one block.
func (n *destination) verify(it *receivedBlock) error {
	d, b, t := &n.datasets[it.dataset], &n.targets[it.dataset], n.tables[it.dataset]
	off, size := int64(it.k)*d.Block, d.BlockLen(it.k)
	switch it.state {
	case blockKept:
		if !t.has(it.k, it.digest) {
			return fmt.Errorf("%w: %s differs from what was sent before", ckpt.ErrCorrupt, blockName(d, it.k))
		}
		return nil
	case blockZero:
		if !t.has(it.k, it.digest) {
			if err := b.zero(off, size); err != nil {
				return fmt.Errorf("%s: %w", d.Var, err)
			}
		}
	case blockSent:
		if mem.Digest(it.data) != it.digest {
			return fmt.Errorf("%w: %s does not match its digest", ckpt.ErrCorrupt, blockName(d, it.k))
		}
		if it.deliver {
			if err := b.put(off, it.data); err != nil {
				return fmt.Errorf("%s: %w", d.Var, err)
			}
		}
	}
	t.set(it.k, it.digest)
	return nil
}

// put writes bytes.
func (b *targetBuffer) put(off int64, p []byte) error {
	switch {
	case !b.used:
		return nil
	case b.direct():
		b.memory.Each(off, len(p), func(dst []byte) { p = p[copy(dst, p):] })
		return nil
	}
	return b.fill(off, p)
}

// zero writes n zeros.
func (b *targetBuffer) zero(off int64, n int) error {
	switch {
	case !b.used:
		return nil
	case b.direct():
		b.memory.Each(off, n, func(dst []byte) {
			if !mem.IsZero(dst) { // do not touch fresh memory
				clear(dst)
			}
		})
		return nil
	case b.remote != nil && remoteZero(b.remote, off, n):
		return nil
	}
	return b.fill(off, make([]byte, n))
}

// remoteZero reports whether memory elsewhere is known to be zero.
func remoteZero(b *ckpt.Memory, off int64, n int) bool {
	zero := true
	b.Each(off, n, func(p []byte) {
		r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(p)))
		if r == nil {
			zero = false
			return
		}
		places, err := r.Places(at, at+int64(len(p)))
		left := int64(len(p))
		for _, pl := range places {
			if pl.Zero {
				left -= pl.Len
			}
		}
		zero = zero && err == nil && left == 0
	})
	return zero
}

// blockName describes block k of a dataset in messages.
func blockName(d *ckpt.Dataset, k int) string {
	if d.NumBlocks() <= 1 {
		return "/" + d.Path
	}
	return fmt.Sprintf("/%s, block %d of %d (bytes %d to %d)", d.Path, k, d.NumBlocks(), int64(k)*d.Block, int64(k)*d.Block+int64(d.BlockLen(k)))
}
