package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A bundle is one object in place of many: the files of several ranks, and
// their extra files, one after the other. Object.At says where each begins. A
// bundle is also an HDF5 file: its group /rank-0003 has what rank 3's file has.
//
//	0      superblock
//	4096   rank 0's file, as it is │ rank 1's file │ … │ extra files
//	       metadata: groups whose datasets have their chunks above

// bundleAlign divides the offset of every file in a bundle.
const bundleAlign = 4096

// bundledFile is a file that goes into a bundle.
type bundledFile struct {
	group  string // of a rank's file; "": an extra file
	name   string // of a rank's file: the name that it has as a base
	file   io.ReaderAt
	size   int64
	object *Object // to be completed
}

// bundles returns the ranks of each bundle, as indices of part.Ranks. There are
// none if each rank gets files of its own.
func (u *upload) bundles() (out [][]int) {
	n := len(u.part.Ranks)
	if u.o.Files <= 0 || n <= u.o.Files {
		return nil
	}
	for i := range u.o.Files {
		var list []int
		for k := i * n / u.o.Files; k < (i+1)*n/u.o.Files; k++ {
			list = append(list, k)
		}
		out = append(out, list)
	}
	return out
}

// putBundle stores the files of some ranks that the tier does not have yet, as
// one object.
func (u *upload) putBundle(ctx context.Context, list []int) (err error) {
	var files []bundledFile
	var open []vfs.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	has := make(map[int]bool)
	for _, i := range list {
		r := &u.part.Ranks[i]
		has[r.Rank] = true
		for k := range r.Files {
			x := &r.Files[k]
			if o, ok := u.known[fileID{r.Rank, x.Index, x.Header}]; ok && u.there(ctx, o) {
				x.Object = o
				continue
			}
			f, err := u.o.FS.Open(u.local[i][k])
			if err != nil {
				return err
			}
			open = append(open, f)
			size, err := f.Size()
			if err != nil {
				return err
			}
			base := store.Open(u.o.FS, "", r.Rank).BaseName(x.Index)
			group := fmt.Sprintf("/rank-%04d", r.Rank)
			if x.Index != u.o.Index {
				group += fmt.Sprintf(".base-%08d", x.Index)
			}
			files = append(files, bundledFile{group, base, f, size, &x.Object})
		}
	}
	for i, e := range u.o.Extra {
		if !has[e.Rank] {
			continue
		}
		o := &u.part.Extra[i].Object
		if x, ok := u.extras[Object{Size: e.Source.Size, Digest: e.Source.Digest}]; ok && u.there(ctx, x) {
			*o = x
			continue
		}
		files = append(files, bundledFile{file: e.Source, size: e.Source.Size, object: o})
	}
	if len(files) == 0 {
		return nil
	}
	first, last := u.part.Ranks[list[0]].Rank, u.part.Ranks[list[len(list)-1]].Rank
	name := fmt.Sprintf("%s%sranks-%04d-%04d-%08d-%s.h5", u.part.Run, filesDir, first, last, u.o.Index, u.claim.Token)
	src, err := makeBundle(ctx, name, files)
	if err != nil {
		return err
	}
	for i, e := range u.o.Extra {
		if has[e.Rank] && u.part.Extra[i].Digest != e.Source.Digest {
			return fmt.Errorf("%s of rank %d: %w: it has changed", e.Path, e.Rank, ErrDamaged)
		}
	}
	return put(ctx, u.t, name, src)
}

// makeBundle lays files out, and completes their objects. It reads all files,
// for their digests.
func makeBundle(ctx context.Context, name string, files []bundledFile) (src Source, err error) {
	w := hdf5.NewWriter()
	groups := make(map[string]string) // by name of a base
	at := int64(bundleAlign)
	for i := range files {
		f := &files[i]
		*f.object = Object{Name: name, Size: f.size, At: at}
		at += (f.size + bundleAlign - 1) / bundleAlign * bundleAlign
		if f.group != "" {
			groups[f.name] = f.group
		}
	}
	for i := range files {
		f := &files[i]
		if f.group == "" {
			continue
		}
		h5, err := hdf5.Open(f.file, f.size)
		if err == nil {
			err = w.Import(f.group, h5, uint64(f.object.At), func(file string) string { return groups[file] })
		}
		if err != nil {
			return src, fmt.Errorf("%s: %s: %w", name, f.group, err)
		}
	}
	super, meta, err := w.Finish(uint64(at))
	if err != nil {
		return src, err
	}
	b := &bundleReader{size: at + int64(len(meta))}
	b.add(0, bytes.NewReader(super), int64(len(super)))
	for i := range files {
		b.add(files[i].object.At, files[i].file, files[i].size)
	}
	b.add(at, bytes.NewReader(meta), int64(len(meta)))
	var all Digester
	done := int64(0)
	for i, p := range b.pieces {
		if _, err := all.Write(make([]byte, p.at-done)); err != nil {
			return src, err
		}
		var one Digester
		if err := Copy(ctx, io.MultiWriter(&all, &one), io.NewSectionReader(p.r, 0, p.size), p.size); err != nil {
			return src, err
		}
		if done = p.at + p.size; i > 0 && i <= len(files) {
			files[i-1].object.Digest = one.Digest()
		}
	}
	return Source{b, b.size, all.Digest()}, nil
}

