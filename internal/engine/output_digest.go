package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/cairnrun/cairn/internal/control"
)

// outputDigest is the digest of a rank's standard output, which is a file of
// the run. Restore compares it. Each checkpoint reads only what was written
// since the previous one.
type outputDigest struct {
	h  hash.Hash
	at int64 // bytes in h
}

// upTo returns the digest of a file's first size bytes.
func (s *outputDigest) upTo(path string, size int64) (string, error) {
	if s.h == nil || size < s.at { // it was truncated
		s.h, s.at = sha256.New(), 0
	}
	if size > s.at {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		n, err := io.Copy(s.h, io.NewSectionReader(f, s.at, size-s.at))
		s.at += n
		if err == nil && s.at < size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(s.h.Sum(nil)[:16]), nil
}

// digestOutput adds the digest to the entry of standard output. If the file
// cannot be read, the entry has none.
func (t *fileTable) digestOutput(o *openFile) {
	o.entry.Digest = ""
	if sum, err := t.output.upTo(o.entry.Abs, o.entry.Size); err == nil {
		o.entry.Digest = sum
	} else {
		t.output = outputDigest{}
	}
}

// checkOutput returns an error if standard output has changed since the
// checkpoint.
func (t *fileTable) checkOutput(o *openFile) error {
	if o.f != control.StdoutFile || o.entry.Path != stdoutPath || o.entry.Digest == "" || t.migrated {
		return nil
	}
	t.output = outputDigest{}
	sum, err := t.output.upTo(o.entry.Abs, o.entry.Size)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the output of the checkpoint: %w", err)
	}
	if sum != o.entry.Digest {
		return fileMismatch(fmt.Sprintf("the output of the checkpoint: %s is damaged: its first %d bytes have changed since the checkpoint: restore them, or start over with --fresh", o.entry.Abs, o.entry.Size))
	}
	return nil
}
