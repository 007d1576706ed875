//go:build linux

package local

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier/pack"
)

// Scan returns what the directory has. It reads the metadata of checkpoints,
// and not their blocks. Files of another run are left out.
func (d *Dir) Scan() (*control.HostFiles, error) {
	out := &control.HostFiles{ID: d.ID, Dir: d.Path, Parts: []control.Part{}}
	var err error
	if out.Attempt, err = d.Attempt(); err != nil {
		return nil, err
	}
	if out.Attempt != nil && out.Attempt.Run != d.Run {
		return nil, fmt.Errorf("%s: it is of run %s, and the directory of run %s", attemptPath(d.Path), out.Attempt.Run, d.Run)
	}
	members, err := store.Members(d.fs, CheckpointDir(d.Path))
	if err != nil {
		return nil, err
	}
	for index, ranks := range members {
		for _, r := range ranks {
			p, err := d.part(r, index)
			if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
				continue
			}
			if err != nil {
				return nil, err
			}
			out.Parts = append(out.Parts, *p)
		}
	}
	slices.SortFunc(out.Parts, func(a, b control.Part) int {
		return cmp.Or(cmp.Compare(b.Index, a.Index), cmp.Compare(a.Rank, b.Rank))
	})
	if out.Lines, err = d.lines(); err == nil {
		out.Journals, err = d.journals()
	}
	if out.Attempt != nil && pack.OnLocalDisk(filepath.Join(out.Attempt.Cwd, "file")) {
		for i := range out.Parts {
			p := &out.Parts[i]
			p.Writes = p.Writes || slices.Contains(out.Journals, p.Rank)
		}
	}
	return out, err
}

// writesHere reports whether a rank had files open for writing, at a
// checkpoint, that only this host sees.
func writesHere(s *ckpt.File) bool {
	files, err := s.Files()
	return err == nil && slices.ContainsFunc(files, func(f ckpt.FileEntry) bool {
		at := cmp.Or(f.At, f.Path)
		return !f.IsStream() && !f.Closed && f.Mode != "r" && filepath.IsAbs(at) && pack.OnLocalDisk(at)
	})
}

// journals returns the ranks that have a journal here.
func (d *Dir) journals() (out []int, err error) {
	entries, err := os.ReadDir(CheckpointDir(d.Path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), "journal"); ok && !strings.HasPrefix(rest, ".opened") {
			rank := 0 // of a run with one rank, its number is not part of the name
			if i := strings.LastIndexByte(rest, '-'); i >= 0 {
				fmt.Sscanf(rest[i:], "-%d", &rank)
			}
			if !slices.Contains(out, rank) {
				out = append(out, rank)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// part looks at a rank's file of a checkpoint. Damage is no error.
func (d *Dir) part(rank int, index uint64) (*control.Part, error) {
	path := store.Open(d.fs, CheckpointDir(d.Path), rank).File(index)
	p := &control.Part{Rank: rank, Index: index}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	p.Time, p.Bytes = st.ModTime(), st.Size()
	s, err := ckpt.Open(d.fs, path)
	if err == nil {
		defer s.Close()
		p.Attempt, p.Header, p.Writes = s.Header.Attempt, s.Digest(), writesHere(s)
		if at, terr := time.Parse(time.RFC3339, s.Header.Time); terr == nil {
			p.Time = at
		}
		err = s.Header.CheckRun(d.Run)
		for _, b := range s.Header.Bases {
			base, berr := os.Stat(filepath.Join(filepath.Dir(path), filepath.Base(b.File)))
			if err == nil && berr != nil {
				err = fmt.Errorf("%w: a file of an older checkpoint that it needs: %w", ckpt.ErrCorrupt, berr)
			}
			if berr == nil {
				p.Bytes += base.Size()
			}
		}
	}
	if err != nil {
		if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil, gone
		}
		p.Error = err.Error()
	}
	return p, nil
}

// lines returns the recovery lines that ranks have recorded. A damaged record
// shows that there was one.
func (d *Dir) lines() (out []control.RankLine, err error) {
	entries, err := os.ReadDir(CheckpointDir(d.Path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		rank := 0
		if text, ok := strings.CutPrefix(e.Name(), "line-"); ok {
			if rank, err = strconv.Atoi(text); err != nil {
				continue // a temporary name
			}
		} else if e.Name() != "line" {
			continue
		}
		own := store.Open(d.fs, CheckpointDir(d.Path), rank)
		own.PerHost()
		l, err := own.Line()
		switch {
		case errors.Is(err, store.ErrLine):
			l.Index = 1
		case err != nil:
			return nil, err
		case l.Run != d.Run:
			continue
		}
		out = append(out, control.RankLine{Rank: rank, Index: l.Index})
	}
	return out, nil
}
