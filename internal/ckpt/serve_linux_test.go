package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// recorder is a Writer that records the calls of a Saver.
type recorder struct {
	*fileWriter
	job      Job
	segments []Segment
	tail     Tail
}

func (r *recorder) Begin(j Job)   { r.job = j }
func (r *recorder) Put(s Segment) { r.segments = append(r.segments, s) }

func (r *recorder) Commit(t Tail) <-chan Result {
	r.tail = t
	done := make(chan Result, 1)
	done <- Result{Err: errors.New("only recorded")}
	return done
}

// record returns the calls that a Saver would make to its writer.
func record(t testing.TB, prev *Table, v *ckpttest.Values, opts Options) *recorder {
	t.Helper()
	dir, err := store.Create(vfstest.NewMem(), "/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSaver(dir, prev, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := &recorder{fileWriter: s.writer.(*fileWriter)}
	s.writer = r
	img, err := graph.Collect(v.Roots(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, img, nil, Note{}); err != nil {
		t.Fatal(err)
	}
	s.Collect(<-s.Done())
	return r
}

// raw returns an encoded message.
func raw(kind uint32, p ...[]byte) []byte {
	body := bytes.Join(p, nil)
	out := binary.LittleEndian.AppendUint32(nil, kind)
	out = binary.LittleEndian.AppendUint32(out, 0)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(body)))
	return slices.Clip(append(out, body...))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// session returns the encoded messages of a checkpoint.
func (r *recorder) session(last bool) []byte {
	out := raw(msgBegin, must(encodeBegin(&r.job, last))...)
	for i := range r.segments {
		out = append(out, raw(msgPut, encodePut(&r.segments[i], true))...)
	}
	return append(out, raw(msgCommit, must(encodeCommit(&r.tail))...)...)
}

// stranger is a client of a server. It has sent its hello and shared one
// segment.
type stranger struct {
	t       testing.TB
	conn    *net.UnixConn
	wire    *wire
	fsys    *vfstest.Mem
	served  chan error
	staging *mem.Staging
}

func newStranger(t testing.TB) *stranger {
	t.Helper()
	ours, theirs := pair(t)
	s := &stranger{t: t, conn: ours, wire: newWire(ours), fsys: vfstest.NewMem(), served: make(chan error, 1), staging: mem.NewStaging(1)}
	if err := s.fsys.Mkdir("/ckpt"); err != nil {
		t.Fatal(err)
	}
	if err := s.staging.Grow(1); err != nil {
		t.Fatal(err)
	}
	go func() { s.served <- Serve(ctx, theirs, ServeOptions{fs: s.fsys}) }()
	s.greet(hello{Version: wireVersion, Dir: "/ckpt", Ranks: 1, Keep: 2})
	s.wire.send(msgGrow, s.staging.Files()[0], []byte{1, 0, 0, 0})
	return s
}

func (s *stranger) greet(h hello) {
	text, err := json.Marshal(h)
	if err != nil {
		s.t.Fatal(err)
	}
	s.wire.send(msgHello, nil, text)
}

// end closes the sending side, and waits for the server.
func (s *stranger) end() error {
	go func() { // the server may be sending something
		s.conn.CloseWrite()
		io.Copy(io.Discard, s.conn)
		s.conn.Close()
	}()
	err := <-s.served
	s.staging.Close()
	return err
}

// FuzzServe sends arbitrary messages as a rank. The server must close that
// connection, and nothing else may happen.
func FuzzServe(f *testing.F) {
	full := record(f, nil, ckpttest.Sample(2000), Options{})
	prev := newTable(&full.job.Header, "", make([]Block, full.job.Header.TotalBlocks()))
	diff := record(f, prev, ckpttest.Sample(2000), Options{Compression: Gzip})
	f.Add(full.session(false))
	f.Add(diff.session(false))
	f.Add(append(full.session(false), diff.session(true)...))
	f.Add(append(raw(msgBegin, must(encodeBegin(&full.job, false))...), raw(msgAbort, []byte("no"))...))
	f.Add(append(raw(msgLine, make([]byte, 8)), raw(msgBye)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newStranger(t)
		s.conn.Write(data)
		s.end()
		// Any published checkpoint must be readable.
		indices, err := store.Open(s.fsys, "/ckpt", 0).Committed()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range indices {
			index, err := Open(s.fsys, store.Open(s.fsys, "/ckpt", 0).File(n))
			if err == nil {
				index.Close()
			} else if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

// TestServe_Session makes sure that FuzzServe starts from sessions that are
// served.
func TestServe_Session(t *testing.T) {
	r := record(t, nil, ckpttest.Sample(2000), Options{})
	s := newStranger(t)
	data := r.session(false)
	s.conn.Write(data)
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	index, err := Open(s.fsys, "/ckpt/ckpt-00000001/rank-0000.h5")
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	if bad, err := index.Verify(ctx, nil); err != nil || len(bad) > 0 {
		t.Fatal(bad, err)
	}
	// If the session is cut off anywhere, nothing may be published.
	for n := 0; n < len(data); n += 1 + len(data)/300 {
		s := newStranger(t)
		s.conn.Write(data[:n])
		if err := s.end(); err != nil {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(data), err)
		}
		if list, err := s.fsys.ReadDir("/ckpt"); err != nil || len(list) > 0 {
			t.Fatalf("cut to %d of %d bytes: left %v, %v", n, len(data), list, err)
		}
	}
}

// TestServe_Hostile sends messages that are well formed but wrong.
func TestServe_Hostile(t *testing.T) {
	r := record(t, nil, ckpttest.Sample(2000), Options{})
	begin := raw(msgBegin, must(encodeBegin(&r.job, false))...)
	put := func(change func(*Segment)) []byte {
		s := r.segments[0]
		s.Blocks = slices.Clone(s.Blocks)
		change(&s)
		return raw(msgPut, encodePut(&s, false))
	}
	commit := func(change func(*Tail)) []byte {
		t := r.tail
		t.Marks = slices.Clone(t.Marks)
		change(&t)
		return raw(msgCommit, must(encodeCommit(&t))...)
	}
	header := func(change func(*Header)) []byte {
		j := r.job
		j.Header.Datasets = slices.Clone(j.Header.Datasets)
		change(&j.Header)
		return raw(msgBegin, must(encodeBegin(&j, false))...)
	}
	chunked := slices.IndexFunc(r.job.Header.Datasets, func(d Dataset) bool { return d.Chunk != nil })
	good := put(func(*Segment) {})
	for name, data := range map[string][]byte{
		"an unknown kind":                raw(99),
		"hello twice":                    raw(msgHello, []byte("{}")),
		"a huge message":                 append(binary.LittleEndian.AppendUint64(nil, uint64(msgPut)), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
		"memory without memory":          raw(msgGrow, []byte{1, 0, 0, 0}),
		"put without begin":              good,
		"begin twice":                    append(begin, begin...),
		"a segment that is not":          append(begin, put(func(s *Segment) { s.Index = 1 })...),
		"a segment twice":                append(begin, append(put(func(s *Segment) { s.Blocks = nil }), put(func(s *Segment) { s.Blocks = nil })...)...),
		"a block twice":                  append(begin, put(func(s *Segment) { s.Blocks = append(s.Blocks, s.Blocks[0]) })...),
		"a dataset that is not":          append(begin, put(func(s *Segment) { s.Blocks[0].Dataset = 1000 })...),
		"a negative dataset":             append(begin, put(func(s *Segment) { s.Blocks[0].Dataset = -1 })...),
		"a block that is not":            append(begin, put(func(s *Segment) { s.Blocks[0].Block = 1 << 30 })...),
		"beyond the segment":             append(begin, put(func(s *Segment) { s.Blocks[0].Off = mem.SegmentSize - 5 })...),
		"before the segment":             append(begin, put(func(s *Segment) { s.Blocks[0].Off = -4096 })...),
		"a longer block":                 append(begin, put(func(s *Segment) { s.Blocks[0].Len = 1 << 20 })...),
		"too few marks":                  append(begin, append(good, commit(func(t *Tail) { t.Marks = t.Marks[1:] })...)...),
		"a strange mark":                 append(begin, append(good, commit(func(t *Tail) { t.Marks[len(t.Marks)-1] = 7 })...)...),
		"content that is missing":        append(begin, append(good, commit(func(t *Tail) { t.Inline = nil })...)...),
		"a block that never came":        append(begin, commit(func(*Tail) {})...),
		"a relative data file":           append(begin, append(good, commit(func(t *Tail) { t.Sync = []string{"x"} })...)...),
		"another rank":                   header(func(h *Header) { h.Rank = 5 }),
		"another format":                 header(func(h *Header) { h.Format = 9 }),
		"a compression that is not":      header(func(h *Header) { h.Compression = "lzw" }),
		"chunks of no size":              header(func(h *Header) { h.Datasets[chunked].Chunk = []uint64{0} }),
		"blocks of another size":         header(func(h *Header) { h.Datasets[chunked].Block = 8 }),
		"a dataset without end":          header(func(h *Header) { h.Datasets[0].Size = 1 << 62 }),
		"a flood of blocks":              header(func(h *Header) { *h = flood(*h) }),
		"a previous checkpoint not made": raw(msgBegin, must(encodeBegin(&Job{Header: r.job.Header, Previous: &Table{}}, true))...),
		"a base that is not":             raw(msgBegin, must(encodeBegin(&Job{Header: r.job.Header, Previous: strangeTable(&r.job.Header)}, false))...),
		"a descriptor that was lost":     {3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		s := newStranger(t)
		s.conn.Write(data)
		if err := s.end(); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		if list, err := s.fsys.ReadDir("/ckpt"); err != nil || len(list) > 0 {
			t.Errorf("%s: left %v, %v", name, list, err)
		}
	}
}

// flood returns a header that claims a state of an exabyte, in a few bytes.
func flood(h Header) Header {
	d := Dataset{Path: "MemBlocks/x", Type: "|u1", Dims: []uint64{1 << 46}, Chunk: []uint64{1 << 16}, Size: 1 << 46, Block: 1 << 16}
	h.Datasets = []Dataset{d}
	return h
}

func strangeTable(h *Header) *Table {
	blocks := make([]Block, h.TotalBlocks())
	blocks[0].Source = SourceBase + 3
	return newTable(h, "", blocks)
}

// TestServe_BadMemory shares memory that could disappear while the server uses
// it.
func TestServe_BadMemory(t *testing.T) {
	plain := must(os.CreateTemp(t.TempDir(), ""))
	defer plain.Close()
	plain.Truncate(mem.SegmentSize)
	open := os.NewFile(uintptr(must(unix.MemfdCreate("open", unix.MFD_ALLOW_SEALING))), "open")
	defer open.Close()
	open.Truncate(mem.SegmentSize)
	short := mem.NewStaging(1)
	defer short.Close()
	if err := short.Grow(1); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f *os.File
		n byte
	}{"a file": {plain, 1}, "not sealed": {open, 1}, "too short": {short.Files()[0], 2}, "empty": {short.Files()[0], 0}} {
		s := newStranger(t)
		s.wire.send(msgGrow, c.f, []byte{c.n, 0, 0, 0})
		if err := s.end(); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestServe_Refused shows that a rank learns why a helper refuses it.
func TestServe_Refused(t *testing.T) {
	ours, theirs := pair(t)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, theirs, ServeOptions{Dir: "/other", fs: vfstest.NewMem()}) }()
	b := newBench(t, withConn(ours), vfstest.NewMem(), "/ckpt", 0, nil, Options{})
	defer b.close()
	r := b.try()
	if !errors.Is(r.Err, ErrHelperGone) || !strings.Contains(r.Err.Error(), "where /other was expected") {
		t.Errorf("the rank is told: %v", r.Err)
	}
	if err := <-served; !errors.Is(err, errProtocol) {
		t.Errorf("Serve: %v", err)
	}
}

// TestServe_Canceled ends a helper by its context. It must publish committed
// checkpoints first, and tell the rank.
func TestServe_Canceled(t *testing.T) {
	fsys := vfstest.NewMem()
	canceled, cancel := context.WithCancel(ctx)
	ours, theirs := pair(t)
	served := make(chan error, 1)
	go func() { served <- Serve(canceled, theirs, ServeOptions{fs: fsys}) }()
	b := newBench(t, withConn(ours), fsys, "/ckpt", 0, nil, Options{})
	b.save()
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve: %v", err)
	}
	b.check(1, b.v)
	if r := b.try(); !errors.Is(r.Err, ErrHelperGone) {
		t.Errorf("the rank is told: %v", r.Err)
	}
	b.close()
}
