package coord

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// randomScenario makes a program that ends by itself: it is written down in
// the order of one possible run.
func randomScenario(rng *rand.Rand) *scenario {
	n := 2 + rng.IntN(15)
	texts := make([]strings.Builder, n)
	wild := make([]bool, n)
	for i := range wild {
		wild[i] = rng.IntN(4) == 0
	}
	type inflight struct{ from, to int }
	var air []inflight
	// Points in step, skewed ones, or anywhere.
	style := rng.IntN(3)
	for range 20 + rng.IntN(20*n) {
		i, j := rng.IntN(n), rng.IntN(n)
		switch k := rng.IntN(10); {
		case k == 0 && style == 0:
			for r := range texts {
				texts[r].WriteString("p ")
			}
		case k < 2 && style > 0:
			texts[i].WriteString("p ")
		case k < 6 && i != j:
			fmt.Fprintf(&texts[i], "s%d ", j)
			air = append(air, inflight{i, j})
		case len(air) > 0:
			f := air[0]
			air = air[1:]
			if wild[f.to] {
				texts[f.to].WriteString("a ")
			} else {
				fmt.Fprintf(&texts[f.to], "r%d ", f.from)
			}
		}
	}
	sc := &scenario{cfg: Config{Arity: 1 + rng.IntN(4)}, errs: "CFL", offs: "CFLS"}
	sc.cfg.trustWaves = rng.IntN(8) == 0
	if rng.IntN(4) == 0 {
		sc.cfg.MaxReleases = []int{-1, 1, 2}[rng.IntN(3)]
	}
	for r := range texts {
		if style == 1 { // as many points for all, at different places
			for range 40 - strings.Count(texts[r].String(), "p") {
				texts[r].WriteString("p ")
			}
		}
		sc.scripts = append(sc.scripts, texts[r].String())
	}
	for range rng.IntN(6) {
		a := string(rune('0' + rng.IntN(min(n, 10))))
		switch rng.IntN(6) {
		case 0:
			a += "!"
		case 1, 2, 3:
			a += "m"
		}
		sc.asks = append(sc.asks, a)
	}
	for i := range n {
		if rng.IntN(2) == 0 {
			sc.swap += string(rune('0' + i))
		}
	}
	if rng.IntN(2) == 0 {
		sc.cfg.Every = 1 + rng.Uint64N(4)
		// Not for skewed points, where a spatial checkpoint means
		// nothing.
		sc.cfg.Spatial = style == 0 && rng.IntN(2) == 0
	}
	if rng.IntN(5) == 0 {
		sc.deaths = 1 + rng.IntN(2)
	}
	if rng.IntN(5) == 0 {
		sc.fail = fmt.Sprintf("%d:%d", rng.IntN(3), rng.IntN(n))
	}
	return sc
}

// walk runs one scenario to its end in random order.
func walk(sc *scenario, rng *rand.Rand) (*world, error) {
	w := newWorld(sc)
	// Some events are slow in some walks, so that ranks and messages differ
	// more than they would by chance.
	slow, slowRank := "sdcowmn"[rng.IntN(7)], rng.IntN(len(w.ranks))
	var buf []event
	for steps := 0; ; steps++ {
		buf = w.events(buf[:0])
		if w.isEnd(buf) {
			return w, w.end()
		}
		if steps > 1_000_000 {
			return w, fmt.Errorf("no end after %d steps", steps)
		}
		e := buf[rng.IntN(len(buf))]
		for range 4 {
			if e.kind == slow || e.rank == slowRank || e.kind == 'x' || e.kind == 'a' {
				e = buf[rng.IntN(len(buf))]
			}
		}
		if err := w.happen(w.ranks[e.rank], e); err != nil {
			return w, err
		}
	}
}

// TestRandomWalks follows random orders of events in random worlds. They must
// contain checkpoints, moves, and what is called off.
func TestRandomWalks(t *testing.T) {
	walks := 400
	if testing.Short() {
		walks = 100
	}
	if stress() {
		walks = 100_000
	}
	indices, off, stops, moves := 0, 0, 0, 0
	offs := ""
	for seed := range uint64(walks) {
		rng := rand.New(rand.NewPCG(seed, 1))
		sc := randomScenario(rng)
		w, err := walk(sc, rng)
		if err != nil {
			t.Fatalf("seed %d: %v\nscripts %q\nasks %q, %+v", seed, err, sc.scripts, sc.asks, sc.cfg)
		}
		indices += w.saves
		moves += w.moves()
		offs = addLetters(offs, w.offs)
		if w.off != "" {
			off++
		}
		if w.ranks[0].status == stopped {
			stops++
		}
	}
	t.Logf("%d walks: %d checkpoints, %d with something called off, %d stopped, %d moves, none because of %q", walks, indices, off, stops, moves, offs)
	if indices == 0 || off == 0 || stops == 0 || moves == 0 || offs != "CFLS" && !testing.Short() {
		t.Error("the walks show nothing")
	}
}
