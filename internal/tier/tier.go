// Package tier keeps checkpoints in other places than the directory that they
// were saved in: another disk, a shared file system, an object store.
//
// A Tier is such a place. It keeps immutable objects under names and knows
// nothing of checkpoints. Package dir has a tier in a directory, package s3 one
// in an S3-compatible store; package seal encrypts what any other tier keeps;
// package tiertest has the tests that every tier must pass.
//
// # Checkpoints on a tier
//
// A run has these objects; RUN is its identity:
//
//	runs/RUN                               the run has something on this tier
//	RUN/checkpoints/00000012.json          the manifest of checkpoint 12
//	RUN/parts/00000012-PART-TOKEN-DIGEST.json   what one host uploaded of it
//	RUN/files/rank-0000-00000010-TOKEN.h5  rank 0's file of checkpoint 10
//	RUN/files/extra-TOKEN-0003             a journal, a record, a file of the
//	                                       program
//	RUN/files/ranks-0000-0063-00000012-TOKEN.h5   a bundle: the files of ranks 0
//	                                              to 63 in one object
//	RUN/claims/00000012-PART-TOKEN.json    an upload is under way
//	RUN/condemned/TOKEN.json               a collection is under way
//	RUN/pins/best.json                     a checkpoint that no collection
//	                                       removes
//	RUN/checkpoints/9007199254740992.json  the run has finished; its last
//	                                       output and files
//
// Each host uploads the files of its ranks, with the bases that they need, and
// then a part, which lists them (Upload). When all parts are there, one process
// writes the manifest, which lists the parts (Commit). The manifest is created
// atomically and last: a checkpoint without it does not exist, and of two
// writers of one checkpoint only one succeeds. A file that several checkpoints
// need is stored once.
//
// # Collection
//
// Collect removes old checkpoints and what nobody refers to, while uploads may
// be under way. Two rules make that safe without a lock:
//
//   - No name is used twice: names of uploaded objects have the TOKEN of their
//     upload, which is random.
//   - An upload first creates a claim, which names the older objects that it
//     will refer to, and then looks for condemned lists. A collection first
//     creates a condemned list, which names what it will remove, and then looks
//     for claims and manifests. Whatever the order, one sees the other: the
//     upload does not use an object that is condemned, or the collection does
//     not remove an object that is claimed. In the same way, AddPin creates a
//     pin, and then looks for condemned lists that name the manifest.
//
// An upload that was killed leaves its claim. When a claim is older than the
// grace period, the collection first creates a tombstone under the name of the
// manifest: so the upload, if it is alive after all, cannot commit any more.
package tier

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// Errors that callers distinguish.
var (
	// ErrNotExist means that there is no object of that name.
	ErrNotExist = errors.New("no such object")
	// ErrExists means that there is a different object of that name.
	ErrExists = errors.New("a different object of that name exists")
	// ErrDamaged means that an object does not have the bytes that were stored.
	ErrDamaged = errors.New("the object is damaged")
	// ErrKey means that an object was encrypted with another key than the one
	// that is given.
	ErrKey = errors.New("encrypted with another key")
	// ErrNoKey means that an object is encrypted, and the tier was opened
	// without a key.
	ErrNoKey = errors.New("encrypted, and no key is given: name its file with key=FILE in --tiers, or with --key")
	// ErrTemporary means that the operation may succeed if it is repeated: a
	// network failed, a store was busy. All other errors are permanent.
	ErrTemporary = errors.New("temporary failure")
)

// Tier is a place that keeps named immutable objects. Its methods may be called
// concurrently, and other processes may use the same place. When a context is
// done, they return its error soon. Package tiertest tests that a Tier does
// what its methods promise here.
type Tier interface {
	// Put stores an object; it is durable when Put returns. Put replaces
	// nothing: if an equal object of that name exists, Put succeeds; if a
	// different one does, it returns ErrExists. An interrupted Put leaves
	// nothing that other methods see; if it is repeated, it may use what was
	// written before.
	Put(ctx context.Context, name string, src Source) error
	// Create stores a small object atomically. If several writers have
	// different data, exactly one succeeds, and the others get ErrExists.
	// Writers with equal data all succeed, so a writer may repeat a call whose
	// answer was lost. A writer that must be the only one puts something
	// unique into the data.
	Create(ctx context.Context, name string, data []byte) error
	// Get returns n bytes of an object from offset on, or all from there on if
	// n is negative. The reader returns exactly these bytes, or an error. If
	// the object is shorter than that, the error is ErrDamaged. The caller
	// closes the reader. When ctx is done, the reader fails, too.
	Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error)
	// Stat describes an object.
	Stat(ctx context.Context, name string) (Info, error)
	// List returns the objects whose names begin with prefix, in any order. It
	// ends after an error.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Remove removes an object, durably. A missing object is not an error.
	Remove(ctx context.Context, name string) error
	// Sweep removes unfinished data under prefix, which interrupted calls of
	// Put have left. Data that was written after the time before stays.
	Sweep(ctx context.Context, prefix string, before time.Time) error
	// String names the tier in messages.
	String() string
}

