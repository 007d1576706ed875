package ckpt

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// ServeOptions configure Serve. The zero value is usable.
type ServeOptions struct {
	Dir string // the only directory that the rank may write to; empty: the one that it asks for

	fs vfs.FS // for tests
}

// Serve writes the checkpoints of one rank, which has the other end of conn as
// its Options.Helper, until the rank is gone or ctx is done. It returns when
// everything that the rank committed is published or has failed, and the
// directory's lock is released. Only then may the rank be started again. A
// checkpoint that was not committed is removed. Serve closes conn.
//
// Serve returns nil if the rank is gone, for whatever reason. It returns an
// error if ctx was done, if the rank sent an invalid message, or if a committed
// checkpoint could not be published and the rank was not there to be told.
//
// A process may serve many ranks at the same time.
func Serve(ctx context.Context, conn *net.UnixConn, opts ServeOptions) error {
	if err := helperSupport(); err != nil {
		conn.Close()
		return err
	}
	if opts.fs == nil {
		opts.fs = vfs.OS()
	}
	s := &server{wire: newWire(conn), opts: opts, staging: mem.NewStaging(maxSegments)}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	err := s.listen()
	conn.SetWriteDeadline(time.Now().Add(patience))
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, errProtocol):
		s.wire.send(msgRefused, nil, []byte(err.Error()))
	default: // the rank closed the connection, or died within a message
		err = nil
	}
	err = errors.Join(err, s.end())
	if err != nil && s.hello != nil {
		err = fmt.Errorf("%s: rank %d: %w", s.hello.Dir, s.hello.Rank, err)
	}
	return err
}

// patience is how long a rank may take to read the last messages.
const patience = 10 * time.Second

// maxSegments bounds staging memory, here and in the rank.
const maxSegments = 1 << 16

// errAway aborts a checkpoint that was not committed.
var errAway = errors.New("the rank went away before the checkpoint was copied")

// server is the helper's side of one connection. All methods run in the
// goroutine of Serve, except for giveBack and report.
type server struct {
	wire    *wire
	opts    ServeOptions
	hello   *hello
	dir     *store.Dir
	staging *mem.Staging
	writer  *fileWriter
	open    bool   // between begin and commit
	staged  []bool // rows that were put
	reports sync.WaitGroup

	mu     sync.Mutex
	busy   bool   // between begin and result
	have   []bool // segments, from put to release
	last   *Table // the last checkpoint made here
	unsaid error  // the error of a checkpoint that could not be reported to the rank
}

// listen handles messages until there are no more.
func (s *server) listen() error {
	for {
		m, err := s.wire.receive(fromRank)
		if err != nil {
			return err
		}
		if m.kind == msgBye && s.hello != nil {
			return nil
		}
		err = s.handle(m)
		if err != nil {
			return err
		}
	}
}

// handle handles one message.
func (s *server) handle(m message) error {
	if m.file != nil && (m.kind != msgHello && m.kind != msgGrow) {
		m.file.Close()
		return fmt.Errorf("%w: a descriptor with a message of kind %d", errProtocol, m.kind)
	}
	if (s.hello == nil) != (m.kind == msgHello) {
		if m.file != nil {
			m.file.Close()
		}
		return fmt.Errorf("%w: kind %d, where another was due", errProtocol, m.kind)
	}
	switch m.kind {
	case msgHello:
		return s.greet(m)
	case msgGrow:
		return s.grow(m)
	case msgBegin:
		return s.begin(m.body)
	case msgPut:
		return s.put(m.body)
	case msgCommit:
		return s.commit(m.body)
	case msgAbort:
		return s.abort(m.body)
	case msgLine, msgDamaged:
		index := m.body.U64()
		if err := m.body.end(); err != nil {
			return err
		}
		if m.kind == msgLine {
			s.writer.Line(index)
		} else {
			s.writer.Damaged(index)
		}
		return nil
	}
	return fmt.Errorf("%w: kind %d", errProtocol, m.kind)
}

func (s *server) greet(m message) error {
	refuse := func(err error) error {
		if m.file != nil {
			m.file.Close()
		}
		return err
	}
	var h hello
	if err := json.Unmarshal(m.body.Rest(), &h); err != nil {
		return refuse(fmt.Errorf("%w: hello: %v", errProtocol, err))
	}
	if h.Version != wireVersion {
		return refuse(fmt.Errorf("%w: the program speaks version %d to its helper, which speaks %d; use the same version of Cairn for both", errProtocol, h.Version, wireVersion))
	}
	if h.Rank < 0 || h.Rank >= h.Ranks || h.Keep < 1 || !filepath.IsAbs(h.Dir) {
		return refuse(fmt.Errorf("%w: rank %d of %d in %q", errProtocol, h.Rank, h.Ranks, h.Dir))
	}
	if s.opts.Dir != "" && filepath.Clean(h.Dir) != filepath.Clean(s.opts.Dir) {
		return refuse(fmt.Errorf("%w: a rank that writes to %s, where %s was expected", errProtocol, h.Dir, s.opts.Dir))
	}
	var lock io.Closer
	if m.file != nil {
		lock = m.file
	}
	damaged := make(map[uint64]bool)
	for _, index := range h.Damaged {
		damaged[index] = true
	}
	for _, index := range h.Aside {
		damaged[index] = false
	}
	s.hello, s.dir = &h, store.ForHelper(s.opts.fs, h.Dir, h.Rank, lock)
	s.dir.SetLimit(h.Limit)
	s.writer = newFileWriter(newDirTarget(s.dir, h.Ranks, h.Keep, damaged, h.Line), s.staging)
	s.writer.release = s.giveBack
	return nil
}

