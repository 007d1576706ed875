package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/store"
)

// Pin is a checkpoint on a tier that no collection removes, and its name. It is
// a record.
type Pin struct {
	Format  int       `json:"format"`
	Run     string    `json:"run"`
	Name    string    `json:"name"`
	Index   uint64    `json:"index"`
	Attempt string    `json:"attempt"`
	Time    time.Time `json:"time"`
}

// ErrPinned means that another checkpoint is pinned under a name.
var ErrPinned = errors.New("another checkpoint is pinned under that name; choose another one, or remove it with 'cairn pin --remove'")

const pinsDir = "/pins/"

// CheckPinName returns an error unless a name may be that of a pin: it becomes
// a part of an object's name, and users write PLACE@NAME or PLACE@INDEX.
func CheckPinName(name string) error {
	switch {
	case CheckName(name+".json") != nil || strings.Contains(name, "/"):
		return fmt.Errorf("%.120q: a name on a tier has letters, digits, '-', '_' and '.' (not first), such as best", name)
	case strings.Trim(name, "0123456789") == "":
		return fmt.Errorf("%q: a name on a tier is no number: that is a checkpoint's index", name)
	}
	return nil
}

func pinName(run, name string) string { return run + pinsDir + name + ".json" }

// AddPin pins a checkpoint, with a manifest that is on the tier. If there is a
// pin of that name for another checkpoint, the error is ErrPinned. A collection
// may be under way: if it is removing the checkpoint, the error is ErrNotExist.
func AddPin(ctx context.Context, t Tier, m *Manifest, name string) (*Pin, error) {
	if err := CheckPinName(name); err != nil {
		return nil, err
	}
	p := &Pin{manifestFormat, m.Run, name, m.Index, m.Attempt, time.Now().Round(0)}
	text, err := store.EncodeRecord(p)
	if err != nil {
		return nil, err
	}
	if err = t.Create(ctx, pinName(m.Run, name), text); errors.Is(err, ErrExists) {
		was, rerr := readPin(ctx, t, m.Run, pinName(m.Run, name))
		if rerr != nil || was.Index != m.Index || was.Attempt != m.Attempt {
			return nil, errors.Join(fmt.Errorf("%s: %s: %w", t, name, ErrPinned), rerr)
		}
		p, err = was, nil
	}
	if err != nil {
		return nil, err
	}
	// A collection creates its list, and then looks for pins.
	if err = notCondemned(ctx, t, m); err == nil {
		_, err = t.Stat(ctx, manifestName(m.Run, m.Index))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint %d on %s: %w", m.Index, t, err), t.Remove(ctx, pinName(m.Run, name)))
	}
	return p, nil
}

// notCondemned returns an error if a collection may be removing a checkpoint.
func notCondemned(ctx context.Context, t Tier, m *Manifest) error {
	for info, err := range t.List(ctx, m.Run+condemnedDir) {
		if err != nil {
			return err
		}
		list, err := readCondemned(ctx, t, info.Name)
		if errors.Is(err, ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if slices.Contains(list.Names, manifestName(m.Run, m.Index)) {
			return fmt.Errorf("%w any more: it is being removed", ErrNotExist)
		}
	}
	return nil
}

// Pins returns the pinned checkpoints of a run on a tier, by name.
func Pins(ctx context.Context, t Tier, run string) (out []Pin, err error) {
	if !isID(run) {
		return nil, fmt.Errorf("%.40q is no identity of a run", run)
	}
	for info, err := range t.List(ctx, run+pinsDir) {
		if err != nil {
			return nil, err
		}
		p, err := readPin(ctx, t, run, info.Name)
		if errors.Is(err, ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Pin) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func readPin(ctx context.Context, t Tier, run, object string) (*Pin, error) {
	text, err := ReadAll(ctx, t, object, maxPartText)
	if err != nil {
		return nil, err
	}
	p := new(Pin)
	if err := decode(text, p, &p.Format); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", t, object, err)
	}
	if p.Run != run || pinName(run, p.Name) != object || CheckPinName(p.Name) != nil {
		return nil, fmt.Errorf("%s: %s: %w: it is not what its name says", t, object, ErrDamaged)
	}
	return p, nil
}

// RemovePin removes a pin. The next collection may remove the checkpoint.
func RemovePin(ctx context.Context, t Tier, p Pin) error {
	return t.Remove(ctx, pinName(p.Run, p.Name))
}
