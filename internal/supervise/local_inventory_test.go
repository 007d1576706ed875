//go:build linux

package supervise

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// startedOn is the record of a start with homes in directories. Checkpoints of
// attempt x count up to 1, those of y above.
func startedOn(dirs ...string) *control.AttemptRecord {
	a := &control.AttemptRecord{Format: 1, Number: 2, Run: "r", Ranks: len(dirs), Line: []control.Span{{Attempt: "x"}, {Attempt: "y", Above: 1}}}
	for _, d := range dirs {
		a.Homes = append(a.Homes, control.Home{Host: "host " + d, Dir: d})
	}
	return a
}

func dirNamed(id string) *hostDir {
	return &hostDir{"host " + id, &control.HostFiles{ID: id, Dir: "/local", Attempt: startedOn("a", "a")}, []string{id + ":1"}}
}

// TestLocalInventory_EveryState tries every state of two directories, of two
// ranks with two checkpoints: each file is missing, or of either attempt, each
// rank has recorded any line, and has its home in either directory. Without
// CAIRN_LONG=1 it tries one in 37.
func TestLocalInventory_EveryState(t *testing.T) {
	kinds := []string{"", "x", "y"}
	resumed, refused, fresh := 0, 0, 0
	var state [8]int // by directory, rank and checkpoint: what is there
	stride := 37
	if os.Getenv("CAIRN_LONG") == "1" {
		stride = 1
	}
	for n := 0; n < 6561; n += stride {
		for i, k := 0, n; i < len(state); i, k = i+1, k/3 {
			state[i] = k % 3
		}
		for homes := range 4 {
			for lines := range 9 {
				dirs := []*hostDir{dirNamed("a"), dirNamed("b")}
				for i, what := range state {
					if what > 0 {
						d := dirs[i/4]
						d.Parts = append(d.Parts, control.Part{Rank: i / 2 % 2, Index: uint64(i%2 + 1), Attempt: kinds[what], Header: kinds[what]})
					}
				}
				home := []string{string(rune('a' + homes%2)), string(rune('a' + homes/2))}
				at := []uint64{uint64(lines % 3), uint64(lines / 3)}
				for r := range 2 {
					d := dirs[home[r][0]-'a']
					d.Lines = append(d.Lines, control.RankLine{Rank: r, Index: at[r]})
				}
				p := newLocalInventory(2, startedOn(home...), dirs)
				c, err := p.plan(home)
				committed := max(at[0], at[1])
				switch {
				case err != nil:
					refused++
					if committed == 0 {
						t.Fatalf("%v %v %v: it refuses, though nothing was committed: %v", state, home, at, err)
					}
					continue
				case c == nil:
					fresh++
					if committed > 0 {
						t.Fatalf("%v %v %v: it begins anew, though checkpoint %d was complete", state, home, at, committed)
					}
					continue
				}
				resumed++
				if want := kinds[c.Index]; c.Attempt != want {
					t.Fatalf("%v %v %v: checkpoint %d of attempt %s", state, home, at, c.Index, c.Attempt)
				}
				for r := range 2 {
					if dirs[0].part(r, c.Index).Attempt != c.Attempt && dirs[1].part(r, c.Index).Attempt != c.Attempt {
						t.Fatalf("%v %v %v: rank %d has no file of checkpoint %d", state, home, at, r, c.Index)
					}
					if at[r] < committed && !p.good(dirs[0], r, committed) && !p.good(dirs[1], r, committed) && dirs[home[r][0]-'a'].part(r, committed).Index == 0 {
						t.Fatalf("%v %v %v: rank %d's home is an older copy", state, home, at, r)
					}
				}
				for _, run := range [][]string{{"a", "a"}, {"a", "b"}, {"b", "a"}, {"b", "b"}} {
					checkFetches(t, p, run, home)
				}
			}
		}
	}
	t.Logf("%d resumed, %d refused, %d fresh", resumed, refused, fresh)
	if resumed == 0 || refused == 0 || fresh == 0 {
		t.Error("not all results have occurred")
	}
}

