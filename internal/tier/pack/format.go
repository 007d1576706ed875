// Package pack keeps what belongs to a rank besides its checkpoint files: the
// files that the program has changed, as they were at the checkpoint, and the
// rank's output. A host that has a rank's checkpoint and its pack can resume
// the rank when the rank's own host is lost with its disk.
//
// Make reads the files while the program changes them; package journal undoes
// in memory what was changed after the checkpoint. So a pack needs no journal:
// Unpack puts the files back and begins an empty one.
//
// # Format
//
// A pack is one file:
//
//	magic     16 bytes
//	data      pieces of files, one after the other
//	index     a record (package store): see Index
//	trailer   offset and size of the index, 8 bytes each, little endian; magic
//
// The content of a file is a list of extents. An extent is in the data of this
// pack, or in the data of an older pack, a base: what has not changed since
// then is not stored again. An extent names the pack that has its bytes, so a
// reader never follows a chain of packs. If a new pack needs only little of a
// base, it stores these bytes again, and does not need the base.
//
// The name of a pack, rank-0003-00000012-DIGEST.pack, has the digest of all its
// bytes.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
)

// Index is the list of what is in a pack.
type Index struct {
	Format  int    `json:"format"`
	Run     string `json:"run"`
	Attempt string `json:"attempt"`
	Index   uint64 `json:"index"` // of the checkpoint
	Rank    int    `json:"rank"`
	Ranks   int    `json:"ranks"`
	Home    string `json:"home,omitempty"`    // the directory that the program was started in
	Journal bool   `json:"journal,omitempty"` // the rank has one
	Epoch   uint64 `json:"epoch,omitempty"`   // of the journal, at the checkpoint
	Bases   []Base `json:"bases,omitempty"`
	Files   []File `json:"files"`
}

// Base is an older pack.
type Base struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// File is a name in a pack: below the directory that the program was started in
// if it begins with "./", below the directory of the run on its host if it
// begins with "run:", and an absolute path otherwise.
type File struct {
	Path    string   `json:"path"`
	Kind    string   `json:"kind"`
	Mode    uint32   `json:"mode,omitempty"`
	Time    int64    `json:"time,omitempty"` // of the last modification, in ns since 1970
	To      string   `json:"to,omitempty"`   // of a symbolic link
	Size    int64    `json:"size,omitempty"`
	Link    int      `json:"link,omitempty"` // the file is a hard link to that number in Files, from 1 on
	Extents []Extent `json:"extents,omitempty"`
	Why     string   `json:"why,omitempty"` // absent: the reason
}

// The kinds of files.
const (
	kindFile   = "file"
	kindDir    = "dir"
	kindLink   = "link"
	kindGone   = "gone"   // there was nothing of that name
	kindAbsent = "absent" // it is not in the pack
)

// Extent is a piece of a file.
type Extent struct {
	Pack   int    `json:"p,omitempty"` // 0: this one; n: Bases[n-1]; -1: zeros
	Off    int64  `json:"o,omitempty"` // in the pack
	N      int64  `json:"n"`
	Digest string `json:"d,omitempty"` // none: it is a part of what was stored as one piece
}

const (
	magic     = "cairn pack 1\n\x00\x00\x00"
	trailer   = 16 + len(magic)
	format    = 1
	zeros     = -1
	maxIndex  = 512 << 20
	maxBases  = 16
	maxExtent = 1 << 40
	maxSize   = 1 << 56
	// chunk is the largest extent that Make writes.
	chunk = 1 << 20

	homePrefix = "./"
	runPrefix  = "run:"
)