func (s *server) grow(m message) error {
	n := m.body.U32()
	if m.file == nil {
		return fmt.Errorf("%w: staging memory without memory", errProtocol)
	}
	err := m.body.end()
	if err == nil && (s.isBusy() || int64(n) > mem.Total()/mem.SegmentSize) {
		err = fmt.Errorf("%w: %d segments of staging", errProtocol, n)
	}
	if err == nil {
		err = s.attach(m.file, int(n))
	}
	if err != nil {
		m.file.Close()
	}
	return err
}

func (s *server) attach(f *os.File, n int) error {
	if err := s.staging.Attach(f, n); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have = append(s.have, make([]bool, n)...)
	return nil
}

func (s *server) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

func (s *server) begin(c *cursor) error {
	flags := c.U32()
	job := Job{WriteFirst: flags&flagWriteFirst != 0, Estimate: int64(c.U64())}
	if err := c.json(&job.Header); err != nil {
		return err
	}
	s.mu.Lock()
	busy, last := s.busy, s.last
	s.mu.Unlock()
	if busy {
		return fmt.Errorf("%w: checkpoint %d before the one under way was finished", errProtocol, job.Header.Index)
	}
	if flags&flagPreviousLast != 0 {
		if last == nil {
			return fmt.Errorf("%w: it refers to a checkpoint that was not made here", errProtocol)
		}
		job.Previous = last
	}
	if flags&flagPreviousHere != 0 {
		var err error
		if job.Previous, err = decodeTable(c); err != nil {
			return err
		}
	}
	if err := c.end(); err != nil {
		return err
	}
	if err := s.checkJob(&job); err != nil {
		return fmt.Errorf("%w: checkpoint %d: %w", errProtocol, job.Header.Index, err)
	}
	s.mu.Lock()
	s.busy = true
	s.mu.Unlock()
	s.open, s.staged = true, make([]bool, job.Header.TotalBlocks())
	s.writer.Begin(job)
	return nil
}

func decodeTable(c *cursor) (*Table, error) {
	var text tableText
	if err := c.json(&text); err != nil {
		return nil, err
	}
	h := &Header{Index: text.Index, Bases: text.Bases, Datasets: text.Datasets}
	if err := checkSizes(h); err != nil {
		return nil, fmt.Errorf("%w: the previous checkpoint: %w", errProtocol, err)
	}
	blocks, err := checkedBlocks(c.Rest(), h.TotalBlocks(), len(h.Bases))
	if err != nil {
		return nil, err
	}
	return newTable(h, text.Header, blocks), nil
}

// checkSizes refuses a header whose tables would not fit into this machine's
// memory.
func checkSizes(h *Header) error {
	for i := range h.Datasets {
		if d := &h.Datasets[i]; d.Size < 0 || d.Size > 1<<50 {
			return fmt.Errorf("%s has %d bytes", d.Path, d.Size)
		}
	}
	if err := h.Check(); err != nil {
		return err
	}
	if n := int64(h.TotalBlocks()); n > mem.Total()/16/blockBytes {
		return fmt.Errorf("%d blocks are more than the helper has memory for", n)
	}
	return nil
}

// checkJob refuses a job that no Saver makes.
func (s *server) checkJob(job *Job) error {
	h := &job.Header
	if h.Format != Format || h.Index == 0 || h.Rank != s.hello.Rank || h.Ranks != s.hello.Ranks {
		return fmt.Errorf("it claims format %d, rank %d of %d", h.Format, h.Rank, h.Ranks)
	}
	switch h.Compression {
	case None, Gzip, Zstd:
	default:
		return fmt.Errorf("compression %.20q", h.Compression)
	}
	if err := checkSizes(h); err != nil {
		return err
	}
	total := int64(0)
	for i := range h.Datasets {
		d := &h.Datasets[i]
		t, err := hdf5.ParseType(d.Type)
		if err != nil {
			return err
		}
		block := max(d.Size, 1)
		var chunk []uint64
		if d.Chunk != nil && len(d.Dims) > 0 && d.Size > inlineSize && t.Size <= MaxBlock {
			chunk = chunkShape(d.Dims, t.Size)
			block = int64(t.Size)
			for _, n := range chunk {
				block *= int64(n)
			}
		}
		if d.Block != block || !slices.Equal(d.Chunk, chunk) {
			return fmt.Errorf("%s is cut into blocks of %d bytes, %v; use the same version of Cairn for program and helper", d.Path, d.Block, d.Chunk)
		}
		total += d.Size
	}
	if job.Estimate < 0 || job.Estimate > total {
		job.Estimate = 0
	}
	return nil
}

