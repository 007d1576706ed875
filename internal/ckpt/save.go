package ckpt

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
)

// Options configure a Saver. The zero value is usable.
type Options struct {
	Rank, Ranks int
	Run         string // becomes Header.Run
	Attempt     string // becomes Header.Attempt
	DiskLimit   int64  // bytes that this rank's files may take; 0: no bound. One checkpoint stays in any case
	Keep        int    // checkpoints to keep, at and below the recovery line if there are several ranks; 0: 2
	Compression Compression
	Memory      int64   // bound on staging memory; 0: the size of the state
	MaxBases    int     // how many bases a checkpoint may have; 0: 64; negative: every checkpoint is full
	NoTracking  bool    // do not use the kernel's tracking of written pages
	Tracker     Tracker // tells of written memory in place of the kernel, or nil
	// Stable reports whether memory stays as it is from Save until the result
	// of the save is there. If this process writes, it writes most of such
	// memory without copying it first. nil: there is none.
	Stable func(p []byte) bool
	// Ready waits until memory has the values that are to be saved. nil: it has
	// them when Save is called.
	Ready func(p []byte) error
	// Helper is a connection to a process that runs Serve. That process writes
	// the checkpoints. It publishes a checkpoint whose copy is complete even if
	// this process dies then. The Saver closes the connection. If Helper is
	// nil, this process writes.
	Helper *net.UnixConn
	// Damaged has the checkpoints that could not be loaded, and those above the
	// recovery line that the ranks went back to. They do not count as kept.
	// Those with the value true are removed.
	Damaged map[uint64]bool
}

// Saver saves the program's state: it finds the changed blocks and copies them
// for the writer. One goroutine at a time may use it.
type Saver struct {
	dir        *store.Dir
	opts       Options
	staging    *mem.Staging
	limit      int // maximum number of segments of staging
	writer     Writer
	tracker    Tracker
	noTrack    string // why there is no tracker
	prev       *Table
	next       uint64
	seen       map[string]*history // by dataset path
	pending    <-chan Result
	grown      chan struct{}         // closed when Reserve is done
	about      Description           // description of the last saved image
	current    *copying              // the save in progress
	prefetches map[string][]prefetch // by dataset path
	compact    *compaction           // planned for the next save
	buffers    copyBuffers
	mu         sync.Mutex
	pinned     map[mem.Device]int // how many mappings of the staging memory each device knows
	also       []string           // see SyncAlso
	pausing    *pause             // of the next save, from Prefetch on
	paused     atomic.Int64       // see Paused, in nanoseconds
}

// NewSaver returns a Saver for dir. prev is the restored checkpoint, or nil. If
// it is not nil, the first save is differential.
func NewSaver(dir *store.Dir, prev *Table, opts Options) (*Saver, error) {
	opts.Keep = cmp.Or(opts.Keep, 2)
	dir.SetLimit(opts.DiskLimit)
	opts.MaxBases = cmp.Or(opts.MaxBases, 64)
	opts.Ranks = cmp.Or(opts.Ranks, 1)
	next, err := dir.Next()
	if err != nil {
		return nil, err
	}
	limit := maxSegments
	if opts.Memory > 0 {
		room := opts.Memory - opts.Memory/16 // a sixteenth is left for tables and metadata
		if opts.Compression != None {
			room -= writers * mem.SegmentSize
		}
		limit = int(min(int64(limit), max(1, room/mem.SegmentSize)))
	}
	s := &Saver{dir: dir, opts: opts, prev: prev, next: next, staging: mem.NewStaging(limit), limit: limit, seen: make(map[string]*history)}
	line := uint64(0)
	if prev != nil {
		line = prev.Index
	}
	if opts.Helper != nil {
		s.opts.Stable = nil // the helper has the staging memory only
	}
	if opts.Helper == nil {
		s.writer = newFileWriter(newDirTarget(dir, opts.Ranks, opts.Keep, opts.Damaged, line), s.staging)
	} else if s.writer, err = newHelperWriter(dir, s.staging, &opts, line); err != nil {
		return nil, err
	}
	if opts.NoTracking {
		s.noTrack = "switched off"
	} else if s.tracker = opts.Tracker; s.tracker == nil {
		if t, err := mem.NewTracker(); err != nil {
			s.noTrack = err.Error()
		} else {
			s.tracker = t
		}
	}
	return s, nil
}