// bundleReader reads a bundle that is not stored yet. Between its pieces, which
// are in order, are zeros.
type bundleReader struct {
	pieces []bundlePiece
	size   int64
}

type bundlePiece struct {
	at   int64
	r    io.ReaderAt
	size int64
}

func (b *bundleReader) add(at int64, r io.ReaderAt, size int64) {
	b.pieces = append(b.pieces, bundlePiece{at, r, size})
}

func (b *bundleReader) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), max(0, b.size-off)))
	clear(p[:n])
	i, _ := slices.BinarySearchFunc(b.pieces, off, func(x bundlePiece, off int64) int {
		if x.at+x.size <= off {
			return -1
		}
		return 1
	})
	for ; i < len(b.pieces) && b.pieces[i].at < off+int64(n); i++ {
		x := &b.pieces[i]
		from, to := max(off, x.at), min(off+int64(n), x.at+x.size)
		if from >= to {
			continue
		}
		if k, err := x.r.ReadAt(p[from-off:to-off], from-x.at); k < int(to-from) {
			return int(from-off) + k, errors.Join(err, io.ErrUnexpectedEOF)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// errBundle means that a bundle is missing. Its files cannot be put back one by
// one.
var errBundle = errors.New("the bundle, which has the files of several ranks, is missing")

// repairedName is the name of a second copy of a bundle. A repair keeps it
// while it replaces the bundle: the bundle may have the only copy of other
// ranks' files.
func repairedName(bundle string) string { return bundle + "-repaired" }

// restoreIn puts the content of an object back into its bundle, and stores the
// bundle again.
func (w *Wanted) restoreIn(ctx context.Context, t Tier, src Source) error {
	f, size, err := fetchBundle(ctx, t, w.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := Copy(ctx, io.NewOffsetWriter(f, w.At), io.NewSectionReader(src, 0, w.Size), w.Size); err != nil {
		return err
	}
	whole, err := NewSource(ctx, f, max(size, w.At+w.Size))
	if err == nil {
		err = t.Remove(ctx, repairedName(w.Name)) // of a repair that was killed
	}
	if err == nil {
		err = put(ctx, t, repairedName(w.Name), whole)
	}
	if err == nil {
		err = t.Remove(ctx, w.Name)
	}
	if err == nil {
		err = put(ctx, t, w.Name, whole)
	}
	if err == nil {
		err = t.Remove(ctx, repairedName(w.Name))
	}
	return err
}

// ensureBundle checks that the bundle of an object is there. If a repair was
// killed while it replaced the bundle, ensureBundle puts the bundle back.
func (w *Wanted) ensureBundle(ctx context.Context, t Tier) error {
	_, err := t.Stat(ctx, w.Name)
	if !errors.Is(err, ErrNotExist) {
		return err
	}
	f, size, ferr := fetchBundle(ctx, t, repairedName(w.Name))
	if errors.Is(ferr, ErrNotExist) {
		return fmt.Errorf("%w: %s: %w", errBundle, w.Name, err)
	}
	if ferr != nil {
		return ferr
	}
	defer f.Close()
	src, err := NewSource(ctx, f, size)
	if err == nil {
		err = put(ctx, t, w.Name, src)
	}
	if err == nil {
		err = t.Remove(ctx, repairedName(w.Name))
	}
	return err
}

// fetchBundle gets a bundle, into a file without a name.
func fetchBundle(ctx context.Context, t Tier, name string) (*os.File, int64, error) {
	info, err := t.Stat(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	r, err := t.Get(ctx, name, 0, info.Size)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	f, err := os.CreateTemp("", "cairn-repair-")
	if err != nil {
		return nil, 0, err
	}
	os.Remove(f.Name()) // only this process needs it
	if err := Copy(ctx, f, r, info.Size); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size, nil
}