// checkFetches checks that after all items, each rank has its file, journal and
// output where it runs.
func checkFetches(t *testing.T, p *localInventory, run, home []string) {
	t.Helper()
	c, err := p.plan(run)
	if err != nil {
		t.Fatal(err)
	}
	items := p.fetches(c, run)
	for r := range run {
		file, own := p.good(p.dirs[run[r]], r, c.Index), home[r] == run[r]
		for _, x := range items[run[r]] {
			if x.Rank != r {
				continue
			}
			if x.Index > 0 && len(x.Addresses) > 0 {
				if file || !p.good(p.dirs[strings.TrimPrefix(x.Host, "host ")], r, c.Index) || x.Index != c.Index || x.Attempt != c.Attempt {
					t.Fatalf("%+v: rank %d gets %+v, has it %v", p.dirs, r, x, file)
				}
				file = true
			}
			if x.Own {
				if own || x.Host != "host "+home[r] {
					t.Fatalf("rank %d gets its own files from %s, home %s, in %s", r, x.Host, home[r], run[r])
				}
				own = true
			}
		}
		if !file || !own {
			t.Fatalf("rank %d in %s with its home in %s: file %v, own files %v: %+v", r, run[r], home[r], file, own, items)
		}
	}
}

// TestLocalInventory_Refusals checks the message for each state of the
// directories that is refused.
func TestLocalInventory_Refusals(t *testing.T) {
	good := func() []*hostDir {
		a, b := dirNamed("a"), dirNamed("b")
		a.Parts, a.Lines = []control.Part{{Rank: 0, Index: 2, Attempt: "y"}, {Rank: 0, Index: 1, Attempt: "x"}}, []control.RankLine{{Rank: 0, Index: 2}}
		b.Parts, b.Lines = []control.Part{{Rank: 1, Index: 2, Attempt: "y"}, {Rank: 1, Index: 1, Attempt: "x"}}, []control.RankLine{{Rank: 1, Index: 2}}
		return []*hostDir{a, b}
	}
	record := startedOn("a", "b")
	for _, c := range []struct {
		name      string
		change    func(p *localInventory)
		why       []string // none: it resumes
		temporary bool
		index     uint64
		skipped   string // why it is not the newest
	}{
		{"whole", func(p *localInventory) {}, nil, false, 2, ""},
		{"quarantined", func(p *localInventory) { p.avoid = []uint64{2} }, nil, false, 1, ""},
		{"unreachable", func(p *localInventory) { delete(p.dirs, "b"); p.down["host b"] = errors.New("no route") }, []string{"rank 1", "host b", "no route"}, true, 0, ""},
		{"blank", func(p *localInventory) {
			delete(p.dirs, "b")
			p.dirs["new"] = &hostDir{"host b", &control.HostFiles{ID: "new", Dir: "/local"}, nil}
		}, []string{"rank 1", "/local", "host b", "is blank"}, false, 0, ""},
		{"unknown", func(p *localInventory) { delete(p.dirs, "b") }, []string{"no host has the directory that rank 1 had on host b"}, false, 0, ""},
		{"older copy", func(p *localInventory) {
			p.dirs["b"].Parts, p.dirs["b"].Lines = p.dirs["b"].Parts[1:], []control.RankLine{{Rank: 1, Index: 1}}
		},
			[]string{"/local on host b", "an older copy", "checkpoint 2"}, false, 0, ""},
		{"lost file", func(p *localInventory) { p.dirs["b"].Parts = p.dirs["b"].Parts[1:] }, nil, false, 1, "rank 1: its part is stored nowhere; host b had it"},
		{"all files lost", func(p *localInventory) { p.dirs["b"].Parts = nil }, []string{"checkpoint 2", "rank 1: its part is stored nowhere; host b had it"}, false, 0, ""},
		{"damaged", func(p *localInventory) { p.dirs["b"].Parts[0].Error = "bad block" }, nil, false, 1, "checkpoint 2: rank 1's file on host b cannot be loaded: bad block"},
		{"both damaged", func(p *localInventory) {
			p.dirs["b"].Parts[0].Error = "bad block"
			p.damaged[copyOf{"a", 0, 1}] = "cannot be read"
		}, []string{"rank 1's file on host b cannot be loaded: bad block"}, false, 0, ""},
		{"the supervisor knows a newer one", func(p *localInventory) { p.last = 3 }, []string{"older copy", "checkpoint 3"}, false, 0, ""},
		{"other ranks", func(p *localInventory) { p.ranks = 3 }, []string{"2 ranks", "3"}, false, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newLocalInventory(2, record, good())
			c.change(p)
			got, err := p.plan([]string{"a", "b", "c"}[:p.ranks])
			if c.why == nil {
				if err != nil || got.Index != c.index {
					t.Errorf("%+v, %v; want checkpoint %d", got, err, c.index)
				}
				if got != nil && !strings.Contains(p.skipped(got), c.skipped) {
					t.Errorf("%q does not say %q", p.skipped(got), c.skipped)
				}
				return
			}
			var r *refusal
			if !errors.As(err, &r) || r.temporary != c.temporary {
				t.Fatalf("%+v, %v", got, err)
			}
			for _, text := range c.why {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v\ndoes not say %q", err, text)
				}
			}
		})
	}
}

