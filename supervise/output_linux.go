package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// stuckTime is how long showing a piece may take before those that hurry go
// on without it.
const stuckTime = 2 * time.Second

// sink shows the ranks' output and keeps Options.Out up to date. Helpers send
// one piece of each stream at a time, so what waits here is bounded however
// slowly it is shown. Nobody but the streams themselves waits for who looks at
// them: a screen that takes nothing holds no attempt up that has failed or is
// to stop.
type sink struct {
	o     *Options
	n     int
	done  chan struct{} // closed when run has ended
	ranks [][2]stream   // lines and files belong to run

	mu     sync.Mutex
	some   sync.Cond // something below has changed
	queue  []piece
	began  time.Time // when the piece was begun that is being shown; zero: none is
	now    *piece    // that piece, until its helper may send more
	hurry  bool      // what can't be shown soon is let go
	stuck  bool      // … as is done now
	closed bool
}

// stream is stdout or stderr of a rank.
type stream struct {
	shown int64  // bytes shown; under mu
	skip  string // launch whose rest is not shown; under mu
	line  []byte // the line begun
	live  *os.File
	err   error
}

type piece struct {
	m   *control.Message
	box *outbox // takes the acknowledgement
}

func newSink(o *Options, n int) (*sink, error) {
	k := &sink{o: o, n: n, done: make(chan struct{}), ranks: make([][2]stream, n)}
	k.some.L = &k.mu
	for r := range n {
		for i := range 2 { // what is there was shown by the supervisor before us
			if st, err := os.Stat(outputFile(o.RankOutput, r, i+1)); err == nil {
				k.ranks[r][i].shown = st.Size()
			}
		}
		if o.Out == "" || r > 0 && !k.perRank() {
			continue
		}
		// Of a pipe, neither opening nor writing may block for ever.
		f, err := os.OpenFile(k.outName(r), os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o666)
		if errors.Is(err, syscall.ENXIO) {
			err = fmt.Errorf("%w: no process reads this pipe; start its reader first", err)
		}
		if err != nil {
			k.closeLive()
			return nil, err
		}
		k.ranks[r][0].live = f
		if err := k.copyRank(f, 0, r); err != nil {
			k.closeLive()
			return nil, err
		}
	}
	go k.run()
	return k, nil
}

func (k *sink) perRank() bool { return strings.Contains(k.o.Out, "%r") }

// outName is the file that has a rank's stdout.
func (k *sink) outName(rank int) string {
	return strings.ReplaceAll(k.o.Out, "%r", fmt.Sprintf("%04d", rank))
}

// position returns up to where a rank's stdout and stderr have been shown.
func (k *sink) position(rank int) [2]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return [2]int64{k.ranks[rank][0].shown, k.ranks[rank][1].shown}
}

// take takes a piece; it is acknowledged when it has been shown.
func (k *sink) take(box *outbox, m *control.Message) {
	if m.Rank < 0 || m.Rank >= k.n || m.Stream != control.Stdout && m.Stream != control.Stderr || m.Offset < 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := piece{m, box}
	if k.stuck || k.ranks[m.Rank][m.Stream-1].skip == m.Launch {
		k.letGo(p)
		return
	}
	k.queue = append(k.queue, p)
	k.some.Broadcast()
}

// taken lets the helper send more.
func (p piece) taken() {
	p.box.send(&control.Message{Kind: control.Shown, Rank: p.m.Rank, Place: p.m.Place, Stream: p.m.Stream})
}

// letGo takes a piece without showing it, and then all that follows it until
// the next launch, which begins where nothing is missing.
func (k *sink) letGo(p piece) {
	k.ranks[p.m.Rank][p.m.Stream-1].skip = p.m.Launch
	p.taken()
}

// hasten says whether somebody waits for the ranks' end.
func (k *sink) hasten(hurry bool) {
	k.mu.Lock()
	was := k.hurry
	k.hurry, k.stuck = hurry, hurry && k.stuck
	k.mu.Unlock()
	if hurry && !was {
		k.release()
	}
}

// release lets go of what waits, if who looks at it takes nothing.
func (k *sink) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hurry || k.closed {
		return
	}
	if !k.began.IsZero() && time.Since(k.began) >= stuckTime {
		if k.now != nil {
			k.letGo(*k.now)
			k.now = nil
		}
		k.stuck = true
		for _, p := range k.queue {
			k.letGo(p)
		}
		k.queue = nil
		k.some.Broadcast()
	}
	time.AfterFunc(stuckTime/4, k.release)
}

