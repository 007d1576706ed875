// Package ckpt saves and loads checkpoints: it lays the pools of a program's
// image out as datasets, writes them into one HDF5 file per rank, and reads
// them back with every byte checked. Package migrate sends an image to another
// process; package store has the directory.
//
// How a checkpoint is made:
//
//	graph.Collect  image: variables, regions, pools
//	plan.go        layout: a dataset per pool, cut into blocks
//	save.go        the pause: find the changed blocks, copy them to staging
//	writer.go      digest, compress, write, publish; perhaps in a helper process
//	meta.go        the HDF5 metadata behind the blocks
//
// A file, as h5dump shows it (docs/format.md has the details):
//
//	/Header              text (JSON): format, index, datasets, bases; attribute "digest"
//	/Blocks              one row per block: digest, where it is, its stored size
//	/FileMap/0 …         text (JSON): path, flags, offset, size of an open data file
//	/Context/Variables   text (JSON): names, types, root regions
//	/Context/Types       text (JSON): types found in interfaces
//	/Context/Regions     regions: pool, repeat, start, count
//	/Context/Pointers/…  values that hold pointers, as tables of references
//	/MemBlocks/…         the values, under the names of the variables
//	/Changed/…           differential checkpoints only: the blocks that are stored here;
//	                     the dataset under /MemBlocks is then a virtual one
//	                     that joins them with the base files beside this file
//
// Digests form a tree: Header's attribute covers Header, Header covers Blocks,
// and Blocks covers every block of every dataset. A block has about BlockSize
// bytes. Digests, omission of zeros, compression and differences are per block.
//
// In the file the blocks come first, in large aligned writes; the metadata is
// at the end:
//
//	0        4096                                  end of data
//	| super  | segment | segment | … | segment     | metadata |
package ckpt

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/hdf5"
)

// Format is the version of the file format that this package writes and
// reads. docs/format.md has its history.
const Format = 4

// Errors that callers distinguish.
var (
	// ErrCorrupt means that a checkpoint is damaged: the file does not have the
	// bytes that were written.
	ErrCorrupt = errors.New("checkpoint is damaged")
	// ErrForeign means that a file is sound but belongs to another checkpoint,
	// rank or run than its place says. It is wrapped together with ErrCorrupt.
	ErrForeign = errors.New("this file belongs elsewhere")
	// ErrFormat means that a file is sound, but of another format version.
	ErrFormat = errors.New("not a checkpoint this version can read")
)

// Compression is how blocks are compressed in the file.
type Compression string

const (
	None Compression = ""     // stored as they are
	Zstd Compression = "zstd" // HDF5 filter 32015; HDF5 tools need a plugin for it
	Gzip Compression = "gzip" // all HDF5 tools read it
)

// Header is the content of /Header.
type Header struct {
	Format int `json:"format"`
	// Run identifies the run (see store.NewID). Attempt identifies the attempt
	// that saved the checkpoint; it is the same in the files of all ranks.
	Run         string      `json:"run,omitempty"`
	Attempt     string      `json:"attempt,omitempty"`
	Index       uint64      `json:"index"`
	Rank        int         `json:"rank"`
	Ranks       int         `json:"ranks"`
	Time        string      `json:"time"` // RFC 3339, UTC: when the pause began
	Compression Compression `json:"compression,omitempty"`
	Bases       []Base      `json:"bases,omitempty"`
	Datasets    []Dataset   `json:"datasets"`
	Blocks      string      `json:"blocks"` // digest of /Blocks
	// Names are those of arrays that are parts of datasets.
	Names []graph.Name `json:"names,omitempty"`
	// Empty are the arrays without elements of a C, Fortran or Python program.
	// The metadata has no types and dimensions of them.
	Empty []EmptyArray `json:"empty,omitempty"`
	// Messages exchanged with each rank from the start of the run to the
	// checkpoint; empty for a run of one rank.
	Sent     []uint64 `json:"sent,omitempty"`
	Received []uint64 `json:"received,omitempty"`
	Note     Note     `json:"note"`
}

// EmptyArray is a variable with a dimension of 0.
type EmptyArray struct {
	Name string   `json:"name"`
	Go   string   `json:"go"` // the type of its elements
	Dims []uint64 `json:"dims"`
}

// Base is an older file that has blocks of this checkpoint.
type Base struct {
	Index uint64 `json:"index"`
	File  string `json:"file"` // in the same directory
	Diff  bool   `json:"diff"` // the base is differential itself: its blocks are under /Changed
	// Blocks is how many blocks the base stores, needed or not; 0: not known.
	Blocks int `json:"blocks,omitempty"`
	// Header is the digest of the base's /Header; "": not known.
	Header string `json:"header,omitempty"`
}

