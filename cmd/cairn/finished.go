package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cairnrun/cairn/internal/supervise"
)

// finishedError says that a run has finished, and has no checkpoints.
type finishedError struct {
	dir string // of the run
	run *supervise.FinishedRun
}

func (e *finishedError) Error() string {
	return fmt.Sprintf("%s: the run has finished with status %d, at %s, and its checkpoints were removed", e.dir, e.run.Status, clock(e.run.Time))
}

// withoutAs returns an error with the same text, for which errors.As finds
// nothing: one checkpoint was named, and that is missing.
func withoutAs(err error) error {
	var over *finishedError
	if errors.As(err, &over) {
		return errors.New(err.Error())
	}
	return err
}

// finishedText says how a run has finished, and what its tiers keep. If left is
// set, there are checkpoints on tiers that could not be reached at its end.
func (c *call) finishedText(dir string, run *supervise.FinishedRun, left bool) {
	var ends []string
	for _, t := range run.Tiers {
		if t.Error != "" {
			c.notef("cannot list what %s has: %s", t.Tier, printable(t.Error))
		}
		if t.End {
			ends = append(ends, t.Tier)
		}
	}
	if c.json {
		return
	}
	if left {
		c.printf("%s: the run has finished with status %d, at %s\n", dir, run.Status, clock(run.Time))
	} else {
		c.printf("%v\n", &finishedError{dir, run})
	}
	if len(ends) > 0 {
		c.printf("the end of the run, with its output and its files, is on %s\n", strings.Join(ends, ", "))
	}
}
