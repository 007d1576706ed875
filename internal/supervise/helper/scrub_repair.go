//go:build linux

package helper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
)

// lostObject is something that is damaged, by its content. The content may be
// anywhere: on this host, on another one, on a tier.
type lostObject struct {
	rank   int
	index  uint64 // of the checkpoint that saved it; 0: it is no rank's file
	digest tier.Digest
	size   int64
	kept   string        // its name among what hosts keep; "": they do not keep it
	on     *scrubbedTier // the tier that has lost it; nil: this host
}

// wantedObject returns what a tier has lost.
func wantedObject(w *tier.Wanted, t *scrubbedTier) lostObject {
	o := lostObject{rank: w.Rank, digest: w.Digest, size: w.Size, on: t}
	if w.File != nil {
		o.index, o.kept = w.File.Index, kept.ObjectName(w.Rank, *w.File)
	} else if IsPack(w.Extra.Path) {
		o.kept = w.Extra.Path
	}
	return o
}

// keptObject returns what hosts keep by a name.
func keptObject(o recovery.Object) (out lostObject, err error) {
	out.rank, out.index = objectOf(o.Name)
	out.size, out.kept = o.Size, o.Name
	if IsPack(o.Name) {
		out.index = 0
	}
	out.digest, err = kept.DigestOf(o.Name)
	return out, err
}

