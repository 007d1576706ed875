package journal

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The file journal.names lists files that the program has made or changed, so
// that a snapshot has them all. A name gets into it when the last line about it
// is dropped from the log, and only if the name exists then. So the list and
// the log together name every file of the program that there is.
//
// It has lines as the log has them, with digests; a line that was being written
// when the process was killed does not count.

// named is a name of the program's.
type named struct {
	path string // as it is written in the log
	tree bool   // a directory was moved there: everything in it counts
}

func compareNames(a, b named) int {
	if a.tree != b.tree && a.path == b.path {
		return map[bool]int{false: -1, true: 1}[a.tree]
	}
	return strings.Compare(a.path, b.path)
}

// namesSeed begins the digest of the first line.
func (l *logFile) namesSeed() string { return l.seed() + ", names" }

// readNames returns the names in the list, the size of what counts of it, and
// the digest after that.
func (l *logFile) readNames() (list []named, size int64, sum string, err error) {
	sum = l.namesSeed()
	text, err := os.ReadFile(l.rankFile(namesName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, sum, nil
	}
	if err != nil {
		return nil, 0, "", err
	}
	for line := range bytes.Lines(text) {
		e, next, ok := decode(line, sum)
		if !ok {
			if size+int64(len(line)) < int64(len(text)) || bytes.HasSuffix(line, []byte("\n")) {
				return nil, 0, "", &damagedError{l.rankFile(namesName), "a line was changed"}
			}
			break
		}
		list = append(list, named{e.Path, e.Was == "dir"})
		size, sum = size+int64(len(line)), next
	}
	return list, size, sum, nil
}

// addNames adds names to the list, durably, unless they are in it. It also
// leaves out names that do not exist, unless an undo of lines may bring them
// back.
func (l *logFile) addNames(names map[named]bool, lines []entry) error {
	list, size, sum, err := l.readNames()
	if err != nil {
		return err
	}
	for _, n := range list {
		delete(names, n)
	}
	back := make(map[string]bool)
	for i := range lines {
		back[l.abs(lines[i].Path)], back[l.abs(lines[i].To)] = true, true
	}
	var text []byte
	for _, n := range slices.SortedFunc(maps.Keys(names), compareNames) {
		path := l.abs(n.path)
		if _, err := os.Lstat(path); missing(err) && !inside(path, back) {
			continue
		}
		e := entry{Op: opName, Path: n.path}
		if n.tree {
			e.Was = "dir"
		}
		line, next, err := encode(&e, sum)
		if err != nil {
			return err
		}
		text, sum = append(text, line...), next
	}
	if len(text) == 0 {
		return nil
	}
	f, err := os.OpenFile(l.rankFile(namesName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		_, err = f.WriteAt(text, size)
	}
	if err == nil && syncing {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncDir(l.dir)
}

// inside reports whether a path is one of some, or below it.
func inside(path string, some map[string]bool) bool {
	for !some[path] {
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
	return true
}

// namesOf adds the names in lines to out.
func (l *logFile) namesOf(lines []entry, out map[named]bool) {
	for i := range lines {
		e := &lines[i]
		switch {
		case e.Op == opFirst || e.Op == opCheckpoint:
		case strings.HasPrefix(e.Path, keptPrefix): // another line has its name
		default:
			out[named{e.Path, false}] = true
		}
		if e.Op == opMove {
			out[named{e.To, l.isTree(e.To)}] = true
		}
	}
}

// isTree reports whether a path in the log may be a directory that a program
// has moved there. The directory that the program was started in is not.
func (l *logFile) isTree(path string) bool {
	_, above := cutDir(l.base, l.abs(path))
	return !above
}

// namesLost returns the names of changes that were recorded in a log that was
// given up, and of those made since, which were not recorded.
func (j *Journal) namesLost() map[named]bool {
	l := j.log
	out := make(map[named]bool)
	text, _ := os.ReadFile(l.rankFile(incompleteName))
	at := l.seed()
	var lines []entry
	for line := range bytes.Lines(text) {
		e, next, ok := decode(line, at)
		if !ok {
			break
		}
		lines, at = append(lines, e), next
	}
	l.namesOf(lines, out)
	for _, changed := range []map[string]bool{j.changedNow, j.uncommitted} {
		for path := range changed {
			if dir := filepath.Dir(path); dir == l.rankFile(keptName) {
				continue
			}
			path = l.rel(path)
			out[named{path, l.isTree(path)}] = true
		}
	}
	return out
}
