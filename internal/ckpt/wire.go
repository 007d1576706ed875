package ckpt

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/decode"
	"github.com/cairnrun/cairn/internal/mem"
)

// The protocol between a rank and its helper, over a Unix stream socket. All
// numbers are little-endian.
//
//	message   | kind u32 | descriptors u32 | length u64 | length bytes |
//
//	rank → helper
//	hello     JSON (hello); descriptor, if there is one: the directory's lock
//	grow      segments u32; descriptor: the memory they are in
//	begin     flags u32 | estimate i64 | text(JSON Header) |
//	          with previousHere: text(JSON of a Table without rows) | rows of 24 bytes
//	put       segment u32 | used u32 | flags u32 | blocks of 4 × i32 |
//	          with digestsHere: a digest of 2 × u64 per block
//	commit    text(JSON tailText) | bytes(marks) | n u32 | n × (dataset u32 | bytes(content))
//	abort     reason
//	line      index u64
//	damaged   index u64: it does not count as kept
//	bye       nothing: the helper finishes its work and closes the connection
//
//	helper → rank
//	release   segment u32
//	result    text(JSON resultText) | rows of 24 bytes
//	refused   reason: the last message before the connection is closed
//
// text and bytes are a u64 length and that many bytes. A checkpoint is begin,
// any number of put, commit or abort, and result; the next one begins after the
// result. Segments belong to the helper from put until release. A descriptor
// comes with the first byte of its message.
const (
	msgHello uint32 = iota + 1
	msgGrow
	msgBegin
	msgPut
	msgCommit
	msgAbort
	msgLine
	msgBye
	msgRelease
	msgResult
	msgRefused
	msgDamaged
)

// wireVersion is the version of the protocol. Both sides must have the same.
const wireVersion = 5

const wireHead = 16

// Flags of begin and put.
const (
	flagWriteFirst   = 1 << iota
	flagPreviousLast // kept blocks are in the last checkpoint that the helper wrote
	flagPreviousHere // kept blocks are in the table that follows
	flagHurry        // the program waits for segments
	flagDigestsHere  // the blocks' digests follow
)

// errProtocol marks messages that no correct peer sends.
var errProtocol = errors.New("message not understood")

type hello struct {
	Version int      `json:"version"`
	Dir     string   `json:"dir"`
	Rank    int      `json:"rank"`
	Ranks   int      `json:"ranks"`
	Keep    int      `json:"keep"`
	Limit   int64    `json:"limit,omitempty"`
	Damaged []uint64 `json:"damaged,omitempty"`
	Aside   []uint64 `json:"aside,omitempty"` // in Options.Damaged with the value false
	Line    uint64   `json:"line,omitempty"`
}

type tableText struct {
	Index    uint64    `json:"index"`
	Header   string    `json:"header,omitempty"`
	Bases    []Base    `json:"bases,omitempty"`
	Datasets []Dataset `json:"datasets,omitempty"`
}

type tailText struct {
	Sync []string `json:"sync,omitempty"`
	Also []string `json:"also,omitempty"`
	Note Note     `json:"note"`
}

type resultText struct {
	Index   uint64 `json:"index"`
	Error   string `json:"error,omitempty"`
	Errno   int    `json:"errno,omitempty"`
	Header  string `json:"header,omitempty"`
	Bases   []Base `json:"bases,omitempty"`
	Written int64  `json:"written,omitempty"`
	Took    int64  `json:"took"` // nanoseconds
	NoLinks bool   `json:"noLinks,omitempty"`
}

// wire is a connection that carries messages and descriptors.
type wire struct {
	conn  *net.UnixConn
	in    *bufio.Reader
	files []*os.File // received, not used yet
	mu    sync.Mutex // held while a message is sent
}

func newWire(conn *net.UnixConn) *wire {
	w := &wire{conn: conn}
	w.in = bufio.NewReader(readFunc(w.read))
	return w
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// close closes the connection. Only the reading goroutine may call it.
func (w *wire) close() {
	w.conn.Close()
	for _, f := range w.files {
		f.Close()
	}
	w.files = nil
}

// send sends a message with this content, and a descriptor if file is not nil.
// It blocks while the peer does not read.
func (w *wire) send(kind uint32, file *os.File, pieces ...[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	head := make([]byte, 0, wireHead)
	head = binary.LittleEndian.AppendUint32(head, kind)
	head = binary.LittleEndian.AppendUint32(head, 0)
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	head = binary.LittleEndian.AppendUint64(head, uint64(n))
	if file != nil {
		head[4] = 1
		if err := w.sendFile(head, file); err != nil {
			return err
		}
		head = nil
	}
	all := net.Buffers(append([][]byte{head}, pieces...))
	if len(head)+n <= 4<<10 { // most messages are small: one call
		_, err := w.conn.Write(bytes.Join(all, nil))
		return err
	}
	_, err := all.WriteTo(w.conn)
	return err
}

// message is a received message.
type message struct {
	kind uint32
	body *cursor
	file *os.File // belongs to the receiver; nil: none
}

// receive waits for a message of at most limit(kind) bytes. It returns io.EOF
// if the peer has closed the connection between messages.
func (w *wire) receive(limit func(kind uint32) int64) (message, error) {
	var head [wireHead]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
		return message{}, err
	}
	m := message{kind: binary.LittleEndian.Uint32(head[:])}
	files, n := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint64(head[8:])
	if most := limit(m.kind); most < 0 || n > uint64(most) || n > math.MaxInt || files > 1 || files == 1 && len(w.files) == 0 {
		return message{}, fmt.Errorf("%w: kind %d, %d descriptors, %d bytes", errProtocol, m.kind, files, n)
	}
	body, err := w.body(int(n))
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return message{}, err
	}
	if files == 1 {
		m.file, w.files = w.files[0], w.files[1:]
	}
	m.body = &cursor{decode.New(body)}
	return m, nil
}

