package tier_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
)

func indexes(t testing.TB, m tier.Tier, run string) (out []uint64) {
	t.Helper()
	all, err := tier.Checkpoints(t.Context(), m, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, mf := range all {
		out = append(out, mf.Index)
	}
	return out
}

// count returns how many objects are in a directory of a run.
func count(t testing.TB, m tier.Tier, prefix string) int { return len(tiertest.All(t, m, prefix)) }

// complete returns what is wrong with manifests on a tier in memory: each must
// have all its objects.
func complete(m *tiertest.Mem, run string) error {
	ctx := context.Background()
	names := m.Names()
	for _, name := range names {
		if !strings.HasPrefix(name, run+"/checkpoints/") {
			continue
		}
		text, err := tier.ReadAll(ctx, m, name, 1<<20)
		if err != nil {
			return err
		}
		mf, err := tier.ParseManifest(text)
		if err != nil {
			return err
		}
		if mf.Abandoned {
			continue
		}
		for i := range mf.Parts {
			part, err := mf.Part(ctx, m, i)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, r := range part.Ranks {
				for _, f := range r.Files {
					if _, ok := slices.BinarySearch(names, f.Name); !ok {
						return fmt.Errorf("%s needs %s, which is missing", name, f.Name)
					}
					if err := tier.Download(ctx, m, f.Object, new(bytes.Buffer)); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
			}
		}
	}
	return nil
}

// filesIn returns the names of all files under a directory.
func filesIn(t testing.TB, fsys vfs.FS, dir string) (out []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if p := filepath.Join(dir, e.Name()); e.IsDir() {
			out = append(out, filesIn(t, fsys, p)...)
		} else {
			out = append(out, p)
		}
	}
	return out
}
