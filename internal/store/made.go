package store

import (
	"fmt"
	"math"
	"path/filepath"
)

// MadeFile is a file that a rank of the run has made with O_EXCL: it was not
// there before.
type MadeFile struct {
	Path string `json:"path"`
	// After is the newest checkpoint whose state was copied before the file
	// was made: a restart from this one, or an older one, makes it again.
	After uint64 `json:"after"`
}

// ToBeMade is the After of a file that a resumed program will make again. It
// stays valid however many checkpoints the program takes before it makes the
// file.
const ToBeMade = math.MaxUint64

// madeFiles is the record of these files. It is valid only for the run, and in
// the directory, that it was written for; see writtenFiles.
type madeFiles struct {
	Format int        `json:"format"`
	Dir    uint64     `json:"dir"` // inode of the checkpoint directory
	Run    string     `json:"run"`
	Files  []MadeFile `json:"files"`
}

const madeFormat = 1

func (d *Dir) madePath() string {
	return filepath.Join(d.path, fmt.Sprintf("journal.made-%04d", d.rank))
}

// MadeFiles returns the files that the rank has made, if the record is one of
// this run, in a directory with this inode.
func (d *Dir) MadeFiles(inode uint64, run string) []MadeFile {
	var m madeFiles
	if ReadRecord(d.fs, d.madePath(), &m) != nil || m.Format != madeFormat || m.Dir != inode || m.Run != run {
		return nil
	}
	return m.Files
}

// SetMadeFiles records the files that the rank has made.
func (d *Dir) SetMadeFiles(inode uint64, run string, files []MadeFile) error {
	return WriteRecord(d.fs, d.madePath(), &madeFiles{madeFormat, inode, run, files})
}
