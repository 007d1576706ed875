//go:build linux

// Package output shows the ranks' output and writes it to files. After a
// restart it shows only what is new. What cannot be taken back, because it goes
// to a pipe, is delayed until no restart repeats it (delayed.go).
package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// stuckTime is how long showing a piece may take. If the run has to stop, it
// does not wait longer.
const stuckTime = 2 * time.Second

// Options say where output comes from and goes to.
type Options struct {
	Run        string // the run directory
	RankOutput string // the directory of the ranks' output files
	// Mirror says that the ranks' own files are on other hosts. Take writes
	// what it gets to RankOutput.
	Mirror bool
	Out    string // file for the ranks' stdout; with %r one per rank; "": none
	// Delay says that stdout is shown only up to a checkpoint, see Sink.Commit.
	// A file that Out names is cut when ranks go back, so nothing is delayed
	// then.
	Delay bool
	// Line shows a line, see supervise.Options.
	Line func(rank, stream int, line []byte, done func(written bool))
	// Part shows a line that is not complete, see supervise.Options.
	Part func(rank, stream int, text []byte)
}

// Sink shows the ranks' output and writes Options.Out. Helpers send one piece
// of each stream at a time, so the queue is bounded even if the reader is slow.
// A blocked screen does not delay an attempt that has failed or has to stop.
type Sink struct {
	o       Options
	n       int
	done    chan struct{}  // closed when run has ended
	ranks   [][2]stream    // only run uses their lines and files
	offsets *outputOffsets // nil: offsets are not recorded

	mu     sync.Mutex
	some   sync.Cond // signals a change of the fields below
	queue  []piece
	began  time.Time // when showing the current piece began; zero: there is none
	now    *piece    // the current piece, until its helper may send more
	hurry  bool      // discard what cannot be shown soon
	stuck  bool      // the reader is stuck, and output is being discarded
	given  int       // lines for which Options.Line has not called done
	notes  int       // calls of note
	closed bool
}

// tailSize is how much of the last shown output a stream keeps, to compare it
// with what a rank prints again after a restart.
const tailSize = 64 << 10

// stream is stdout or stderr of a rank.
type stream struct {
	offset  int64  // bytes shown; guarded by mu
	launch  string // that may write now; guarded by mu
	tail    []byte // the last bytes that were shown
	skip    string // launch whose remaining output is not shown; guarded by mu
	gap     bool   // a line could not be written, so the recorded offset stays before it; guarded by mu
	again   bool   // what was shown is shown again, in other words or another order; guarded by mu
	delayed delayed
	line    []byte // the incomplete line
	live    *os.File
	err     error
	mirror  *os.File // see Options.Mirror; guarded by mu
}

// piece is a part of a rank's output.
type piece struct {
	from            *control.FromRank
	*control.Output                    // without Offset and Data if the stream is delayed: show what may be shown
	queue           *control.SendQueue // gets the acknowledgement; nil for a rank that has ended
}

// New opens the output of a run with n ranks.
func New(o Options, n int) (*Sink, error) {
	k := &Sink{o: o, n: n, done: make(chan struct{}), ranks: make([][2]stream, n)}
	k.some.L = &k.mu
	if o.Mirror {
		if err := os.MkdirAll(o.RankOutput, 0o700); err != nil {
			return nil, err
		}
	}
	own := o.RankOutput == filepath.Join(o.Run, "output") // the offsets belong to these files
	var old [][2]int64
	if own {
		old = readOffsets(o.Run, n)
	}
	now := make([][2]int64, n)
	for r := range n {
		for i := range 2 {
			at := int64(-1)
			if old != nil {
				at = old[r][i]
			}
			k.ranks[r][i].load(rundir.OutputFile(o.RankOutput, r, i+1), at)
			now[r][i] = k.ranks[r][i].offset
		}
	}
	if own {
		var err error
		if k.offsets, err = newOutputOffsets(o.Run, now); err != nil {
			return nil, err
		}
	}
	for r := range n {
		if o.Out == "" || r > 0 && !k.perRank() {
			continue
		}
		// With a pipe, neither opening nor writing may block forever.
		f, err := os.OpenFile(k.outName(r), os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o666)
		if errors.Is(err, syscall.ENXIO) {
			err = fmt.Errorf("%w: no process reads this pipe; start its reader first", err)
		}
		if err != nil {
			k.CloseLive()
			return nil, err
		}
		k.ranks[r][0].live = f
		if err := k.copyRank(f, 0, r); err != nil {
			k.CloseLive()
			return nil, err
		}
	}
	for r := range n {
		st := &k.ranks[r][0]
		st.delayed.on = o.Delay && (st.live != nil && !regular(st.live) || o.Out == "" && o.Line != nil)
	}
	go k.run()
	return k, nil
}