// Reserve allocates staging memory and room on devices for an image, in the
// background, so that the first save need not.
func (s *Saver) Reserve(img *graph.Image) {
	if s.grown != nil || s.pending != nil || s.opts.Stable != nil {
		return
	}
	host, all, device := int64(0), int64(0), make(map[mem.Device]int64)
	for i := range img.Pools {
		p := &img.Pools[i]
		if !p.Remote {
			host += int64(p.Bytes())
			continue
		}
		for _, piece := range p.Pieces {
			r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(piece)))
			if r == nil {
				continue
			}
			places, _ := r.Places(at, at+int64(len(piece))) // Save reports the error
			for _, pl := range places {
				all += pl.Len // including bytes that are nowhere yet
				if pl.Device != nil {
					device[pl.Device] += pl.Len
				}
			}
		}
	}
	done := make(chan struct{})
	s.grown = done
	go func() {
		defer close(done)
		if s.grow(host, all) != nil { // the next call of grow reports it
			return
		}
		for dev, n := range device {
			if s.pin(dev) == nil {
				dev.Reserve(n)
			}
		}
	}()
}

// grow allocates staging memory: for host bytes of the program's own memory,
// with a segment for each copying goroutine, and for device bytes to be
// drained. A drain gets two segments even if the program's own memory has used
// up the limit.
func (s *Saver) grow(host, device int64) error {
	rings := 0 // segments of the ring that exist
	for _, m := range s.staging.RingMaps() {
		rings += len(m) / mem.SegmentSize
	}
	if n := ring(device); n > 0 {
		n = min(n, max(s.limit-(s.staging.Len()-rings), 2), max(s.limit/2, 1))
		if err := s.staging.GrowRing(n); err != nil {
			return err
		}
		rings = max(rings, n)
	}
	host += host / 64 // blocks may not fill a segment to its end
	err := s.staging.Grow(min(int(host/mem.SegmentSize)+copiers(), max(1, s.limit-rings)))
	if w, ok := s.writer.(interface{ share() error }); ok && err == nil {
		err = w.share()
	}
	return err
}

func copiers() int { return min(runtime.GOMAXPROCS(0), 8) }

// Busy reports whether a save is still being written.
func (s *Saver) Busy() bool { return s.pending != nil }

// Done returns the channel that delivers the result of the save in progress.
// Pass the result to Collect. Done returns nil if no save is in progress.
func (s *Saver) Done() <-chan Result { return s.pending }

// Collect takes in the result of a save.
func (s *Saver) Collect(r Result) {
	c := s.current
	s.pending, s.current = nil, nil
	if r.Err != nil {
		return
	}
	if c.changed == nil {
		c.changed = changes(r.Table, s.prev)
	}
	for i := range r.Table.Datasets {
		h := s.seen[r.Table.Datasets[i].Path]
		if h == nil {
			continue
		}
		clear(h.dirty)
		h.runs = c.runs[i]
		for k := range h.runs { // drop references to the program's memory
			h.runs[k].Place = mem.Place{Version: h.runs[k].Place.Version}
		}
		if share := c.changed[i]; share >= 0 {
			h.changed = share
		}
	}
	s.prev, s.compact = r.Table, c.after
	if r.NoLinks {
		s.opts.MaxBases, s.compact = -1, nil
	}
}

// Rewind tells the Saver that the program's state is that of checkpoint to
// again, or of none if to is nil. damaged has checkpoints that could not be
// loaded; see Options. No save may be in progress.
func (s *Saver) Rewind(to *Table, damaged map[uint64]bool) {
	for index, bad := range damaged {
		if bad {
			s.writer.Damaged(index)
		}
	}
	for _, h := range s.seen {
		s.unwatch(h)
	}
	clear(s.seen)
	s.dropPrefetched()
	s.prev = to
}

// Next returns the index of the next checkpoint. It is above all checkpoints
// that were in the directory when the Saver was made.
func (s *Saver) Next() uint64 { return s.next }

// SetNext sets the index of the next checkpoint, which must be the same on all
// ranks. It refuses an index below Next, which may belong to another
// checkpoint. Ranks agree on the largest Next of all.
func (s *Saver) SetNext(index uint64) error {
	if index < s.next {
		return fmt.Errorf("rank %d cannot save checkpoint %d: checkpoints up to %d exist; use the largest index that any rank's Next returns", s.opts.Rank, index, s.next-1)
	}
	s.next = index
	return nil
}

// Line tells the Saver that all ranks have committed a checkpoint, so that
// older ones need not be kept. It returns at once; the writer removes
// checkpoints when it is idle. Call it for every checkpoint that all ranks
// have, in ascending order: checkpoints of this Saver between them do not count
// as kept. A run of one rank does not need it.
func (s *Saver) Line(index uint64) { s.writer.Line(index) }

