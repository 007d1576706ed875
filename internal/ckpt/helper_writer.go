package ckpt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
)

// ErrHelperGone is wrapped if the helper process that writes a rank's
// checkpoints died or gave up. The checkpoint in progress may or may not be
// saved. Those before it are saved. No later one will be saved until the rank
// is started again.
var ErrHelperGone = errors.New("the helper process that writes checkpoints is gone")

// helperWriter is the rank's side of a Writer in a helper process. One
// goroutine sends the messages, in order, so that Put only adds to a queue;
// another goroutine reads the answers.
type helperWriter struct {
	wire    *wire
	staging *mem.Staging
	rank    int
	ended   sync.WaitGroup // both goroutines

	mu     sync.Mutex
	filled sync.Cond // signals that the queue is not empty, or that the helper is gone
	queue  []request
	shared int          // files of the staging memory that were sent
	theirs map[int]bool // segments that the helper owns
	header *Header      // header of the checkpoint in progress; nil: none
	sealed bool         // its Commit was sent, or is about to be
	why    error        // why it was aborted
	done   chan Result
	last   *Table // the last checkpoint, which the helper has, too
	gone   error
}

// request is a message to be made and sent.
type request struct {
	kind uint32
	file *os.File
	make func() ([][]byte, error)
	sent chan struct{} // closed when it is sent; nil: nobody waits
}

func pieces(p ...[]byte) func() ([][]byte, error) {
	return func() ([][]byte, error) { return p, nil }
}

// newHelperWriter sends the hello to the helper on opts.Helper. It does not
// wait for an answer: if the helper refuses, the first checkpoint fails.
func newHelperWriter(dir *store.Dir, staging *mem.Staging, opts *Options, line uint64) (*helperWriter, error) {
	if err := helperSupport(); err != nil {
		return nil, err
	}
	h := hello{Version: wireVersion, Dir: dir.Path(), Rank: dir.Rank(), Ranks: opts.Ranks, Keep: opts.Keep, Limit: opts.DiskLimit, Line: line}
	for _, index := range slices.Sorted(maps.Keys(opts.Damaged)) {
		if opts.Damaged[index] {
			h.Damaged = append(h.Damaged, index)
		} else {
			h.Aside = append(h.Aside, index)
		}
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	w := &helperWriter{wire: newWire(opts.Helper), staging: staging, rank: h.Rank, theirs: make(map[int]bool)}
	w.filled.L = &w.mu
	w.queue = []request{{kind: msgHello, file: dir.LockFile(), make: pieces(text)}}
	// Without WaitGroup.Go: until a goroutine of its own has begun, nobody can
	// see in a stack trace whose it is.
	w.ended.Add(2)
	go func() {
		defer w.ended.Done()
		w.send()
	}()
	go func() {
		defer w.ended.Done()
		w.receive()
	}()
	return w, nil
}

// lose records that the helper is gone. w.mu is held.
//
// If a checkpoint is being copied, lose takes the helper's segments back:
// without a Commit the checkpoint is never published, and the copying must not
// wait forever. After a Commit the segments stay lost, since the helper may
// still write them.
func (w *helperWriter) lose(err error) {
	if w.gone != nil {
		return
	}
	if err == io.EOF {
		err = errors.New("the connection was closed")
	}
	w.gone = fmt.Errorf("rank %d: %w: %w; older checkpoints are intact; restart the rank with a new helper", w.rank, ErrHelperGone, err)
	w.filled.Broadcast()
	w.wire.conn.Close() // unblocks the other goroutine
	for _, m := range w.queue {
		if m.sent != nil {
			close(m.sent)
		}
	}
	w.queue = nil
	if w.header != nil && !w.sealed {
		for i := range w.theirs {
			w.staging.Release(i)
		}
		clear(w.theirs)
	}
	if w.done != nil {
		w.finish(Result{Index: w.header.Index, Err: w.gone})
	}
}

// finish delivers the result of the checkpoint in progress. w.mu is held.
func (w *helperWriter) finish(r Result) {
	if w.why != nil {
		r.Err, r.Table = w.why, nil
	}
	if r.Table != nil {
		w.last = r.Table
	}
	w.done <- r
	w.header, w.done, w.why, w.sealed = nil, nil, nil, false
}

// put appends to the queue. w.mu is held.
func (w *helperWriter) put(m request) {
	w.queue = append(w.queue, m)
	w.filled.Signal()
}

// send sends the queue until the helper is gone or Close is called.
func (w *helperWriter) send() {
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && w.gone == nil {
			w.filled.Wait()
		}
		if w.gone != nil {
			w.mu.Unlock()
			return
		}
		batch := w.queue
		w.queue = nil
		w.mu.Unlock()
		for _, m := range batch {
			p, err := m.make()
			if err == nil {
				err = w.wire.send(m.kind, m.file, p...)
			}
			if err != nil {
				w.failSend(err)
			}
			if m.sent != nil {
				close(m.sent)
			}
		}
	}
}