func (k *Sink) perRank() bool { return strings.Contains(k.o.Out, "%r") }

// outName returns the file for a rank's stdout.
func (k *Sink) outName(rank int) string {
	return strings.ReplaceAll(k.o.Out, "%r", fmt.Sprintf("%04d", rank))
}

// Repeated returns the ranks whose stdout was shown again in part, because they
// did not print the same after a restart.
func (k *Sink) Repeated() (ranks []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := range k.ranks {
		if k.ranks[r][0].again {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Offsets returns the output offsets of a rank's stdout and stderr.
func (k *Sink) Offsets(rank int) [2]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return [2]int64{k.ranks[rank][0].offset, k.ranks[rank][1].offset}
}

// Start says that a launch starts a rank. It returns from which offsets on its
// helper sends stdout and stderr. They include the tail, which is compared.
func (k *Sink) Start(rank int, launch string) (from [2]int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.ranks[rank] {
		st := &k.ranks[rank][i]
		from[i] = st.offset - int64(len(st.tail))
		st.launch = launch
		st.delayed.start(from[i])
	}
	return from
}

// load reads the tail of a file that was shown up to at. If at is negative, the
// offset is unknown, and all counts as shown. A file that was cut since is
// shorter; then what the rank prints again is not compared.
func (st *stream) load(name string, at int64) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return
	}
	if at > end {
		st.offset = at
		return
	}
	if at >= 0 {
		end = at
	}
	st.offset = end
	tail := make([]byte, min(end, tailSize))
	if _, err := f.ReadAt(tail, end-int64(len(tail))); err == nil {
		st.tail = tail
	}
}

// unseen takes in a piece of the stream and returns the part to show. A rank
// that was rolled back prints again what was shown. If it prints something
// else, unseen returns all from the line on that differs, and other is true.
func (st *stream) unseen(offset int64, data []byte) (fresh []byte, other bool) {
	end, from := offset+int64(len(data)), st.offset-int64(len(st.tail))
	lo, hi := max(offset, from), min(end, st.offset)
	for x := lo; x < hi; x++ {
		if data[x-offset] == st.tail[x-from] {
			continue
		}
		same := st.tail[:x-from]
		line := bytes.LastIndexByte(same, '\n') + 1
		fresh, other = slices.Concat(same[line:], data[x-offset:]), true
		st.tail, st.offset, offset, data = same, x, x, data[x-offset:]
		break
	}
	if end <= st.offset {
		return nil, false
	}
	if offset > st.offset { // some output was discarded
		st.tail = nil
	} else {
		data = data[st.offset-offset:]
	}
	if !other {
		fresh = data
	}
	st.offset = end
	st.tail = append(st.tail, data...)
	if n := len(st.tail); n > tailSize {
		st.tail = st.tail[n-tailSize:]
	}
	return fresh, other
}

