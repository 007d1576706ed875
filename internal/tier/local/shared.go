//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/pack"
	"github.com/cairnrun/cairn/internal/vfs"
)

// What outlives a host: a tier gets the files of its ranks, and their packs,
// which have the program's files and the ranks' output (package pack).

// The kinds of extra files in a part.
const (
	packKind   = "pack"
	absentKind = "absent" // the names of files of the program that are not in the pack
)

// packsDir has the packs of the ranks here.
func (d *Dir) packsDir() string { return filepath.Join(d.Path, "packs") }

// heldDir has links to files that are being uploaded to a tier, as a checkpoint
// directory has them.
func (d *Dir) heldDir(tier string) string { return filepath.Join(d.Path, "held-"+tier) }

func (d *Dir) heldCheckpoint(tier string, index uint64) string {
	return filepath.Join(d.heldDir(tier), fmt.Sprintf("ckpt-%08d", index))
}

// Hold makes links to the files of some ranks of a committed checkpoint, for a
// tier. So they stay when the ranks remove the checkpoint. The caller calls
// Release.
func (d *Dir) Hold(tier string, index uint64, ranks []int) error {
	to := d.heldCheckpoint(tier, index)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, r := range ranks {
		files, err := d.partFiles(r, index)
		if err == nil && len(files) == 0 {
			err = &fs.PathError{Op: "link", Path: store.Open(d.fs, CheckpointDir(d.Path), r).File(index), Err: fs.ErrNotExist}
		}
		for _, at := range files {
			if err == nil {
				err = os.Link(at, filepath.Join(to, filepath.Base(at)))
			}
		}
		if err != nil {
			d.Release(tier, index)
			return err
		}
	}
	return nil
}

// Release removes the links that Hold has made.
func (d *Dir) Release(tier string, index uint64) { os.RemoveAll(d.heldCheckpoint(tier, index)) }

