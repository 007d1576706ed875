//go:build linux

package difftest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// CAIRN_LONG=1 kills programs at random moments: all programs of
// testdata/progs, some random ones and the example galaxies. Each is killed at
// a number of moments that are spread over the duration of a run. CAIRN_SEED=N
// repeats what was drawn (moments in real time are never exactly the same);
// CAIRN_MOMENTS=N sets another number.

const (
	manyMoments = 50 // for programs that run long
	someMoments = 12
	long        = 250 * time.Millisecond // with a checkpoint at many of their points
)

// TestRandomMoments_Killed kills programs at random moments.
func TestRandomMoments_Killed(t *testing.T) {
	if !stress && os.Getenv("CAIRN_MOMENTS") == "" {
		t.Skip("CAIRN_LONG=1 tries this")
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CAIRN_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("CAIRN_SEED=%s: %v", s, err)
		}
	}
	t.Logf("CAIRN_SEED=%d", seed)
	tb := &table{}
	defer func() { t.Logf("\n%s", tb) }()
	try := func(t *testing.T, p *program, plain, binary string) {
		if binary == "" {
			t.Skip("it is not built") // TestPrograms_KilledAtPoints reports why
		}
		h := fnv.New64a()
		h.Write([]byte(p.name))
		p.moments(t, tb, plain, binary, rand.New(rand.NewPCG(seed, h.Sum64())))
	}
	t.Run("long", func(t *testing.T) {
		for _, p := range longPrograms(t) {
			t.Run(p.name, func(t *testing.T) {
				plain := filepath.Join(scratch, "plain-"+p.name)
				if text, err := command(t, p.dir, "go", "build", "-o", plain, p.pkg).CombinedOutput(); err != nil {
					t.Fatalf("go build: %v\n%s", err, text)
				}
				binary, _ := p.buildProtected(t)
				try(t, p, plain, binary)
			})
		}
	})
	t.Run("random", func(t *testing.T) {
		dir := filepath.Join(scratch, "moments")
		packages := make(map[string]string)
		for n := range uint64(batch) {
			name := fmt.Sprint("p", seed%1_000_000+n)
			src, err := Generate(seed%1_000_000+n, name)
			if err != nil {
				t.Fatal(err)
			}
			packages[name] = src
		}
		writeModule(t, dir, packages)
		plain := filepath.Join(scratch, "plain-moments")
		if text, err := command(t, dir, "go", "build", "-o", plain, ".").CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, text)
		}
		binary, said := (&program{name: "moments", dir: dir, pkg: "."}).buildProtected(t)
		if binary == "" {
			t.Skipf("cairn build refuses (TestRandomPrograms_KilledAtPoints tells which of them it is): %s", said)
		}
		for name := range packages {
			t.Run(name, func(t *testing.T) { try(t, &program{name: name, args: []string{name}}, plain, binary) })
		}
	})
	t.Run("all", func(t *testing.T) {
		ps := readPrograms(t, "testdata/progs")
		for _, p := range ps {
			if p.exit == 2 { // kills would count as retries of the panic
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				binary, _ := p.buildProtected(t)
				try(t, p, p.buildPlain(t), binary)
			})
		}
	})
}

// longPrograms returns some programs that run for seconds.
func longPrograms(t *testing.T) []*program {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "examples", "galaxies"))
	if err != nil {
		t.Fatal(err)
	}
	return []*program{
		{name: "galaxies", dir: dir, pkg: ".", args: strings.Fields("-stars 3000 -steps 20000 -every 2000 -path path.txt")},
		{name: "galaxies-small", dir: dir, pkg: ".", args: strings.Fields("-stars 200 -steps 30000 -every 150 -path path.txt")},
	}
}

// moments kills a program at random moments, a few in each run, until there
// were enough, and compares the outcome of each run.
func (p *program) moments(t *testing.T, tb *table, plain, binary string, dice *rand.Rand) {
	t.Helper()
	want := p.plain(t, plain)
	if want.exit != p.exit && p.dir != "" {
		t.Fatalf("the plain program ends with status %d, not %d\n%s", want.exit, p.exit, want.stderr)
	}
	// Measure a run, with checkpoints so often that many moments are in one.
	every := 1
	lasts := func() time.Duration {
		begun := time.Now()
		if d := p.protected(t, binary, protection{every: every}).differs(want); d != "" {
			t.Fatalf("not killed: %s", d)
		}
		return time.Since(begun)
	}
	took := lasts()
	for took > 5*time.Second && every < 1<<20 {
		every *= 4
		took = lasts()
	}
	most := someMoments
	if took > long {
		most = manyMoments
	}
	if s := os.Getenv("CAIRN_MOMENTS"); s != "" {
		most, _ = strconv.Atoi(s)
	}
	kills, wrong := 0, 0
	for tries := 0; kills < most && tries < 4*most && wrong < 3; tries++ {
		var hits []time.Duration
		got := p.protected(t, binary, protection{every: every, during: hit(binary, min(5, most-kills), func() time.Duration {
			var d time.Duration
			if dice.IntN(4) == 0 { // the start, and the reading of a checkpoint
				d = time.Duration(dice.Int64N(int64(30 * time.Millisecond)))
			} else {
				d = time.Duration(dice.Int64N(int64(took + took/10)))
			}
			hits = append(hits, d)
			return d
		})})
		kills += got.kills
		if d := got.differs(want); d != "" {
			wrong++
			t.Errorf("a checkpoint every %d points, killed %d times, at %v after each start: %s\nstderr:\n%s", every, got.kills, hits, d, tail(got.stderr, 3000))
		}
	}
	result := fmt.Sprintf("ok, %v", took.Round(time.Millisecond))
	if wrong > 0 {
		result = fmt.Sprintf("WRONG %d times", wrong)
	}
	tb.add(p, 0, kills, result)
}

// hit kills the process that runs a binary, up to a number of times: each start
// of it after a time that was drawn, if it lives that long.
func hit(binary string, times int, draw func() time.Duration) func(*exec.Cmd, <-chan struct{}) {
	return func(_ *exec.Cmd, ended <-chan struct{}) {
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for last := 0; times > 0; times-- {
			pid := 0
			for pid == 0 {
				select {
				case <-ended:
					return
				case <-look.C:
					pid = running(binary, last)
				}
			}
			select {
			case <-ended:
				return
			case <-time.After(draw()):
			}
			syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			last = pid
		}
	}
}
