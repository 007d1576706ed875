package main

import (
	"context"
	"fmt"

	"github.com/cairnrun/cairn/internal/vfs"
)

// split saves a state of one size that lies partly on the host and partly on
// the device, as figure 2 of Parasyris and Bautista Gomez does.
func split(ctx context.Context) error {
	d, err := pick()
	if err != nil {
		return err
	}
	const total = 4 << 30
	sh := newSheet(fmt.Sprintf("4 GiB on host and %s (medians of %d; what is on the host is copied with %d processors)", d, *rounds, processors()))
	for _, percent := range []int{10, 50, 90} {
		host := make([]uint32, total/100*percent/4)
		for i := range host {
			host[i] = uint32(i) * 2654435761
		}
		s, err := newSaver(vfs.Discard(d.wrote), "/sets", d, total/100*int64(100-percent), host)
		if err != nil {
			return err
		}
		var held, safe []float64
		for i := range *rounds + 1 {
			if err := s.fill(i); err != nil {
				return err
			}
			for k := 0; k < len(host); k += 512 {
				host[k]++
			}
			t, err := s.save(ctx)
			if err != nil {
				return err
			}
			if i > 0 {
				held = append(held, t.held)
				safe = append(safe, t.safe)
			}
		}
		s.close()
		h, a := median(held), median(safe)
		sh.line(fmt.Sprintf("%d %% host, %d %% device", percent, 100-percent),
			fmt.Sprintf("held %.2f ms, all of it %.2f ms", 1e3*h, 1e3*a), "", true)
	}
	sh.flush()
	return nil
}
