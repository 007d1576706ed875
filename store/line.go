package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/vfs"
)

// ErrLine says that the record of the recovery line can't be read. That it is
// there still says that a line once existed.
var ErrLine = errors.New("the record of the recovery line is damaged")

// Line records that all ranks of a run had committed a set. It outlives the
// sets: a run that finds a Line and no set that loads has lost its state, and
// must not start afresh. The file, DIR/line, is one line of JSON:
//
//	{"format":1,"set":12,"ranks":8}
type Line struct {
	Set   uint64 `json:"set"`
	Ranks int    `json:"ranks"`
}

type lineFile struct {
	Format int `json:"format"`
	Line
}

// lineFormat is the version of the file, maxLine more than it ever takes.
const (
	lineFormat = 1
	maxLine    = 4096
)

func (d *Dir) linePath() string { return filepath.Join(d.path, "line") }

// SetLine records, durably and atomically, the newest set that all ranks have.
// Only rank 0 may call it; it needs the lock.
func (d *Dir) SetLine(l Line) error {
	if d.rank != 0 {
		return fmt.Errorf("rank %d can't record the recovery line; only rank 0 does", d.rank)
	}
	text, err := json.Marshal(lineFile{lineFormat, l})
	if err != nil {
		return err
	}
	if err := vfs.Replace(d.fs, d.linePath(), append(text, '\n')); err != nil {
		return fmt.Errorf("recording that set %d is complete: %w", l.Set, err)
	}
	return nil
}

// Line returns what SetLine recorded last; the zero Line if nothing was. Any
// rank may call it. Damage wraps ErrLine.
func (d *Dir) Line() (Line, error) {
	f, err := d.fs.Open(d.linePath())
	if errors.Is(err, fs.ErrNotExist) {
		return Line{}, nil
	}
	if err != nil {
		return Line{}, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return Line{}, err
	}
	bad := func(why string) (Line, error) {
		return Line{}, fmt.Errorf("%s: %w: %s; if the sets are good ('cairn verify %s'), remove that file", d.linePath(), ErrLine, why, d.path)
	}
	if n == 0 || n > maxLine {
		return bad(fmt.Sprintf("it has %d bytes", n))
	}
	text := make([]byte, n)
	if _, err := f.ReadAt(text, 0); err != nil {
		return Line{}, err
	}
	var l lineFile
	if err := json.Unmarshal(text, &l); err != nil {
		return bad(err.Error())
	}
	if l.Format > lineFormat {
		return Line{}, fmt.Errorf("%s: it has format %d, this program reads up to %d; use a newer one", d.linePath(), l.Format, lineFormat)
	}
	if l.Format < 1 || l.Set == 0 || l.Ranks < 1 {
		return bad(fmt.Sprintf("it says format %d, set %d, %d ranks", l.Format, l.Set, l.Ranks))
	}
	return l.Line, nil
}

// RemoveLine takes the record back, durably, so that a run may start afresh.
// A run that has finished calls it before any rank removes sets. Only rank 0
// may call it; it needs the lock.
func (d *Dir) RemoveLine() error {
	if d.rank != 0 {
		return fmt.Errorf("rank %d can't remove the record of the recovery line; only rank 0 does", d.rank)
	}
	if err := d.fs.Remove(d.linePath()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return d.fs.SyncDir(d.path)
}