// Take queues a piece of a rank's output. When it has been shown, queue gets
// the acknowledgement, if it is not nil.
func (k *Sink) Take(from *control.FromRank, out *control.Output, queue *control.SendQueue) {
	p := piece{from, out, queue}
	if p.from.Rank < 0 || p.from.Rank >= k.n {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	st, current := k.stream(p), queue == nil || from.Launch == k.stream(p).launch
	if k.o.Mirror && queue != nil && current {
		st.copy(rundir.OutputFile(k.o.RankOutput, p.from.Rank, p.Stream), out)
	}
	if st.delayed.on {
		if current {
			st.delayed.take(out)
		}
		k.showDelayed(p.from.Rank)
		p.taken()
		return
	}
	if k.stuck || k.stream(p).skip == p.from.Launch {
		k.discard(p)
		return
	}
	k.queue = append(k.queue, p)
	k.some.Broadcast()
}

// copy writes a piece to the mirror of a rank's file. If it fails, the file is
// incomplete until the run ends, when it is compared with the rank's own.
func (st *stream) copy(name string, out *control.Output) {
	if st.mirror == nil {
		f, err := vfs.OpenPrivate(name, os.O_CREATE|os.O_WRONLY)
		if err != nil {
			return
		}
		st.mirror = f
	}
	if out.Data == nil {
		_ = st.mirror.Truncate(out.Offset)
	} else {
		_, _ = st.mirror.WriteAt(out.Data, out.Offset)
	}
}

// taken asks the helper for more.
func (p piece) taken() {
	if p.queue != nil {
		p.queue.Send(&control.OutputTaken{Process: p.from.Process, Stream: p.Stream})
	}
}

// discard takes a piece without showing it, and then all that follows it until
// the next launch, which begins where nothing is missing.
func (k *Sink) discard(p piece) {
	if st := k.stream(p); st.delayed.on { // the file still has it
		st.delayed.queued = false
	} else {
		st.skip = p.from.Launch
	}
	p.taken()
}

// Hasten says whether the supervisor waits for the end of the ranks.
func (k *Sink) Hasten(hurry bool) {
	k.mu.Lock()
	was := k.hurry
	k.hurry, k.stuck = hurry, hurry && k.stuck
	k.mu.Unlock()
	if hurry && !was {
		k.discardStuck()
	}
}

// discardStuck discards the queue if the reader is stuck.
func (k *Sink) discardStuck() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hurry || k.closed {
		return
	}
	if !k.began.IsZero() && time.Since(k.began) >= stuckTime {
		if k.now != nil {
			k.discard(*k.now)
			k.now = nil
		}
		k.stuck = true
		for _, p := range k.queue {
			k.discard(p)
		}
		k.queue = nil
		k.some.Broadcast()
	}
	time.AfterFunc(stuckTime/4, k.discardStuck)
}

func (k *Sink) run() {
	defer close(k.done)
	for {
		k.mu.Lock()
		k.began = time.Time{}
		k.some.Broadcast()
		for len(k.queue) == 0 && !k.closed {
			k.some.Wait()
		}
		if k.closed {
			k.mu.Unlock()
			return
		}
		p := k.queue[0]
		k.queue = k.queue[1:]
		k.began, k.now = time.Now(), &p
		k.mu.Unlock()
		if k.stream(p).delayed.on {
			k.release(p.from.Rank)
		} else {
			k.show(p)
		}
		k.mu.Lock()
		k.stuck = false
		if k.now != nil {
			p.taken()
		}
		k.mu.Unlock()
	}
}

func (k *Sink) stream(p piece) *stream { return &k.ranks[p.from.Rank][p.Stream-1] }

func (k *Sink) show(p piece) {
	st, m, rank := k.stream(p), p.Output, p.from.Rank
	k.mu.Lock()
	fresh, other := st.unseen(m.Offset, m.Data)
	end := st.offset
	k.mu.Unlock()
	file := st.live != nil && regular(st.live)
	if other && !file && (st.live != nil || k.o.Line != nil) {
		k.mu.Lock()
		st.again = true
		k.mu.Unlock()
	}
	if st.live != nil && st.err == nil {
		switch {
		case !file:
			_, st.err = st.live.Write(fresh)
		case m.Data == nil:
			st.err = st.live.Truncate(m.Offset)
		default:
			_, st.err = st.live.WriteAt(m.Data, m.Offset)
		}
	}
	if k.o.Line == nil || m.Stream == control.Stdout && k.o.Out != "" {
		if len(fresh) > 0 {
			k.note(rank, m.Stream, end, st.err == nil)
		}
		return
	}
	if other && len(st.line) > 0 { // the rest of this line will not come
		k.give(rank, m.Stream, end-int64(len(fresh)))
	}
	for {
		i := bytes.IndexByte(fresh, '\n')
		if i < 0 {
			st.line = append(st.line, fresh...)
			break
		}
		st.line = append(st.line, fresh[:i]...)
		fresh = fresh[i+1:]
		k.give(rank, m.Stream, end-int64(len(fresh)))
	}
	if len(st.line) > 1<<20 { // too long for a line
		k.give(rank, m.Stream, end)
	}
	if len(st.line) > 0 && k.o.Part != nil {
		k.o.Part(rank, m.Stream, st.line)
	}
}

