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

// TestLocalPlan_All tries every state of two directories, of two ranks with two
// checkpoints: each file is missing, or of either attempt, each rank has recorded
// any line, and has its home in either directory. Without CAIRN_LONG=1 it tries
// one in eleven.
func TestLocalPlan_All(t *testing.T) {
	kinds := []string{"", "x", "y"}
	resumed, refused, fresh := 0, 0, 0
	var state [8]int // by directory, rank and checkpoint: what is there
	stride := 11
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
						d.Parts = append(d.Parts, control.Part{Rank: i / 2 % 2, Index: uint64(i%2 + 1), Attempt: kinds[what]})
					}
				}
				home := []string{string(rune('a' + homes%2)), string(rune('a' + homes/2))}
				at := []uint64{uint64(lines % 3), uint64(lines / 3)}
				for r := range 2 {
					d := dirs[home[r][0]-'a']
					d.Lines = append(d.Lines, control.RankLine{Rank: r, Index: at[r]})
				}
				p := newLocalPlan(2, startedOn(home...), dirs)
				c, err := p.choose()
				committed := max(at[0], at[1])
				switch {
				case err != nil:
					refused++
					if committed == 0 {
						t.Fatalf("%v %v %v: it refuses, though nothing was committed: %v", state, home, at, err)
					}
					continue
				case c.index == 0:
					fresh++
					if committed > 0 {
						t.Fatalf("%v %v %v: it begins anew, though checkpoint %d was complete", state, home, at, committed)
					}
					continue
				}
				resumed++
				if want := kinds[c.index]; c.attempt != want {
					t.Fatalf("%v %v %v: checkpoint %d of attempt %s", state, home, at, c.index, c.attempt)
				}
				for r := range 2 {
					if dirs[0].part(r, c.index).Attempt != c.attempt && dirs[1].part(r, c.index).Attempt != c.attempt {
						t.Fatalf("%v %v %v: rank %d has no file of checkpoint %d", state, home, at, r, c.index)
					}
					if at[r] < committed && len(p.sources(r, committed)) == 0 && dirs[home[r][0]-'a'].part(r, committed).Index == 0 {
						t.Fatalf("%v %v %v: rank %d's home is an older copy", state, home, at, r)
					}
				}
				for _, run := range [][]string{{"a", "a"}, {"a", "b"}, {"b", "a"}, {"b", "b"}} {
					checkFetches(t, p, c, run, home)
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
func checkFetches(t *testing.T, p *localPlan, c *localChoice, run, home []string) {
	t.Helper()
	items := p.fetches(c, run)
	for r := range run {
		file, own := p.has(run[r], r, c.index), home[r] == run[r]
		for _, x := range items[run[r]] {
			if x.Rank != r {
				continue
			}
			if x.Index > 0 && len(x.Addresses) > 0 {
				if file || !p.has(strings.TrimPrefix(x.Host, "host "), r, c.index) || x.Index != c.index || x.Attempt != c.attempt {
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

func TestLocalPlan_Refusals(t *testing.T) {
	good := func() []*hostDir {
		a, b := dirNamed("a"), dirNamed("b")
		a.Parts, a.Lines = []control.Part{{Rank: 0, Index: 2, Attempt: "y"}, {Rank: 0, Index: 1, Attempt: "x"}}, []control.RankLine{{Rank: 0, Index: 2}}
		b.Parts, b.Lines = []control.Part{{Rank: 1, Index: 2, Attempt: "y"}, {Rank: 1, Index: 1, Attempt: "x"}}, []control.RankLine{{Rank: 1, Index: 2}}
		return []*hostDir{a, b}
	}
	record := startedOn("a", "b")
	for _, c := range []struct {
		name      string
		change    func(p *localPlan)
		why       []string // none: it resumes
		temporary bool
		index     uint64
	}{
		{"whole", func(p *localPlan) {}, nil, false, 2},
		{"quarantined", func(p *localPlan) { p.avoid = []uint64{2} }, nil, false, 1},
		{"unreachable", func(p *localPlan) { delete(p.dirs, "b"); p.down["host b"] = errors.New("no route") }, []string{"rank 1", "host b", "no route"}, true, 0},
		{"blank", func(p *localPlan) {
			delete(p.dirs, "b")
			p.dirs["new"] = &hostDir{"host b", &control.HostFiles{ID: "new", Dir: "/local"}, nil}
		}, []string{"rank 1", "/local", "host b", "is blank"}, false, 0},
		{"unknown", func(p *localPlan) { delete(p.dirs, "b") }, []string{"no host has the directory that rank 1 had on host b"}, false, 0},
		{"older copy", func(p *localPlan) {
			p.dirs["b"].Parts, p.dirs["b"].Lines = p.dirs["b"].Parts[1:], []control.RankLine{{Rank: 1, Index: 1}}
		},
			[]string{"/local on host b", "an older copy", "checkpoint 2"}, false, 0},
		{"lost file", func(p *localPlan) { p.dirs["b"].Parts = p.dirs["b"].Parts[1:] }, nil, false, 1},
		{"all files lost", func(p *localPlan) { p.dirs["b"].Parts = nil }, []string{"checkpoint 2", "rank 1's file is not on host b"}, false, 0},
		{"damaged", func(p *localPlan) { p.dirs["b"].Parts[0].Error = "bad block" }, nil, false, 1},
		{"both damaged", func(p *localPlan) {
			p.dirs["b"].Parts[0].Error = "bad block"
			p.damaged[copyOf{"a", 0, 1}] = "cannot be read"
		}, []string{"rank 1's file on host b cannot be loaded: bad block"}, false, 0},
		{"the supervisor knows a newer one", func(p *localPlan) { p.last = 3 }, []string{"older copy", "checkpoint 3"}, false, 0},
		{"other ranks", func(p *localPlan) { p.ranks = 3 }, []string{"2 ranks", "3"}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newLocalPlan(2, record, good())
			c.change(p)
			got, err := p.choose()
			if c.why == nil {
				if err != nil || got.index != c.index {
					t.Errorf("%+v, %v; want checkpoint %d", got, err, c.index)
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

// TestLocalPlan_Place puts ranks to their homes as far as there is room.
func TestLocalPlan_Place(t *testing.T) {
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
		p := &localPlan{ranks: 4}
		if c.homes != "" {
			p.record = startedOn(strings.Split(c.homes, "")...)
		}
		if got := p.placeAtHome(c.slots, strings.Split(c.dirs, "")); !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("homes %s, hosts %s %v: %v, want %v", c.homes, c.dirs, c.slots, got, c.want)
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
