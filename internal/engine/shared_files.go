package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
)

// sharedFile is what a rank knows of a file that other ranks may write, too.
type sharedFile struct {
	Key          string
	Size, Offset int64
	Append       bool
}

// shareSizes makes ranks agree on the sizes of files that several of them
// write. Each has recorded the size when its own state was copied. A rank that
// was copied later has seen what others wrote after their part of the recovery
// line.
//
//	rank 0   copy: 100 bytes ── append 10 ✗
//	rank 1   ─────────────────────────────── copy: 110 bytes ✗
//
// If all ranks append, the file keeps the bytes that it had when the first rank
// was copied, and what each rank had written before its own copy; that ends at
// the rank's position. If a rank does not append, the file keeps the largest
// size, and nothing is lost: what ranks wrote after the line, they write again
// at the same place.
func (t *peers) shareSizes() error {
	files := &t.run.files
	if files.journaled {
		return nil
	}
	var failed error
	var mine []sharedFile
	at := make(map[string][]*openFile)
	for _, o := range files.saved {
		if _, ok := o.stream(); ok || o.entry.Mode == "r" || o.entry.Path == stdoutPath {
			continue
		}
		key, err := o.key()
		if err != nil {
			failed = err // returned after gather, which the other ranks wait in
			break
		}
		at[key] = append(at[key], o)
		mine = append(mine, sharedFile{key, o.entry.Size, o.entry.Offset, strings.HasSuffix(o.entry.Mode, "a")})
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	all, err := gather(t, text)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	type agreed struct {
		ranks, last          int
		least, most, reached int64
		append               bool
	}
	sizes := make(map[string]*agreed)
	for r, text := range all {
		var list []sharedFile
		if err := json.Unmarshal(text, &list); err != nil {
			return fmt.Errorf("files of rank %d: %w", r, err)
		}
		for _, f := range list {
			a := sizes[f.Key]
			if a == nil {
				a = &agreed{last: -1, least: f.Size, append: true}
				sizes[f.Key] = a
			}
			if a.last != r {
				a.ranks, a.last = a.ranks+1, r
			}
			a.least, a.most, a.append = min(a.least, f.Size), max(a.most, f.Size), a.append && f.Append
			a.reached = max(a.reached, f.Offset)
		}
	}
	for key, list := range at {
		a := sizes[key]
		if a.ranks < 2 {
			continue
		}
		size := a.most
		if a.append {
			size = min(max(a.least, a.reached), a.most)
		}
		for _, o := range list {
			o.entry.Size = size
		}
	}
	return nil
}

// key identifies a file, also among files of one name on different hosts. No
// file has been changed yet, so that all ranks find the same.
func (o *openFile) key() (string, error) {
	if err := o.reopen(); err != nil {
		return "", err
	}
	st, err := o.f.Stat()
	if err != nil {
		return "", fmt.Errorf("data file of the checkpoint: %w", err)
	}
	path := o.entry.Abs
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return fmt.Sprintf("%s %d %d %d", path, control.Inode(st), st.Size(), st.ModTime().UnixNano()), nil
}
