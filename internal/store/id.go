package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// NewID returns a new identity: 16 random bytes as hexadecimal digits.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// idFile is the content of DIR/run-id, a record (here on one line):
//
//	{"digest": "…", "format": 1, "run": "7d0c…"}
type idFile struct {
	Format int    `json:"format"`
	Run    string `json:"run"`
}

const idFormat = 1

func (d *Dir) idPath() string { return filepath.Join(d.path, "run-id") }

// ID returns the identity of the run whose checkpoints are in the directory, or
// "" if none is recorded. Any rank may call it. If the record is damaged, the
// error wraps ErrDamaged.
func (d *Dir) ID() (string, error) {
	var f idFile
	err := ReadRecord(d.fs, d.idPath(), &f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case f.Format != idFormat || len(f.Run) != 32:
		return "", fmt.Errorf("%s is damaged, or was written by a newer Cairn: it has format %d, run %q; this program knows format %d", d.idPath(), f.Format, f.Run, idFormat)
	}
	return f.Run, nil
}

// SetID records the identity, durably and atomically.
func (d *Dir) SetID(run string) error {
	if err := WriteRecord(d.fs, d.idPath(), &idFile{idFormat, run}); err != nil {
		return fmt.Errorf("recording the run's identity: %w", err)
	}
	return nil
}
