package migrate

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// destination is the receiving end of a migration.
type destination struct {
	o     Options
	s     *stream
	l     Receiver
	hello helloFrame

	// From the source's last head.
	head      *headFrame
	rest      rest
	described [sections]section
	text      [sections][]byte
	files     []*incomingFile

	img      *graph.Image
	builder  *graph.Builder
	datasets []ckpt.Dataset
	bytes    int64 // of all datasets
	targets  []targetBuffer
	tables   []*table
	seen     [][]bool // blocks that were listed in this round
	zeros    mem.ZeroDigests

	busy      atomic.Bool // send pings
	workNS    int64
	zeroBytes int64
	buffers   chan []byte // for bytes that cannot be received into place
	queue     chan *receivedBatch
	verified  verifier
}

// sourceError is why the source gave up.
type sourceError string

func (e sourceError) Error() string { return string(e) }

// Receive takes over the state that a Source sends. It returns when all values
// are verified and in the roots that l.Fit returned, and this is confirmed to
// the source. It closes conn. After an error the values of the roots are
// undefined.
func Receive(ctx context.Context, conn net.Conn, o Options, l Receiver) (*Received, error) {
	o.defaults()
	began := time.Now()
	n := &destination{o: o, s: newStream(conn, o.Stall), l: l, zeros: make(mem.ZeroDigests), buffers: make(chan []byte, 2), queue: make(chan *receivedBatch, queued)}
	for range cap(n.buffers) {
		n.buffers <- nil
	}
	defer context.AfterFunc(ctx, func() { n.s.close(rootCause{context.Cause(ctx)}) })()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { n.s.keepAlive(stop, n.busy.Load) })
	wg.Go(n.verifyLoop)
	got, err := n.run()
	close(n.queue)
	close(stop)
	wg.Wait()
	n.close()
	if err != nil {
		err = n.s.reason(err)
		if _, said := err.(sourceError); !said && n.s.sendFailure(err) == nil {
			// If the connection were closed with unread bytes, it would be
			// reset, and the source would not get the reason.
			conn.SetReadDeadline(time.Now().Add(min(o.Stall, 2*time.Second)))
			io.Copy(io.Discard, conn)
		}
		n.s.close(err)
		return nil, fmt.Errorf("rank %d cannot take over: %w", o.Rank, err)
	}
	n.s.close(nil)
	got.Stats.AllNS = int64(time.Since(began))
	return got, nil
}

// close releases everything.
func (n *destination) close() {
	if n.builder != nil {
		n.builder.Close()
	}
	for _, a := range n.files {
		a.close()
	}
}

func (n *destination) run() (*Received, error) {
	if err := n.readHello(); err != nil {
		return nil, err
	}
	for {
		kind, payload, err := n.s.await()
		if err != nil {
			return nil, err
		}
		switch {
		case kind == frameHead:
			err = n.beginRound(payload)
		case kind == frameFail:
			err = sourceError("the source gives up: " + string(payload))
		case n.head == nil:
			err = fmt.Errorf("%w: frame %d comes before a head", ckpt.ErrCorrupt, kind)
		case kind == frameBlocks:
			err = n.blocks(payload)
		case kind == frameFile:
			err = n.file(payload)
		case kind == frameData:
			err = n.fileData(payload)
		case kind == frameEnd:
			var e endFrame
			if err = json.Unmarshal(payload, &e); err != nil || e.Last != n.head.Last {
				err = fmt.Errorf("%w: the end of another round: %v", ckpt.ErrCorrupt, err)
				break
			}
			if err = n.waitVerified(); err == nil && e.Last {
				return n.complete(e.Digest)
			}
			n.head = nil
		default:
			err = fmt.Errorf("%w: a frame of kind %d", ckpt.ErrCorrupt, kind)
		}
		if err != nil {
			return nil, err
		}
	}
}

