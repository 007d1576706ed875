//go:build linux

package supervise

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// earlierTime is how long the ranks' start may wait until what they have
// written before is on the screen: a terminal may accept nothing.
const earlierTime = 5 * time.Second

// earlierMost is how many bytes of it come before the ranks' start; the rest
// comes after that.
const earlierMost = 4 << 20

// showEarlier shows what the ranks have written to stderr since an earlier
// supervisor or helper was lost, such as why they have stopped. So it appears
// before the line that says that the run is started again. Their stdout comes
// when they have restored: what they printed after the checkpoint is printed
// again.
func (s *Supervisor) showEarlier(ctx context.Context) {
	if s.rec.Attempt == 1 {
		return
	}
	sum := 0
	for r := range s.n {
		var read func(at int64) ([]byte, error)
		if s.local != nil {
			i := slices.IndexFunc(s.hosts, func(h *host) bool { return h.state == hostUp && h.files != nil && h.files.ID == s.local.at[r] })
			if i < 0 {
				continue
			}
			path := "output/" + filepath.Base(rundir.OutputFile(s.o.RankOutput, r, control.Stderr))
			read = func(at int64) ([]byte, error) {
				piece, err := s.readFrom(ctx, s.hosts[i], &control.ReadFile{Path: path, Offset: at})
				if err != nil {
					return nil, err
				}
				return piece.Data, nil
			}
		}
		n, _ := s.sink.ShowStderr(r, earlierMost-sum, read) // if it fails, the next launch shows it
		sum += n
	}
	if sum == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, earlierTime)
	defer cancel()
	done := false
	go func() {
		s.sink.AwaitIdle(ctx)
		s.post(func() { done = true })
	}()
	s.until(ctx, func() bool { return done || s.stopping || s.killed }, nil)
}
