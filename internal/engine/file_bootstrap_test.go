package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestFileBootstrap_SameNameAgain starts a Slurm job again under the same name.
func TestFileBootstrap_SameNameAgain(t *testing.T) {
	dir := t.TempDir()
	for start := range 2 {
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				m := &fileBootstrap{dir: dir, rank: r, size: 2}
				for round := range 2 {
					if start == 1 && round == 1 && r == 1 {
						time.Sleep(200 * time.Millisecond)
					}
					endpoints, err := m.exchange(t.Context(), fmt.Appendf(nil, "start %d round %d", start, round))
					if err != nil {
						t.Error(err)
						return
					}
					for _, c := range endpoints {
						if want := fmt.Sprintf("start %d round %d", start, round); string(c) != want {
							t.Errorf("rank %d got %q, want %q", r, c, want)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}