// Failed tells the Saver that not all ranks will have this checkpoint. It is
// removed as soon as the next checkpoint does not need it.
func (s *Saver) Failed(index uint64) { s.writer.Damaged(index) }

// Close closes the Saver. No save may be in progress.
func (s *Saver) Close() {
	if s.grown != nil {
		<-s.grown
	}
	s.dropPrefetched()
	s.writer.Close()
	s.unpin()
	if s.tracker != nil {
		s.tracker.Close()
	}
	s.staging.Close()
}

// CloseAtExit is Close for a process that is about to end. It does not free the
// memory, which takes long for large states.
func (s *Saver) CloseAtExit() { s.writer.Close() }

// Save begins a checkpoint of the image. It returns when the program may
// continue: everything that belongs to the checkpoint is copied, frozen on a
// device, or guarded in host memory (see device.go). Done delivers the result.
// Save must not be called while Busy. After an error nothing was begun.
func (s *Saver) Save(ctx context.Context, img *graph.Image, files []FileEntry, note Note) (index uint64, err error) {
	if note.Began.IsZero() {
		note.Began = time.Now()
	}
	if n := len(note.Sent); n != len(note.Received) || n > 0 && n != s.opts.Ranks {
		return 0, fmt.Errorf("message totals of %d and %d ranks, the run has %d", n, len(note.Received), s.opts.Ranks)
	}
	if err := s.writer.Err(); err != nil {
		return 0, err
	}
	pause := s.pausing
	if s.pausing = nil; pause == nil {
		pause = startPause()
	}
	l, err := planImage(img, files, &s.about)
	if err != nil {
		return 0, err
	}
	if s.grown != nil {
		<-s.grown
		s.grown = nil
	}
	c, err := s.prepare(l)
	s.dropPrefetched()
	if err != nil {
		return 0, err
	}
	if err := s.grow(c.bytes, c.deviceBytes); err != nil {
		c.dropDiffs()
		return 0, err
	}
	inline, err := c.inline()
	if err != nil {
		c.dropDiffs()
		return 0, err
	}
	waitDevices, release := c.startDevices(), c.guardDeferred() // devices work while the host copies
	job := Job{
		Header: Header{
			Format: Format, Run: s.opts.Run, Attempt: s.opts.Attempt, Index: s.next, Rank: s.opts.Rank, Ranks: s.opts.Ranks,
			Time: note.Began.UTC().Format(time.RFC3339Nano), Compression: s.opts.Compression,
			Datasets: l.Datasets, Names: img.Names, Empty: note.Empty, Bases: c.compact.keep, Sent: note.Sent, Received: note.Received,
		},
		Previous: s.prev, WriteFirst: c.writeFirst,
	}
	if c.writeFirst && s.opts.Compression == None {
		job.Estimate = c.bytes + c.stableBytes + c.expected
	}
	tail := Tail{Marks: c.marks, Inline: inline, Sync: writtenFiles(files), Also: s.also}
	s.also = nil
	begin := sync.OnceFunc(func() { s.writer.Begin(job) })
	later := len(c.devices) > 0 || len(c.deferred) > 0
	begun := !later || len(c.ranges) > 0 // otherwise Begin can wait until the program continues
	if begun {
		begin()
		copied := time.Now()
		err = c.run(ctx)
		pause.host = time.Since(copied)
	}
	if e := waitDevices(); err == nil {
		err = e
	}
	if err == nil && c.anyLive() {
		begin()
		begun = true
		err = c.drainLive()
	}
	if err != nil {
		for _, t := range c.devices {
			t.close()
		}
		release()
		if begun {
			s.next++
			s.Collect(<-s.writer.Abort(err))
		}
		return 0, err
	}
	s.next++
	pause.returned = time.Now()
	note.Finding, note.Tracking = c.finding, "available"
	if s.tracker == nil {
		note.Tracking = s.noTrack
	}
	tail.Note = s.notePause(note, pause, nil)
	s.current = c
	if !later {
		s.pending = s.writer.Commit(tail)
		return job.Header.Index, nil
	}
	done := make(chan Result, 1)
	s.pending = done
	go func() {
		begin()
		if err := c.drainAll(release); err != nil {
			done <- <-s.writer.Abort(err)
			return
		}
		tail.Note = s.notePause(note, pause, c.free())
		copied := time.Since(note.Began)
		r := <-s.writer.Commit(tail)
		r.Copied = copied
		if r.Err == nil { // the next save need not wait for this
			c.after = planCompaction(r.Table, s.opts.MaxBases)
			c.changed = changes(r.Table, job.Previous)
		}
		done <- r
	}()
	return job.Header.Index, nil
}

