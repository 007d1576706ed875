//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
)

// A place on a tier outside of the hosts belongs to one run at a time:
//
//	owners/00000002.json
//
// The newest one counts. A new run creates it; the run that had the place
// before, and does not know of that, finds it with its next checkpoint, and
// stops. So of two runs that begin at one place at the same time, the later one
// continues.

// placeOwner is the content of such an object, a record.
type placeOwner struct {
	Format int       `json:"format"`
	Run    string    `json:"run"`
	Host   string    `json:"host"`
	Pid    int       `json:"pid"`
	Time   time.Time `json:"time"`
}

const (
	ownersPrefix = "owners/"
	ownerFormat  = 1
)

// placeTakenError says that another run has a place.
type placeTakenError struct {
	tier string
	by   *placeOwner
}

func (e *placeTakenError) Error() string {
	return fmt.Sprintf("another run was begun at the place of this one on %s: by process %d on %s, at %s; one of them has to use another place", e.tier, e.by.Pid, e.by.Host, e.by.Time.Format(time.DateTime))
}

func (e *placeTakenError) Is(target error) bool { return target == errSuperseded }

func ownerName(n uint64) string { return fmt.Sprintf("%s%08d.json", ownersPrefix, n) }

// readOwner returns the newest owner of a place, and its number; nil: there is
// none. older are the objects of earlier ones.
func readOwner(ctx context.Context, t tier.Tier) (newest *placeOwner, number uint64, older []string, err error) {
	for info, err := range t.List(ctx, ownersPrefix) {
		if err != nil {
			return nil, 0, nil, err
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(info.Name, ownersPrefix), ".json"), 10, 64)
		if err != nil || ownerName(n) != info.Name {
			continue
		}
		if n < number {
			older = append(older, info.Name)
			continue
		}
		if number > 0 {
			older = append(older, ownerName(number))
		}
		number = n
	}
	if number == 0 {
		return nil, 0, nil, nil
	}
	text, err := tier.ReadAll(ctx, t, ownerName(number), 1<<20)
	if err != nil {
		return nil, 0, nil, err
	}
	newest = new(placeOwner)
	if err := store.DecodeRecord(text, newest); err != nil || newest.Format != ownerFormat {
		return nil, 0, nil, fmt.Errorf("%s: %s: %w: %w", t, ownerName(number), tier.ErrDamaged, errors.Join(err, fmt.Errorf("format %d", newest.Format)))
	}
	return newest, number, older, nil
}

// ownPlace makes a run the owner of a place, if there is none. If another run
// is, a new run takes the place, and others get an error that is errSuperseded.
func ownPlace(ctx context.Context, t tier.Tier, run string, isNew bool) error {
	for {
		was, n, older, err := readOwner(ctx, t)
		switch {
		case errors.Is(err, tier.ErrDamaged):
			return nil // it says nothing about this run
		case err != nil:
			return err
		case was != nil && was.Run == run:
			for _, name := range older {
				if err := t.Remove(ctx, name); err != nil {
					return err
				}
			}
			return nil
		case was != nil && !isNew:
			return &placeTakenError{t.String(), was}
		}
		host, _ := os.Hostname()
		text, err := store.EncodeRecord(&placeOwner{ownerFormat, run, host, os.Getpid(), time.Now().Round(0)})
		if err == nil {
			err = t.Create(ctx, ownerName(n+1), text)
		}
		if err != nil && !errors.Is(err, tier.ErrExists) {
			return err
		}
		isNew = isNew && err != nil // it was created, and a newer one counts
	}
}

// disown removes what says that a run owns a place.
func disown(ctx context.Context, t tier.Tier, run string) error {
	was, n, _, err := readOwner(ctx, t)
	if err != nil || was == nil || was.Run != run {
		return err
	}
	return t.Remove(ctx, ownerName(n))
}

// claimPlace returns a function that makes this run the owner of a tier's
// place, or fails if another run has the place. A job of the tier calls it.
func (s *Supervisor) claimPlace(t *storageTier) func(context.Context, tier.Tier) error {
	run, isNew := s.rec.ID, s.intent.New
	return func(ctx context.Context, x tier.Tier) error {
		err := ownPlace(ctx, x, run, isNew && !t.owned.Load())
		t.owned.Store(t.owned.Load() || err == nil)
		return err
	}
}
