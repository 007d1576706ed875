package ckpt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A Writer turns staged blocks into published checkpoints. The program only
// copies into staging memory; everything slow happens in the writer. A writer
// has no references to the program's memory, so it may be in another process
// that shares the staging memory.
//
// The calls for one checkpoint come from one goroutine, in this order: Begin,
// Put (any number of times, concurrently), then Commit or Abort. Commit returns
// at once, and the channel delivers the result. Line and Damaged may be called
// at any time, from other goroutines too. Line removes checkpoints that are not
// needed any more, in the background. Damaged says that a checkpoint does not
// count as kept; it is removed with the next one that is removed. Close waits
// for all of that. Err returns why no checkpoint can be written any more, or
// nil.
type Writer interface {
	Begin(Job)
	Put(Segment)
	Commit(Tail) <-chan Result
	Abort(error) <-chan Result
	Line(index uint64)
	Damaged(index uint64)
	Err() error
	Close()
}

// Job is what a writer must know before the first block.
type Job struct {
	Header     Header
	Previous   *Table // what kept blocks refer to; nil: none are kept
	WriteFirst bool   // most blocks are new: write them before digesting, and drop none
	Estimate   int64  // bytes to be stored, roughly; 0: unknown
}

// Segment is a segment of staging memory that has blocks in it, or some blocks
// of stable memory.
type Segment struct {
	Index  int // -1: not staging memory
	Used   int // bytes in use
	Blocks []StagedBlock
	Stable [][]byte // the blocks where they are, of whole pages; nil: in staging memory
	// Digests of the blocks, if they are known. Segments with digests come
	// after the pause, and all of their blocks must be stored.
	Digests []xxh3.Uint128
}

// room returns where in the segment a block of d would go, and whether it fits.
func (s *Segment) room(d *Dataset) (at int, ok bool) {
	at = s.Used
	if d.Block%page == 0 {
		at = int(pages(int64(at)))
	}
	return at, s.Index >= 0 && at+int(d.Block) <= mem.SegmentSize
}

// add adds block k of dataset i at offset at of the segment's memory data. It
// clears the bytes around the block, and returns where the block's bytes go.
func (s *Segment) add(data []byte, at, i, k int, d *Dataset) []byte {
	n := d.BlockLen(k)
	clear(data[s.Used:at])
	clear(data[at+n : at+int(d.Block)])
	s.Used = at + int(d.Block)
	s.Blocks = append(s.Blocks, StagedBlock{int32(i), int32(k), int32(at), int32(n)})
	return data[at : at+n]
}

// StagedBlock is a block in a segment.
type StagedBlock struct {
	Dataset, Block int32
	Off, Len       int32 // in the segment; the file has zeros after it, up to a whole chunk
}

// Mark says what became of a block during the pause.
type Mark = byte

const (
	MarkKept   Mark = iota // as in the previous checkpoint
	MarkZero               // all zeros
	MarkStaged             // put into a segment, or into Tail.Inline
)

// Tail is what is known only after the last block.
type Tail struct {
	Marks  []Mark           // one per block
	Inline map[int32][]byte // content of the datasets without chunks
	Sync   []string         // data files to make durable before the checkpoint is published
	Also   []string         // the same for files and directories that may not exist any more
	Note   Note
}

// Table is what the next save needs of a published checkpoint.
type Table struct {
	Index    uint64
	Header   string // digest of the file's /Header
	Bases    []Base
	Datasets []Dataset
	Blocks   []Block
	byPath   map[string]int
}

func newTable(h *Header, digest string, blocks []Block) *Table {
	t := &Table{Index: h.Index, Header: digest, Bases: h.Bases, Datasets: h.Datasets, Blocks: blocks, byPath: make(map[string]int, len(h.Datasets))}
	for i := range t.Datasets {
		t.byPath[t.Datasets[i].Path] = i
	}
	return t
}

// find returns the rows of the dataset that d continues, or nil. There may be
// fewer rows than d has blocks; the other blocks are new.
func (t *Table) find(d *Dataset) []Block {
	if t == nil {
		return nil
	}
	i, ok := t.byPath[d.Path]
	if !ok || !d.continues(&t.Datasets[i]) {
		return nil
	}
	e := &t.Datasets[i]
	n := d.NumBlocks()
	if e.Size != d.Size { // blocks that are whole in both
		n = int(min(e.Size, d.Size) / d.Block)
	}
	return t.Blocks[e.First : e.First+n]
}

// Result is the outcome of a checkpoint.
type Result struct {
	Index   uint64
	Err     error
	Table   *Table // nil after an error
	Written int64  // bytes of the file
	Took    time.Duration
	Copied  time.Duration // from the start of the pause until everything was in host memory
	NoLinks bool          // the file system has no hard links: make only full checkpoints
}

