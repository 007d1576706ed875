package ckpt

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// Table returns the checkpoint as the previous one of the next save.
func (s *File) Table() *Table { return newTable(&s.Header, s.digest, s.Blocks) }

// Load restores the checkpoint's values into the roots, except for the
// variables in drop. img is the checkpoint's image, or a part of it. It checks
// every byte. After an error the roots are undefined. If loaded is not nil,
// Load calls it at the end.
func (s *File) Load(ctx context.Context, img *graph.Image, roots []graph.Root, env *graph.Env, drop []string, loaded func(*graph.Builder)) error {
	b, err := graph.Prepare(roots, img, env, graph.Options{Limit: mem.Total(), Drop: drop})
	if err != nil {
		return AsCorrupt(err)
	}
	defer b.Close()
	var sinks []sink
	for _, t := range b.Targets() {
		to := sink{dataset: img.Pools[t.Pool].Dataset}
		if to.dataset < 0 {
			return fmt.Errorf("%w: pool %d has no dataset", ErrCorrupt, t.Pool)
		}
		if t.Remote {
			to.fill = FillRemote(NewMemory(t.Pieces))
		} else if t.Direct {
			to.memory = NewMemory(t.Pieces)
		} else {
			to.fill = t.Fill
		}
		sinks = append(sinks, to)
	}
	if err := s.readBlocks(ctx, sinks, nil); err != nil {
		return err
	}
	if err := AsCorrupt(b.Finish()); err != nil {
		return err
	}
	if loaded != nil {
		loaded(b)
	}
	return nil
}

// FillRemote returns a function that puts bytes into memory elsewhere.
func FillRemote(b Memory) func(off int64, src []byte) error {
	return func(off int64, src []byte) error {
		var err error
		b.Each(off, len(src), func(p []byte) {
			part := src[:len(p)]
			src = src[len(p):]
			if err != nil {
				return
			}
			r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(p)))
			if r == nil {
				err = errors.New("memory of an array was freed while it was restored")
				return
			}
			err = r.Fill(at, part)
		})
		return err
	}
}

