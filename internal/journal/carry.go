package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Files returns the files of a rank's journal in a checkpoint directory: their
// names below it, and where they are. A kept file may be in an overflow
// directory.
func Files(dir string, rank, ranks int) (map[string]string, error) {
	l := &logFile{dir: dir, rank: rank, ranks: ranks}
	out := make(map[string]string)
	for _, name := range []string{journalName, headName, incompleteName, namesName} {
		switch st, err := os.Lstat(l.rankFile(name)); {
		case err == nil && st.Mode().IsRegular():
			out[rankName(name, rank, ranks)] = l.rankFile(name)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	kept := rankName(keptName, rank, ranks)
	places := []string{l.rankFile(keptName)}
	for _, place := range overflowPlaces() {
		if other := filepath.Join(place, l.overflowName()); isOwnDir(other) {
			places = append(places, other)
		}
	}
	for _, place := range places {
		list, err := os.ReadDir(place)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range list {
			if name := filepath.Join(kept, e.Name()); out[name] == "" && e.Type().IsRegular() {
				out[name] = filepath.Join(place, e.Name())
			}
		}
	}
	return out, nil
}

// Remove removes a rank's journal from a checkpoint directory.
func Remove(dir string, rank, ranks int) error {
	return (&logFile{dir: dir, rank: rank, ranks: ranks}).remove()
}

// Adopt makes a rank's journal that was copied from another host a journal of
// this directory. A restart then trusts it as if it had been written here. Its
// kept files are copies.
func Adopt(dir string, rank, ranks int) error {
	l, err := (&Journal{Config: Config{Dir: dir, Rank: rank, Ranks: ranks}}).readLog(rank)
	var lost incompleteError
	if errors.As(err, &lost) { // a restart refuses it
		return nil
	}
	if err != nil || len(l.lines) == 0 {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	l.lines[0].Ino, l.lines[0].Adopted = 0, inode(st)
	err = l.rewrite(l.lines)
	l.close()
	return err
}