// fileWriter is the Writer that runs in this process.
type fileWriter struct {
	target  target
	staging *mem.Staging
	release func(segment int) // returns a segment to the program

	job     Job
	table   []Block
	began   time.Time
	pending pendingFile
	queue   chan Segment
	workers sync.WaitGroup
	ended   chan struct{} // closed when this checkpoint is finished and older ones are removed
	cleaned chan struct{} // closed when everything that was requested is done
	end     atomic.Int64  // offset of the next write
	start   chan struct{} // closed when the program continues or waits for segments:
	started sync.Once     // until then the writer leaves the processors to it
	paused  atomic.Bool   // the program is still paused
	firstError
	chunks  [][]hdf5.Chunk // under mu
	noLinks bool
}

// firstError keeps the first error of several goroutines.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// target is where a fileWriter publishes.
type target interface {
	begin(index uint64) (pendingFile, error)
	baseName(index uint64) string
	published(index uint64)  // called after a commit, before the result is delivered
	setLine(line uint64)     // all ranks have that checkpoint
	setDamaged(index uint64) // the checkpoint cannot be loaded
	prune()                  // removes what is not needed; called when no file is pending
}

// pendingFile is a file being written; store.Pending is one.
type pendingFile interface {
	vfs.File
	Link(base, from uint64) (copied bool, err error)
	Commit() error
	Abort()
}

func newFileWriter(t target, staging *mem.Staging) *fileWriter {
	w := &fileWriter{target: t, staging: staging, release: staging.Release, cleaned: make(chan struct{})}
	close(w.cleaned)
	return w
}

func (w *fileWriter) Begin(job Job) {
	w.job, w.pending, w.err = job, nil, nil
	w.began = time.Now()
	w.chunks = make([][]hdf5.Chunk, len(job.Header.Datasets))
	w.end.Store(page)
	w.start, w.started = make(chan struct{}), sync.Once{}
	w.paused.Store(true)
	w.queue = make(chan Segment, w.staging.Len())
	w.workers.Add(writers)
	w.ended = make(chan struct{})
	last := w.clean(w.ended)
	go func() { // the program does not wait for the file, nor for the table
		w.table = make([]Block, job.Header.TotalBlocks())
		<-last
		w.open()
		for range writers {
			go w.work(w.queue)
		}
	}()
}

func (w *fileWriter) open() {
	p, err := w.target.begin(w.job.Header.Index)
	if err != nil {
		w.fail(err)
		return
	}
	w.pending = p
	if w.job.Estimate > 0 {
		if err := p.Allocate(w.job.Estimate + page); err != nil {
			w.fail(err)
		}
	}
}

// writers is how many segments are written at a time: enough to keep a fast
// disk busy.
const writers = 4

func (w *fileWriter) Put(s Segment) {
	if s.Stable != nil || len(w.staging.Free()) == 0 || s.Digests != nil {
		w.hurry()
	}
	w.queue <- s
}

func (w *fileWriter) Err() error { return nil }

// hurry lets the writer start before the pause is over.
func (w *fileWriter) hurry() { w.started.Do(func() { close(w.start) }) }

func (w *fileWriter) work(queue <-chan Segment) {
	defer w.workers.Done()
	var z *compressor
	if w.job.Header.Compression != None {
		z = newCompressor(w)
	}
	<-w.start
	try := func(f func()) {
		if w.failed() != nil {
			return
		}
		if err := mem.Readable(func() error { f(); return w.failed() }); err != nil {
			w.fail(err)
		}
	}
	var late []Segment // to be digested when the program has the processors no more
	for s := range queue {
		step.At("write.segment")
		switch {
		case z != nil:
			try(func() { w.digest(s); z.add(s) })
		case !w.job.WriteFirst:
			try(func() { w.digest(s); w.write(s) })
		case s.Stable != nil && w.paused.Load():
			try(func() { w.write(s) })
			late = append(late, s)
		default:
			try(func() { w.write(s); w.digest(s) })
		}
		if s.Stable == nil {
			w.release(s.Index)
		}
	}
	for _, s := range late {
		try(func() { w.digest(s) })
	}
	if z != nil {
		z.flush()
	}
}

// bytes returns the i-th block of a segment, with zeros up to a whole chunk.
func (w *fileWriter) bytes(s *Segment, i int) []byte {
	if s.Stable != nil {
		return s.Stable[i]
	}
	it := &s.Blocks[i]
	return w.staging.Segment(s.Index)[it.Off:][:w.job.Header.Datasets[it.Dataset].Block]
}

