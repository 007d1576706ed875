package store

import (
	"fmt"
	"path/filepath"
)

// writtenFiles is the record of the files that a rank of the run writes. A
// restart may change a file outside the working directory only if the record
// names it, the program has opened it, or the user allows it. The record also
// names files in the working directory: a restart may have another working
// directory. It is valid only in the checkpoint directory that it was written
// in, which its inode identifies. Thus nobody can have a user's files changed
// by sending the user a prepared checkpoint directory: the sender does not know
// the inode that the copy will have.
type writtenFiles struct {
	Format int      `json:"format"`
	Dir    uint64   `json:"dir"` // inode of the checkpoint directory
	Paths  []string `json:"paths"`
}

const writtenFormat = 1

func (d *Dir) writtenPath() string {
	return filepath.Join(d.path, fmt.Sprintf("journal.opened-%04d", d.rank))
}

// WrittenFiles returns the files that the rank is recorded to write, if the
// record was made for a directory with this inode.
func (d *Dir) WrittenFiles(inode uint64) []string {
	var w writtenFiles
	if ReadRecord(d.fs, d.writtenPath(), &w) != nil || w.Format != writtenFormat || w.Dir != inode {
		return nil
	}
	return w.Paths
}

// SetWrittenFiles records the files that the rank writes.
func (d *Dir) SetWrittenFiles(inode uint64, paths []string) error {
	return WriteRecord(d.fs, d.writtenPath(), &writtenFiles{writtenFormat, inode, paths})
}

// AdoptWrittenFiles makes a record valid that was brought from another
// checkpoint directory: it puts in the inode of this one. The caller must trust
// the source.
func (d *Dir) AdoptWrittenFiles(inode uint64) error {
	var w writtenFiles
	if err := ReadRecord(d.fs, d.writtenPath(), &w); err != nil {
		return err
	}
	if w.Format != writtenFormat {
		return fmt.Errorf("%s: format %d, this cairn knows %d", d.writtenPath(), w.Format, writtenFormat)
	}
	return d.SetWrittenFiles(inode, w.Paths)
}