// find returns a file with the content of an object, and where it is from. The
// caller closes it.
func (s *scrubber) find(o lostObject) (*os.File, string, error) {
	for _, path := range s.pathsHere(&o) {
		if f := s.fits(path, &o); f != nil {
			return f, "host " + s.host, nil
		}
	}
	var errs []error
	if s.holder != nil && o.kept != "" {
		code := s.holder.code
		from, err := s.holder.service.Recover(s.ctx, recovery.Object{Name: o.kept, Size: o.size}, code.Data, code.Parity)
		if err == nil {
			f, err := os.Open(s.holder.store.Path(copies.ID{Object: o.kept}))
			return f, hostsText(from), err
		}
		errs = append(errs, err)
	}
	for _, t := range s.outer {
		if t == o.on {
			continue
		}
		f, err := s.download(t, &o)
		if err == nil {
			return f, t.Name(), nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no other tier has it"))
	}
	return nil, "", errors.Join(errs...)
}

// pathsHere returns the files on this host that may have the content of an
// object.
func (s *scrubber) pathsHere(o *lostObject) (out []string) {
	if s.holder != nil && o.kept != "" && s.holder.store.Has(copies.ID{Object: o.kept}) {
		out = append(out, s.holder.store.Path(copies.ID{Object: o.kept}))
	}
	if o.index == 0 {
		if o.kept != "" {
			out = append(out, filepath.Join(s.Path, "packs", filepath.Base(o.kept)))
		}
		return out
	}
	members, err := store.Members(vfs.OS(), local.CheckpointDir(s.Path))
	for index, ranks := range members {
		if err != nil || !slices.Contains(ranks, o.rank) {
			continue
		}
		if files, err := s.PartFiles(o.rank, index); err == nil && files[nameIn(o.rank, o.index, index)] != "" {
			out = append(out, files[nameIn(o.rank, o.index, index)])
		}
	}
	return out
}

// nameIn returns the name that the rank's file of checkpoint saved has in the
// directory of checkpoint index.
func nameIn(rank int, saved, index uint64) string {
	if saved == index {
		return mainName(rank)
	}
	return store.Open(vfs.OS(), "", rank).BaseName(saved)
}

// fits returns a file if it has the content of an object, or nil.
func (s *scrubber) fits(path string, o *lostObject) *os.File {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	src, err := tier.NewSource(s.ctx, tier.LimitReaderAt(s.ctx, f, s.limit), o.size)
	if st, serr := f.Stat(); err != nil || serr != nil || st.Size() != o.size || src.Digest != o.digest {
		f.Close()
		return nil
	}
	return f
}

// download gets the content of an object from a tier outside of the hosts, into
// a file without a name.
func (s *scrubber) download(t *scrubbedTier, o *lostObject) (*os.File, error) {
	for _, m := range t.list {
		p, err := local.PartOf(s.ctx, t.t, m, o.rank)
		if err != nil {
			continue
		}
		var found *tier.Object
		p.Objects(func(x tier.Object) {
			if x.Size == o.size && x.Digest == o.digest {
				found = &x
			}
		})
		if found == nil {
			continue
		}
		f, err := os.CreateTemp(s.Path, "scrub-")
		if err != nil {
			return nil, err
		}
		os.Remove(f.Name()) // only this process needs it
		if err = tier.Download(s.ctx, t.t, *found, f); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s does not have it", t.Name())
}

// mendKept gets something again that the host keeps. If it belongs to a rank
// here, the files of checkpoint directories are links to it: they are replaced,
// too.
func (s *scrubber) mendKept(id copies.ID) (from string, err error) {
	if id.Data > 0 {
		return "", errors.New("the host that saved it has not sent it again; hosts get shards of the next checkpoint")
	}
	keeps := s.holder.store
	was, statErr := keeps.Stat(id)
	size, ok := s.sizeOf(id.Object)
	if !ok {
		return "", errors.New("its size is not known")
	}
	o, err := keptObject(recovery.Object{Name: id.Object, Size: size})
	if err != nil {
		return "", err
	}
	f, from, err := s.find(o)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if !keeps.Has(id) {
		if err := s.receive(id, f, size); err != nil {
			return "", err
		}
	}
	s.fresh(keeps.Stat(id))
	if statErr == nil && o.index > 0 {
		err = s.Replace(o.rank, was, keeps.Path(id))
	}
	return from, err
}

// sizeOf returns the size of an object that the host keeps, or should.
func (s *scrubber) sizeOf(object string) (int64, bool) {
	_, parts := s.holder.store.Have()
	for i := range parts {
		for _, o := range parts[i].Objects {
			if o.Name == object {
				return o.Size, true
			}
		}
	}
	return 0, false
}

// receive puts something into what the host keeps.
func (s *scrubber) receive(id copies.ID, r io.Reader, size int64) error {
	in, err := s.holder.store.Receive(id, size)
	if err != nil {
		return err
	}
	if in.Offset() > 0 { // of a host that was lost
		in.Discard()
		if in, err = s.holder.store.Receive(id, size); err != nil {
			return err
		}
	}
	if err := tier.Copy(s.ctx, in, r, size); err != nil {
		in.Discard()
		return err
	}
	if err := in.Commit(s.ctx); err != nil {
		return err
	}
	s.holder.service.Restored(id)
	return nil
}

// mendPart repairs a rank's file of a checkpoint and its bases. It tries what
// tiers have in place of each file, in a directory of its own, until the
// checkpoint is sound there. Only then are files replaced.
func (s *scrubber) mendPart(rank int, index uint64, files map[string]string) (from string, err error) {
	dir, err := s.ScrubDir()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for name, at := range files {
		if err := os.Link(at, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	replaced := make(map[string]string) // and where the new one is from
	var errs []error
	for _, o := range s.objectsOf(rank) {
		name := nameIn(rank, o.index, index)
		at := filepath.Join(dir, name)
		if files[name] == "" || replaced[name] != "" {
			continue
		}
		if f := s.fits(at, &o); f != nil {
			f.Close()
			continue
		}
		from, err := s.stage(o, at)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		replaced[name] = from
		if s.Sound(s.ctx, filepath.Join(dir, mainName(rank)), rank, index, s.limit) == nil {
			return from, s.publish(rank, files, dir, replaced)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no other tier has it"))
	}
	return "", errors.Join(errs...)
}

// stage puts the content of an object at a path, durably.
func (s *scrubber) stage(o lostObject, at string) (from string, err error) {
	f, from, err := s.find(o)
	if err != nil {
		return "", err
	}
	defer f.Close()
	to, err := os.OpenFile(at+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	if _, err = io.Copy(to, f); err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(at+".tmp", at)
	}
	step.At("scrub.staged")
	return from, err
}

// publish puts files that were staged in place of damaged ones.
func (s *scrubber) publish(rank int, files map[string]string, dir string, replaced map[string]string) error {
	var errs []error
	for name := range replaced {
		st, err := os.Lstat(files[name])
		if err == nil {
			err = s.Replace(rank, st, filepath.Join(dir, name))
			s.fresh(os.Lstat(filepath.Join(dir, name)))
		}
		if !errors.Is(err, os.ErrNotExist) { // the rank has removed it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// objectsOf returns the files of a rank that hosts keep or tiers have.
func (s *scrubber) objectsOf(rank int) (out []lostObject) {
	add := func(o lostObject) {
		if o.index > 0 && !slices.ContainsFunc(out, func(x lostObject) bool { return x.index == o.index && x.digest == o.digest }) {
			out = append(out, o)
		}
	}
	if s.holder != nil {
		_, parts := s.holder.store.Have()
		for i := range parts {
			for _, x := range parts[i].Objects {
				if o, err := keptObject(x); err == nil && parts[i].Rank == rank && s.record.Counts(parts[i].Index, parts[i].Attempt) {
					add(o)
				}
			}
		}
	}
	for _, t := range s.outer {
		for _, m := range t.list {
			if m.Origin != "" { // they have another identity here
				continue
			}
			p, err := local.PartOf(s.ctx, t.t, m, rank)
			if err != nil {
				continue
			}
			for _, r := range p.Ranks {
				for _, x := range r.Files {
					if r.Rank == rank {
						add(lostObject{rank: rank, index: x.Index, digest: x.Digest, size: x.Size, kept: kept.ObjectName(rank, x)})
					}
				}
			}
		}
	}
	return out
}