// body reads n bytes. It allocates memory only as bytes come, because n may be
// wrong.
func (w *wire) body(n int) ([]byte, error) {
	const step = 1 << 20
	p := make([]byte, min(n, step))
	for have := 0; ; {
		if _, err := io.ReadFull(w.in, p[have:]); err != nil {
			return nil, err
		}
		if have = len(p); have == n {
			return p, nil
		}
		more := make([]byte, min(n, 2*have))
		copy(more, p)
		p = more
	}
}

// cursor decodes a message.
type cursor struct{ decode.Cursor }

// bytes reads a length and so many bytes.
func (c *cursor) bytes() []byte { return c.Take(c.U64()) }

// json reads a text into v.
func (c *cursor) json(v any) error {
	p := c.bytes()
	if c.Bad() {
		return c.end()
	}
	if err := json.Unmarshal(p, v); err != nil {
		return fmt.Errorf("%w: %v", errProtocol, err)
	}
	return nil
}

// end returns an error if the message is shorter or longer than what was read.
func (c *cursor) end() error {
	if err := c.End(); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	return nil
}

// sized returns the length of p, encoded.
func sized(p []byte) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(len(p))) }

// Encoders. Each returns the pieces of a message.

func encodeBegin(job *Job, last bool) ([][]byte, error) {
	flags := uint32(0)
	if job.WriteFirst {
		flags |= flagWriteFirst
	}
	switch {
	case job.Previous == nil:
	case last:
		flags |= flagPreviousLast
	default:
		flags |= flagPreviousHere
	}
	text, err := json.Marshal(&job.Header)
	if err != nil {
		return nil, err
	}
	head := binary.LittleEndian.AppendUint32(nil, flags)
	head = binary.LittleEndian.AppendUint64(head, uint64(job.Estimate))
	out := [][]byte{head, sized(text), text}
	if flags&flagPreviousHere != 0 {
		t := job.Previous
		if text, err = json.Marshal(tableText{t.Index, t.Header, t.Bases, t.Datasets}); err != nil {
			return nil, err
		}
		out = append(out, sized(text), text, encodeBlocks(t.Blocks))
	}
	return out, nil
}

const itemBytes, digestBytes = 16, 16

func encodePut(s *Segment, hurry bool) []byte {
	out := make([]byte, 0, 12+itemBytes*len(s.Blocks)+digestBytes*len(s.Digests))
	flags := uint32(0)
	if hurry {
		flags = flagHurry
	}
	if s.Digests != nil {
		flags |= flagDigestsHere
	}
	for _, v := range []uint32{uint32(s.Index), uint32(s.Used), flags} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	for _, it := range s.Blocks {
		for _, v := range [4]int32{it.Dataset, it.Block, it.Off, it.Len} {
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		}
	}
	for _, d := range s.Digests {
		out = binary.LittleEndian.AppendUint64(out, d.Lo)
		out = binary.LittleEndian.AppendUint64(out, d.Hi)
	}
	return out
}

func decodePut(c *cursor) (s Segment, hurry bool, err error) {
	s.Index, s.Used = int(c.U32()), int(c.U32())
	flags := c.U32()
	hurry = flags&flagHurry != 0
	rows, size := c.Rest(), itemBytes
	if flags&flagDigestsHere != 0 {
		size += digestBytes
	}
	if c.Bad() || len(rows)%size != 0 {
		return s, false, fmt.Errorf("%w: items of a segment", errProtocol)
	}
	s.Blocks = make([]StagedBlock, len(rows)/size)
	if flags&flagDigestsHere != 0 {
		s.Digests = make([]xxh3.Uint128, len(s.Blocks))
		for i := range s.Digests {
			p := rows[len(s.Blocks)*itemBytes+i*digestBytes:]
			s.Digests[i] = xxh3.Uint128{Lo: binary.LittleEndian.Uint64(p), Hi: binary.LittleEndian.Uint64(p[8:])}
		}
	}
	for i := range s.Blocks {
		r := rows[i*itemBytes:]
		at := func(k int) int32 { return int32(binary.LittleEndian.Uint32(r[4*k:])) }
		s.Blocks[i] = StagedBlock{at(0), at(1), at(2), at(3)}
	}
	return s, hurry, nil
}

