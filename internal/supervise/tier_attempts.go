//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
)

// The records of starts on a tier outside of the hosts:
//
//	RUN/attempts/00000007.json
//
// They are created atomically, so exactly one supervisor gets each number. A
// supervisor that finds a newer number than its own is not the run's any more,
// and stops.

// errSuperseded means that another supervisor has started the run since.
var errSuperseded = errors.New("another supervisor has started this run")

const maxAttemptText = 64 << 20

func attemptsPrefix(run string) string { return run + "/attempts/" }

func attemptName(run string, number uint64) string {
	return fmt.Sprintf("%s%08d.json", attemptsPrefix(run), number)
}

// attemptNumbers returns the numbers of the starts that a tier knows, the
// highest first.
func attemptNumbers(ctx context.Context, t tier.Tier, run string) (out []uint64, err error) {
	for info, err := range t.List(ctx, attemptsPrefix(run)) {
		if err != nil {
			return nil, err
		}
		text := strings.TrimSuffix(strings.TrimPrefix(info.Name, attemptsPrefix(run)), ".json")
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && info.Name == attemptName(run, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// readAttempt returns the newest record of a start on a tier; nil: there is
// none.
func readAttempt(ctx context.Context, t tier.Tier, run string) (*control.AttemptRecord, error) {
	numbers, err := attemptNumbers(ctx, t, run)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	text, err := tier.ReadAll(ctx, t, attemptName(run, numbers[0]), maxAttemptText)
	if err != nil {
		return nil, err
	}
	a := new(control.AttemptRecord)
	if err = store.DecodeRecord(text, a); err == nil {
		err = a.Check()
	}
	if err == nil && (a.Run != run || a.Number != numbers[0]) {
		err = errors.New("it is of another start")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w: %w", t, attemptName(run, numbers[0]), tier.ErrDamaged, err)
	}
	return a, nil
}

// createAttempt stores the record of a start on a tier, and removes older ones.
// It may be repeated. If there is another one with this number, or a newer one,
// the error is errSuperseded, and createAttempt returns it if it can be read.
func createAttempt(ctx context.Context, t tier.Tier, a *control.AttemptRecord) (newer *control.AttemptRecord, err error) {
	if newer, err = checkAttempts(ctx, t, a); err != nil {
		return newer, err
	}
	text, err := store.EncodeRecord(a)
	if err == nil {
		err = t.Create(ctx, attemptName(a.Run, a.Number), text)
	}
	if errors.Is(err, tier.ErrExists) {
		if newer, err = readAttempt(ctx, t, a.Run); err == nil && (newer == nil || !sameStart(newer, a)) {
			return supersededBy(ctx, t, a)
		}
	}
	if err == nil { // one may have been created meanwhile
		newer, err = checkAttempts(ctx, t, a)
	}
	if err != nil {
		return newer, err
	}
	numbers, err := attemptNumbers(ctx, t, a.Run)
	for _, n := range numbers {
		if err == nil && n < a.Number {
			err = t.Remove(ctx, attemptName(a.Run, n))
			t.Remove(ctx, quietName(a.Run, n)) // if there is one
			t.Remove(ctx, finishedName(a.Run, n))
		}
	}
	return nil, err
}

// sameStart reports whether two records are of the same start. What belongs to
// a record may change while the run continues, but not who has made it and
// when.
func sameStart(a, b *control.AttemptRecord) bool {
	return a.Number == b.Number && a.Run == b.Run && a.Host == b.Host && a.Pid == b.Pid && a.Time.Equal(b.Time)
}

// checkAttempts returns errSuperseded, and the record, if a tier knows a newer
// start.
func checkAttempts(ctx context.Context, t tier.Tier, a *control.AttemptRecord) (newer *control.AttemptRecord, err error) {
	numbers, err := attemptNumbers(ctx, t, a.Run)
	if err == nil && len(numbers) > 0 && numbers[0] > a.Number {
		return supersededBy(ctx, t, a)
	}
	return nil, err
}

// supersededBy says who has started the run since.
func supersededBy(ctx context.Context, t tier.Tier, mine *control.AttemptRecord) (*control.AttemptRecord, error) {
	a, err := readAttempt(ctx, t, mine.Run)
	if err != nil || a == nil {
		return nil, errors.Join(fmt.Errorf("%w, as %s shows", errSuperseded, t), err)
	}
	return a, fmt.Errorf("%w: %s has its start %d, by process %d on %s, at %s; this is start %d", errSuperseded, t, a.Number, a.Pid, a.Host, a.Time.Format("2006-01-02 15:04:05"), mine.Number)
}

// superseded ends a run that another supervisor has taken over.
func (s *Supervisor) superseded(t *storageTier, err error) {
	t.upload, t.state.Uploading = nil, 0
	s.tierFails(t, err)
	if s.a == nil || !s.a.begun() || s.a.failure != nil {
		return
	}
	s.fail(0, &failure{status: 1, fatal: true, why: err.Error()})
	s.kill("")
}