// Note describes, for people, how a checkpoint was taken. It also passes the
// start of the pause and the message totals to Save. Save sets PauseMS.
type Note struct {
	Points   uint64  `json:"points,omitempty"`   // points passed since the run began
	Reason   string  `json:"reason,omitempty"`   // why it was due
	PauseMS  float64 `json:"pauseMs"`            // how long the program was paused: until its next kernel could run
	Finding  string  `json:"finding,omitempty"`  // how changes were found: "copy", "digest", "kernel" or "device"
	Tracking string  `json:"tracking,omitempty"` // whether the kernel can track writes

	Began    time.Time            `json:"-"` // when the pause began; zero: with Save
	Before   time.Duration        `json:"-"` // how long the program was paused for the checkpoint earlier
	Pause    func() time.Duration `json:"-"` // returns PauseMS if the caller measures it; Save calls it when it has copied all
	Empty    []EmptyArray         `json:"-"` // for Header.Empty
	Sent     []uint64             `json:"-"` // for Header.Sent: one per rank, or none
	Received []uint64             `json:"-"` // for Header.Received
}

// Dataset is an entry of Header.Datasets.
type Dataset struct {
	Path  string   `json:"path"`
	Var   string   `json:"var,omitempty"`
	Pool  int      `json:"pool"` // -1: metadata
	Go    string   `json:"go,omitempty"`
	Type  string   `json:"type"`
	Dims  []uint64 `json:"dims,omitempty"`  // none: scalar
	Chunk []uint64 `json:"chunk,omitempty"` // none: one block, stored with the metadata
	Size  int64    `json:"size"`            // bytes
	Block int64    `json:"block"`           // bytes of a block
	First int      `json:"first"`           // row of its first block in /Blocks
}

// Count returns the number of elements.
func (d *Dataset) Count() uint64 {
	n := uint64(1)
	for _, m := range d.Dims {
		n *= m
	}
	return n
}

// NumBlocks returns the number of blocks.
func (d *Dataset) NumBlocks() int {
	if d.Size == 0 {
		return 0
	}
	return int((d.Size + d.Block - 1) / d.Block)
}

// BlockLen returns the number of bytes of block k.
func (d *Dataset) BlockLen(k int) int { return int(min(d.Block, d.Size-int64(k)*d.Block)) }

// SameLayout reports whether the blocks of d and e correspond one to one.
func (d *Dataset) SameLayout(e *Dataset) bool {
	return d.Path == e.Path && d.Type == e.Type && d.Size == e.Size && d.Block == e.Block && slices.Equal(d.Dims, e.Dims) && slices.Equal(d.Chunk, e.Chunk)
}

// continues reports whether the blocks of d and e correspond as far as both
// have them: one may have more rows than the other.
func (d *Dataset) continues(e *Dataset) bool {
	if len(d.Dims) == 0 || len(d.Dims) != len(e.Dims) || d.Chunk == nil {
		return d.SameLayout(e)
	}
	return d.Path == e.Path && d.Type == e.Type && d.Block == e.Block && slices.Equal(d.Dims[1:], e.Dims[1:]) && slices.Equal(d.Chunk, e.Chunk)
}

// changedPath returns where a differential checkpoint stores blocks of d.
func (d *Dataset) changedPath() string { return "Changed/" + d.Path }

// Block is a row of /Blocks.
type Block struct {
	Digest xxh3.Uint128
	Source uint32 // SourceZero, SourceHere, or SourceBase+i for Header.Bases[i]
	Stored uint32 // bytes in the file, after compression
}

// These values of Source say where a block is.
const (
	SourceZero uint32 = iota // nowhere: it is all zeros
	SourceHere
	SourceBase
)

// blockBytes is the size of a row of /Blocks.
const blockBytes = 24

var blockType = hdf5.Type{Class: hdf5.Compound, Size: blockBytes, Fields: []hdf5.Field{
	{Name: "digest_lo", Offset: 0, Type: hdf5.Type{Class: hdf5.Uint, Size: 8}},
	{Name: "digest_hi", Offset: 8, Type: hdf5.Type{Class: hdf5.Uint, Size: 8}},
	{Name: "source", Offset: 16, Type: hdf5.Type{Class: hdf5.Uint, Size: 4}},
	{Name: "stored", Offset: 20, Type: hdf5.Type{Class: hdf5.Uint, Size: 4}},
}}

func encodeBlocks(blocks []Block) []byte {
	out := make([]byte, 0, len(blocks)*blockBytes)
	for _, b := range blocks {
		out = binary.LittleEndian.AppendUint64(out, b.Digest.Lo)
		out = binary.LittleEndian.AppendUint64(out, b.Digest.Hi)
		out = binary.LittleEndian.AppendUint32(out, b.Source)
		out = binary.LittleEndian.AppendUint32(out, b.Stored)
	}
	return out
}

func decodeBlocks(p []byte) []Block {
	out := make([]Block, len(p)/blockBytes)
	for i := range out {
		r := p[i*blockBytes:]
		out[i] = Block{
			Digest: xxh3.Uint128{Lo: binary.LittleEndian.Uint64(r), Hi: binary.LittleEndian.Uint64(r[8:])},
			Source: binary.LittleEndian.Uint32(r[16:]),
			Stored: binary.LittleEndian.Uint32(r[20:]),
		}
	}
	return out
}

