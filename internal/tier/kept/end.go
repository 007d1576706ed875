package kept

import (
	"context"
	"fmt"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// LinkEnd keeps the packs of a rank that has finished, as a part without a file
// of a checkpoint.
func (s *Store) LinkEnd(ctx context.Context, p recovery.Part, more More) (recovery.Part, error) {
	var pins []string
	defer s.unpin(&pins)
	p, err := s.linkPacks(ctx, p, more, &pins)
	if err != nil {
		return recovery.Part{}, fmt.Errorf("keeping the last pack of rank %d: %w", p.Rank, err)
	}
	return p, nil
}

// RetainEnd removes everything but what the end of the run needs. The caller
// has ended all copying to and from the store.
func (s *Store) RetainEnd() error {
	var parts []copies.PartID
	needed := map[string]bool{}
	have, all := s.Have()
	for i := range all {
		p := &all[i]
		if p.Index != tier.EndIndex {
			parts = append(parts, partID(p))
			continue
		}
		for _, o := range p.Objects {
			needed[o.Name] = true
		}
	}
	var ids []copies.ID
	for _, id := range have {
		if !needed[id.Object] {
			ids = append(ids, id)
		}
	}
	return s.Remove(parts, ids)
}