func (s *server) put(c *cursor) error {
	seg, hurry, err := decodePut(c)
	if err != nil {
		return err
	}
	if !s.open || seg.Index >= len(s.have) {
		return fmt.Errorf("%w: segment %d of %d", errProtocol, seg.Index, len(s.have))
	}
	h := &s.writer.job.Header
	end := int64(0)
	for _, it := range seg.Blocks {
		if it.Dataset < 0 || int(it.Dataset) >= len(h.Datasets) {
			return fmt.Errorf("%w: dataset %d of %d", errProtocol, it.Dataset, len(h.Datasets))
		}
		d := &h.Datasets[it.Dataset]
		if d.Chunk == nil || it.Block < 0 || int(it.Block) >= d.NumBlocks() || int64(it.Off) < end || int(it.Len) != d.BlockLen(int(it.Block)) || s.staged[d.First+int(it.Block)] {
			return fmt.Errorf("%w: block %d of %s at %d, %d bytes", errProtocol, it.Block, d.Path, it.Off, it.Len)
		}
		s.staged[d.First+int(it.Block)] = true
		end = int64(it.Off) + d.Block
	}
	if end > mem.SegmentSize || seg.Used < 0 || int64(seg.Used) > mem.SegmentSize {
		return fmt.Errorf("%w: %d bytes in segment %d", errProtocol, end, seg.Index)
	}
	s.mu.Lock()
	twice := s.have[seg.Index]
	s.have[seg.Index] = true
	s.mu.Unlock()
	if twice {
		return fmt.Errorf("%w: segment %d was put twice", errProtocol, seg.Index)
	}
	if hurry {
		s.writer.hurry()
	}
	s.writer.queue <- seg // it has room for every segment
	return nil
}

// giveBack returns a segment to the rank. The writer's goroutines call it. If
// the rank is gone, nothing happens.
func (s *server) giveBack(i int) {
	s.mu.Lock()
	s.have[i] = false
	s.mu.Unlock()
	s.wire.send(msgRelease, nil, binary.LittleEndian.AppendUint32(nil, uint32(i)))
}

func (s *server) commit(c *cursor) error {
	tail, err := decodeCommit(c)
	if err != nil {
		return err
	}
	if !s.open {
		return fmt.Errorf("%w: commit without a checkpoint", errProtocol)
	}
	if err := s.checkTail(&tail); err != nil {
		return fmt.Errorf("%w: checkpoint %d: %w", errProtocol, s.writer.job.Header.Index, err)
	}
	s.open = false
	s.report(s.writer.Commit(tail), true)
	return nil
}

func (s *server) checkTail(tail *Tail) error {
	h := &s.writer.job.Header
	if len(tail.Marks) != len(s.staged) {
		return fmt.Errorf("%d marks for %d blocks", len(tail.Marks), len(s.staged))
	}
	for _, p := range slices.Concat(tail.Sync, tail.Also) {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("data file %q has no absolute path", p)
		}
	}
	for i := range h.Datasets {
		d := &h.Datasets[i]
		if d.Chunk == nil {
			if d.Size > 0 && (tail.Marks[d.First] != MarkStaged || int64(len(tail.Inline[int32(i)])) != d.Size) {
				return fmt.Errorf("content of %s", d.Path)
			}
			continue
		}
		for k := d.First; k < d.First+d.NumBlocks(); k++ {
			if m := tail.Marks[k]; m > MarkStaged || (m == MarkStaged) != s.staged[k] {
				return fmt.Errorf("block %d of %s is marked %d", k-d.First, d.Path, m)
			}
		}
	}
	return nil
}

func (s *server) abort(c *cursor) error {
	why := string(c.Rest())
	if !s.open {
		return fmt.Errorf("%w: abort without a checkpoint", errProtocol)
	}
	s.open = false
	s.report(s.writer.Abort(errors.New(why)), false)
	return nil
}

// report waits in the background for the result of a checkpoint and sends it to
// the rank.
func (s *server) report(done <-chan Result, committed bool) {
	s.reports.Go(func() {
		r := <-done
		p, err := encodeResult(&r)
		s.mu.Lock()
		if r.Table != nil {
			s.last = r.Table
		}
		s.busy = false
		s.mu.Unlock()
		if err == nil {
			err = s.wire.send(msgResult, nil, p...)
		}
		if err != nil && r.Err != nil && committed {
			s.mu.Lock()
			s.unsaid = fmt.Errorf("checkpoint %d: %w", r.Index, r.Err)
			s.mu.Unlock()
		}
	})
}

// end finishes what was committed, removes what was not, and releases
// everything.
func (s *server) end() error {
	if s.open {
		<-s.writer.Abort(errAway)
	}
	s.reports.Wait()
	if s.writer != nil {
		s.writer.Close()
	}
	s.staging.Close()
	var err error
	if s.dir != nil {
		err = s.dir.Close()
	}
	s.wire.close()
	return errors.Join(s.unsaid, err)
}
