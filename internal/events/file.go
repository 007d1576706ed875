package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cairnrun/cairn/internal/vfs"
)

// FileName is the name of the history in a run directory.
const FileName = "events.jsonl"

// maxLine bounds a line. Longer ones are no events.
const maxLine = 1 << 20

// File is the history of a run on disk. Its methods are for one goroutine.
type File struct {
	name    string
	f       *os.File
	next    uint64   // sequence number of the next event
	size    int64    // of the whole lines in the file
	waiting [][]byte // lines that could not be written: the disk was full
}

// maxWaiting bounds the lines that wait for room on the disk.
const maxWaiting = 10000

// ErrReplaced says that the file was removed, replaced or cut while it was
// open. The event is in the file that has the name now.
var ErrReplaced = errors.New("it was removed, replaced or cut by another program, and has only later events now")

// OpenFile opens a history, and creates it if necessary. A crash may have left
// an incomplete last line; OpenFile removes it.
func OpenFile(name string) (*File, error) {
	f, err := vfs.OpenPrivate(name, os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	h := &File{name: name, f: f, next: 1}
	if err := h.recover(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return h, nil
}

// recover finds the last complete event, and cuts off what follows its line.
func (h *File) recover() error {
	st, err := h.f.Stat()
	if err != nil {
		return err
	}
	end := st.Size()
	from := max(0, end-2*maxLine)
	tail := make([]byte, end-from)
	if _, err := h.f.ReadAt(tail, from); err != nil && err != io.EOF {
		return err
	}
	whole := bytes.LastIndexByte(tail, '\n') + 1
	h.size = from + int64(whole)
	if whole < len(tail) {
		if err := h.f.Truncate(from + int64(whole)); err != nil {
			return err
		}
	}
	for lines := tail[:whole]; len(lines) > 0; {
		lines = lines[:len(lines)-1]
		i := bytes.LastIndexByte(lines, '\n') + 1
		var e Event
		if json.Unmarshal(lines[i:], &e) == nil && e.Seq > 0 {
			h.next = max(h.next, e.Seq+1)
			return nil
		}
		lines = lines[:i]
	}
	return nil
}

// Clear removes all events: another run begins in the directory.
func (h *File) Clear() error {
	h.next, h.size, h.waiting = 1, 0, nil
	return h.f.Truncate(0)
}

// follow opens the file again if it is another one than that which has the
// name.
func (h *File) follow() (replaced bool, err error) {
	own, err := h.f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(h.name)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	case err == nil && os.SameFile(own, named):
		if own.Size() >= h.size {
			return false, nil
		}
		return true, h.recover()
	}
	f, err := vfs.OpenPrivate(h.name, os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return false, err
	}
	h.f.Close()
	h.f = f
	return true, h.recover()
}

// Append gives an event its version and sequence number, and appends it. If
// that fails, the next call tries again. ErrReplaced is no failure.
func (h *File) Append(e *Event) error {
	e.Version, e.Seq = Version, h.next
	h.next++
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if len(h.waiting) < maxWaiting {
		h.waiting = append(h.waiting, append(line, '\n'))
	}
	replaced, err := h.follow()
	if err != nil {
		return err
	}
	for len(h.waiting) > 0 {
		n, err := h.f.Write(h.waiting[0])
		if err != nil {
			if n > 0 { // no half line stays
				err = errors.Join(err, h.f.Truncate(h.size))
			}
			return err
		}
		h.size += int64(n)
		h.waiting = h.waiting[1:]
	}
	if replaced {
		return ErrReplaced
	}
	return nil
}

// Close closes the file.
func (h *File) Close() error { return h.f.Close() }

// Reader reads a history while it grows.
type Reader struct {
	name   string
	offset int64
	head   []byte // the beginning of the file: another run's differs at least in its time
	last   uint64 // number of the last event that was read
	other  bool   // the file is another one, and no event of it was read
}

const headSize = 256

// NewReader returns a reader of a file that need not exist yet.
func NewReader(name string) *Reader { return &Reader{name: name} }

// Next returns the events that were appended since the last call. If the run
// was replaced by another one, anew is set, and they are those of the new run.
// Lines that are no events of this version are left out. A file that was
// replaced, but has only later events of the same run, is no new run.
func (r *Reader) Next() (list []Event, anew bool, err error) {
	f, err := os.Open(r.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	head := make([]byte, min(headSize, st.Size()))
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, false, err
	}
	if st.Size() < r.offset || !bytes.HasPrefix(head, r.head) {
		r.offset, r.other = 0, true
	}
	r.head = head
	data := make([]byte, st.Size()-r.offset)
	n, err := f.ReadAt(data, r.offset)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	data = data[:bytes.LastIndexByte(data[:n], '\n')+1]
	r.offset += int64(len(data))
	for line := range bytes.Lines(data) {
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Version == Version && e.Seq > 0 {
			list = append(list, e)
		}
	}
	if len(list) > 0 {
		anew = r.other && list[0].Seq <= r.last
		r.last, r.other = list[len(list)-1].Seq, false
	}
	return list, anew, nil
}