// TestLocalInventory_Place puts ranks to their homes as far as there is room,
// with and without a checkpoint.
func TestLocalInventory_Place(t *testing.T) {
	for _, c := range []struct {
		homes string // of the ranks, a letter each
		dirs  string
		slots []int
		want  [][]int
	}{
		{"", "ab", []int{2, 2}, [][]int{{0, 1}, {2, 3}}},
		{"aabb", "ab", []int{2, 2}, [][]int{{0, 1}, {2, 3}}},
		{"aabb", "ba", []int{2, 2}, [][]int{{2, 3}, {0, 1}}},
		{"aabb", "ca", []int{2, 2}, [][]int{{2, 3}, {0, 1}}},
		{"aabb", "ab", []int{3, 1}, [][]int{{0, 1, 3}, {2}}},
		{"aabb", "a", []int{4}, [][]int{{0, 1, 2, 3}}},
		{"aabb", "aa", []int{2, 2}, [][]int{{0, 1}, {2, 3}}}, // two hosts with one directory
		{"aabb", "ab", []int{1, 2}, nil},
	} {
		for _, saved := range []bool{false, true} { // a checkpoint, as far as homes are there
			var dirs []*hostDir
			for _, id := range strings.Split(c.dirs, "") {
				d := dirNamed(id)
				d.Attempt = nil
				for r := range len(c.homes) {
					if saved && c.homes[r:r+1] == id {
						d.Parts = append(d.Parts, control.Part{Rank: r, Index: 1, Attempt: "x"})
					}
				}
				dirs = append(dirs, d)
			}
			p := newLocalInventory(4, nil, dirs)
			if c.homes != "" {
				p.record = startedOn(strings.Split(c.homes, "")...)
			}
			if got := p.place(c.slots, strings.Split(c.dirs, "")); !slices.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("homes %s, hosts %s %v: %v, want %v", c.homes, c.dirs, c.slots, got, c.want)
			}
		}
	}
}

// TestAttemptRecord_Next goes back to an older checkpoint: newer ones do not
// count any more, even if they appear again.
func TestAttemptRecord_Next(t *testing.T) {
	a := (&control.AttemptRecord{Run: "r", Ranks: 1}).Next(0, "x")
	if !a.Counts(13, "x") || a.Counts(13, "y") {
		t.Errorf("%+v", a)
	}
	b := a.Next(12, "y")
	for _, c := range []struct {
		index   uint64
		attempt string
		want    bool
	}{{11, "x", true}, {12, "x", true}, {13, "x", false}, {12, "y", false}, {14, "y", true}} {
		if got := b.Counts(c.index, c.attempt); got != c.want {
			t.Errorf("checkpoint %d of %s counts: %v", c.index, c.attempt, got)
		}
	}
	if d := b.Next(0, "z"); len(d.Line) != 1 || d.Counts(1, "x") || !d.Counts(1, "z") || d.Number != 3 {
		t.Errorf("%+v", d)
	}
}
