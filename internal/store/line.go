package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// ErrLine means that the record of the recovery line is damaged. Its existence
// still shows that there was a line.
var ErrLine = errors.New("the record of the recovery line is damaged")

// Line records that all ranks of a run committed a checkpoint. It outlives the
// checkpoints: a run that finds a Line, and no checkpoint that can be loaded,
// has lost its state and must not start from the beginning. Run and Attempt are
// those in the headers of the ranks' files. The file, DIR/line, is a record
// (here on one line):
//
//	{"digest": "…", "format": 3, "index": 12, "ranks": 8, "run": "7d0c…", "attempt": "51e9…"}
type Line struct {
	Index   uint64 `json:"index"`
	Ranks   int    `json:"ranks"`
	Run     string `json:"run"`
	Attempt string `json:"attempt"`
}

type lineFile struct {
	Format int `json:"format"`
	Line
}

const lineFormat = 3

// PerHost says that ranks on other hosts have other directories. Then every
// rank records the recovery line, in a file of its own: line, line-0001, …
func (d *Dir) PerHost() { d.perHost = true }

func (d *Dir) linePath() string {
	if d.perHost && d.rank > 0 {
		return filepath.Join(d.path, fmt.Sprintf("line-%04d", d.rank))
	}
	return filepath.Join(d.path, "line")
}

// recordsLine returns an error if this rank may not record the line.
func (d *Dir) recordsLine() error {
	if d.rank == 0 || d.perHost {
		return nil
	}
	return fmt.Errorf("rank %d cannot change the record of the recovery line; only rank 0 does", d.rank)
}

// SetLine records, durably and atomically, the newest checkpoint that all ranks
// have. Only rank 0 may call it; after PerHost, every rank may. It needs the
// lock.
func (d *Dir) SetLine(l Line) error {
	if err := d.recordsLine(); err != nil {
		return err
	}
	if err := WriteRecord(d.fs, d.linePath(), &lineFile{lineFormat, l}); err != nil {
		return fmt.Errorf("recording that checkpoint %d is complete: %w", l.Index, err)
	}
	return nil
}

// Line returns the line that SetLine recorded last, or the zero Line. Any rank
// may call it; after PerHost it returns the line of this rank's own record. If
// the record is damaged, the error wraps ErrLine.
func (d *Dir) Line() (Line, error) {
	var l lineFile
	err := ReadRecord(d.fs, d.linePath(), &l)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Line{}, nil
	case err == nil && l.Format != lineFormat:
		return Line{}, fmt.Errorf("%s: it has format %d, this program reads %d; use the version of Cairn that wrote it", d.linePath(), l.Format, lineFormat)
	case err == nil && (l.Index == 0 || l.Ranks < 1):
		err = fmt.Errorf("it says checkpoint %d, %d ranks", l.Index, l.Ranks)
	case err == nil:
		return l.Line, nil
	case !errors.Is(err, ErrDamaged):
		return Line{}, err
	}
	return Line{}, fmt.Errorf("%w: %w; if the checkpoints are good ('cairn verify %s'), remove %s", ErrLine, err, d.path, d.linePath())
}

// RemoveLine removes the record, durably, so that a run may start from the
// beginning. A finished run calls it before any rank removes checkpoints. The
// ranks that may call SetLine may call it.
func (d *Dir) RemoveLine() error {
	if err := d.recordsLine(); err != nil {
		return err
	}
	return d.remove(d.linePath())
}
