//go:build linux

package difftest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// table collects the result of each program.
type table struct {
	mu   sync.Mutex
	rows []string
}

func (tb *table) add(p *program, points, kills int, result string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if len(p.missed) > 0 {
		result += "; no point at " + strings.Join(p.missed, " ")
	}
	row := fmt.Sprintf("%s\t%d\t%d\t%s\n", p.name, points, kills, result)
	tb.rows = append(tb.rows, row)
	if name := os.Getenv("CAIRN_DIFFTEST_REPORT"); name != "" { // so that it can be read before the end
		if f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
			f.WriteString(row)
			f.Close()
		}
	}
}

func (tb *table) String() string {
	slices.Sort(tb.rows)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "program\tpoints\tkills\tresult\n")
	for _, r := range tb.rows {
		fmt.Fprint(w, r)
	}
	w.Flush()
	return b.String()
}

// TestPrograms_KilledAtPoints compares each program of testdata/progs, killed
// at its points, with the same program built by the go command.
func TestPrograms_KilledAtPoints(t *testing.T) {
	tryAll(t, "testdata/progs", func(t *testing.T, tb *table, p *program, want *outcome) {
		binary, said := p.buildProtected(t)
		if binary == "" {
			tb.add(p, 0, 0, "REFUSED: "+reason(said))
			t.Fatalf("cairn build refuses:\n%s", said)
		}
		if len(p.missed) > 0 { // otherwise the program does not test these loops
			t.Errorf("no point at %s:\n%s", strings.Join(p.missed, ", "), said)
		}
		if n := p.compare(t, tb, binary, want); n < p.killed {
			t.Errorf("killed at no later point than %d, not at %d: nothing was saved there", n, p.killed)
		}
	})
}

// TestRefusedPrograms_SayWhy gives each program of testdata/refused to the
// tool. It must say where and why it refuses, or build a program that is right
// nevertheless.
func TestRefusedPrograms_SayWhy(t *testing.T) {
	tryAll(t, "testdata/refused", func(t *testing.T, tb *table, p *program, want *outcome) {
		if p.refuse == "" {
			t.Fatal("the program does not say what is expected: //difftest:refuse REGEXP")
		}
		binary, said := p.buildProtected(t)
		if binary != "" { // it may refuse at run time, or take another loop
			got := p.protected(t, binary, protection{every: 1})
			if d := got.differs(want); d != "" {
				t.Errorf("under cairn run: %s\n%s", d, got.stderr)
			}
			if why := regexp.MustCompile("(?:checkpoint not saved|no checkpoint could be taken).*(?:" + p.refuse + ").*").FindString(got.stderr); why != "" {
				tb.add(p, 0, 0, "refused when run: "+why)
				return
			}
			told := regexp.MustCompile(`\.go:\d+, .*(?:` + p.refuse + ").*no checkpoint is taken").MatchString(said)
			if points := p.compare(t, tb, binary, want); points == 0 && !told {
				t.Errorf("no checkpoint is ever taken of the program, and nobody says so\ncairn build:\n%s\ncairn run:\n%s", said, got.stderr)
			}
			return
		}
		tb.add(p, 0, 0, "refused: "+reason(said))
		for what, pattern := range map[string]string{
			"the position": `\.go:\d+`,
			"the reason":   p.refuse,
		} {
			if !regexp.MustCompile(pattern).MatchString(said) {
				t.Errorf("the refusal does not name %s (%s):\n%s", what, pattern, said)
			}
		}
	})
}

// tryAll runs all programs of a directory without Cairn, and calls then for
// each.
func tryAll(t *testing.T, from string, then func(*testing.T, *table, *program, *outcome)) {
	ps := chosen(t, readPrograms(t, from))
	tb := &table{}
	t.Run("all", func(t *testing.T) {
		for _, p := range ps {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				binary := p.buildPlain(t)
				want := p.plain(t, binary)
				if want.exit != p.exit {
					t.Fatalf("the plain program ends with status %d, not %d\n%s%s", want.exit, p.exit, want.stdout, want.stderr)
				}
				if want.stdout == "" {
					t.Fatal("the plain program prints nothing")
				}
				if d := p.plain(t, binary).differs(want); d != "" {
					t.Fatalf("the plain program is not the same twice: %s", d)
				}
				needBuild(t)
				then(t, tb, p, want)
			})
		}
	})
	if len(tb.rows) > 0 {
		t.Logf("\n%s", tb)
	}
}

// chosen returns the programs that are tried today: the daily ones, or those
// that the environment selects.
func chosen(t *testing.T, all []*program) (list []*program) {
	t.Helper()
	wanted, err := regexp.Compile(os.Getenv("CAIRN_DIFFTEST_PROGRAMS"))
	if err != nil {
		t.Fatalf("CAIRN_DIFFTEST_PROGRAMS: %v", err)
	}
	for _, p := range all {
		if (p.daily || stress || wanted.String() != "") && wanted.MatchString(p.name) {
			list = append(list, p)
		}
	}
	return list
}

