package tier_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

func collect(t testing.TB, p *tiertest.Program, m tier.Tier, keep int, retain ...uint64) tier.Collected {
	t.Helper()
	done, err := tier.Collect(t.Context(), m, p.Run, tier.CollectOptions{Keep: keep, Retain: retain})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// TestCollect checks which checkpoints and objects are removed.
func TestCollect(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	m := tiertest.NewMem()
	for range 5 {
		p.Publish(m, p.Save())
	}
	if done := collect(t, p, m, 5); len(done.Checkpoints)+done.Objects > 0 {
		t.Errorf("removed %+v", done)
	}
	done := collect(t, p, m, 2, 1)
	if !slices.Equal(done.Checkpoints, []uint64{2, 3}) || done.Objects != 2*2+2 || done.Bytes == 0 {
		t.Errorf("removed %+v", done)
	}
	all, err := tier.Checkpoints(t.Context(), m, p.Run)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, mf := range all {
		p.Fetchable(m, mf)
	}
	// The file of checkpoint 1 stays as a base.
	if done := collect(t, p, m, 1); done.Objects != 2+2 || count(t, m, p.Run+"/files/rank-0000-00000001") != 1 {
		t.Errorf("removed %+v", done)
	}
	p.Fetchable(m, all[0])
	if n := count(t, m, p.Run+"/"); n != 4+1+1 {
		t.Errorf("left: %v", m.Names())
	}
	collect(t, p, m, 0)
	if got := m.Names(); !slices.Equal(got, []string{"runs/" + p.Run}) {
		t.Errorf("left: %v", got)
	}
	if _, err := tier.Collect(t.Context(), m, "../x", tier.CollectOptions{}); err == nil {
		t.Error("a run that is none")
	}
}

// TestCollect_Abandoned shows that an upload that was killed is given up after
// the grace period, not before, and cannot be committed after that.
func TestCollect_Abandoned(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	m := tiertest.NewMem()
	p.Publish(m, p.Save())
	p.Save()
	up, err := tier.Upload(t.Context(), m, p.Upload(2))
	if err != nil {
		t.Fatal(err)
	}
	before := m.Names()
	m.Advance(tier.DefaultGrace - time.Minute)
	if done := collect(t, p, m, 1); done.Objects+len(done.Abandoned) > 0 || !slices.Equal(m.Names(), before) {
		t.Errorf("too early: %+v", done)
	}
	m.Advance(2 * time.Minute)
	if done := collect(t, p, m, 1); !slices.Equal(done.Abandoned, []uint64{2}) {
		t.Errorf("not given up: %+v", done)
	}
	if _, err := tier.Commit(t.Context(), m, []tier.Uploaded{up}); !errors.Is(err, tier.ErrAbandoned) {
		t.Errorf("commit: %v", err)
	}
	if _, err := tier.Upload(t.Context(), m, p.Upload(2)); !errors.Is(err, tier.ErrAbandoned) {
		t.Errorf("upload: %v", err)
	}
	if done := collect(t, p, m, 1); done.Objects != 2 {
		t.Errorf("its objects stay: %+v", done)
	}
	if got := indexes(t, m, p.Run); !slices.Equal(got, []uint64{1}) {
		t.Errorf("checkpoints %v", got)
	}
	// The tombstone goes when it is older than what is kept.
	p.Save()
	p.Fetchable(m, p.Publish(m, 3))
	collect(t, p, m, 1)
	if n := count(t, m, p.Run+"/checkpoints/"); n != 1 {
		t.Errorf("left: %v", m.Names())
	}
}

// TestCollect_Unreadable shows that nothing is removed if what is to be kept
// cannot be read.
func TestCollect_Unreadable(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	m := tiertest.NewMem()
	for range 3 {
		p.Publish(m, p.Save())
	}
	for _, name := range m.Names() {
		bad := m.Clone()
		bad.Change(name, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		want := slices.Contains([]string{"checkpoints", "parts"}, strings.Split(name, "/")[1])
		if strings.Contains(name, "/parts/00000001") || strings.Contains(name, "/parts/00000002") {
			want = false // they are not to be kept
		}
		before := bad.Names()
		_, err := tier.Collect(t.Context(), bad, p.Run, tier.CollectOptions{Keep: 1})
		if want != errors.Is(err, tier.ErrDamaged) || want && !slices.Equal(before, bad.Names()) {
			t.Errorf("%s: %v", name, err)
		}
		if want && !strings.Contains(err.Error(), "first") {
			t.Errorf("no remedy: %v", err)
		}
	}
	m.Change(m.Names()[0], func([]byte) []byte { return nil })
	if all, err := tier.Checkpoints(t.Context(), m, p.Run); !errors.Is(err, tier.ErrDamaged) || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestCollect_Crash stops a collection at every operation, and lets each
// operation fail in every way: what is kept is whole, and the next collection
// removes the rest.
func TestCollect_Crash(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	base := tiertest.NewMem()
	for range 4 {
		p.Publish(base, p.Save())
	}
	p.Save()
	if _, err := tier.Upload(t.Context(), base, p.Upload(5)); err != nil { // under way, and stale
		t.Fatal(err)
	}
	base.Advance(2 * tier.DefaultGrace)
	want := base.Clone()
	collect(t, p, want, 2)
	collect(t, p, want, 2)
	for _, fault := range append([]tiertest.Fault{tiertest.None}, tiertest.Faults...) { // None: a crash
		for at, end := 1, false; !end; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			m := base.Clone()
			n := 0
			faulty := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
				n++
				switch {
				case n == at && fault == tiertest.Hang:
					cancel()
					return fault
				case n == at && fault != tiertest.None:
					return fault
				case n >= at && fault == tiertest.None:
					return tiertest.Refuse
				}
				return tiertest.None
			})
			_, err := tier.Collect(ctx, faulty, p.Run, tier.CollectOptions{Keep: 2, Parallel: 1})
			cancel()
			end = n < at
			if cerr := complete(m, p.Run); cerr != nil {
				t.Fatalf("%v at operation %d: %v (%v)", fault, at, cerr, err)
			}
			if got := indexes(t, m, p.Run); len(got) < 2 || got[0] != 4 || got[1] != 3 {
				t.Fatalf("%v at operation %d: checkpoints %v", fault, at, got)
			}
			m.Advance(2 * tier.DefaultGrace) // lists of collections that were killed go, too
			collect(t, p, m, 2)
			collect(t, p, m, 2)
			if !slices.Equal(generic(m.Names()), generic(want.Names())) {
				t.Fatalf("%v at operation %d: left\n%s\nwant\n%s", fault, at, strings.Join(m.Names(), "\n"), strings.Join(want.Names(), "\n"))
			}
		}
	}
}