// Upload uploads the files of a checkpoint that Hold holds for a tier, with the
// ranks' packs. name is the tier's, ranks are all that run on this host, all is
// the number of ranks of the run, files is as in tier.UploadOptions. Only a
// checkpoint that counts may be uploaded: the output up to it does not change
// then. If newer checkpoints have replaced it, the error wraps
// journal.ErrPassed.
func (d *Dir) Upload(ctx context.Context, t tier.Tier, name string, index uint64, ranks []int, all, files int) (tier.Uploaded, error) {
	x := &uploadFiles{o: tier.UploadOptions{Dir: d.heldDir(name), Index: index, Ranks: ranks, Part: d.ID, Files: files}}
	defer x.close()
	file := func(rank int) string { return store.Open(d.fs, x.o.Dir, rank).File(index) }
	err := d.WithPacks(ctx, index, ranks, all, file, func(packs []pack.Pack) error {
		for i := range packs {
			if err := x.add(RankPacks{packs[i].Rank, packs[i].Absent(), packs[i].Objects}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return tier.Uploaded{}, err
	}
	return tier.Upload(ctx, t, x.o)
}

// RankPacks is the pack of a rank, with its bases, and the files of the program
// that it does not have.
type RankPacks struct {
	Rank    int
	Absent  []string
	Objects []pack.Object
}

// HoldIn makes the directory for the files of some ranks that the caller gets
// from elsewhere, for UploadKept. The caller calls Release.
func (d *Dir) HoldIn(tier string, index uint64) (string, error) {
	d.Release(tier, index)
	return d.heldDir(tier), os.MkdirAll(d.heldDir(tier), 0o700)
}

// UploadKept is Upload of files that the caller has put into the directory of
// HoldIn, and of packs that are there.
func (d *Dir) UploadKept(ctx context.Context, t tier.Tier, name string, index uint64, packs []RankPacks, files int) (tier.Uploaded, error) {
	x := &uploadFiles{o: tier.UploadOptions{Dir: d.heldDir(name), Index: index, Part: d.ID, Files: files}}
	defer x.close()
	for _, p := range packs {
		x.o.Ranks = append(x.o.Ranks, p.Rank)
		if err := x.add(p); err != nil {
			return tier.Uploaded{}, err
		}
	}
	return tier.Upload(ctx, t, x.o)
}

// WithPacks makes the packs of a checkpoint, unless they exist, and calls f
// with them. ranks are all ranks of this host, all is the number of ranks of
// the run. file returns the path of a rank's file of the checkpoint; nil: the
// run has ended. The files of the packs may be removed when f has returned.
func (d *Dir) WithPacks(ctx context.Context, index uint64, ranks []int, all int, file func(rank int) string, f func([]pack.Pack) error) error {
	d.packing.Lock() // another tier may get another checkpoint
	defer d.packing.Unlock()
	o := pack.Options{Dir: d.Path, Checkpoints: CheckpointDir(d.Path), Packs: d.packsDir(), Index: index, Ranks: ranks, All: all,
		File: file, Run: d.Run, Own: carriedNames, Stdout: stdoutName}
	a, err := d.Attempt()
	if err != nil {
		return err
	}
	if a != nil {
		o.Home = a.Cwd
	}
	if file == nil {
		if o.Attempt, err = d.lastAttempt(); err != nil {
			return err
		}
	}
	packs, err := pack.Make(ctx, o)
	if err != nil {
		return err
	}
	if err = f(packs); errors.Is(err, tier.ErrDamaged) { // the next ones are made without what is there
		err = errors.Join(err, os.RemoveAll(d.packsDir()))
	}
	return err
}

// uploadFiles is what is uploaded.
type uploadFiles struct {
	o    tier.UploadOptions
	open []*os.File
}

func (x *uploadFiles) close() {
	for _, f := range x.open {
		f.Close()
	}
}

// add adds the packs of a rank.
func (x *uploadFiles) add(p RankPacks) error {
	if len(p.Absent) > 0 {
		text, err := json.Marshal(p.Absent)
		if err != nil {
			return err
		}
		x.o.Extra = append(x.o.Extra, tier.ExtraFile{Kind: absentKind, Rank: p.Rank, Path: fmt.Sprintf("absent-%04d", p.Rank), Source: tier.BytesSource(text)})
	}
	for _, b := range p.Objects {
		f, err := os.Open(b.Path)
		if err != nil {
			return err
		}
		x.open = append(x.open, f)
		digest, err := b.Digest()
		if err != nil {
			return err
		}
		x.o.Extra = append(x.o.Extra, tier.ExtraFile{Kind: packKind, Rank: p.Rank, Path: b.Name, Source: tier.Source{ReaderAt: f, Size: b.Size, Digest: digest}})
	}
	return nil
}

// carriedNames returns the names of a rank's own files that a tier gets: its
// output, and the record of the files that it writes.
func carriedNames(rank int) []string {
	return []string{stdoutName(rank), fmt.Sprintf("output/rank-%04d.err", rank), openedName(rank)}
}

// PartOf returns the part of a manifest that has a rank's files.
func PartOf(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int) (*tier.Part, error) {
	for i := range m.Parts {
		if slices.Contains(m.Parts[i].Ranks, rank) {
			return m.Part(ctx, t, i)
		}
	}
	return nil, fmt.Errorf("checkpoint %d on %s has no rank %d", m.Index, t, rank)
}

// Absent returns the files of a rank's program that a checkpoint on a tier does
// not have. A rank that has such files cannot be restored without its home.
func Absent(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int) ([]string, error) {
	p, err := PartOf(ctx, t, m, rank)
	if err != nil {
		return nil, err
	}
	return absent(ctx, t, p, rank)
}

func absent(ctx context.Context, t tier.Tier, p *tier.Part, rank int) (names []string, err error) {
	for i := range p.Extra {
		e := &p.Extra[i]
		if e.Kind != absentKind || e.Rank != rank {
			continue
		}
		var text strings.Builder
		if err := tier.Download(ctx, t, e.Object, &text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(text.String()), &names); err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w", t, e.Name, tier.ErrDamaged, err)
		}
	}
	return names, nil
}

// PackOf returns the pack of a rank, and its bases, in a part on a tier.
func PackOf(p *tier.Part, rank int) (out []*tier.Extra) {
	for i := range p.Extra {
		if e := &p.Extra[i]; e.Kind == packKind && e.Rank == rank {
			out = append(out, e)
		}
	}
	return out
}

// RankPart is a rank's share of a checkpoint on a tier.
type RankPart struct {
	Rank   int
	Header string   // digest of the header of its file
	Bytes  int64    // of the file and its bases
	Absent []string // own files that the tier does not have
	Err    error    // why it cannot be used; then only Rank is set
}

// RankParts returns the shares of all ranks in a checkpoint on a tier.
func RankParts(ctx context.Context, t tier.Tier, m *tier.Manifest) ([]RankPart, error) {
	byPart := make([][]RankPart, len(m.Parts))
	var jobs []func(context.Context) error
	for i := range m.Parts {
		jobs = append(jobs, func(ctx context.Context) error {
			p, err := m.Part(ctx, t, i)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for k, r := range m.Parts[i].Ranks {
				x := RankPart{Rank: r, Err: err}
				if err == nil {
					x.Header = p.Ranks[k].Files[0].Header
					for _, f := range p.Ranks[k].Files {
						x.Bytes += f.Size
					}
					x.Absent, x.Err = absent(ctx, t, p, r)
				}
				byPart[i] = append(byPart[i], x)
			}
			return nil
		})
	}
	err := tier.Parallel(ctx, 8, jobs)
	return slices.Concat(byPart...), err
}

// ProgramFiles says where the files of a program may be put.
type ProgramFiles struct {
	Home    string // the directory that the program is started in; "": as before
	Outside bool   // also outside of it: nobody but this user can change what is on the tier
}

// FetchShared gets a rank's file of a checkpoint from a tier, with its bases,
// checks every block of it, and publishes it. With output, it gets the rank's
// pack, too: it puts the program's files and the output in place of what is
// here, and records the recovery line. It refuses if the tier does not have all
// files of the program. A crash does no harm until the next AttemptRecord names
// this host as the rank's home.
func (d *Dir) FetchShared(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int, output bool, line uint64, files ProgramFiles) error {
	if m.Run != d.Run {
		return fmt.Errorf("checkpoint %d on %s: %w: it is of run %s", m.Index, t, ckpt.ErrForeign, m.Run)
	}
	p, err := PartOf(ctx, t, m, rank)
	if err != nil {
		return err
	}
	var packs []pack.Object
	if output {
		names, err := absent(ctx, t, p, rank)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return fmt.Errorf("checkpoint %d on %s does not have %s of rank %d, and a restart without it would be wrong", m.Index, t, strings.Join(names, ", "), rank)
		}
		if packs, err = d.fetchPacks(ctx, t, p, rank); err != nil {
			return err
		}
	}
	if err := d.MakeCheckpoints(); err != nil {
		return err
	}
	if d.VerifyPart(ctx, rank, m.Index, m.Attempt) != nil {
		if err := store.ForHelper(d.fs, CheckpointDir(d.Path), rank, nil).Remove(m.Index); err != nil { // of another attempt, or damaged
			return err
		}
		if err := d.fetchFile(ctx, t, m, rank); err != nil {
			return err
		}
		if err := d.VerifyPart(ctx, rank, m.Index, m.Attempt); err != nil {
			return errors.Join(err, store.ForHelper(d.fs, CheckpointDir(d.Path), rank, nil).Remove(m.Index))
		}
	}
	if !output {
		return nil
	}
	return d.Unpack(ctx, cmp.Or(m.Origin, m.Run), m.Attempt, m.Index, rank, m.Ranks, packs, line, files)
}

// fetchFile gets a rank's file and its bases. A file of another run, of which
// this one is a copy, is written again as one of this run.
func (d *Dir) fetchFile(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int) error {
	if m.Origin == "" {
		return tier.Fetch(ctx, t, m, tier.FetchOptions{Dir: CheckpointDir(d.Path), Ranks: []int{rank}})
	}
	in := filepath.Join(d.Path, fmt.Sprintf("incoming-%04d", rank))
	if err := errors.Join(os.RemoveAll(in), os.Mkdir(in, 0o700)); err != nil {
		return err
	}
	defer os.RemoveAll(in)
	if err := tier.Fetch(ctx, t, m, tier.FetchOptions{Dir: in, Ranks: []int{rank}}); err != nil {
		return err
	}
	s, err := ckpt.Open(d.fs, store.Open(d.fs, in, rank).File(m.Index))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Header.CheckRun(m.Origin); err != nil {
		return err
	}
	return s.Adopt(ctx, store.ForHelper(d.fs, CheckpointDir(d.Path), rank, nil), d.Run)
}

// Unpack puts the files of a rank's pack in place of what is here, and records
// the recovery line. packs are the pack and then its bases; run is the run that
// made them.
func (d *Dir) Unpack(ctx context.Context, run, attempt string, index uint64, rank, ranks int, packs []pack.Object, line uint64, files ProgramFiles) error {
	return d.unpack(ctx, pack.UnpackOptions{Run: run, Attempt: attempt, Index: index, Rank: rank, Ranks: ranks}, packs, line, files)
}

func (d *Dir) unpack(ctx context.Context, o pack.UnpackOptions, packs []pack.Object, line uint64, files ProgramFiles) error {
	if err := d.removeOwn(o.Rank, o.Ranks, true); err != nil {
		return err
	}
	if err := vfs.SubDir(OutputDir(d.Path)); err != nil {
		return err
	}
	o.Dir, o.Checkpoints, o.Own, o.Home, o.Outside = d.Path, CheckpointDir(d.Path), carriedNames(o.Rank), files.Home, files.Outside
	if err := pack.Unpack(ctx, o, packs); err != nil {
		return err
	}
	return d.setLine(o.Rank, o.Ranks, line, o.Attempt)
}

// PackPath returns the path for a pack on this host. The rank's next pack is
// made with what is there.
func (d *Dir) PackPath(name string) (string, error) {
	return filepath.Join(d.packsDir(), filepath.Base(name)), vfs.SubDir(d.packsDir())
}

// setLine records the recovery line of a rank whose home this host becomes.
func (d *Dir) setLine(rank, ranks int, line uint64, attempt string) error {
	if line == 0 {
		return nil
	}
	own := store.ForHelper(d.fs, CheckpointDir(d.Path), rank, nil)
	own.PerHost()
	return own.SetLine(store.Line{Index: line, Ranks: ranks, Run: d.Run, Attempt: attempt})
}

// fetchPacks gets a rank's pack and its bases, and checks their digests. The
// next pack of the rank is made with them.
func (d *Dir) fetchPacks(ctx context.Context, t tier.Tier, p *tier.Part, rank int) (out []pack.Object, err error) {
	if err := vfs.SubDir(d.packsDir()); err != nil {
		return nil, err
	}
	for _, e := range PackOf(p, rank) {
		o := pack.Object{Name: e.Path, Path: filepath.Join(d.packsDir(), filepath.Base(e.Path)), Size: e.Size}
		if digest, err := o.Digest(); err != nil || digest != e.Digest {
			return nil, fmt.Errorf("%s: %.100q: %w", t, e.Path, errors.Join(err, tier.ErrDamaged))
		}
		if err := d.fetchPack(ctx, t, e, o.Path); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no pack of rank %d: %w", t, rank, tier.ErrDamaged)
	}
	return out, d.fs.SyncDir(d.packsDir())
}

// fetchPack gets a pack, unless it is here.
func (d *Dir) fetchPack(ctx context.Context, t tier.Tier, e *tier.Extra, to string) error {
	if f, err := os.Open(to); err == nil {
		src, err := tier.NewSource(ctx, f, e.Size)
		f.Close()
		if err == nil && src.Digest == e.Digest {
			return nil
		}
	}
	in := to + ".tmp"
	f, err := os.OpenFile(in, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = tier.Download(ctx, t, e.Object, f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(in))
	}
	return os.Rename(in, to)
}
