//go:build linux

package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/pack"
	"github.com/cairnrun/cairn/internal/vfs"
)

// The end of a run: what its ranks have left when they have finished, as packs
// that belong to no checkpoint.

// lastAttempt returns the attempt of the last start that reached this host.
func (d *Dir) lastAttempt() (string, error) {
	a, err := d.Attempt()
	if err != nil {
		return "", err
	}
	if a == nil {
		return "", fmt.Errorf("%s is missing: no rank of the run was started here", attemptPath(d.Path))
	}
	return a.Line[len(a.Line)-1].Attempt, nil
}

// UploadEnd uploads the packs of ranks that have finished.
func (d *Dir) UploadEnd(ctx context.Context, t tier.Tier, ranks []int, all int) (up tier.Uploaded, err error) {
	attempt, err := d.lastAttempt()
	if err != nil {
		return up, err
	}
	x := &uploadFiles{o: tier.UploadOptions{Index: tier.EndIndex, Ranks: ranks, Part: d.ID, End: &tier.EndOf{Run: d.Run, Attempt: attempt, Ranks: all}}}
	defer x.close()
	err = d.WithPacks(ctx, tier.EndIndex, ranks, all, nil, func(packs []pack.Pack) error {
		for i := range packs {
			if err := x.add(RankPacks{packs[i].Rank, packs[i].Absent(), packs[i].Objects}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return up, err
	}
	return tier.Upload(ctx, t, x.o)
}

// FetchEnd gets the last pack of a rank of a finished run from a tier, and puts
// its files in place of what is here. note gets why a file was left out.
func (d *Dir) FetchEnd(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int, files ProgramFiles, note func(string)) error {
	if m.Run != d.Run || m.End == nil {
		return fmt.Errorf("%s: the end of run %s is not that of run %s", t, m.Run, d.Run)
	}
	p, err := PartOf(ctx, t, m, rank)
	if err != nil {
		return err
	}
	packs, err := d.fetchPacks(ctx, t, p, rank)
	if err != nil {
		return err
	}
	return d.UnpackEnd(ctx, m.Attempt, rank, m.Ranks, m.End.Time, packs, files, note)
}

// UnpackEnd is FetchEnd with packs that are already here.
func (d *Dir) UnpackEnd(ctx context.Context, attempt string, rank, ranks int, end time.Time, packs []pack.Object, files ProgramFiles, note func(string)) error {
	if err := d.MakeCheckpoints(); err != nil {
		return err
	}
	return d.unpack(ctx, pack.UnpackOptions{Run: d.Run, Attempt: attempt, Index: tier.EndIndex, Rank: rank, Ranks: ranks, End: end, Note: note}, packs, 0, files)
}

// DiscardButEnd removes everything but the locks, the records and what is kept
// for tiers on hosts. The caller has already removed what is kept and does not
// belong to the end.
func (d *Dir) DiscardButEnd() error {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case "host", "hosts", "setup.lock", "attempt", "kept":
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.Path, e.Name())); err != nil {
			return err
		}
	}
	return vfs.OS().SyncDir(d.Path)
}