// generic removes tokens from names.
func generic(names []string) (out []string) {
	for _, n := range names {
		if strings.Contains(n, "/condemned/") {
			n = "condemned"
		}
		out = append(out, n)
	}
	return out
}

// TestCollect_Interleaved runs uploads and collections at the same time, one
// operation after the other in random order. Some are killed at random; some
// are stopped for longer than the grace period and continue then. At every
// moment each manifest has all its objects, and each pin its manifest.
func TestCollect_Interleaved(t *testing.T) {
	seeds := 200
	if os.Getenv("CAIRN_LONG") != "" {
		seeds = 20_000
	}
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	const checkpoints = 6
	for i := range checkpoints {
		if i == 3 {
			p.Full() // from here on nobody needs the older files
		}
		p.Save()
	}
	var published, abandoned, removed, pinned, refused int
	for seed := range uint64(seeds) {
		m := tiertest.NewMem()
		p.Publish(m, 1)
		pins := make(map[uint64]bool)
		s := &schedule{m: m, r: rand.New(rand.NewPCG(seed, 1)), wake: make(chan *actor)}
		for index := uint64(2); index <= checkpoints; index++ {
			s.start("upload", func(ctx context.Context, t tier.Tier) error {
				_, err := tier.Publish(ctx, t, p.Upload(index))
				if err == nil {
					published++
				}
				return err
			})
			if s.r.IntN(3) == 0 {
				s.start("pin", func(ctx context.Context, t tier.Tier) error {
					list, err := tier.Checkpoints(ctx, t, p.Run)
					if err != nil || len(list) == 0 {
						return err
					}
					mf := list[len(list)-1] // the oldest
					if _, err = tier.AddPin(ctx, t, mf, fmt.Sprintf("p%d", index)); err == nil {
						pins[mf.Index] = true
						pinned++
					} else if errors.Is(err, tier.ErrNotExist) {
						refused++
					}
					return err
				})
			}
			if s.r.IntN(2) == 0 {
				s.start("collect", func(ctx context.Context, t tier.Tier) error {
					done, err := tier.Collect(ctx, t, p.Run, tier.CollectOptions{Keep: 1 + s.r.IntN(2), Parallel: 1})
					abandoned += len(done.Abandoned)
					removed += done.Objects
					return err
				})
			}
		}
		known := make(map[string][]string)
		check := func() error {
			for index := range pins {
				if _, err := m.Stat(t.Context(), fmt.Sprintf("%s/checkpoints/%08d.json", p.Run, index)); err != nil {
					return fmt.Errorf("checkpoint %d is pinned: %w", index, err)
				}
			}
			return missing(m, p.Run, known)
		}
		if err := s.run(check); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(s.log, "\n"))
		}
	}
	t.Logf("%d published, %d given up, %d objects removed, %d pinned, %d not any more", published, abandoned, removed, pinned, refused)
	if published < seeds || abandoned == 0 || removed == 0 || pinned == 0 || refused == 0 {
		t.Error("the schedules do not try enough")
	}
}