// SyncAlso names files and directories, by absolute paths, that are made
// durable before the next checkpoint is published, in addition to the open
// files. Those that do not exist then are skipped.
func (s *Saver) SyncAlso(paths []string) { s.also = paths }

func writtenFiles(files []FileEntry) []string {
	var out []string
	for _, f := range files {
		if f.Mode != "r" && !f.IsStream() && !f.Closed {
			out = append(out, f.Abs)
		}
	}
	return out
}

// copying is the state of one save.
type copying struct {
	s           *Saver
	l           *Layout
	old         [][]Block // per dataset, rows of the previous checkpoint
	look        [][]bool  // per dataset, the blocks to examine; nil: all
	digest      []bool    // per dataset: digest in place before copying
	stable      []bool    // per dataset: blocks need no copy
	compact     *compaction
	marks       []Mark
	bytes       int64         // the maximum to be staged during the pause
	stableBytes int64         // … and to be stored without that
	host        []Memory      // per dataset, the bytes in host memory
	devices     []*deviceTask // per device, the work there
	deviceBytes int64
	deferred    []deferredRun // guarded host memory, copied after the pause
	expected    int64         // bytes on devices and deferred that will probably be stored
	runs        [][]Placement // per dataset, the blocks on devices
	after       *compaction   // for the save after this one
	changed     []float64     // per dataset, the share of blocks that differ from the previous checkpoint
	writeFirst  bool
	finding     string

	ranges []blockRange
	next   atomic.Int64
}

type blockRange struct{ dataset, lo, hi int }

// prepare decides, dataset by dataset, how changes are found.
func (s *Saver) prepare(l *Layout) (*copying, error) {
	n := len(l.Datasets)
	c := &copying{s: s, l: l, old: make([][]Block, n), look: make([][]bool, n), digest: make([]bool, n), stable: make([]bool, n), marks: make([]Mark, l.blocks), host: l.Memory, runs: make([][]Placement, n)}
	if l.anyRemote() {
		c.host = slices.Clone(l.Memory)
	}
	c.compact = s.compaction()
	s.forget(l)
	var copied, digested, tracked, device int64
	c.writeFirst = true
	for i := range l.Datasets {
		d := &l.Datasets[i]
		if d.Chunk == nil {
			continue
		}
		if s.opts.MaxBases >= 0 {
			c.old[i] = s.prev.find(d)
			if (l.Remote[i] || l.Copies[i] != nil) && len(c.old[i]) < d.NumBlocks() {
				c.old[i] = nil
			}
		}
		h := s.seen[d.Path]
		spans := spansOf(l.Memory[i].Pieces)
		if h == nil || h.dirty == nil {
			changed := -1.0
			if h != nil {
				changed = h.changed
			}
			h = &history{spans: spans, block: d.Block, changed: changed, dirty: make([]bool, d.NumBlocks())}
			s.seen[d.Path] = h
			for k := range h.dirty {
				h.dirty[k] = true
			}
		}
		var runs []Placement
		candidates, size := -1, d.Size
		if l.Copies[i] != nil {
			c.assign(i, []Placement{copiedBefore(d, l.Copies[i])}, h)
			copied += d.Size
			continue
		}
		if l.Remote[i] {
			var err error
			if c.host[i], runs, err = Resolve(d, &l.Memory[i]); err != nil {
				c.dropDiffs()
				return nil, fmt.Errorf("%s: %w", d.Var, err)
			}
			for _, r := range runs {
				size -= r.Place.Len
			}
			c.deviceBytes += c.assign(i, runs, h)
			if device += d.Size - size; size == 0 {
				continue
			}
		} else {
			candidates = s.scan(d, h, &l.Memory[i])
		}
		here := size
		switch {
		case c.old[i] != nil && candidates >= 0 && float64(candidates) <= dense*float64(len(h.dirty)):
			c.look[i] = h.dirty
			size = int64(candidates) * d.Block
			tracked += here
			c.writeFirst = false
		case c.old[i] != nil && h.changed >= 0 && h.changed <= dense:
			c.digest[i] = true
			size = int64(h.changed*float64(here)) + d.Block
			digested += here
			c.writeFirst = false
		default:
			copied += here
			if c.old[i] != nil && h.changed < 0 { // unknown yet: compare before writing
				c.writeFirst = false
			}
		}
		if c.stable[i] = s.isStable(d, &l.Memory[i]) && !l.Remote[i]; c.stable[i] {
			c.stableBytes += size
			size = d.Block // the last block may be shorter than a chunk
		}
		c.bytes += size
		const step = mem.SegmentSize / BlockSize
		at := 0
		for _, r := range append(runs, Placement{Lo: d.NumBlocks()}) {
			for ; at < r.Lo; at += step {
				c.ranges = append(c.ranges, blockRange{i, at, min(at+step, r.Lo)})
			}
			at = r.Hi
		}
	}
	c.finding = "copy"
	if digested > copied && digested > tracked {
		c.finding = "digest"
	} else if tracked > copied {
		c.finding = "kernel"
	}
	if device > copied+digested+tracked {
		c.finding = "device"
	}
	return c, nil
}

