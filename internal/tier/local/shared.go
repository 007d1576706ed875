//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

// What outlives a host: a tier gets the files of its ranks, and their output.
//
// A journal is not uploaded: a restart undoes what happened after the
// checkpoint, and the copy of a journal cannot know that. A part names the
// files that are not in it, and nobody restores such a rank without its home.

// The kinds of extra files in a part.
const (
	outputKind = "output" // a chunk of standard output or standard error
	absentKind = "absent" // the names of own files that are not uploaded
)

// outputChunk is the size of a piece of output that is stored as an object. A
// piece that has not changed is stored once.
const outputChunk = 4 << 20

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

// Upload uploads what Hold holds of a checkpoint for the tier of a name, with
// the ranks' output. all is the number of ranks of the run. Only a checkpoint that counts may be uploaded:
// the output up to it does not change then.
func (d *Dir) Upload(ctx context.Context, t tier.Tier, name string, index uint64, ranks []int, all int) (tier.Uploaded, error) {
	o := tier.UploadOptions{Dir: d.heldDir(name), Index: index, Ranks: ranks, Part: d.ID}
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for _, r := range ranks {
		if err := d.addAbsent(&o, r, all); err != nil {
			return tier.Uploaded{}, err
		}
		for _, name := range carriedNames(r) {
			f, err := os.Open(filepath.Join(d.Path, filepath.FromSlash(name)))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return tier.Uploaded{}, err
			}
			open = append(open, f)
			if err := addOutput(ctx, &o, r, name, f); err != nil {
				return tier.Uploaded{}, err
			}
		}
	}
	return tier.Upload(ctx, t, o)
}

// carriedNames returns the names of a rank's own files that a tier gets: its
// output, and the record of the files that it writes.
func carriedNames(rank int) []string {
	return []string{stdoutName(rank), fmt.Sprintf("output/rank-%04d.err", rank), openedName(rank)}
}

// addAbsent names the own files of a rank that are not uploaded.
func (d *Dir) addAbsent(o *tier.UploadOptions, rank, all int) error {
	names, err := d.absentNames(rank, all)
	if err != nil || len(names) == 0 {
		return err
	}
	text, err := json.Marshal(names)
	if err == nil {
		o.Extra = append(o.Extra, tier.ExtraFile{Kind: absentKind, Rank: rank, Path: fmt.Sprintf("absent-%04d", rank), Source: tier.BytesSource(text)})
	}
	return err
}

// absentNames returns the names of a rank's own files that no tier gets.
func (d *Dir) absentNames(rank, all int) ([]string, error) {
	own, err := d.ownFiles(rank, all)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(own)), func(name string) bool {
		return slices.Contains(carriedNames(rank), name) || strings.HasPrefix(name, "ckpt/line")
	}), err
}

// addOutput adds an output file in chunks. A file may be empty, and has one
// chunk then.
func addOutput(ctx context.Context, o *tier.UploadOptions, rank int, name string, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	for at, k := int64(0), 0; k == 0 || at < st.Size(); at, k = at+outputChunk, k+1 {
		n := min(outputChunk, st.Size()-at)
		src, err := tier.NewSource(ctx, io.NewSectionReader(f, at, n), n)
		if err != nil {
			return err
		}
		o.Extra = append(o.Extra, tier.ExtraFile{Kind: outputKind, Rank: rank, Path: fmt.Sprintf("%s/%08d", name, k), Source: src})
	}
	return nil
}

// partOf returns the part of a manifest that has a rank's files.
func partOf(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int) (*tier.Part, error) {
	for i := range m.Parts {
		if slices.Contains(m.Parts[i].Ranks, rank) {
			return m.Part(ctx, t, i)
		}
	}
	return nil, fmt.Errorf("checkpoint %d on %s has no rank %d", m.Index, t, rank)
}

