package resume

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// undo brings files back to what they were when an epoch began. It reports
// whether anything was to be done.
func (j *fileJournal) undo(all []entry, epoch uint64) (bool, error) {
	if len(all) > 0 && all[0].Op == opFirst && epoch < all[0].Epoch {
		return false, fmt.Errorf("%s does not tell any more what files held when the set was taken; start with --fresh, or move the checkpoint folder away", j.path())
	}
	undone := false
	end := len(all)
	for end > 0 && all[end-1].Epoch >= epoch && all[end-1].Op != opFirst {
		last := all[end-1]
		if last.Op == opSet {
			if last.Epoch == epoch {
				break
			}
			end--
			continue
		}
		begin := end - 1
		if last.Op == opMove { // it ends its part
			step()
			if err := last.moveBack(); err != nil {
				return undone, err
			}
			if err := j.cut(all, begin); err != nil {
				return undone, err
			}
			undone = true
			end = begin
			continue
		}
		for begin > 0 && all[begin-1].Op != opSet && all[begin-1].Op != opFirst && all[begin-1].Epoch == last.Epoch && all[begin-1].Part == last.Part {
			begin--
		}
		if err := j.undoPart(all[begin:end]); err != nil {
			return undone, fmt.Errorf("a file that was changed after the set was taken: %w", err)
		}
		undone = true
		// From here on the part is not known; a kill before this repeats it.
		if err := j.cut(all, begin); err != nil {
			return undone, err
		}
		end = begin
	}
	if err := j.cut(all, end); err != nil {
		return undone, err
	}
	j.copies = slices.DeleteFunc(j.copies, func(e entry) bool { return e.Epoch > epoch })
	j.epoch, j.part = epoch, 0
	return undone, nil
}

// undoPart undoes a part. It may have been begun before.
func (j *fileJournal) undoPart(part []entry) error {
	var gone, folders, files []entry
	for _, e := range slices.Backward(part) {
		switch {
		case e.Op == opName && e.Was == "":
			gone = append(gone, e)
		case e.Op == opName && e.Was == "dir":
			folders = append(folders, e)
		case e.Op == opName:
			files = append(files, e)
		}
	}
	slices.SortFunc(gone, func(a, b entry) int { return cmp.Compare(b.Path, a.Path) }) // what is in a folder before it
	for _, e := range gone {
		step()
		if err := j.unmake(e.Path); err != nil {
			return err
		}
	}
	slices.SortFunc(folders, func(a, b entry) int { return cmp.Compare(a.Path, b.Path) })
	for _, e := range folders {
		step()
		if err := e.makeFolder(); err != nil {
			return err
		}
	}
	for _, e := range files {
		step()
		if err := j.putBack(e); err != nil {
			return err
		}
	}
	for _, e := range slices.Backward(part) { // of a file with two names the first change counts
		err := error(nil)
		step()
		switch e.Op {
		case opSize: // comes before its data in the journal, so after it here
			err = os.Truncate(e.Path, e.Size)
		case opData:
			err = j.refill(e)
		case opMode:
			err = os.Chmod(e.Path, fs.FileMode(e.Mode))
		}
		if err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// moveBack gives something the name that it had, unless it has it: it was not
// renamed then, or is back.
func (e *entry) moveBack() error {
	if _, err := os.Lstat(e.Path); !missing(err) {
		return err
	}
	if _, err := os.Lstat(e.To); !missing(err) {
		return os.Rename(e.To, e.Path)
	}
	return fmt.Errorf("%s, which had been %s, is not there any more: bring it back, or start with --fresh", e.To, e.Path)
}

// unmake removes what did not exist.
func (j *fileJournal) unmake(path string) error {
	st, err := os.Lstat(path)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = os.Remove(path); err != nil && st.IsDir() { // somebody else has put something there
		if j.left == nil {
			j.left = make(map[string]bool)
		}
		j.left[path] = true
		return nil
	}
	return err
}

// makeFolder makes a folder that was removed. There may be a new one.
func (e *entry) makeFolder() error {
	st, err := os.Lstat(e.Path)
	if err == nil && !st.IsDir() {
		if err := os.Remove(e.Path); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	if missing(err) {
		err = os.Mkdir(e.Path, 0o777)
	}
	if err != nil {
		return err
	}
	return os.Chmod(e.Path, fs.FileMode(e.Mode))
}

// putBack gives a name back to the file or link that had it.
func (j *fileJournal) putBack(e entry) error {
	st, err := os.Lstat(e.Path)
	if err != nil && !missing(err) {
		return err
	}
	there := err == nil
	if e.Was == "link" {
		if to, err := os.Readlink(e.Path); err == nil && to == e.To {
			return nil
		}
	} else if k, err := os.Lstat(j.keptPath(e.Kept)); err != nil {
		return err
	} else if there && os.SameFile(st, k) {
		return nil
	}
	tmp := e.Path + ".cairn-undo"
	if err := os.Remove(tmp); err != nil && !missing(err) {
		return err
	}
	switch {
	case e.Was == "link":
		err = os.Symlink(e.To, tmp)
	case e.Copy:
		err = j.copyBack(e, tmp)
	default:
		err = os.Link(j.keptPath(e.Kept), tmp)
	}
	step()
	if err == nil && there && st.IsDir() {
		err = os.Remove(e.Path)
	}
	if err == nil {
		err = os.Rename(tmp, e.Path)
	}
	return err
}

// copyBack makes a file of one that was kept as a copy.
func (j *fileJournal) copyBack(e entry, name string) error {
	from, err := os.Open(j.keptPath(e.Kept))
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if !clone(f, from) {
		_, err = io.Copy(f, from)
	}
	if err = errors.Join(err, f.Chmod(fs.FileMode(e.Mode)), f.Close()); err != nil {
		return err
	}
	at := time.Unix(0, e.Time)
	return os.Chtimes(name, at, at)
}

// refill writes back a piece of a file.
func (j *fileJournal) refill(e entry) error {
	f, err := os.OpenFile(e.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	from, err := os.Open(j.keptPath(e.Kept))
	if err != nil {
		f.Close()
		return fmt.Errorf("what it held is lost: %v", err)
	}
	defer from.Close()
	n, err := io.Copy(io.NewOffsetWriter(f, e.Off), io.NewSectionReader(from, e.At, e.Size))
	if err == nil && n < e.Size {
		err = fmt.Errorf("%s: what is kept of %s is too short", from.Name(), e.Path)
	}
	return errors.Join(err, f.Close())
}