// inline copies the datasets that are stored with the metadata.
func (c *copying) inline() (map[int32][]byte, error) {
	out := make(map[int32][]byte)
	for i := range c.l.Datasets {
		d := &c.l.Datasets[i]
		if d.Chunk != nil || d.Size == 0 {
			continue
		}
		p := make([]byte, d.Size)
		if err := c.ready(i, 0, d.Size); err != nil {
			return nil, err
		}
		if err := c.l.Memory[i].read(p, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		out[int32(i)] = p
		c.marks[d.First] = MarkStaged
	}
	return out, nil
}

// run copies all ranges, with several goroutines.
func (c *copying) run(ctx context.Context) error {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	work := func() {
		if err := mem.Readable(func() error { return c.work(ctx) }); err != nil {
			failed.Store(&err)
		}
	}
	for range min(copiers(), len(c.ranges)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}

func (c *copying) work(ctx context.Context) error {
	seg, stable := Segment{Index: -1}, Segment{Index: -1}
	defer func() {
		if seg.Index >= 0 {
			c.s.writer.Put(seg)
		}
		if stable.Stable != nil {
			c.s.writer.Put(stable)
		}
	}()
	var scratch []byte
	for {
		r := int(c.next.Add(1)) - 1
		if r >= len(c.ranges) {
			return nil
		}
		i := c.ranges[r].dataset
		d, b, old, look := &c.l.Datasets[i], &c.host[i], c.old[i], c.look[i]
		from := int64(c.ranges[r].lo) * d.Block
		if err := c.ready(i, from, min(int64(c.ranges[r].hi)*d.Block, d.Size)-from); err != nil {
			return err
		}
		for k := c.ranges[r].lo; k < c.ranges[r].hi; k++ {
			off, n := int64(k)*d.Block, d.BlockLen(k)
			may := k < len(old) && c.mayKeep(&old[k])
			if look != nil && !look[k] && may {
				continue // MarkKept
			}
			if b.gather != nil {
				if err := c.gather(ctx, &seg, i, k, may); err != nil {
					return err
				}
				continue
			}
			if c.digest[i] && may {
				p, ok := b.View(off, n)
				if !ok {
					if scratch == nil {
						scratch = make([]byte, MaxBlock)
					}
					p = scratch[:n]
					b.CopyTo(p, off)
				}
				if mem.Digest(p) == old[k].Digest {
					continue
				}
			}
			if b.zero(off, n) {
				c.marks[d.First+k] = MarkZero
				continue
			}
			if c.putStable(&stable, i, k) {
				continue
			}
			at, err := c.room(ctx, &seg, d)
			if err != nil {
				return err
			}
			b.CopyTo(seg.add(c.s.staging.Segment(seg.Index), at, i, k, d), off)
			c.marks[d.First+k] = MarkStaged
		}
	}
}

// room returns where in the segment a block of d goes, or takes another one.
func (c *copying) room(ctx context.Context, seg *Segment, d *Dataset) (int, error) {
	at, ok := seg.room(d)
	if ok {
		return at, nil
	}
	if seg.Index >= 0 {
		c.s.writer.Put(*seg)
	}
	*seg = Segment{Index: -1}
	select {
	case seg.Index = <-c.s.staging.Free():
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// gather produces block k of dataset i in the segment, and leaves it there if
// it has changed.
func (c *copying) gather(ctx context.Context, seg *Segment, i, k int, may bool) error {
	d := &c.l.Datasets[i]
	at, err := c.room(ctx, seg, d)
	if err != nil {
		return err
	}
	data := c.s.staging.Segment(seg.Index)
	p := data[at : at+d.BlockLen(k)]
	if err := c.host[i].gather(p, int64(k)*d.Block); err != nil {
		return fmt.Errorf("%s: %w", d.Path, err)
	}
	switch {
	case may && mem.Digest(p) == c.old[i][k].Digest: // MarkKept
	case mem.IsZero(p):
		c.marks[d.First+k] = MarkZero
	default:
		seg.add(data, at, i, k, d)
		c.marks[d.First+k] = MarkStaged
	}
	return nil
}
