//go:build linux

package supervise

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/tier/tiertest"
)

// TestAttempts_TwoSupervisors starts one run twice from the same record. One
// start succeeds; the other learns who has. An older start stops, too.
func TestAttempts_TwoSupervisors(t *testing.T) {
	ctx, m := context.Background(), tiertest.NewMem()
	run := strings.Repeat("a", 32)
	first := startedOn("a", "b")
	first.Run = run
	if newer, err := createAttempt(ctx, m, first); newer != nil || err != nil {
		t.Fatal(newer, err)
	}
	first.Holders = startedOn("c").Homes // as after a move
	if newer, err := createAttempt(ctx, m, first); newer != nil || err != nil {
		t.Fatalf("the same start again: %+v, %v", newer, err)
	}
	won := 0
	for _, host := range []string{"x", "y"} {
		next := *first
		next.Number, next.Host = first.Number+1, host
		newer, err := createAttempt(ctx, m, &next)
		switch {
		case err == nil:
			won++
		case !errors.Is(err, errSuperseded) || !strings.Contains(err.Error(), "on x") || newer == nil || newer.Host != "x":
			t.Errorf("%s: %+v, %v", host, newer, err)
		}
	}
	if won != 1 {
		t.Errorf("%d starts have succeeded", won)
	}
	if _, err := checkAttempts(ctx, m, first); !errors.Is(err, errSuperseded) {
		t.Errorf("an older start continues: %v", err)
	}
	if _, err := createAttempt(ctx, m, first); !errors.Is(err, errSuperseded) {
		t.Errorf("an older start begins again: %v", err)
	}
	if numbers, err := attemptNumbers(ctx, m, run); err != nil || len(numbers) != 1 || numbers[0] != first.Number+1 {
		t.Errorf("records: %v, %v", numbers, err)
	}
}