// readHello reads the beginning of the stream.
func (n *destination) readHello() error {
	var p [16]byte
	if err := n.s.full(p[:]); err != nil {
		return err
	}
	if at := len(preface) - 4; !slices.Equal(p[:at], preface[:at]) {
		return fmt.Errorf("%w: not a migration stream", ckpt.ErrCorrupt)
	} else if v := binary.LittleEndian.Uint32(p[at:]); v != version {
		return fmt.Errorf("%w: the source speaks version %d of the stream, this program %d: both hosts need the same version of Cairn", ckpt.ErrFormat, v, version)
	}
	kind, payload, err := n.s.await()
	if err != nil {
		return err
	}
	if kind != frameHello {
		return fmt.Errorf("%w: the stream begins with a frame of kind %d", ckpt.ErrCorrupt, kind)
	}
	if err := json.Unmarshal(payload, &n.hello); err != nil {
		return fmt.Errorf("%w: %v", ckpt.ErrCorrupt, err)
	}
	h := &n.hello
	if h.Rank != n.o.Rank || h.Ranks != n.o.Ranks {
		return fmt.Errorf("the source is rank %d of %d, not %d of %d", h.Rank, h.Ranks, n.o.Rank, n.o.Ranks)
	}
	if h.BatchSize <= 0 || h.BatchSize > maxBatch {
		return fmt.Errorf("%w: batches of %d bytes", ckpt.ErrCorrupt, h.BatchSize)
	}
	return nil
}

// beginRound reads a head and its sections.
func (n *destination) beginRound(payload []byte) error {
	if n.head != nil {
		return fmt.Errorf("%w: a round begins in another one", ckpt.ErrCorrupt)
	}
	h := new(headFrame)
	if err := json.Unmarshal(payload, h); err != nil {
		return fmt.Errorf("%w: a head: %v", ckpt.ErrCorrupt, err)
	}
	changed := false
	for i := range h.Sections {
		s := h.Sections[i]
		if s.Same {
			if s.Same = false; s != n.described[i] || s.Digest == "" {
				return fmt.Errorf("%w: a head refers to what was not sent", ckpt.ErrCorrupt)
			}
			continue
		}
		var err error
		if n.text[i], err = n.section(s); err != nil {
			return err
		}
		n.described[i] = s
		changed = changed || sectionLayout(i)
	}
	n.head = h
	if h.Last {
		if err := json.Unmarshal(n.text[sectionRest], &n.rest); err != nil {
			return fmt.Errorf("%w: a head: %v", ckpt.ErrCorrupt, err)
		}
		n.rest.Note.Sent, n.rest.Note.Received = n.rest.Sent, n.rest.Received
	}
	if changed {
		defer n.working()()
		if err := n.prepare(); err != nil {
			return err
		}
	}
	n.seen = make([][]bool, len(n.datasets))
	for i := range n.seen {
		n.seen[i] = make([]bool, n.datasets[i].NumBlocks())
	}
	if h.Last { // not needed any more
		n.text = [sections][]byte{sectionExtra: n.text[sectionExtra]}
	}
	return nil
}

// working sends pings to the source and counts time, until done is called.
func (n *destination) working() (done func()) {
	began, was := time.Now(), n.busy.Swap(true)
	return func() {
		n.busy.Store(was)
		n.workNS += int64(time.Since(began))
	}
}

// section reads the parts of a section.
func (n *destination) section(s section) ([]byte, error) {
	if s.Size < 0 || s.Size > mem.Total()/4 {
		return nil, fmt.Errorf("%w: a section of %d bytes", ckpt.ErrCorrupt, s.Size)
	}
	p := make([]byte, 0, min(s.Size, partSize)) // grows as bytes come
	for int64(len(p)) < s.Size {
		kind, part, err := n.s.await()
		if err != nil {
			return nil, err
		}
		if kind == frameFail {
			return nil, sourceError("the source gives up: " + string(part))
		}
		if kind != framePart || len(part) == 0 || int64(len(part)) > s.Size-int64(len(p)) {
			return nil, fmt.Errorf("%w: an unexpected part of a section", ckpt.ErrCorrupt)
		}
		p = append(p, part...)
	}
	if ckpt.DigestText(p) != s.Digest {
		return nil, fmt.Errorf("%w: a section does not match its digest", ckpt.ErrCorrupt)
	}
	return p, nil
}