// missing is a fast complete: it looks for names only. known has the objects of
// manifests that were read before.
func missing(m *tiertest.Mem, run string, known map[string][]string) error {
	ctx := context.Background()
	names := m.Names()
	for _, name := range names {
		if !strings.HasPrefix(name, run+"/checkpoints/") {
			continue
		}
		needs, ok := known[name]
		if !ok {
			text, err := tier.ReadAll(ctx, m, name, 1<<20)
			if err != nil {
				return err
			}
			mf, err := tier.ParseManifest(text)
			if err != nil {
				return err
			}
			for i := range mf.Parts {
				part, err := mf.Part(ctx, m, i)
				if err != nil {
					return err
				}
				needs = append(needs, mf.Parts[i].Name)
				for _, f := range part.Ranks[0].Files {
					needs = append(needs, f.Name)
				}
			}
			known[name] = needs
		}
		for _, n := range needs {
			if _, ok := slices.BinarySearch(names, n); !ok {
				return fmt.Errorf("%s needs %s, which is missing", name, n)
			}
		}
	}
	return nil
}

// schedule runs actors so that one operation at a time is done.
type schedule struct {
	m      *tiertest.Mem
	r      *rand.Rand
	actors []*actor
	wake   chan *actor // an actor waits for its next operation, or has ended
	log    []string
}

type actor struct {
	name    string
	s       *schedule
	next    chan bool // false: it is killed
	what    string
	ended   bool
	killed  bool
	stopped int // for so many turns
}

var errKilled = errors.New("killed")

func (s *schedule) start(name string, f func(context.Context, tier.Tier) error) {
	a := &actor{name: fmt.Sprintf("%s %d", name, len(s.actors)), s: s, next: make(chan bool)}
	s.actors = append(s.actors, a)
	go func() {
		a.what = "start"
		a.pause("start")
		err := f(context.Background(), a)
		a.ended = true
		a.what = fmt.Sprint("end: ", err)
		s.wake <- a
	}()
	<-s.wake
}

// pause waits for the actor's turn.
func (a *actor) pause(what string) error {
	if a.killed {
		return errKilled
	}
	a.what = what
	a.s.wake <- a
	if !<-a.next {
		a.killed = true
		return errKilled
	}
	return nil
}

func (s *schedule) run(check func() error) error {
	var a *actor
	for {
		var ready []*actor
		for _, a := range s.actors {
			if !a.ended && a.stopped == 0 {
				ready = append(ready, a)
			}
			a.stopped = max(a.stopped-1, 0)
		}
		if len(ready) == 0 {
			if !slices.ContainsFunc(s.actors, func(a *actor) bool { return !a.ended }) {
				return check()
			}
			continue
		}
		if a == nil || a.ended || s.r.IntN(15) == 0 { // mostly the same as before
			a = ready[s.r.IntN(len(ready))]
		}
		alive := true
		switch s.r.IntN(150) {
		case 0:
			alive = false
		case 1, 2, 3:
			a.stopped = s.r.IntN(300)
			a = nil
			continue
		case 4: // time passes: an upload may sleep so long, a collection may not
			s.m.Advance(tier.DefaultGrace + time.Hour)
			s.log = append(s.log, "a day passes")
			for _, a := range s.actors {
				if strings.HasPrefix(a.name, "collect") && !a.ended && a.what != "start" {
					s.step(a, false)
				}
			}
			continue
		}
		s.step(a, alive)
		if err := check(); err != nil {
			return err
		}
	}
}

func (s *schedule) step(a *actor, alive bool) {
	s.log = append(s.log, fmt.Sprintf("%s: %s, %v", a.name, a.what, alive))
	a.next <- alive
	<-s.wake
	if a.ended {
		s.log = append(s.log, fmt.Sprintf("%s: %s", a.name, a.what))
	}
}

func (a *actor) String() string { return a.name }

func (a *actor) Put(ctx context.Context, name string, src tier.Source) error {
	if err := a.pause("put " + name); err != nil {
		return err
	}
	return a.s.m.Put(ctx, name, src)
}

func (a *actor) Create(ctx context.Context, name string, data []byte) error {
	if err := a.pause("create " + name); err != nil {
		return err
	}
	return a.s.m.Create(ctx, name, data)
}

func (a *actor) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	if err := a.pause("get " + name); err != nil {
		return nil, err
	}
	return a.s.m.Get(ctx, name, offset, n)
}

func (a *actor) Stat(ctx context.Context, name string) (tier.Info, error) {
	if err := a.pause("stat " + name); err != nil {
		return tier.Info{}, err
	}
	return a.s.m.Stat(ctx, name)
}

func (a *actor) List(ctx context.Context, prefix string) iter.Seq2[tier.Info, error] {
	if err := a.pause("list " + prefix); err != nil {
		return func(yield func(tier.Info, error) bool) { yield(tier.Info{}, err) }
	}
	var all []tier.Info // at this moment
	for info := range a.s.m.List(ctx, prefix) {
		all = append(all, info)
	}
	return func(yield func(tier.Info, error) bool) {
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (a *actor) Remove(ctx context.Context, name string) error {
	if err := a.pause("remove " + name); err != nil {
		return err
	}
	return a.s.m.Remove(ctx, name)
}

func (a *actor) Sweep(ctx context.Context, prefix string, before time.Time) error {
	if err := a.pause("sweep " + prefix); err != nil {
		return err
	}
	return a.s.m.Sweep(ctx, prefix, before)
}
