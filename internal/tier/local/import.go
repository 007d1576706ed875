//go:build linux

package local

import (
	"cmp"
	"context"
	"os"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/pack"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Source is a run whose hosts share its directory, or a program that saves
// without 'cairn run'.
type Source struct {
	Run         string // the run directory, with the ranks' output; "": there is none
	Checkpoints string // the checkpoint directory
	Cwd         string // where the program was started; "": it is not known
	Ranks       int
}

// Publish uploads a complete checkpoint of the source to a tier, with the
// program's files and the ranks' output, as one of another run. It changes
// nothing in the source. The run may be running: if it removes the checkpoint
// meanwhile, that is an error.
func (s Source) Publish(ctx context.Context, t tier.Tier, index uint64, as string) (*tier.Manifest, error) {
	packs, err := os.MkdirTemp("", "cairn-packs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(packs)
	dir := cmp.Or(s.Run, packs) // without a run, there is no output
	x := &uploadFiles{o: tier.UploadOptions{Dir: s.Checkpoints, Index: index, Part: "copy", As: as}}
	defer x.close()
	var ranks []int
	for r := range s.Ranks {
		ranks = append(ranks, r)
	}
	made, err := pack.Make(ctx, pack.Options{Dir: dir, Checkpoints: s.Checkpoints, Packs: packs, Home: s.Cwd, Index: index, Ranks: ranks, All: s.Ranks,
		File: func(rank int) string { return store.Open(vfs.OS(), s.Checkpoints, rank).File(index) }, Own: carriedNames, Stdout: stdoutName})
	if err != nil {
		return nil, err
	}
	for i := range made {
		if err := x.add(RankPacks{made[i].Rank, made[i].Absent(), made[i].Objects}); err != nil {
			return nil, err
		}
	}
	return tier.Publish(ctx, t, x.o)
}
