package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/vfs"
)

// ErrDamaged means that a record is empty or does not match its digest.
var ErrDamaged = errors.New("the record is damaged")

// maxRecord bounds the size of a record.
const maxRecord = 16 << 20

// A record is a JSON object. Its first member, on a line of its own, is a
// digest of all bytes after this line:
//
//	{
//	  "digest": "90a3ed9e32b2aaf4c61c410eb925426119e1a9dc53d4286ade99a809",
//	  "format": 1, …
const digestHead = "{\n  \"digest\": \""

func digestOf(rest []byte) string {
	sum := sha256.Sum224(rest)
	return hex.EncodeToString(sum[:])
}

// EncodeRecord returns v, a struct, as the text of a record.
func EncodeRecord(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(text, []byte("{\n"))
	if !ok {
		return nil, fmt.Errorf("a record of type %T has no members", v)
	}
	rest = append(rest, '\n')
	return append([]byte(digestHead+digestOf(rest)+"\",\n"), rest...), nil
}

// DecodeRecord reads the text of a record into v. If it is damaged, the error
// wraps ErrDamaged.
func DecodeRecord(text []byte, v any) error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", ErrDamaged, why) }
	if len(text) == 0 {
		return bad("it is empty")
	}
	after, ok := bytes.CutPrefix(text, []byte(digestHead))
	digest, rest, found := bytes.Cut(after, []byte("\",\n"))
	if !ok || !found {
		return bad("it has no digest")
	}
	if string(digest) != digestOf(rest) {
		return bad("its digest differs")
	}
	if err := json.Unmarshal(text, v); err != nil {
		return bad(err.Error())
	}
	return nil
}

// WriteRecord replaces a record atomically and durably. v is a struct.
func WriteRecord(fsys vfs.FS, path string, v any) error {
	text, err := EncodeRecord(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return vfs.Replace(fsys, path, text)
}

// ReadRecord reads a record into v. If the record is damaged, the error wraps
// ErrDamaged, and v is unchanged.
func ReadRecord(fsys vfs.FS, path string, v any) error {
	text, err := vfs.ReadFile(fsys, path, maxRecord)
	if err != nil {
		return err
	}
	if err := DecodeRecord(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