func encodeCommit(t *Tail) ([][]byte, error) {
	text, err := json.Marshal(tailText{t.Sync, t.Also, t.Note})
	if err != nil {
		return nil, err
	}
	out := [][]byte{sized(text), text, sized(t.Marks), t.Marks, binary.LittleEndian.AppendUint32(nil, uint32(len(t.Inline)))}
	var small []byte
	for i, p := range t.Inline {
		small = binary.LittleEndian.AppendUint32(small, uint32(i))
		small = append(append(small, sized(p)...), p...)
	}
	return append(out, small), nil
}

func decodeCommit(c *cursor) (Tail, error) {
	var text tailText
	if err := c.json(&text); err != nil {
		return Tail{}, err
	}
	t := Tail{Sync: text.Sync, Also: text.Also, Note: text.Note, Marks: c.bytes(), Inline: make(map[int32][]byte)}
	for n := c.U32(); n > 0 && !c.Bad(); n-- {
		i := c.U32()
		p := c.bytes()
		if i > math.MaxInt32 {
			return Tail{}, fmt.Errorf("%w: dataset %d", errProtocol, i)
		}
		if p != nil {
			t.Inline[int32(i)] = p
		}
	}
	return t, c.end()
}

func encodeResult(r *Result) ([][]byte, error) {
	t := resultText{Index: r.Index, Written: r.Written, Took: int64(r.Took), NoLinks: r.NoLinks}
	var rows []byte
	if r.Err != nil {
		t.Error = r.Err.Error()
		var no syscall.Errno
		if errors.As(r.Err, &no) {
			t.Errno = int(no)
		}
	}
	if r.Table != nil {
		t.Header, t.Bases = r.Table.Header, r.Table.Bases
		rows = encodeBlocks(r.Table.Blocks)
	}
	text, err := json.Marshal(t)
	return [][]byte{sized(text), text, rows}, err
}

// decodeResult decodes the result of the checkpoint with header h.
func decodeResult(c *cursor, h *Header) (Result, error) {
	var t resultText
	if err := c.json(&t); err != nil {
		return Result{}, err
	}
	r := Result{Index: t.Index, Written: t.Written, Took: time.Duration(t.Took), NoLinks: t.NoLinks}
	rows := c.Rest()
	if t.Error != "" {
		r.Err = &helperError{t.Error, syscall.Errno(t.Errno)}
		return r, nil
	}
	made := *h
	made.Bases = t.Bases
	blocks, err := checkedBlocks(rows, made.TotalBlocks(), len(t.Bases))
	if err == nil && t.Index != h.Index {
		err = fmt.Errorf("%w: the outcome of checkpoint %d, not %d", errProtocol, t.Index, h.Index)
	}
	r.Table = newTable(&made, t.Header, blocks)
	return r, err
}

// checkedBlocks decodes n rows that may refer to this many bases.
func checkedBlocks(rows []byte, n, bases int) ([]Block, error) {
	if len(rows) != n*blockBytes {
		return nil, fmt.Errorf("%w: %d bytes are not %d rows", errProtocol, len(rows), n)
	}
	blocks := decodeBlocks(rows)
	for i := range blocks {
		if s := blocks[i].Source; s >= SourceBase && int64(s-SourceBase) >= int64(bases) {
			return nil, fmt.Errorf("%w: row %d names base %d of %d", errProtocol, i, s-SourceBase, bases)
		}
	}
	return blocks, nil
}

// helperError is an error that happened in a helper. It has the same text and
// wraps the same system error.
type helperError struct {
	text string
	no   syscall.Errno
}

func (e *helperError) Error() string { return e.text }

func (e *helperError) Unwrap() error {
	if e.no == 0 {
		return nil
	}
	return e.no
}

// fromRank bounds the length of a rank's messages: by the tables of a state
// that fits into this machine's memory.
func fromRank(kind uint32) int64 {
	switch kind {
	case msgHello, msgPut, msgAbort:
		return 4 << 20
	case msgGrow, msgLine, msgDamaged, msgBye:
		return 8
	case msgBegin, msgCommit:
		return mem.Total() / 4
	}
	return -1
}

// fromHelper bounds the length of a helper's messages.
func fromHelper(kind uint32) int64 {
	switch kind {
	case msgRelease:
		return 4
	case msgRefused:
		return 1 << 20
	case msgResult:
		return mem.Total() / 4
	}
	return -1
}