// ErrDamaged means that a pack is not what Make has written.
var ErrDamaged = errors.New("the pack is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Name returns the name of a pack.
func Name(rank int, index uint64, d tier.Digest) string {
	return fmt.Sprintf("rank-%04d-%08d-%s.pack", rank, index, d)
}

// parseName returns what a name says.
func parseName(name string) (rank int, index uint64, d tier.Digest, ok bool) {
	var digest string
	if _, err := fmt.Sscanf(name, "rank-%d-%d-%s", &rank, &index, &digest); err != nil {
		return 0, 0, d, false
	}
	digest, ok = strings.CutSuffix(digest, ".pack")
	ok = ok && d.UnmarshalText([]byte(digest)) == nil && Name(rank, index, d) == name
	return rank, index, d, ok
}

// ReadIndex reads and checks the index of a pack of some size.
func ReadIndex(r io.ReaderAt, size int64) (*Index, error) {
	if size < int64(len(magic)+trailer) {
		return nil, damaged("it has %d bytes", size)
	}
	head, tail := make([]byte, len(magic)), make([]byte, trailer)
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if n, err := r.ReadAt(tail, size-int64(trailer)); n < trailer {
		return nil, err
	}
	if string(head) != magic || string(tail[16:]) != magic {
		return nil, damaged("it does not begin and end as a pack does")
	}
	off, n := binary.LittleEndian.Uint64(tail), binary.LittleEndian.Uint64(tail[8:])
	if n > maxIndex || off < uint64(len(magic)) || off > uint64(size) || off+n != uint64(size)-uint64(trailer) {
		return nil, damaged("its index is at %d, with %d bytes", off, n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(r, int64(off), int64(n)), text); err != nil {
		return nil, err
	}
	x := new(Index)
	if err := store.DecodeRecord(text, x); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if x.Format != format {
		return nil, fmt.Errorf("the pack has format %d, this cairn knows %d; use the cairn that wrote it", x.Format, format)
	}
	return x, x.check(int64(off))
}

// check checks everything that does not depend on where files are put. data is
// the offset at which the data end.
func (x *Index) check(data int64) error {
	if x.Index == 0 || x.Rank < 0 || x.Rank >= x.Ranks || len(x.Bases) > maxBases || x.Home != "" && !isClean(x.Home) {
		return damaged("rank %d of %d, checkpoint %d, %d bases, %.100q", x.Rank, x.Ranks, x.Index, len(x.Bases), x.Home)
	}
	ends := []int64{data}
	for _, b := range x.Bases {
		if _, _, _, ok := parseName(b.Name); !ok || b.Size < 0 || b.Size > maxSize {
			return damaged("base %.100q of %d bytes", b.Name, b.Size)
		}
		ends = append(ends, b.Size-int64(trailer))
	}
	seen := make(map[string]bool, len(x.Files))
	for i := range x.Files {
		f := &x.Files[i]
		if seen[f.Path] {
			return damaged("%.200q is there twice", f.Path)
		}
		seen[f.Path] = true
		if err := f.check(ends); err != nil {
			return err
		}
		if f.Link != 0 && (f.Link < 1 || f.Link > i || x.Files[f.Link-1].Kind != kindFile || x.Files[f.Link-1].Link != 0 || len(f.Extents) > 0 || f.Kind != kindFile) {
			return damaged("%.200q is a link to file %d", f.Path, f.Link)
		}
	}
	return nil
}

// isClean reports whether a path is absolute and has no superfluous parts.
func isClean(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && !strings.ContainsRune(path, 0)
}

// local returns the path below a directory that a name stands for.
func local(path, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(path, prefix)
	return rest, ok && rest != "" && filepath.IsLocal(rest) && filepath.Clean(rest) == rest && !strings.ContainsRune(rest, 0)
}

func (f *File) check(ends []int64) error {
	_, home := local(f.Path, homePrefix)
	_, own := local(f.Path, runPrefix)
	if !home && !own && (!isClean(f.Path) || f.Path == "/") {
		return damaged("%.200q is no path", f.Path)
	}
	if f.Mode&^0o777 != 0 || f.Size < 0 || f.Size > maxSize {
		return damaged("%.200q: mode %o, %d bytes", f.Path, f.Mode, f.Size)
	}
	switch f.Kind {
	case kindFile, kindAbsent:
	case kindLink, kindDir, kindGone:
		if own || len(f.Extents) > 0 || f.Size > 0 || f.Kind == kindLink && (f.To == "" || strings.ContainsRune(f.To, 0)) {
			return damaged("%.200q: a %s", f.Path, f.Kind)
		}
	default:
		return damaged("%.200q is a %.20q", f.Path, f.Kind)
	}
	size := int64(0)
	for _, e := range f.Extents {
		if e.Pack < zeros || e.Pack >= len(ends) || e.N <= 0 || e.N > maxExtent || e.Off < 0 {
			return damaged("%.200q: %d bytes from %d on of pack %d", f.Path, e.N, e.Off, e.Pack)
		}
		if e.Pack != zeros && (e.Off < int64(len(magic)) || e.Off+e.N > ends[e.Pack] || e.Off > maxSize) {
			return damaged("%.200q: %d bytes from %d on of pack %d are not there", f.Path, e.N, e.Off, e.Pack)
		}
		if size += e.N; size > f.Size {
			break
		}
	}
	if f.Kind == kindFile && f.Link == 0 && size != f.Size {
		return damaged("%.200q: it has %d bytes, and extents of %d", f.Path, f.Size, size)
	}
	return nil
}

// Absent returns the files that are not in the pack, with the reasons.
func (x *Index) Absent() (out []string) {
	for i := range x.Files {
		if f := &x.Files[i]; f.Kind == kindAbsent {
			out = append(out, fmt.Sprintf("%s (%s)", f.Path, f.Why))
		}
	}
	return out
}

// Object is a pack on this host.
type Object struct {
	Name string
	Path string
	Size int64
}

// Digest returns the digest in the name.
func (o *Object) Digest() (tier.Digest, error) {
	_, _, d, ok := parseName(o.Name)
	if !ok {
		return d, damaged("%.100q is no name of a pack", o.Name)
	}
	return d, nil
}

// openPack opens a pack on this host and reads its index.
func openPack(path string) (*os.File, *Index, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, 0, err
	}
	st, err := f.Stat()
	var x *Index
	if err == nil {
		x, err = ReadIndex(f, st.Size())
	}
	if err != nil {
		f.Close()
		return nil, nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	return f, x, st.Size(), nil
}
