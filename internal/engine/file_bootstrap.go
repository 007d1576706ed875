package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnrun/cairn/internal/vfs"
)

// fileBootstrap lets ranks exchange endpoints through a directory that all of
// them see: in each round every rank writes a file, and reads those of the
// others.
type fileBootstrap struct {
	dir        string
	rank, size int
	round      int
}

// pollInterval is the time between two looks at the directory. The directory
// may be on another host, which sends no events.
const pollInterval = 20 * time.Millisecond

func (m *fileBootstrap) path(round, rank int) string {
	return filepath.Join(m.dir, fmt.Sprintf("%d-%04d", round, rank))
}

func (m *fileBootstrap) exchange(ctx context.Context, endpoint []byte) ([][]byte, error) {
	m.round++
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, err
	}
	if m.round == 1 { // files of an earlier start with the same name
		old, _ := filepath.Glob(filepath.Join(vfs.QuoteGlob(m.dir), fmt.Sprintf("*-%04d", m.rank)))
		for _, f := range old {
			os.Remove(f)
		}
	}
	mine := m.path(m.round, m.rank)
	tmp := mine + ".tmp"
	if err := os.WriteFile(tmp, endpoint, 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, mine); err != nil {
		return nil, err
	}
	endpoints := make([][]byte, m.size)
	for r := range endpoints {
		for {
			c, err := os.ReadFile(m.path(m.round, r))
			if err == nil {
				endpoints[r] = c
				break
			}
			if !os.IsNotExist(err) {
				return nil, err
			}
			select {
			case <-time.After(pollInterval):
			case <-ctx.Done():
				return nil, fmt.Errorf("rank %d did not come to %s: %w", r, m.dir, ctx.Err())
			}
		}
	}
	// All ranks have written this round, so all have read the previous one.
	if m.round > 1 {
		os.Remove(m.path(m.round-1, m.rank))
	}
	return endpoints, nil
}