// digest fills in the digests of a segment's blocks. Unchanged blocks are kept
// and not written, unless they are written already.
func (w *fileWriter) digest(s Segment) {
	for i, it := range s.Blocks {
		d := &w.job.Header.Datasets[it.Dataset]
		if s.Digests != nil {
			w.table[d.First+int(it.Block)].Digest = s.Digests[i]
			continue
		}
		dig := mem.Digest(w.bytes(&s, i)[:it.Len])
		row := d.First + int(it.Block)
		w.table[row].Digest = dig
		if w.job.WriteFirst {
			continue
		}
		if old := w.job.Previous.find(d); int(it.Block) < len(old) && old[it.Block].Digest == dig && old[it.Block].Source != SourceZero && w.kept(&old[it.Block]) {
			s.Blocks[i].Len = 0 // dropped
			w.table[row].Source = sourceKept
		}
	}
}

// sourceKept marks a row, during the write, as one that the previous checkpoint
// has.
const sourceKept = ^uint32(0)

// kept reports whether an unchanged block may stay where it is. It may not if
// compaction drops its base.
func (w *fileWriter) kept(b *Block) bool {
	if b.Source < SourceBase {
		return true
	}
	index := w.job.Previous.Bases[b.Source-SourceBase].Index
	return slices.ContainsFunc(w.job.Header.Bases, func(r Base) bool { return r.Index == index })
}

