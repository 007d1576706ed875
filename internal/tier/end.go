package tier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// EndIndex is the index of the manifest that says that a run has finished. Its
// parts have no files of ranks, only their packs as they were at the end. It is
// above the index of every checkpoint.
const EndIndex uint64 = 1 << 53

// Title returns how messages name the checkpoint of an index, or the end of the
// run.
func Title(index uint64) string {
	if index == EndIndex {
		return "the end of the run"
	}
	return fmt.Sprintf("checkpoint %d", index)
}

// Readable returns a text in which EndIndex, if it stands there as the index of
// a checkpoint, is replaced by a title.
func Readable(text string) string {
	return strings.ReplaceAll(text, fmt.Sprintf("checkpoint %d", EndIndex), Title(EndIndex))
}

// End says how a run has finished.
type End struct {
	Status  int       `json:"status"`            // of the program
	Discard bool      `json:"discard,omitempty"` // the checkpoints are not needed any more
	Time    time.Time `json:"time"`
	Job     string    `json:"job,omitempty"` // of the scheduler
	Restart int       `json:"restart,omitempty"`
	// Command is the program's name, without its directory, and its arguments;
	// none: the end is any program's.
	Command []string `json:"command,omitempty"`
}

// EndOf says whose end is uploaded.
type EndOf struct {
	Run, Attempt string
	Ranks        int // of the run
}

// CommitEnd is Commit for the end of a run. When it returns, the tier says that
// the run has finished.
func CommitEnd(ctx context.Context, t Tier, parts []Uploaded, end End) error {
	_, err := commit(ctx, t, parts, &end)
	return err
}

// ReadEnd returns the manifest that says that a run has finished; nil: there is
// none.
func ReadEnd(ctx context.Context, t Tier, run string) (*Manifest, error) {
	m, err := readManifest(ctx, t, run, EndIndex)
	switch {
	case errors.Is(err, ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case m.Abandoned:
		return nil, nil
	}
	return m, nil
}

// RemoveEnd removes the manifest that says that a run has finished.
func RemoveEnd(ctx context.Context, t Tier, run string) error {
	return t.Remove(ctx, manifestName(run, EndIndex))
}

// RemoveRest removes everything of a finished run except its end and what is
// pinned. It returns the pins. No upload may be under way.
func RemoveRest(ctx context.Context, t Tier, run string) ([]Pin, error) {
	m, err := ReadEnd(ctx, t, run)
	if err == nil && m == nil {
		err = errors.New("its end is not there")
	}
	if err == nil {
		err = removeClaims(ctx, t, run)
	}
	if err == nil {
		_, err = Collect(ctx, t, run, CollectOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("removing the checkpoints of run %s from %s: %w", run, t, err)
	}
	return Pins(ctx, t, run)
}

// removeClaims removes the claims of uploads that were killed.
func removeClaims(ctx context.Context, t Tier, run string) error {
	for info, err := range t.List(ctx, run+claimsDir) {
		if err == nil {
			err = t.Remove(ctx, info.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