// Absent returns the own files of a rank that a checkpoint on a tier does not
// have. A rank that has such files cannot be restored without its home.
func Absent(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int) ([]string, error) {
	p, err := partOf(ctx, t, m, rank)
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

// FetchShared gets a rank's file of a checkpoint from a tier, with its bases,
// checks every block of it, and publishes it. With output, it gets the rank's
// output, too, in place of what is here, and records the recovery line; it
// refuses if the rank has own files that the tier does not have. Until the next AttemptRecord names this host as
// the rank's home, a crash in between does no harm.
func (d *Dir) FetchShared(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int, output bool, line uint64) error {
	if m.Run != d.Run {
		return fmt.Errorf("checkpoint %d on %s: %w: it is of run %s", m.Index, t, ckpt.ErrForeign, m.Run)
	}
	p, err := partOf(ctx, t, m, rank)
	if err != nil {
		return err
	}
	if output {
		names, err := absent(ctx, t, p, rank)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return fmt.Errorf("checkpoint %d on %s does not have %s of rank %d, and a restart without it would be wrong", m.Index, t, strings.Join(names, ", "), rank)
		}
	}
	if err := d.MakeCheckpoints(); err != nil {
		return err
	}
	if d.VerifyPart(ctx, rank, m.Index, m.Attempt) != nil {
		if err := store.ForHelper(d.fs, CheckpointDir(d.Path), rank, nil).Remove(m.Index); err != nil { // of another attempt, or damaged
			return err
		}
		if err := tier.Fetch(ctx, t, m, tier.FetchOptions{Dir: CheckpointDir(d.Path), Ranks: []int{rank}}); err != nil {
			return err
		}
		if err := d.VerifyPart(ctx, rank, m.Index, m.Attempt); err != nil {
			return errors.Join(err, store.ForHelper(d.fs, CheckpointDir(d.Path), rank, nil).Remove(m.Index))
		}
	}
	if !output {
		return nil
	}
	if err := d.fetchOutput(ctx, t, p, rank, m.Ranks); err != nil {
		return err
	}
	return d.setLine(rank, m.Ranks, line, m.Attempt)
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

// fetchOutput makes a rank's own files those of a part.
func (d *Dir) fetchOutput(ctx context.Context, t tier.Tier, p *tier.Part, rank, ranks int) error {
	return d.replaceOwn(rank, ranks, func(in string) (names []string, err error) {
		for _, name := range carriedNames(rank) {
			found, err := joinChunks(ctx, t, p, rank, name, filepath.Join(in, filepath.FromSlash(name)))
			if err != nil {
				return nil, err
			}
			if found {
				names = append(names, name)
			}
		}
		return names, nil
	})
}

// replaceOwn replaces a rank's own files. fill puts the new ones into a
// directory, durably, and returns their names.
func (d *Dir) replaceOwn(rank, ranks int, fill func(in string) (names []string, err error)) error {
	in := filepath.Join(d.Path, fmt.Sprintf("incoming-%04d", rank))
	if err := os.RemoveAll(in); err != nil {
		return err
	}
	defer os.RemoveAll(in)
	for _, dir := range []string{"output", "ckpt"} {
		if err := os.MkdirAll(filepath.Join(in, dir), 0o700); err != nil {
			return err
		}
	}
	names, err := fill(in)
	if err != nil {
		return err
	}
	if err := d.removeOwn(rank, ranks, true); err != nil {
		return err
	}
	if err := vfs.SubDir(OutputDir(d.Path)); err != nil {
		return err
	}
	for _, name := range names {
		name = filepath.FromSlash(name)
		if err := os.Rename(filepath.Join(in, name), filepath.Join(d.Path, name)); err != nil {
			return err
		}
	}
	if err := d.adoptOwn(rank, ranks); err != nil {
		return err
	}
	return errors.Join(d.fs.SyncDir(OutputDir(d.Path)), d.fs.SyncDir(CheckpointDir(d.Path)))
}

// joinChunks puts the chunks of an output file together, durably. It reports
// whether there are any.
func joinChunks(ctx context.Context, t tier.Tier, p *tier.Part, rank int, name, to string) (found bool, err error) {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	for k := 0; err == nil; k++ {
		i := slices.IndexFunc(p.Extra, func(e tier.Extra) bool {
			return e.Kind == outputKind && e.Rank == rank && e.Path == fmt.Sprintf("%s/%08d", name, k)
		})
		if i < 0 {
			break
		}
		found = true
		err = tier.Download(ctx, t, p.Extra[i].Object, f)
	}
	if err == nil {
		err = f.Sync()
	}
	return found, errors.Join(err, f.Close())
}