// give shows the current line, which ends at an offset of the stream.
func (k *Sink) give(rank, stream int, end int64) {
	st := &k.ranks[rank][stream-1]
	k.mu.Lock()
	k.given++
	k.mu.Unlock()
	k.o.Line(rank, stream, st.line, func(written bool) {
		k.note(rank, stream, end, written)
		k.mu.Lock()
		k.given--
		k.some.Broadcast()
		k.mu.Unlock()
	})
	st.line = st.line[:0]
}

// note records that a stream has been shown up to an offset, for the next
// supervisor. After output that could not be written, it records nothing more.
func (k *Sink) note(rank, stream int, at int64, written bool) {
	st := &k.ranks[rank][stream-1]
	k.mu.Lock()
	k.notes++
	st.gap = st.gap || !written
	gap := st.gap
	k.mu.Unlock()
	if !gap {
		k.offsets.put(rank, stream, at)
	}
}

func regular(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode().IsRegular()
}

// copyRank copies a rank's whole stdout to offset at of f, a regular file, and
// cuts f behind it.
func (k *Sink) copyRank(f *os.File, at int64, rank int) error {
	if !regular(f) {
		return nil
	}
	n, err := k.appendRank(io.NewOffsetWriter(f, at), rank)
	if err != nil {
		return err
	}
	return f.Truncate(at + n)
}

func (k *Sink) appendRank(w io.Writer, rank int) (int64, error) {
	from, err := vfs.OpenPrivate(rundir.OutputFile(k.o.RankOutput, rank, control.Stdout), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer from.Close()
	return io.Copy(w, from)
}

// Finish writes Options.Out again, with the exact bytes of the ranks' files.
func (k *Sink) Finish() error {
	k.commitAll(true)
	if k.rest() {
		k.flush()
	}
	if k.o.Out == "" {
		return nil
	}
	if k.perRank() {
		for r := range k.n {
			f := k.ranks[r][0].live
			if err := errors.Join(k.ranks[r][0].err, k.copyRank(f, 0, r), syncNew(f)); err != nil {
				return err
			}
		}
		return nil
	}
	f := k.ranks[0][0].live
	if !regular(f) {
		err := k.ranks[0][0].err
		for r := 1; r < k.n && err == nil; r++ {
			_, err = k.appendRank(f, r)
		}
		return err
	}
	var at int64
	for r := range k.n {
		n, err := k.appendRank(io.NewOffsetWriter(f, at), r)
		if err != nil {
			return err
		}
		at += n
	}
	return errors.Join(f.Truncate(at), syncNew(f))
}

// flush shows lines without a newline.
func (k *Sink) flush() {
	if k.o.Line == nil {
		return
	}
	for r := range k.ranks {
		for i := range k.ranks[r] {
			if st := &k.ranks[r][i]; len(st.line) > 0 {
				k.give(r, i+1, st.offset)
			}
		}
	}
}

// rest waits until all has been shown, and ends run. It returns false if the
// reader is stuck and the supervisor waits.
func (k *Sink) rest() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !k.closed && !k.stuck && (len(k.queue) > 0 || !k.began.IsZero()) {
		k.some.Wait()
	}
	k.closed = true
	k.some.Broadcast()
	return !k.stuck
}

// Close ends the sink. It waits for lines that are being written: the next
// supervisor must not write them again. It does not wait for a stuck reader.
func (k *Sink) Close() {
	k.Hasten(true)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		if k.rest() {
			k.flush()
			k.mu.Lock()
			defer k.mu.Unlock()
			for k.given > 0 {
				k.some.Wait()
			}
		}
	}()
	for before, open := -1, true; open; {
		k.mu.Lock()
		open, before = k.notes != before, k.notes
		k.mu.Unlock()
		select {
		case <-flushed:
			open = false
		case <-time.After(2 * stuckTime):
		}
	}
	k.CloseLive()
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := range k.ranks {
		for i := range k.ranks[r] {
			if f := k.ranks[r][i].mirror; f != nil {
				f.Close()
			}
		}
	}
}

// CloseLive closes the files. A blocked write to a pipe fails then.
func (k *Sink) CloseLive() {
	for r := range k.ranks {
		if f := k.ranks[r][0].live; f != nil {
			f.Close()
		}
	}
}

// syncNew makes a file and its name durable. It ignores pipes and devices.
func syncNew(f *os.File) error {
	if !regular(f) {
		return nil
	}
	return errors.Join(f.Sync(), rundir.SyncPath(filepath.Dir(f.Name())))
}