// write writes the segment's blocks, without the dropped ones, as they are in
// the segment.
func (w *fileWriter) write(s Segment) {
	if s.Stable != nil {
		w.writeStable(s)
		return
	}
	data := w.staging.Segment(s.Index)
	type run struct{ lo, hi, at int64 }
	var runs []run
	var bufs [][]byte
	total := int64(0)
	for i := 0; i < len(s.Blocks); i++ {
		if s.Blocks[i].Len == 0 {
			continue
		}
		r := run{lo: int64(s.Blocks[i].Off), at: total}
		for ; i < len(s.Blocks) && s.Blocks[i].Len != 0; i++ {
			r.hi = int64(s.Blocks[i].Off) + w.job.Header.Datasets[s.Blocks[i].Dataset].Block
		}
		if i == len(s.Blocks) { // whole pages, so that the write can bypass the page cache
			end := min(r.lo+pages(r.hi-r.lo), int64(len(data)))
			clear(data[r.hi:end])
			r.hi = end
		}
		runs = append(runs, r)
		bufs = append(bufs, data[r.lo:r.hi])
		total += r.hi - r.lo
	}
	if total == 0 {
		return
	}
	at := w.end.Add(pages(total)) - pages(total)
	if err := w.pending.WriteV(bufs, at); err != nil {
		w.fail(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range s.Blocks {
		if it.Len == 0 {
			continue
		}
		for runs[0].hi <= int64(it.Off) {
			runs = runs[1:]
		}
		w.place(it, at+runs[0].at+int64(it.Off)-runs[0].lo, int(w.job.Header.Datasets[it.Dataset].Block), 0)
	}
}

// pages rounds n up to whole pages.
func pages(n int64) int64 { return (n + page - 1) &^ (page - 1) }

// place records where a block is in the file. w.mu is held.
func (w *fileWriter) place(it StagedBlock, at int64, size int, mask uint32) {
	d := &w.job.Header.Datasets[it.Dataset]
	row := &w.table[d.First+int(it.Block)]
	row.Source, row.Stored = SourceHere, uint32(size)
	w.chunks[it.Dataset] = append(w.chunks[it.Dataset], hdf5.Chunk{Index: uint64(it.Block), Addr: uint64(at), Size: uint64(size), Mask: mask})
}

func (w *fileWriter) Abort(err error) <-chan Result {
	w.fail(err)
	return w.Commit(Tail{})
}

func (w *fileWriter) Commit(tail Tail) <-chan Result {
	w.paused.Store(false)
	w.hurry()
	close(w.queue)
	done, ended := make(chan Result, 1), w.ended
	go func() {
		defer close(ended)
		r := Result{Index: w.job.Header.Index}
		r.Table, r.Written, r.Err = w.finish(tail)
		r.NoLinks = w.noLinks
		r.Took = time.Since(w.began)
		if r.Err == nil {
			w.target.published(r.Index)
		}
		done <- r
		if r.Err == nil {
			w.target.prune()
		}
	}()
	return done
}

// Line removes old checkpoints as soon as no checkpoint is being written.
func (w *fileWriter) Line(index uint64) {
	w.target.setLine(index)
	done := make(chan struct{})
	last := w.clean(done)
	go func() {
		defer close(done)
		<-last
		w.target.prune()
	}()
}

func (w *fileWriter) Damaged(index uint64) { w.target.setDamaged(index) }

// clean makes done the channel that is closed when all requests are done. It
// returns the channel for the requests before.
func (w *fileWriter) clean(done chan struct{}) (last chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, w.cleaned = w.cleaned, done
	return last
}

func (w *fileWriter) Close() {
	w.mu.Lock()
	last := w.cleaned
	w.mu.Unlock()
	<-last
}

func (w *fileWriter) finish(tail Tail) (*Table, int64, error) {
	w.workers.Wait()
	if err := w.failed(); err != nil {
		if w.pending != nil {
			w.pending.Abort()
		}
		return nil, 0, err
	}
	h := &w.job.Header
	h.Note = tail.Note
	if err := w.settle(h, tail); err != nil {
		w.pending.Abort()
		return nil, 0, err
	}
	size, digest, err := w.metadata(h, tail)
	if err == nil {
		err = errors.Join(syncFiles(tail.Sync), SyncChanged(tail.Also))
	}
	if err != nil {
		w.pending.Abort()
		return nil, 0, err
	}
	if err := w.pending.Commit(); err != nil {
		return nil, 0, err
	}
	return newTable(h, digest, w.table), size, nil
}

// settle fills in the rows of blocks that were not written, and links the files
// that have them.
func (w *fileWriter) settle(h *Header, tail Tail) error {
	prev := w.job.Previous
	bases := make(map[uint64]uint32) // index → source
	var list []Base
	source := func(b Base) uint32 {
		if s, ok := bases[b.Index]; ok {
			return s
		}
		b.File = w.target.baseName(b.Index)
		if b.Index == prev.Index {
			for _, r := range prev.Blocks {
				if r.Source == SourceHere {
					b.Blocks++
				}
			}
		}
		list = append(list, b)
		bases[b.Index] = SourceBase + uint32(len(list)-1)
		return bases[b.Index]
	}
	zero := mem.ZeroDigests{}
	for i := range h.Datasets {
		d := &h.Datasets[i]
		var old []Block
		for k := range d.NumBlocks() {
			row := &w.table[d.First+k]
			mark := tail.Marks[d.First+k]
			if mark == MarkStaged && d.Chunk == nil {
				p := tail.Inline[int32(i)]
				*row = Block{Digest: mem.Digest(p), Source: SourceHere, Stored: uint32(len(p))}
				continue
			}
			if mark == MarkZero {
				*row = Block{Digest: zero.Of(d.BlockLen(k)), Source: SourceZero}
				continue
			}
			if mark == MarkStaged && row.Source == SourceHere {
				continue
			}
			if old == nil {
				old = prev.find(d)
			}
			if k >= len(old) || mark == MarkStaged && row.Source != sourceKept {
				return fmt.Errorf("block %d of %s was lost on its way to the file", k, d.Path)
			}
			*row = old[k]
			switch {
			case row.Source == SourceHere:
				row.Source = source(Base{Index: prev.Index, Diff: len(prev.Bases) > 0, Header: prev.Header})
			case row.Source >= SourceBase:
				row.Source = source(prev.Bases[row.Source-SourceBase])
			}
		}
	}
	h.Bases = list
	for _, b := range list {
		copied, err := w.pending.Link(b.Index, prev.Index)
		if err != nil {
			return err
		}
		w.noLinks = w.noLinks || copied
	}
	return nil
}

// syncFiles makes the program's data files durable. A checkpoint must not refer
// to output that a power failure could still take away.
func syncFiles(paths []string) error {
	dirs := make(map[string]bool)
	for _, p := range paths {
		err := syncFile(p)
		if dir := filepath.Dir(p); err == nil && !dirs[dir] {
			dirs[dir] = true
			err = vfs.OS().SyncDir(dir) // the file may be new
		}
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s was open at the checkpoint, and was removed or renamed before the checkpoint was durable", p)
		}
		if err != nil {
			return fmt.Errorf("data file: %w", err)
		}
	}
	return nil
}

func syncFile(path string) error {
	var f *os.File
	var err error
	for _, flag := range []int{os.O_RDWR, os.O_WRONLY, os.O_RDONLY} {
		if f, err = os.OpenFile(path, flag, 0); !errors.Is(err, os.ErrPermission) {
			break
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncWritten makes the data files durable that the program has open for
// writing.
func SyncWritten(files []FileEntry) error { return syncFiles(writtenFiles(files)) }

// SyncChanged makes files and directories durable that the program has changed,
// and their names. It skips those that do not exist any more.
func SyncChanged(paths []string) error {
	dirs := make(map[string]bool)
	for _, p := range paths {
		dirs[filepath.Dir(p)] = true
		st, err := os.Lstat(p)
		switch {
		case err != nil:
		case st.IsDir():
			dirs[p] = true
		case st.Mode().IsRegular():
			err = syncFile(p)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("changed file: %w", err)
		}
	}
	for dir := range dirs {
		if err := vfs.OS().SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("changed directory: %w", err)
		}
	}
	return nil
}