// DigestText returns the XXH3-128 of p as 32 hexadecimal digits.
func DigestText(p []byte) string {
	b := xxh3.Hash128(p).Bytes()
	return hex.EncodeToString(b[:])
}

// parseHeader checks the text of /Header against its digest and itself.
func parseHeader(text []byte, digest string) (*Header, error) {
	if DigestText(text) != digest {
		return nil, fmt.Errorf("%w: /Header does not match its digest", ErrCorrupt)
	}
	var h Header
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("%w: /Header: %v", ErrCorrupt, err)
	}
	if h.Format != Format {
		return nil, fmt.Errorf("%w: the file has format %d, this program reads format %d; use the version of Cairn that wrote it", ErrFormat, h.Format, Format)
	}
	if err := h.Check(); err != nil {
		return nil, err
	}
	return &h, nil
}

// Check checks that the parts of the header agree with each other.
func (h *Header) Check() error {
	if n := len(h.Sent); n != len(h.Received) || n > 0 && n != h.Ranks {
		return fmt.Errorf("%w: message totals of %d and %d ranks, there are %d", ErrCorrupt, n, len(h.Received), h.Ranks)
	}
	next := 0
	for i := range h.Datasets {
		d := &h.Datasets[i]
		t, err := hdf5.ParseType(d.Type)
		if err != nil {
			return fmt.Errorf("%w: %s: %v", ErrCorrupt, d.Path, err)
		}
		n := uint64(t.Size)
		for _, m := range d.Dims {
			if m != 0 && n > math.MaxInt64/m {
				return fmt.Errorf("%w: %s: dimensions %v", ErrCorrupt, d.Path, d.Dims)
			}
			n *= m
		}
		if uint64(d.Size) != n || d.Block <= 0 || d.Block > MaxBlock && d.Chunk != nil || d.First != next || d.Size/d.Block > math.MaxInt32 {
			return fmt.Errorf("%w: %s: sizes do not agree", ErrCorrupt, d.Path)
		}
		next += d.NumBlocks()
		if next > math.MaxInt32 {
			return fmt.Errorf("%w: too many blocks", ErrCorrupt)
		}
	}
	for i := range h.Names {
		if _, ok := h.view(&h.Names[i]); !ok {
			return fmt.Errorf("%w: %.200s: it lies outside its dataset", ErrCorrupt, h.Names[i].Name)
		}
	}
	return nil
}

// CheckPlace checks that the file belongs where it is. If it belongs to another
// rank or checkpoint, the error wraps ErrForeign and ErrCorrupt.
func (h *Header) CheckPlace(index uint64, rank int) error {
	if h.Index == index && h.Rank == rank {
		return nil
	}
	return fmt.Errorf("%w: %w: it is rank %d's part of checkpoint %d, and is in the place of rank %d's part of checkpoint %d", ErrCorrupt, ErrForeign, h.Rank, h.Index, rank, index)
}

// CheckRun checks that the file belongs to this run. If it does not, the error
// wraps ErrForeign and ErrCorrupt.
func (h *Header) CheckRun(run string) error {
	if h.Run == run {
		return nil
	}
	return fmt.Errorf("%w: %w: %s saved it, but the directory belongs to %s", ErrCorrupt, ErrForeign, runName(h.Run), runName(run))
}

func runName(id string) string {
	if id == "" {
		return "a run without an identity"
	}
	return "run " + id
}

// TotalBlocks returns how many rows /Blocks must have.
func (h *Header) TotalBlocks() int {
	n := 0
	for i := range h.Datasets {
		n += h.Datasets[i].NumBlocks()
	}
	return n
}

// FileEntry describes a data file that the program had open. It is stored in
// /FileMap.
type FileEntry struct {
	ID     int    `json:"id"`
	Path   string `json:"path"`
	Mode   string `json:"mode"` // "r", "w" or "rw", then "a" when it appends
	Perm   uint32 `json:"perm"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	Digest string `json:"digest,omitempty"` // identifies the bytes that the program had read
	At     string `json:"at,omitempty"`     // the absolute path that a relative one referred to
	Name   string `json:"name,omitempty"`   // the name that the program used, if it is not Path
	In     uint64 `json:"in,omitempty"`     // with At: inode of the checkpoint directory
	Stdin  bool   `json:"stdin,omitempty"`  // the program's standard input, which is not opened again
	Closed bool   `json:"closed,omitempty"` // the program had closed it; the other fields are Path, Name and Mode

	Abs string `json:"-"` // while saving: the absolute path
}

// IsStream reports whether the entry is a standard stream. Each process has its
// own.
func (e *FileEntry) IsStream() bool { return e.Stdin || strings.HasPrefix(e.Path, "/dev/fd/") }
