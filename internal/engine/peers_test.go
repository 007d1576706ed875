package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/transport/mem"
)

// damageRank flips a bit in the middle of a rank's file of the newest
// checkpoint.
func damageRank(t *testing.T, dir string, rank int) {
	t.Helper()
	name := filepath.Join(newest(t, dir), fmt.Sprintf("rank-%04d.h5", rank))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRestore_FilesOfSkippedCheckpoint has files of a checkpoint that loads
// here, but not on another rank.
func TestRestore_FilesOfSkippedCheckpoint(t *testing.T) {
	for _, how := range []string{"next file", "closed"} {
		t.Run(how, func(t *testing.T) {
			dir, data := t.TempDir(), t.TempDir()
			program := func(fresh bool) func(p *Run) error {
				return func(p *Run) error {
					ctx := context.Background()
					step := 0
					big := make([]uint64, 1<<16)
					for i := range big {
						big[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
					}
					Protect(p, "step", &step)
					Protect(p, "big", &big)
					name := func() string { return filepath.Join(data, fmt.Sprintf("out-%d", step)) }
					const flag = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
					var first *os.File
					if p.Rank() == 0 && how == "closed" {
						var err error
						if first, err = p.OpenFile(filepath.Join(data, "first"), flag, 0o600); err != nil {
							return err
						}
					}
					if _, err := p.Restore(ctx); err != nil {
						return err
					}
					if !fresh {
						if step != 1 {
							return fmt.Errorf("step %d", step)
						}
						return nil
					}
					for step = 1; step <= 2; step++ {
						if p.Rank() == 0 && how == "next file" {
							f, err := p.OpenFile(name(), flag, 0o600)
							if err != nil {
								return err
							}
							fmt.Fprintln(f, "hello")
							defer f.Close()
							if err := p.Checkpoint(ctx); err != nil {
								return err
							}
							f.Close()
							continue
						}
						if first != nil {
							fmt.Fprintln(first, "hello")
							if step == 2 {
								first.Close() // it is complete
							}
						}
						if err := p.Checkpoint(ctx); err != nil {
							return err
						}
					}
					return nil
				}
			}
			mustEnd(t, within(t, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(true)))
			damageRank(t, dir, 1)
			mustEnd(t, within(t, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(false)))
		})
	}
}

// TestRestore_OptionalOfSkippedCheckpoint has an Optional variable of a
// checkpoint that loads here, but not on another rank.
func TestRestore_OptionalOfSkippedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	program := func(version int, last bool) func(p *Run) error {
		return func(p *Run) error {
			ctx := context.Background()
			step, extra := 0, 0
			big := make([]uint64, 1<<16)
			for i := range big {
				big[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
			}
			Protect(p, "step", &step)
			Protect(p, "big", &big)
			if version == 2 && p.Rank() == 0 {
				Protect(p, "extra", &extra, Optional)
			}
			if _, err := p.Restore(ctx); err != nil {
				return err
			}
			if last {
				if step != 1 || extra != 0 {
					return fmt.Errorf("step %d, extra %d: the checkpoint of step 1 has no extra", step, extra)
				}
				return nil
			}
			step, extra = version, 42
			return p.Checkpoint(ctx)
		}
	}
	mustEnd(t, within(t, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(1, false)))
	mustEnd(t, within(t, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(2, false)))
	damageRank(t, dir, 1)
	mustEnd(t, within(t, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(2, true)))
}