// AsCorrupt marks an error of package graph about an impossible image as
// damage.
func AsCorrupt(err error) error {
	if errors.Is(err, graph.ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// sink is where the bytes of a dataset go: into memory, to a function, or
// nowhere.
type sink struct {
	dataset int
	memory  Memory
	fill    func(off int64, src []byte) error
}

// readBlocks reads datasets and checks every block. If v is not nil, it
// collects the damage; otherwise readBlocks returns the first damage as an
// error.
func (s *File) readBlocks(ctx context.Context, sinks []sink, v *verification) error {
	type blocks struct {
		to     *sink
		lo, hi int
	}
	var ranges []blocks
	for i := range sinks {
		d := &s.Header.Datasets[sinks[i].dataset]
		size := int64(mem.SegmentSize)
		if m := &sinks[i].memory; len(m.Pieces) == 1 && addrOf(m.Pieces[0])%page == 0 && d.Block%page == 0 { // without scratch memory
			size = transfer(d.Size)
		}
		step := int(max(1, size/d.Block))
		for lo := 0; lo < d.NumBlocks(); lo += step {
			ranges = append(ranges, blocks{&sinks[i], lo, min(lo+step, d.NumBlocks())})
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, min(len(ranges), readers))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for w := range errs {
		wg.Go(func() {
			r := reader{s: s, v: v}
			for {
				n := int(next.Add(1)) - 1
				if n >= len(ranges) {
					return
				}
				if err := ctx.Err(); err != nil {
					return
				}
				if err := mem.Readable(func() error { return r.read(ranges[n].to, ranges[n].lo, ranges[n].hi) }); err != nil {
					errs[w] = err
					cancel()
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// minChecked is the size of datasets from which on Checked is called for them:
// a message for each small one takes longer than copying them at the end. It is
// called for all parts of a dataset, or for none.
const minChecked = 64 << 10

// readers is how many ranges are read at a time: enough to keep a fast disk
// busy while other blocks are checked.
const readers = 4

// reader reads ranges of blocks.
type reader struct {
	s   *File
	v   *verification
	buf []byte // aligned
}

func (r *reader) scratch(n int) []byte {
	if len(r.buf) < n {
		r.buf = mem.Aligned(int(pages(int64(n))))
	}
	return r.buf[:n]
}

// read reads some blocks of a dataset.
func (r *reader) read(out *sink, lo, hi int) error {
	s, i := r.s, out.dataset
	d := &s.Header.Datasets[i]
	for k := lo; k < hi; {
		off, n := int64(k)*d.Block, d.BlockLen(k)
		src, at, count := s.run(d, k, hi)
		if count == 0 { // compressed, zero, or not written by Cairn: block by block
			p, direct := r.place(out, off, n)
			err := s.ReadBlock(i, k, p)
			if err == nil {
				err = s.check(i, k, p)
			}
			if err = r.done(out, k, p, off, direct, err); err != nil {
				return err
			}
			k++
			continue
		}
		last := k + count - 1
		n = int(int64(last)*d.Block-off) + d.BlockLen(last)
		p, direct := r.place(out, off, n)
		if direct && s.Shared {
			touch(p)
		}
		if err := readFull(src.file, p, at); err != nil {
			if !errors.Is(err, ErrCorrupt) || r.v == nil {
				return fmt.Errorf("%s: %w", s.BlockName(i, k), err)
			}
		}
		for ; k <= last; k++ {
			b := p[int64(k)*d.Block-off:][:d.BlockLen(k)]
			if err := r.done(out, k, b, int64(k)*d.Block, direct, s.check(i, k, b)); err != nil {
				return err
			}
		}
	}
	if s.Checked != nil && len(out.memory.Pieces) == 1 && d.Size >= minChecked {
		off := int64(lo) * d.Block
		if p, ok := out.memory.View(off, int(int64(hi-1)*d.Block-off)+d.BlockLen(hi-1)); ok {
			s.Checked(p)
		}
	}
	return nil
}

// place returns memory for n bytes at off: the target memory, if it is in one
// piece and aligned, else scratch memory.
func (r *reader) place(out *sink, off int64, n int) (p []byte, direct bool) {
	if len(out.memory.Pieces) > 0 {
		if p, ok := out.memory.View(off, n); ok && mem.IsAligned(p) {
			return p, true
		}
	}
	return r.scratch(n), false
}

// touch maps shared memory. A read of it maps 64 KiB at once, if another
// process has mapped it before; the direct read of a file maps page by page.
func touch(p []byte) {
	sum := byte(0)
	for i := 0; i < len(p); i += 64 << 10 {
		sum |= p[i]
	}
	runtime.KeepAlive(sum)
}

// done handles a block that was read, or the reason why it could not be read.
func (r *reader) done(out *sink, k int, p []byte, off int64, direct bool, err error) error {
	if r.v != nil {
		return r.v.block(out.dataset, k, int64(len(p)), err)
	}
	if err != nil || direct {
		return err
	}
	if out.fill != nil {
		return out.fill(off, p)
	}
	if len(out.memory.Pieces) == 0 {
		return nil
	}
	out.memory.Each(off, len(p), func(dst []byte) {
		n := copy(dst, p)
		p = p[n:]
	})
	return nil
}

// run returns how many blocks from k on are stored consecutively as plain
// bytes, and where. If count is 0, block k is not stored in this way.
func (s *File) run(d *Dataset, k, hi int) (src *source, at int64, count int) {
	if d.Chunk == nil {
		return nil, 0, 0
	}
	var sd *storedDataset
	for n := k; n < hi; n++ {
		b := &s.Blocks[d.First+n]
		if n > k && b.Source != s.Blocks[d.First+k].Source || b.Source == SourceZero {
			break
		}
		if n == k {
			var err error
			if src, sd, err = s.stored(d, b); err != nil || !sd.regular {
				return nil, 0, 0
			}
		}
		c, ok := sd.chunks[uint64(n)]
		all := uint32(1)<<len(sd.Filters) - 1
		if !ok || c.Mask&all != all || int64(c.Size) != d.Block || n > k && int64(c.Addr) != at+int64(count)*d.Block {
			break
		}
		if n == k {
			at = int64(c.Addr)
		}
		count++
	}
	return src, at, count
}

// Damage is a block that differs from what was written.
type Damage struct {
	Name string // dataset and block
	Err  error
}

type verification struct {
	mu       sync.Mutex
	s        *File
	found    []Damage
	done     int64
	progress func(done int64)
}

func (v *verification) block(i, k int, n int64, err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done += n
	if v.progress != nil {
		v.progress(v.done)
	}
	if err != nil {
		v.found = append(v.found, Damage{v.s.BlockName(i, k), err})
	}
	return nil
}

// Verify reads everything and returns the damage that it finds. If progress is
// not nil, Verify calls it with the number of bytes checked so far.
func (s *File) Verify(ctx context.Context, progress func(done int64)) ([]Damage, error) {
	v := &verification{s: s, progress: progress}
	sinks := make([]sink, len(s.Header.Datasets))
	for i := range sinks {
		sinks[i].dataset = i
	}
	if err := s.readBlocks(ctx, sinks, v); err != nil {
		return v.found, err
	}
	if len(v.found) == 0 { // the bytes are right; check that they form a valid state, too
		if _, err := s.Image(); err != nil {
			v.found = append(v.found, Damage{"/Context", err})
		}
		if _, err := s.Files(); err != nil {
			v.found = append(v.found, Damage{"/FileMap", err})
		}
	}
	return v.found, nil
}

// State returns the bytes of all datasets.
func (s *File) State() int64 {
	n := int64(0)
	for i := range s.Header.Datasets {
		n += s.Header.Datasets[i].Size
	}
	return n
}
