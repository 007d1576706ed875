package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/transport/mem"
)

// TestJournaled_NoSoundCheckpoint damages the newest checkpoint and the one
// before it. Nothing is undone for the older one, so that the run continues
// from the newest when the damage is mended.
func TestJournaled_NoSoundCheckpoint(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			dir := t.TempDir()
			chosen := make([][]uint64, ranks)
			program := func(save bool) func(p *Run) error {
				return func(p *Run) error {
					ctx, step := context.Background(), 0
					big := make([]uint64, 1<<16)
					Protect(p, "step", &step)
					Protect(p, "big", &big)
					p.SetJournal(func(index uint64) error {
						chosen[p.Rank()] = append(chosen[p.Rank()], index)
						return nil
					})
					if _, err := p.Restore(ctx); err != nil {
						return err
					}
					if !save {
						if step != 2 {
							return fmt.Errorf("step %d was restored", step)
						}
						return nil
					}
					for step = 1; step <= 2; step++ {
						for i := range big {
							big[i] = uint64(step+i) * 0x9e3779b97f4a7c15
						}
						if err := p.Checkpoint(ctx); err != nil {
							return err
						}
					}
					return nil
				}
			}
			run := func(save bool) []error {
				if ranks > 1 {
					return newCrew(ranks, mem.Options{}).run(Options{Dir: dir}, program(save))
				}
				p := open(t, dir)
				defer closeRun(t, p)
				return []error{program(save)(p)}
			}
			mustEnd(t, run(true))
			newer, older := filepath.Join(newest(t, dir), "rank-0000.h5"), filepath.Join(dir, "ckpt-00000001", "rank-0000.h5")
			for name, harm := range map[string]func(){
				"exchanged": func() { exchange(t, older, newer) },
				"flipped": func() {
					for _, name := range []string{older, newer} {
						b, err := os.ReadFile(name)
						if err != nil {
							t.Fatal(err)
						}
						b[len(b)/2] ^= 4
						if err := os.WriteFile(name, b, 0o600); err != nil {
							t.Fatal(err)
						}
					}
				},
			} {
				clear(chosen)
				harm()
				for r, err := range run(false) {
					if err == nil {
						t.Fatalf("%s: rank %d restored something", name, r)
					}
					if slices.Contains(chosen[r], 1) {
						t.Errorf("%s: rank %d: files were brought back to checkpoint 1, which is damaged", name, r)
					}
				}
				harm() // once more is undone
				mustEnd(t, run(false))
			}
		})
	}
}

// TestRestore_RefusedFilesOfRanks: one rank's file cannot be restored, so no
// rank cuts its own. When the file is back, nothing has been lost.
func TestRestore_RefusedFilesOfRanks(t *testing.T) {
	const n = 3
	opts, data := Options{Dir: t.TempDir()}, t.TempDir()
	name := func(r int) string { return filepath.Join(data, fmt.Sprint("out-", r)) }
	errEnd := errors.New("the end")
	program := func(p *Run) error {
		ctx, step := context.Background(), 0
		Protect(p, "step", &step)
		f, err := p.OpenFile(name(p.Rank()), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		resumed, err := p.Restore(ctx)
		if err != nil {
			return err
		}
		if resumed {
			return errEnd
		}
		fmt.Fprintln(f, "before")
		if err := p.Checkpoint(ctx); err != nil {
			return err
		}
		fmt.Fprintln(f, "after")
		return p.World().Barrier()
	}
	mustEnd(t, newCrew(n, mem.Options{}).run(opts, program))
	const all, kept = "before\nafter\n", "before\n"
	if err := os.Truncate(name(n-1), 3); err != nil {
		t.Fatal(err)
	}
	for r, err := range newCrew(n, mem.Options{}).run(opts, program) {
		if err == nil || errors.Is(err, errEnd) || !strings.Contains(err.Error(), name(n-1)) {
			t.Errorf("rank %d: %v", r, err)
		}
		if text, err := os.ReadFile(name(r)); r < n-1 && (err != nil || string(text) != all) {
			t.Errorf("rank %d's file was cut: %q, %v", r, text, err)
		}
	}
	if err := os.WriteFile(name(n-1), []byte(all), 0o644); err != nil {
		t.Fatal(err)
	}
	for r, err := range newCrew(n, mem.Options{}).run(opts, program) {
		if !errors.Is(err, errEnd) {
			t.Errorf("rank %d: %v", r, err)
		}
		if text, err := os.ReadFile(name(r)); err != nil || string(text) != kept {
			t.Errorf("rank %d's file: %q, %v", r, text, err)
		}
	}
}