// Source is the content of an object that is to be stored. ReadAt may be called
// concurrently, and again for the same bytes. Digest identifies the content:
// sources with equal digests have equal content.
type Source struct {
	io.ReaderAt
	Size   int64
	Digest Digest
}

// Info describes an object.
type Info struct {
	Name     string
	Size     int64
	Modified time.Time // by the clock of the tier
}

// Digest is the XXH3-128 hash of an object's content.
type Digest [16]byte

// String returns the digest as 32 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is String for encoding/json.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return fmt.Errorf("%.40q is no digest", text)
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Digester computes the Digest of what is written to it.
type Digester struct{ h xxh3.Hasher }

func (d *Digester) Write(p []byte) (int, error) { return d.h.Write(p) }

// Digest returns the digest of what was written so far.
func (d *Digester) Digest() Digest { return d.h.Sum128().Bytes() }

// NewSource reads size bytes of r for their digest, and returns r as a Source.
func NewSource(ctx context.Context, r io.ReaderAt, size int64) (Source, error) {
	var d Digester
	err := Copy(ctx, &d, io.NewSectionReader(r, 0, size), size)
	return Source{r, size, d.Digest()}, err
}

// BytesSource returns p as a Source.
func BytesSource(p []byte) Source {
	return Source{bytes.NewReader(p), int64(len(p)), xxh3.Hash128(p).Bytes()}
}

// Copy copies n bytes from r to w. It fails if r has fewer, or when ctx is
// done.
func Copy(ctx context.Context, w io.Writer, r io.Reader, n int64) error {
	buf := make([]byte, min(max(n, 1), 1<<20))
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := buf[:min(n, int64(len(buf)))]
		if _, err := io.ReadFull(r, p); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		n -= int64(len(p))
	}
	return nil
}

// Parallel runs jobs, n at a time. After a failure it starts no more jobs, and
// cancels those that run.
func Parallel(ctx context.Context, n int, jobs []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan func(context.Context) error)
	var wg sync.WaitGroup
	for range min(n, len(jobs)) {
		wg.Go(func() {
			for job := range next {
				if err := job(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, job := range jobs {
		if ctx.Err() != nil {
			break
		}
		next <- job
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// These bound the names of objects, so that every tier can keep them.
const (
	maxName = 700
	maxPart = 200
)

// CheckName checks the name of an object: parts of letters, digits, '.', '_'
// and '-' of the ASCII set, with a '/' between two of them. No part begins with
// '.'. One name must not be the directory of another: "a" and "a/b" exclude
// each other.
func CheckName(name string) error {
	bad := func(why string) error { return fmt.Errorf("%.100q is no name for an object: %s", name, why) }
	if name == "" || len(name) > maxName {
		return bad(fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(name), maxName))
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return bad("it has an empty part")
		case len(part) > maxPart:
			return bad(fmt.Sprintf("a part has more than %d bytes", maxPart))
		case part[0] == '.':
			return bad("a part begins with a dot")
		}
		for i := range len(part) {
			if !nameByte(part[i]) {
				return bad(fmt.Sprintf("it has the byte %#x", part[i]))
			}
		}
	}
	return nil
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// CheckPrefix checks a prefix of names: empty, or such that a name can begin
// with it.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckName(strings.TrimSuffix(prefix, "/"))
}

// ReadAll returns the content of an object of at most limit bytes.
func ReadAll(ctx context.Context, t Tier, name string, limit int64) ([]byte, error) {
	info, err := t.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if info.Size > limit {
		return nil, fmt.Errorf("%s: %s: %w: it has %d bytes; at most %d are expected", t, name, ErrDamaged, info.Size, limit)
	}
	r, err := t.Get(ctx, name, 0, info.Size)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text := make([]byte, info.Size)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", t, name, err)
	}
	if bytes.HasPrefix(text, []byte(SealMagic)) {
		return nil, fmt.Errorf("%s: %s: %w", t, name, ErrNoKey)
	}
	return text, nil
}

// SealMagic begins every object that package seal has encrypted.
const SealMagic = "cairnsl1"
