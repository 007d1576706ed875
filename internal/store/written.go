package store

import (
	"fmt"
	"path/filepath"
)

// writtenFiles is the record of the files that a rank of the run writes,
// outside the checkpoint directory. It also lists files in the working
// directory, since a restart may have another one. The record is valid only in
// the directory that it was written in: an attacker who sends a copy of the
// directory does not know the inode that the copy will have.
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

// AdoptWrittenFiles makes the record valid in a directory with this inode. The
// record is of another directory, whose files somebody trusted has brought.
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
