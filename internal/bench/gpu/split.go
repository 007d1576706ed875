package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/vfs"
)

// split saves a state of one size that lies partly on the host and partly on
// the device, as figure 2 of Parasyris and Bautista Gomez does: to a file, as
// there, and to nowhere.
func split(ctx context.Context) error {
	d, err := pick()
	if err != nil {
		return err
	}
	const total = 2 << 30
	sh := newSheet(fmt.Sprintf("2 GiB on host and %s, all of it changed (medians of %d; the host's part is copied by %d processors)", d, *rounds, processors()))
	for _, percent := range []int{10, 50, 90} {
		host := make([]uint32, total/100*percent/4)
		for i := range host {
			host[i] = uint32(i) * 2654435761
		}
		var held, safe [2]float64
		for i, fsys := range []vfs.FS{vfs.Discard(d.wrote), vfs.OS()} {
			path := filepath.Join(*folder, "split")
			if err := os.MkdirAll(path, 0o777); err != nil {
				return err
			}
			held[i], safe[i], err = splitSaves(ctx, fsys, path, d, total/100*int64(100-percent), host)
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			if err != nil {
				return err
			}
		}
		sh.line(fmt.Sprintf("%d %% host, %d %% device", percent, 100-percent),
			fmt.Sprintf("held %.2f ms; safe in a file after %.2f s", 1e3*held[0], safe[1]), "", true)
	}
	sh.flush()
	return nil
}

// splitSaves returns the medians of the time held, and until a set is safe.
func splitSaves(ctx context.Context, fsys vfs.FS, path string, d *target, bytes int64, host []uint32) (float64, float64, error) {
	s, err := newSaver(fsys, path, d, bytes, host)
	if err != nil {
		return 0, 0, err
	}
	defer s.close()
	var held, safe []float64
	for i := range *rounds + 1 {
		if err := s.fill(i); err != nil {
			return 0, 0, err
		}
		for k := 0; k < len(host); k += 512 {
			host[k]++
		}
		t, err := s.save(ctx)
		if err != nil {
			return 0, 0, err
		}
		if i > 0 { // the first one allocates
			held = append(held, t.held)
			safe = append(safe, t.safe)
		}
	}
	return median(held), median(safe), nil
}