// reason returns the last line of the tool's messages, for the table.
func reason(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return lines[len(lines)-1]
}

// unsavable is what is said of a goroutine whose wait cannot be saved. None of
// the programs has one.
var unsavable = regexp.MustCompile("the goroutine that is started at .* where it cannot be saved")

// compare kills a protected program at its points, and compares each time. It
// returns the last point at which the program was killed.
func (p *program) compare(t *testing.T, tb *table, binary string, want *outcome) (points int) {
	t.Helper()
	kills := 0
	var wrong []string
	defer func() {
		result := "ok"
		if len(wrong) > 0 {
			result = "WRONG " + wrong[0]
		} else if t.Failed() {
			result = "FAILED"
		} else if points == 0 {
			result = "ok, but without points"
		}
		tb.add(p, points, kills, result)
	}()
	check := func(what string, got *outcome) bool {
		t.Helper()
		kills += got.kills
		if d := got.differs(want); d != "" {
			wrong = append(wrong, what+": "+d)
			t.Errorf("%s: %s\nstderr:\n%s", what, d, tail(got.stderr, 3000))
		}
		if why := unsavable.FindString(got.stderr); why != "" {
			wrong = append(wrong, what+": "+why)
			t.Errorf("%s: %s", what, why)
		}
		return len(wrong) < 3
	}
	if !check("by itself", p.plain(t, binary)) {
		return points
	}
	// Each run is killed once, later and later, until it ends before that.
	// Some take checkpoints all the time, and continue after each. The others
	// take none after the restart.
	for n, i, over := 1, 0, false; !over; n, i = later(n), i+1 {
		every := n / 4
		if i%2 == 0 {
			every = 0
		}
		got := p.protected(t, binary, protection{killAt: strconv.Itoa(n), every: every})
		over = got.kills == 0
		if !over {
			points = n
		}
		if !check(fmt.Sprint("killed at point ", n), got) {
			return points
		}
	}
	if points == 0 {
		return points
	}
	if points <= 12 && !testing.Short() || stress && points <= 200 {
		got := p.protected(t, binary, protection{killAt: "each"})
		points = max(points, got.kills)
		if !check("killed at each point", got) {
			return points
		}
	}
	if p.dies {
		if !p.between(t, binary, points, check) {
			return points
		}
	}
	times := 1
	switch {
	case p.exit == 2 || testing.Short(): // kills would count as retries of the panic
		times = 0
	case stress:
		times = 5
	case len(p.name)%3 != 0: // a third of them is enough every day
		times = 0
	}
	for i := range times {
		got := p.protected(t, binary, protection{every: 1 + points/30, during: killRandomly(binary, 2)})
		if !check(fmt.Sprintf("killed at random, run %d", i), got) {
			return points
		}
	}
	return points
}

// between kills a program at one of its points, where it saves, and at a moment
// after that, until there is none left. What it did in between is done again.
// between returns whether to continue.
func (p *program) between(t *testing.T, binary string, points int, check func(string, *outcome) bool) bool {
	t.Helper()
	for _, at := range []int{1, 2, (points + 1) / 2} {
		for n := 1; ; n++ {
			if !stress && n > 4 {
				n += n / 2
			}
			got := p.protected(t, binary, protection{killAt: strconv.Itoa(at), dieAt: n})
			if !check(fmt.Sprintf("killed at point %d and moment %d", at, n), got) {
				return false
			}
			if got.kills < 2 {
				break
			}
		}
		if testing.Short() {
			break
		}
	}
	return true
}

// later returns the next point to kill at after n.
func later(n int) int {
	switch {
	case stress && n < 32:
		return n + 1
	case stress:
		return n + n/8
	}
	return n*4 + 1
}

// killRandomly kills the processes that run a binary at random moments.
func killRandomly(binary string, times int) func(*exec.Cmd, <-chan struct{}) {
	return func(_ *exec.Cmd, ended <-chan struct{}) {
		last := 0
		for times > 0 {
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(rand.IntN(20000)) * time.Microsecond):
			}
			if pid := running(binary, last); pid > 0 {
				select {
				case <-ended:
					return
				case <-time.After(time.Duration(rand.IntN(40000)) * time.Microsecond):
				}
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					times--
					last = pid
				}
			}
		}
	}
}

// running returns the id of a process that runs a binary, except the one that
// was killed already.
func running(binary string, not int) int {
	list, _ := os.ReadDir("/proc")
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == not {
			continue
		}
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && exe == binary {
			return pid
		}
	}
	return 0
}

// tail returns the end of a text.
func tail(s string, n int) string {
	if len(s) > n {
		s = "…" + s[len(s)-n:]
	}
	return s
}