// prepare allocates memory for the image of a head. Datasets that an earlier
// image had, too, stay where they are.
func (n *destination) prepare() error {
	img, datasets, err := decodeImage(&n.text)
	if err != nil {
		return err
	}
	roots, env, drop, err := n.l.Fit(img)
	if err != nil {
		return err
	}
	first := n.builder == nil
	adopt := &graph.Adoption{From: n.builder, Pools: make(map[int]int)}
	from := make(map[int]int) // dataset → the same one in the earlier image
	byPath := make(map[string]int)
	for i := range n.datasets {
		byPath[n.datasets[i].Path] = i
	}
	for i := range datasets {
		d := &datasets[i]
		if k, ok := byPath[d.Path]; ok && d.SameLayout(&n.datasets[k]) && n.targets[k].used {
			from[i] = k
			adopt.Pools[d.Pool] = n.datasets[k].Pool
		}
	}
	targets, tables := n.targets, n.tables
	if !first {
		n.builder.Close()
		for k := range targets {
			targets[k] = targetBuffer{whole: targets[k].whole} // free what is not used again
		}
	}
	n.targets = nil
	n.builder, err = graph.Prepare(roots, img, env, graph.Options{Limit: mem.Total(), Drop: drop, Adopt: adopt})
	if err != nil {
		n.builder = nil
		return ckpt.AsCorrupt(err)
	}
	n.img, n.datasets, n.bytes = img, datasets, 0
	for i := range datasets {
		n.bytes += datasets[i].Size
	}
	if err := n.allocate(); err != nil {
		return err
	}
	n.tables = make([]*table, len(datasets))
	var kept []byte
	for i := range datasets {
		k, ok := from[i]
		b := &n.targets[i]
		if !ok || !n.builder.Adopted(datasets[i].Pool) || (b.whole == nil) != (targets[k].whole == nil) {
			n.tables[i] = newTable(&datasets[i])
			continue
		}
		n.tables[i] = tables[k]
		if b.whole != nil {
			b.setWhole(targets[k].whole)
		}
		if len(kept)+4 <= maxPayload {
			kept = binary.LittleEndian.AppendUint32(kept, uint32(i))
		} else {
			n.tables[i] = newTable(&datasets[i])
		}
	}
	if first {
		return nil
	}
	return n.s.frame(frameKept, kept)
}

// complete finishes the state after the final copy, and sends the confirmation.
func (n *destination) complete(root string) (*Received, error) {
	done := n.working()
	n.busy.Store(true)
	for i, t := range n.tables {
		for k, known := range t.known {
			if !known || !n.seen[i][k] {
				return nil, fmt.Errorf("%w: %s was not sent", ckpt.ErrCorrupt, blockName(&n.datasets[i], k))
			}
		}
	}
	if d := rootDigest(n.tables); d != root {
		return nil, fmt.Errorf("%w: the state has digest %s, the source's %s", ckpt.ErrCorrupt, d, root)
	}
	for i := range n.datasets {
		if b := &n.targets[i]; b.whole != nil {
			if err := b.fill(0, b.whole); err != nil {
				return nil, err
			}
			b.whole = nil
		}
	}
	if err := n.putFiles(); err != nil {
		return nil, err
	}
	h := &n.rest
	if n.l.Files != nil {
		if err := n.l.Files(h.Files, h.Note, n.text[sectionExtra]); err != nil {
			return nil, err
		}
	}
	if err := n.builder.Finish(); err != nil {
		return nil, ckpt.AsCorrupt(err)
	}
	done()
	read := n.workNS + n.verified.work
	word, err := json.Marshal(confirmFrame{Digest: root, ReadNS: read})
	if err != nil {
		return nil, err
	}
	if err := n.s.last(frameConfirm, word); err != nil {
		return nil, err
	}
	return &Received{Note: h.Note, Files: h.Files, Extra: n.text[sectionExtra],
		Stats: Stats{State: n.bytes, Sent: n.s.received.Load(), Zero: n.zeroBytes, ReadNS: read}}, nil
}