func (k *sink) run() {
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
		k.show(p.m)
		k.mu.Lock()
		k.stuck = false
		if k.now != nil {
			p.taken()
		}
		k.mu.Unlock()
	}
}

func (k *sink) show(m *control.Message) {
	st := &k.ranks[m.Rank][m.Stream-1]
	if st.live != nil && st.err == nil {
		if m.Data == nil {
			if regular(st.live) {
				st.err = st.live.Truncate(m.Offset)
			}
		} else {
			st.err = writeAt(st.live, m.Data, m.Offset, st.shown)
		}
	}
	fresh := m.Data
	if end := m.Offset + int64(len(m.Data)); end <= st.shown {
		return // it was shown before the ranks were rolled back
	} else if m.Offset < st.shown {
		fresh = fresh[st.shown-m.Offset:]
	}
	k.mu.Lock()
	st.shown = m.Offset + int64(len(m.Data))
	k.mu.Unlock()
	if k.o.Line == nil || m.Stream == control.Stdout && k.o.Out != "" {
		return
	}
	for {
		i := bytes.IndexByte(fresh, '\n')
		if i < 0 {
			st.line = append(st.line, fresh...)
			break
		}
		st.line = append(st.line, fresh[:i]...)
		k.o.Line(m.Rank, m.Stream, st.line)
		st.line, fresh = st.line[:0], fresh[i+1:]
	}
	if len(st.line) > 1<<20 { // no line
		k.o.Line(m.Rank, m.Stream, st.line)
		st.line = st.line[:0]
	}
}

func regular(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode().IsRegular()
}

// writeAt writes a piece into a file where it belongs, or appends what is new
// of it to a pipe.
func writeAt(f *os.File, data []byte, offset, shown int64) error {
	if regular(f) {
		_, err := f.WriteAt(data, offset)
		return err
	}
	if skip := shown - offset; skip >= int64(len(data)) {
		return nil
	} else if skip > 0 {
		data = data[skip:]
	}
	_, err := f.Write(data)
	return err
}

// copyRank copies a rank's whole stdout to f, a regular file, from offset at
// on, and cuts it there.
func (k *sink) copyRank(f *os.File, at int64, rank int) error {
	if !regular(f) {
		return nil
	}
	n, err := k.appendRank(io.NewOffsetWriter(f, at), rank)
	if err != nil {
		return err
	}
	return f.Truncate(at + n)
}

func (k *sink) appendRank(w io.Writer, rank int) (int64, error) {
	from, err := os.Open(outputFile(k.o.RankOutput, rank, control.Stdout))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer from.Close()
	return io.Copy(w, from)
}

// finish puts Options.Out together: it gets the exact bytes of the ranks'
// files, whatever was written to it live.
func (k *sink) finish() error {
	if k.rest() {
		k.flush()
	}
	if k.o.Out == "" {
		return nil
	}
	if k.perRank() {
		for r := range k.n {
			f := k.ranks[r][0].live
			if err := errors.Join(k.ranks[r][0].err, k.copyRank(f, 0, r), syncFile(f)); err != nil {
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
	return errors.Join(f.Truncate(at), syncFile(f))
}

func syncFile(f *os.File) error {
	if !regular(f) {
		return nil
	}
	return f.Sync()
}

// flush shows lines that have no end.
func (k *sink) flush() {
	if k.o.Line == nil {
		return
	}
	for r := range k.ranks {
		for i := range k.ranks[r] {
			if st := &k.ranks[r][i]; len(st.line) > 0 {
				k.o.Line(r, i+1, st.line)
				st.line = nil
			}
		}
	}
}

// rest waits until all has been shown and ends run. It returns false if what is
// shown now can't be, and somebody waits.
func (k *sink) rest() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !k.closed && !k.stuck && (len(k.queue) > 0 || !k.began.IsZero()) {
		k.some.Wait()
	}
	k.closed = true
	k.some.Broadcast()
	return !k.stuck
}

// close ends the sink; what nobody takes is not shown.
func (k *sink) close() {
	k.hasten(true)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		if k.rest() {
			k.flush()
		}
	}()
	select {
	case <-flushed:
	case <-time.After(2 * stuckTime):
	}
	k.closeLive()
}

// closeLive closes the files; a write to a pipe that blocks fails then.
func (k *sink) closeLive() {
	for r := range k.ranks {
		if f := k.ranks[r][0].live; f != nil {
			f.Close()
		}
	}
}
