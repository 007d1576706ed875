package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// File is one rank's file of a checkpoint, open for reading, with its bases.
// Its metadata is checked. Its methods may be called concurrently.
type File struct {
	Header Header
	Blocks []Block // all rows of /Blocks
	Path   string
	Size   int64 // bytes of the file itself, without bases
	Shared bool  // Load fills memory that is shared with another process

	// Checked, if not nil, is called by Load when parts of memory hold what
	// the file has for them. Load may fail later. Concurrent calls are made.
	Checked func(p []byte)

	digest string // digest of /Header
	main   *source
	bases  []*source // opened when first needed
	byPath map[string]int
	mu     sync.Mutex // guards bases and byPath
	fsys   vfs.FS
}

// source is an open HDF5 file that has blocks.
type source struct {
	file vfs.File
	h5   *hdf5.File

	mu       sync.Mutex
	datasets map[string]*storedDataset
}

// storedDataset describes how one file stores the blocks of a dataset.
type storedDataset struct {
	*hdf5.Dataset
	regular bool // each chunk is a block
	chunks  map[uint64]hdf5.Chunk
	mu      sync.Mutex // Dataset.ReadAt caches decoded chunks
}

// Open opens a rank's file of a checkpoint and checks its metadata. If the file
// is damaged, or is not a checkpoint at all, the error wraps ErrCorrupt. If it
// has another format version, the error wraps ErrFormat. If path is that of a
// file in a run's directory, ckpt-00000012/rank-0003.h5, the file must belong
// to that rank and checkpoint; see Header.CheckPlace.
func Open(fsys vfs.FS, path string) (*File, error) {
	s := &File{Path: path, fsys: fsys}
	err := s.open()
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func openSource(fsys vfs.FS, path string) (*source, int64, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err == nil {
		var h5 *hdf5.File
		if h5, err = hdf5.Open(f, size); err == nil {
			return &source{file: f, h5: h5, datasets: make(map[string]*storedDataset)}, size, nil
		}
		err = corrupt(err)
	}
	f.Close()
	return nil, 0, err
}

// corrupt marks an error of package hdf5 about a file's content as damage.
func corrupt(err error) error {
	if errors.Is(err, hdf5.ErrCorrupt) || errors.Is(err, hdf5.ErrNotFound) || errors.Is(err, hdf5.ErrUnsupported) || errors.Is(err, hdf5.ErrType) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

func (s *File) open() error {
	var err error
	if s.main, s.Size, err = openSource(s.fsys, s.Path); err != nil {
		return err
	}
	text, digest, err := s.main.header(s.Size)
	if err != nil {
		return err
	}
	h, err := parseHeader(text, digest)
	if err != nil {
		return err
	}
	s.Header, s.digest = *h, digest
	index, inRun := store.ParseIndex(filepath.Base(filepath.Dir(s.Path)))
	if rank, isRank := store.ParseRank(filepath.Base(s.Path)); inRun && isRank {
		if err := h.CheckPlace(index, rank); err != nil {
			return err
		}
	}
	for i := range h.Datasets {
		if d := &h.Datasets[i]; d.Chunk == nil && d.Size > s.Size {
			return fmt.Errorf("%w: /%s claims %d bytes", ErrCorrupt, d.Path, d.Size)
		}
	}
	rows, err := s.main.readAll("Blocks", s.Size)
	if err != nil {
		return err
	}
	if DigestText(rows) != h.Blocks || len(rows) != h.TotalBlocks()*blockBytes {
		return fmt.Errorf("%w: /Blocks does not match its digest", ErrCorrupt)
	}
	s.Blocks = decodeBlocks(rows)
	for _, b := range s.Blocks {
		if b.Source >= SourceBase && int(b.Source-SourceBase) >= len(h.Bases) {
			return fmt.Errorf("%w: /Blocks names a base that /Header does not", ErrCorrupt)
		}
	}
	s.bases = make([]*source, len(h.Bases))
	return nil
}

// Digest returns the digest of /Header, which identifies the file's values.
func (s *File) Digest() string { return s.digest }

// Close closes the file and its bases.
func (s *File) Close() error {
	var err error
	for _, src := range append([]*source{s.main}, s.bases...) {
		if src != nil {
			err = errors.Join(err, src.file.Close())
		}
	}
	return err
}

// header reads /Header and the digest that it should have.
func (src *source) header(limit int64) (text []byte, digest string, err error) {
	text, err = src.readAll("Header", limit)
	if errors.Is(err, hdf5.ErrNotFound) {
		return nil, "", fmt.Errorf("%w: an HDF5 file without /Header, so not Cairn's, or damaged", ErrCorrupt)
	} else if err != nil {
		return nil, "", err
	}
	attr, err := src.h5.Attr("Header", "digest")
	if err != nil {
		return nil, "", corrupt(err)
	}
	digest, _ = attr.(string)
	return text, digest, nil
}

// readAll reads a whole dataset that is stored with the metadata.
func (src *source) readAll(path string, limit int64) ([]byte, error) {
	d, err := src.h5.Dataset(path)
	if err != nil {
		return nil, corrupt(err)
	}
	n, ok := datasetSize(d)
	if !ok || n > limit {
		return nil, fmt.Errorf("%w: /%s claims %v elements", ErrCorrupt, path, d.Dims)
	}
	p := make([]byte, n)
	if _, err := d.ReadAt(p, 0); err != nil && n > 0 {
		return nil, corrupt(err)
	}
	return p, nil
}

func datasetSize(d *hdf5.Dataset) (int64, bool) {
	n := uint64(d.Type.Size)
	for _, m := range d.Dims {
		if m != 0 && n > 1<<62/m {
			return 0, false
		}
		n *= m
	}
	return int64(n), true
}

// source returns the file that has a block.
func (s *File) source(b *Block) (*source, error) {
	if b.Source < SourceBase {
		return s.main, nil
	}
	return s.base(int(b.Source - SourceBase))
}

// OpenBases opens the bases, which are otherwise opened when they are needed:
// the checkpoint can be read then while it is removed. The errors are those of
// all bases.
func (s *File) OpenBases() (err error) {
	for i := range s.bases {
		_, berr := s.base(i)
		err = errors.Join(err, berr)
	}
	return err
}

// base returns a base.
func (s *File) base(i int) (*source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bases[i] == nil {
		name := s.Header.Bases[i].File
		if name != filepath.Base(name) {
			return nil, fmt.Errorf("%w: base file name %q", ErrCorrupt, name)
		}
		src, size, err := openSource(s.fsys, filepath.Join(filepath.Dir(s.Path), name))
		if err == nil {
			if err = s.Header.Bases[i].is(src, size); err != nil {
				src.file.Close()
			}
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			return nil, fmt.Errorf("base of this checkpoint: %w", err)
		}
		s.bases[i] = src
	}
	return s.bases[i], nil
}

// CheckBase checks that file is the one that b, one of s's bases, refers to.
func (s *File) CheckBase(b *Base, file *File) error {
	if h := &file.Header; h.Index != b.Index || h.Rank != s.Header.Rank || b.Header != "" && file.digest != b.Header {
		return fmt.Errorf("%w: %w: %s is rank %d's part of checkpoint %d, and not the file of checkpoint %d that this one was saved with", ErrCorrupt, ErrForeign, b.File, h.Rank, h.Index, b.Index)
	}
	return nil
}

// is checks that an open file is the base.
func (b *Base) is(src *source, size int64) error {
	if b.Header == "" {
		return nil
	}
	text, _, err := src.header(size)
	if err == nil && DigestText(text) != b.Header {
		err = fmt.Errorf("%w: %w: %s is not the file of checkpoint %d that this one was saved with", ErrCorrupt, ErrForeign, b.File, b.Index)
	}
	return err
}

// stored returns how the file that has block b stores d.
func (s *File) stored(d *Dataset, b *Block) (*source, *storedDataset, error) {
	src, err := s.source(b)
	if err != nil {
		return nil, nil, err
	}
	path := d.Path
	diff := len(s.Header.Bases) > 0
	if b.Source >= SourceBase {
		diff = s.Header.Bases[b.Source-SourceBase].Diff
	}
	if diff && d.Chunk != nil {
		path = d.changedPath()
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	if sd := src.datasets[path]; sd != nil {
		return src, sd, nil
	}
	h5, err := src.h5.Dataset(path)
	if err != nil {
		return nil, nil, corrupt(err)
	}
	// A base may have another number of rows.
	inBase := b.Source >= SourceBase && d.Chunk != nil && len(h5.Dims) == len(d.Dims) && len(d.Dims) > 0 && slices.Equal(h5.Dims[1:], d.Dims[1:])
	if n, ok := datasetSize(h5); h5.Type.String() != d.Type || !ok || n != d.Size && !inBase {
		return nil, nil, fmt.Errorf("%w: /%s is %v %v, the header says %s %v", ErrCorrupt, path, h5.Type, h5.Dims, d.Type, d.Dims)
	}
	sd := &storedDataset{Dataset: h5}
	if d.Chunk != nil && slices.Equal(h5.Chunk, d.Chunk) && (inBase || slices.Equal(h5.Dims, d.Dims)) {
		list, err := h5.Chunks()
		if err != nil {
			return nil, nil, corrupt(err)
		}
		sd.regular = true
		sd.chunks = make(map[uint64]hdf5.Chunk, len(list))
		for _, c := range list {
			sd.chunks[c.Index] = c
		}
	}
	src.datasets[path] = sd
	return src, sd, nil
}

// ReadBlock reads block k of dataset i into p, which has the block's length. It
// does not check the digest.
func (s *File) ReadBlock(i, k int, p []byte) error {
	d := &s.Header.Datasets[i]
	b := &s.Blocks[d.First+k]
	if b.Source == SourceZero {
		// If another tool has written a value there, there is a chunk.
		if len(s.Header.Bases) > 0 || d.Chunk == nil {
			clear(p)
			return nil
		}
	}
	src, sd, err := s.stored(d, b)
	if err != nil {
		return err
	}
	if !sd.regular {
		sd.mu.Lock()
		defer sd.mu.Unlock()
		_, err := sd.ReadAt(p, int64(k)*d.Block)
		return corrupt(err)
	}
	c, ok := sd.chunks[uint64(k)]
	if !ok {
		clear(p)
		return nil
	}
	skipped := uint32(1)<<len(sd.Filters) - 1
	if c.Mask&skipped == skipped {
		if int64(c.Size) != d.Block {
			return fmt.Errorf("%w: /%s: chunk %d has %d bytes, not %d", ErrCorrupt, d.Path, k, c.Size, d.Block)
		}
		return readFull(src.file, p, int64(c.Addr))
	}
	if c.Size > uint64(s.maxStored()) {
		return fmt.Errorf("%w: /%s: chunk %d has %d bytes", ErrCorrupt, d.Path, k, c.Size)
	}
	raw := make([]byte, c.Size)
	if err := readFull(src.file, raw, int64(c.Addr)); err != nil {
		return err
	}
	out, err := hdf5.DecodeChunk(sd.Filters, c.Mask, raw, make([]byte, d.Block))
	if err != nil {
		return corrupt(err)
	}
	if int64(len(out)) != d.Block {
		return fmt.Errorf("%w: /%s: chunk %d unpacks to %d bytes, not %d", ErrCorrupt, d.Path, k, len(out), d.Block)
	}
	copy(p, out)
	return nil
}

func (s *File) maxStored() int64 { return 2 * MaxBlock }

func readFull(f vfs.File, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the file ends at %d, inside a block", ErrCorrupt, at+int64(n))
	}
	return err
}

// check compares a block with its digest.
func (s *File) check(i, k int, p []byte) error {
	d := &s.Header.Datasets[i]
	if mem.Digest(p) != s.Blocks[d.First+k].Digest {
		return fmt.Errorf("%w: %s does not match its digest", ErrCorrupt, s.BlockName(i, k))
	}
	return nil
}

// BlockName describes block k of dataset i in messages.
func (s *File) BlockName(i, k int) string {
	d := &s.Header.Datasets[i]
	if d.NumBlocks() <= 1 {
		return "/" + d.Path
	}
	name := fmt.Sprintf("/%s, block %d of %d (bytes %d to %d)", d.Path, k, d.NumBlocks(), int64(k)*d.Block, int64(k)*d.Block+int64(d.BlockLen(k)))
	if src := s.Blocks[d.First+k].Source; src >= SourceBase {
		name += " in " + s.Header.Bases[src-SourceBase].File
	}
	return name
}

// readDataset reads and checks a whole dataset.
func (s *File) readDataset(i int) ([]byte, error) {
	d := &s.Header.Datasets[i]
	if d.Size > 1<<20+1<<12*s.Size {
		return nil, fmt.Errorf("%w: /%s claims %d bytes", ErrCorrupt, d.Path, d.Size)
	}
	p := make([]byte, d.Size)
	for k := range d.NumBlocks() {
		b := p[int64(k)*d.Block:][:d.BlockLen(k)]
		if err := s.ReadBlock(i, k, b); err != nil {
			return nil, err
		}
		if err := s.check(i, k, b); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (s *File) find(path string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPath == nil {
		s.byPath = make(map[string]int, len(s.Header.Datasets))
		for i := range s.Header.Datasets {
			if _, twice := s.byPath[s.Header.Datasets[i].Path]; !twice {
				s.byPath[s.Header.Datasets[i].Path] = i
			}
		}
	}
	if i, ok := s.byPath[path]; ok {
		return i, nil
	}
	return 0, fmt.Errorf("%w: /%s is missing", ErrCorrupt, path)
}

func (s *File) readJSON(path string, v any) error {
	i, err := s.find(path)
	if err != nil {
		return err
	}
	p, err := s.readDataset(i)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(p, v); err != nil {
		return fmt.Errorf("%w: /%s: %v", ErrCorrupt, path, err)
	}
	return nil
}

// Files returns the data files that the program had open, and closed ones to
// which it referred.
func (s *File) Files() ([]FileEntry, error) {
	var out []FileEntry
	for i := range s.Header.Datasets {
		d := &s.Header.Datasets[i]
		if filepath.ToSlash(filepath.Dir(d.Path)) != "FileMap" {
			continue
		}
		var f FileEntry
		if err := s.readJSON(d.Path, &f); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// Image returns the saved image, without the pools' bytes.
func (s *File) Image() (*graph.Image, error) {
	img := &graph.Image{}
	if err := s.readJSON("Context/Variables", &img.Vars); err != nil {
		return nil, err
	}
	if err := s.readJSON("Context/Types", &img.Types); err != nil {
		return nil, err
	}
	if err := s.readJSON("Context/Pools", &img.Pools); err != nil {
		return nil, err
	}
	i, err := s.find("Context/Regions")
	if err != nil {
		return nil, err
	}
	p, err := s.readDataset(i)
	if err != nil {
		return nil, err
	}
	if img.Regions, err = DecodeRegions(p); err != nil {
		return nil, fmt.Errorf("%w: /Context/Regions: %w", ErrCorrupt, err)
	}
	for i := range img.Pools {
		img.Pools[i].Dataset = -1
	}
	for i := range s.Header.Datasets {
		d := &s.Header.Datasets[i]
		if d.Pool < 0 {
			continue
		}
		if d.Pool >= len(img.Pools) || img.Pools[d.Pool].Bytes() != uint64(d.Size) {
			return nil, fmt.Errorf("%w: /%s does not fit its description in /Context/Pools", ErrCorrupt, d.Path)
		}
		img.Pools[d.Pool].Dataset = i
	}
	return img, nil
}