// failSend records that a message could not be sent. If the helper closed the
// connection, it may have sent a reason before; the reason is read first.
func (w *helperWriter) failSend(err error) {
	if w.wire.conn.CloseWrite() == nil { // the reader ends soon, and knows the reason
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose(err)
}

// receive handles the helper's messages until the connection ends.
func (w *helperWriter) receive() {
	defer w.wire.close()
	for {
		m, err := w.wire.receive(fromHelper)
		w.mu.Lock()
		if err == nil {
			err = w.handle(m)
		}
		if err != nil {
			w.lose(err)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// handle handles one message. w.mu is held.
func (w *helperWriter) handle(m message) error {
	if m.file != nil {
		m.file.Close()
	}
	switch m.kind {
	case msgRelease:
		i := int(m.body.U32())
		if err := m.body.end(); err != nil {
			return err
		}
		if !w.theirs[i] {
			return fmt.Errorf("%w: segment %d came back twice", errProtocol, i)
		}
		delete(w.theirs, i)
		w.staging.Release(i)
	case msgResult:
		if w.done == nil {
			return fmt.Errorf("%w: an outcome that was not asked for", errProtocol)
		}
		r, err := decodeResult(m.body, w.header)
		if err != nil {
			return err
		}
		w.finish(r)
	case msgRefused:
		return errors.New(string(m.body.Rest()))
	}
	return nil
}

// share sends staging memory that the helper does not have yet.
func (w *helperWriter) share() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	files := w.staging.Files()
	if files == nil && w.staging.Len() > 0 {
		return errors.New("this system has no shared memory for a helper process; leave Options.Helper nil, and the program writes its checkpoints itself")
	}
	if w.gone != nil {
		return w.gone
	}
	for ; w.shared < len(files); w.shared++ {
		f := files[w.shared]
		st, err := f.Stat()
		if err != nil {
			return err
		}
		n := binary.LittleEndian.AppendUint32(nil, uint32(st.Size()/mem.SegmentSize))
		w.put(request{kind: msgGrow, file: f, make: pieces(n)})
	}
	return nil
}

func (w *helperWriter) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

func (w *helperWriter) Begin(job Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := job.Header
	w.header, w.sealed, w.why = &h, false, nil
	last := job.Previous != nil && job.Previous == w.last
	if w.gone == nil {
		w.put(request{kind: msgBegin, make: func() ([][]byte, error) { return encodeBegin(&job, last) }})
	}
}

func (w *helperWriter) Put(s Segment) {
	hurry := len(w.staging.Free()) == 0 || s.Digests != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone != nil {
		w.staging.Release(s.Index)
		return
	}
	w.theirs[s.Index] = true
	w.put(request{kind: msgPut, make: func() ([][]byte, error) { return [][]byte{encodePut(&s, hurry)}, nil }})
}

// Commit returns when the message is sent: from then on the checkpoint does not
// need this process any more.
func (w *helperWriter) Commit(tail Tail) <-chan Result {
	return w.end(nil, request{kind: msgCommit, make: func() ([][]byte, error) { return encodeCommit(&tail) }})
}

func (w *helperWriter) Abort(err error) <-chan Result {
	return w.end(err, request{kind: msgAbort, make: pieces([]byte(err.Error()))})
}

func (w *helperWriter) end(why error, m request) <-chan Result {
	w.mu.Lock()
	done := make(chan Result, 1)
	w.done, w.why, w.sealed = done, why, why == nil
	if w.gone != nil {
		w.finish(Result{Index: w.header.Index, Err: w.gone})
		w.mu.Unlock()
		return done
	}
	m.sent = make(chan struct{})
	w.put(m)
	w.mu.Unlock()
	<-m.sent
	return done
}

func (w *helperWriter) Line(index uint64)    { w.tell(msgLine, index) }
func (w *helperWriter) Damaged(index uint64) { w.tell(msgDamaged, index) }

// tell sends a message about a checkpoint, if the helper is there.
func (w *helperWriter) tell(kind uint32, index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone == nil {
		w.put(request{kind: kind, make: pieces(binary.LittleEndian.AppendUint64(nil, index))})
	}
}

// Close returns when the helper has done everything and has released the
// directory.
func (w *helperWriter) Close() {
	w.mu.Lock()
	if w.gone == nil {
		w.put(request{kind: msgBye, make: pieces()})
	}
	w.mu.Unlock()
	w.ended.Wait()
}
