//go:build linux

package oracle

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/compiler/golang/gobuild"
	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
)

// Verdicts on a program.
const (
	right   = "right"
	wrong   = "WRONG"
	refused = "refused"       // the compiler refuses it
	without = "no checkpoint" // it reached no point where a checkpoint could be taken
	process = "process"       // it inspects its process, which a restart replaces; see list_test.go
	slow    = "slow"          // too slow with a checkpoint at every point, or at a number of them
	untried = "not tried"     // plain Go does not run it here, or not in time
)

type result struct {
	name, verdict string
	reason        string
	kills         int
}

// listed reports whether a result belongs into the list of programs without
// checkpoints.
func (r result) listed() bool {
	return r.verdict == refused || r.verdict == without || r.verdict == untried
}

// try builds and runs a program in all ways. It leaves what it built in work.
func (p *program) try(t *testing.T, work string) result {
	t.Helper()
	want := p.plainly(t, work)
	if want.Verdict != "" {
		return result{name: p.name, verdict: want.Verdict, reason: want.Reason}
	}
	return p.compare(t, work, want)
}

// standard is what a program does when the go command builds it.
type standard struct {
	Outcome         outcome
	Shaky           bool // only the exit status is the same in two runs
	Verdict, Reason string
}

// buildFlags returns the flags of both builds.
func (p *program) buildFlags() []string { return append([]string{"-ldflags=-s -w"}, p.flags...) }

// plainly finds out what a program does when the go command builds it.
func (p *program) plainly(t *testing.T, work string) *standard {
	t.Helper()
	plain := filepath.Join(work, "plain")
	cmd := exec.Command("go", slices.Concat([]string{"build", "-o", plain}, p.buildFlags(), []string{p.pkg})...)
	cmd.Dir = p.dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return &standard{Verdict: untried, Reason: "go build fails: " + firstLine(string(text))}
	}
	once, err := p.run(filepath.Join(work, "run"), plain)
	if errors.Is(err, errSlow) {
		return &standard{Verdict: untried, Reason: "the plain program: " + err.Error()}
	} else if err != nil {
		t.Fatal(err)
	}
	again, err := p.run(filepath.Join(work, "run"), plain)
	if err != nil {
		t.Fatal(err)
	}
	s := &standard{Outcome: *once}
	if d := again.differs(once); d != "" {
		s.Shaky = true
		if again.Exit != once.Exit {
			s.Verdict, s.Reason = untried, "the plain program is not the same twice: "+d
		}
	}
	return s
}

// rewrite makes a program restartable.
func (p *program) rewrite(ctx context.Context) (*golang.Rewritten, error) {
	o := golang.MakeOptions{Options: gobuild.Options{Flags: p.buildFlags()}, Instrument: instrument.Options{Everywhere: !p.marked}}
	return golang.Rewrite(ctx, p.dir, []string{p.pkg}, o)
}

// compare builds a program with Cairn's compiler, saves and kills it, and
// compares the results with the standard.
func (p *program) compare(t *testing.T, work string, want *standard) (r result) {
	t.Helper()
	r.name = p.name
	end := func(verdict, format string, args ...any) result {
		r.verdict, r.reason = verdict, fmt.Sprintf(format, args...)
		return r
	}
	differs := func(how string, got *outcome, err error) bool {
		switch {
		case errors.Is(err, errSlow):
			end(slow, "%s: %v", how, err)
		case err != nil:
			end(wrong, "%s: %v", how, err)
		case want.Shaky:
			if got.Exit != want.Outcome.Exit {
				end(wrong, "%s: %s%s", how, got.differs(&want.Outcome), lastOf(got.said))
			}
		case got.differs(&want.Outcome) != "":
			end(wrong, "%s: %s%s", how, got.differs(&want.Outcome), lastOf(got.said))
		}
		return r.verdict != ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	rewritten, err := p.rewrite(ctx)
	if errors.Is(err, instrument.ErrRefused) && !strings.Contains(err.Error(), ": internal: ") {
		return end(refused, "%s", strings.ReplaceAll(oneReason(err), p.dir+"/", ""))
	} else if err != nil {
		return end(wrong, "cairn build: %v", err)
	}
	for _, r := range rewritten.Refused {
		if r.Mistake() { // other points were found, but it is a mistake nevertheless
			return end(wrong, "cairn build: %v", r)
		}
	}
	made := filepath.Join(work, "made")
	if err := rewritten.Build(made); err != nil {
		return end(wrong, "cairn build: %v", err)
	}
	once := func(env ...string) (*outcome, error) { return p.run(filepath.Join(work, "run"), made, env...) }
	got, err := once()
	if differs("built by Cairn", got, err) {
		return r
	}
	factor := 2.0
	if long {
		factor = 1.5
	}
	if got.took > time.Second { // it would take hours
		factor = 4
	}
	var unsaved []string // Cairn's messages about points that cannot be saved
	points := killPoints(factor)
	for {
		got, err = once("CAIRN_KILL_AT=" + strings.Join(points, ","))
		if got == nil || err != nil || !got.unsaved() || got.kills >= len(points) {
			break
		}
		// Later points may be savable.
		points = slices.Delete(points, got.kills, got.kills+1)
		if unsaved = append(unsaved, got.said[len(got.said)-1]); len(unsaved) == 12 {
			points = points[:got.kills]
		}
		if len(points) == 0 {
			return end(without, "%s", unsaved[0])
		}
	}
	if got != nil {
		r.kills = got.kills
	}
	if differs("killed at points", got, err) {
		return r
	}
	if got.kills == 0 {
		return end(without, "%s", whyWithout(rewritten, got))
	}
	killed := points[:got.kills]
	last, _ := strconv.Atoi(killed[len(killed)-1])
	every := max(1, last/200)
	got, err = once(fmt.Sprint("CAIRN_EVERY_POINTS=", every))
	if differs(fmt.Sprintf("with a checkpoint every %d points", every), got, err) {
		return r
	}
	// Above, points are counted until the last kill. What continues after these
	// kills runs as in production, where nothing is due most of the time.
	alone := killed
	if (!long || got.took > time.Second) && len(alone) > 3 {
		alone = []string{killed[0], killed[len(killed)/2], killed[len(killed)-1]}
	}
	for _, point := range alone {
		got, err = p.runAgain(filepath.Join(work, "run"), made, []string{"CAIRN_KILL_AT=" + point}, nil)
		if got != nil {
			r.kills += got.kills
		}
		if differs("killed at point "+point+", then with nothing due", got, err) {
			return r
		}
	}
	if want.Shaky {
		return end(right, "only the exit status was compared")
	}
	return end(right, "")
}

// whyWithout returns why a program was never saved.
func whyWithout(w *golang.Rewritten, got *outcome) string {
	if len(got.said) > 0 {
		return got.said[0]
	}
	if len(w.Points) == 0 {
		return "it has no points"
	}
	return "no point is reached, or a goroutine is alive at all of them"
}

// oneReason returns the compiler's reason on one line, which does not depend on
// where the program is.
func oneReason(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	if len(lines) > 1 {
		lines = lines[1:]
	}
	return lines[0]
}

func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func lastOf(said []string) string {
	if len(said) == 0 {
		return ""
	}
	return "\ncairn: " + said[len(said)-1]
}
