package peer

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// each runs a test with partner=1, partner=2 and rs=2+1, on three hosts.
func each(t *testing.T, f func(t *testing.T, make func() *cluster)) {
	for _, x := range []struct {
		name  string
		other int
		code  [2]int
	}{{"partner=1", 1, [2]int{}}, {"partner=2", 2, [2]int{}}, {"rs=2+1", 0, [2]int{2, 1}}} {
		t.Run(x.name, func(t *testing.T) {
			f(t, func() *cluster { return newCluster(t, 3, x.other, x.code) })
		})
	}
}

// TestKeep_HostsLost copies two checkpoints, loses every host, or every two
// hosts with partner=2, and brings everything to a new one. Then it removes the
// first.
func TestKeep_HostsLost(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		c.startAll()
		for index := uint64(5); index <= 6; index++ {
			for _, n := range c.nodes {
				c.save(n, index, 700_000, 0, 1)
			}
			c.stored(c.nodes...)
		}
		for _, n := range c.nodes {
			c.sound(n)
			c.recoverFrom(6, n)
			if c.other == 2 && c.tier == copies.Partner {
				for _, second := range c.nodes {
					if second != n {
						c.recoverFrom(6, n, second)
					}
				}
			}
		}
		for _, n := range c.nodes {
			n.Retain(map[copies.Tier][]recovery.Checkpoint{c.tier: {n.part.Checkpoint}})
			inv := n.kept.Inventory()
			if slices.ContainsFunc(inv.Parts, func(p recovery.Part) bool { return p.Index != 6 }) {
				t.Errorf("host %s has parts of removed checkpoints", n.name)
			}
			for _, name := range inv.Copies {
				if !slices.ContainsFunc(inv.Parts, func(p recovery.Part) bool {
					return slices.ContainsFunc(p.Objects, func(o recovery.Object) bool { return o.Name == name })
				}) {
					t.Errorf("host %s still has %s", n.name, name)
				}
			}
		}
		c.recoverFrom(6, c.nodes[0])
	})
}

// TestConnection_Cut breaks a connection at every write, in both directions;
// the daily test at every fifth.
func TestConnection_Cut(t *testing.T) {
	step := 5
	if os.Getenv("CAIRN_LONG") != "" {
		step = 1
	}
	each(t, func(t *testing.T, make func() *cluster) {
		for at, end := 1, false; !end; at += step {
			c := make()
			var mu sync.Mutex
			writes := 0
			c.wrap = func(_, _ string, conn net.Conn) net.Conn {
				return &faultyConn{conn, func(int) bool {
					mu.Lock()
					defer mu.Unlock()
					writes++
					return writes == at
				}}
			}
			c.startAll()
			for _, n := range c.nodes {
				c.save(n, 5, 300_000)
			}
			c.stored(c.nodes...)
			mu.Lock()
			end = writes < at
			mu.Unlock()
			for _, n := range c.nodes {
				c.sound(n)
			}
			inv, _ := c.inventory(c.nodes[at%3])
			if s := recovery.Survives(inv, c.nodes[0].part.Checkpoint, 3); !s.Complete {
				t.Errorf("cut at %d: it does not survive the loss of a host", at)
			}
			for _, n := range c.nodes {
				c.lose(n)
			}
		}
	})
}

// TestHost_Lost loses a holder with its disk at some writes of the others, and
// starts another host in its place: it gets what the lost one had.
func TestHost_Lost(t *testing.T) {
	step := 6
	if os.Getenv("CAIRN_LONG") != "" {
		step = 1
	}
	each(t, func(t *testing.T, make func() *cluster) {
		for at, end := 1, false; !end; at += step {
			c := make()
			a, b, third := c.nodes[0], c.nodes[1], c.nodes[2]
			ctx, reached := context.WithCancel(t.Context())
			var mu sync.Mutex
			writes := 0
			c.wrap = func(from, _ string, conn net.Conn) net.Conn {
				return &faultyConn{conn, func(int) bool {
					mu.Lock()
					defer mu.Unlock()
					if writes++; writes == at {
						reached()
					}
					return false
				}}
			}
			c.startAll()
			c.save(a, 5, 300_000)
			c.save(third, 5, 200_000, 100_000)
			c.await("copies", func() bool { return ctx.Err() != nil || c.copied(a) && c.copied(third) })
			end = ctx.Err() == nil
			reached()
			c.lose(b)
			c.setPeers()
			c.start(b) // on an empty disk
			c.setPeers()
			c.await("copies at the new host", func() bool { return c.copied(a) && c.copied(third) })
			c.stored(a, third)
			for _, n := range c.nodes {
				c.sound(n)
				c.lose(n)
			}
		}
	})
}

// copied reports whether other hosts have all that is to be had of a host's
// objects, with its part.
func (c *cluster) copied(n *node) bool {
	objects, parts := 0, 0
	for _, x := range c.nodes {
		if x == n || x.Service == nil {
			continue
		}
		ids, all := x.kept.Have()
		for _, id := range ids {
			if slices.ContainsFunc(n.part.Objects, func(o recovery.Object) bool { return o.Name == id.Object }) {
				objects++
			}
		}
		for _, p := range all {
			if p.Checkpoint == n.part.Checkpoint && p.Rank == n.part.Rank {
				parts++
			}
		}
	}
	return objects >= c.other*len(n.part.Objects) && parts >= c.other
}

// TestHolder_LostIsReplaced: what a lost host held goes to the host in its
// place.
func TestHolder_LostIsReplaced(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		c.startAll()
		for _, n := range c.nodes {
			c.save(n, 5, 300_000)
		}
		c.stored(c.nodes...)
		lost := c.nodes[1]
		c.lose(lost)
		c.mu.Lock()
		clear(c.reports)
		c.mu.Unlock()
		c.start(lost)
		c.setPeers()
		c.await("copies", func() bool { return c.copied(c.nodes[0]) && c.copied(c.nodes[2]) })
		inv, names := c.inventory()
		plan, err := recovery.MakePlan(inv, recovery.Want{Hosts: []string{"a", "b", "c"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := lost.Fetch(t.Context(), names, plan.Fetches); err != nil {
			t.Fatal(err)
		}
		if err := lost.Keep(c.tier, plan.Parts[1:2]); err != nil {
			t.Fatal(err)
		}
		lost.part = plan.Parts[1]
		c.stored(lost)
		c.sound(lost)
		c.recoverFrom(5, c.nodes[0])
	})
}

// TestTransfer_Continues cuts a connection in the middle of a large object: the
// holder asks for the rest only.
func TestTransfer_Continues(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		w := new(watch)
		c.wrap = func(from, _ string, conn net.Conn) net.Conn {
			if from == "a" {
				return conn
			}
			return &watchedConn{conn, w, 0}
		}
		c.startAll()
		c.save(c.nodes[0], 5, 8<<20)
		c.stored(c.nodes[0])
		for _, n := range c.nodes {
			c.sound(n)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.cut || !w.continued {
			t.Errorf("cut: %v, continued: %v", w.cut, w.continued)
		}
	})
}

type watch struct {
	mu             sync.Mutex
	cut, continued bool
}

// watchedConn breaks once, when it has read 3 MiB, and sees whether a Want has
// an offset after that.
type watchedConn struct {
	net.Conn
	*watch
	read int
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.read += n; !w.cut && w.read > 3<<20 {
		w.cut = true
		w.Conn.Close()
		return 0, errCut
	}
	return n, err
}

func (w *watchedConn) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.continued = w.continued || w.cut && bytes.Contains(p, []byte(`"offset":`))
	w.mu.Unlock()
	return w.Conn.Write(p)
}

// TestHolder_Full shows that a full holder is reported, and gets everything
// when it has room again.
func TestHolder_Full(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		for _, n := range c.nodes[1:] {
			c.start(n)
			n.full.Store(true)
		}
		c.start(c.nodes[0])
		c.setPeers()
		c.save(c.nodes[0], 5, 300_000, 1000)
		c.await("trouble", func() bool { return len(c.trouble["a"]) > 2 })
		c.mu.Lock()
		if c.reports["a"][5] == 0 || !strings.Contains(c.trouble["a"][0], "no space") {
			t.Errorf("missing %d, %s", c.reports["a"][5], c.trouble["a"][0])
		}
		for _, n := range c.nodes[1:] {
			n.full.Store(false)
		}
		c.mu.Unlock()
		c.stored(c.nodes[0])
		for _, n := range c.nodes {
			c.sound(n)
		}
		if !c.copied(c.nodes[0]) {
			t.Error("other hosts lack something")
		}
	})
}

// TestHolder_Damaged damages what a holder has: nobody gets it, and the owner
// sends it again.
func TestHolder_Damaged(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		c.startAll()
		a := c.nodes[0]
		c.save(a, 5, 900_000)
		c.stored(a)
		object := a.part.Objects[0]
		var holder *node
		var id copies.ID
		for _, n := range c.nodes[1:] {
			ids, _ := n.kept.Have()
			for _, x := range ids {
				holder, id = n, x
			}
		}
		dir := "/kept/run/files/"
		if id.Data > 0 {
			dir = "/kept/run/shards/"
		}
		if err := holder.mem.Corrupt(dir+id.String(), 123_456, 5); err != nil {
			t.Fatal(err)
		}
		fresh := &node{name: "z"}
		c.start(fresh)
		defer fresh.Close()
		var hosts []Host
		for _, n := range c.nodes {
			hosts = append(hosts, Host{n.name, n.Addresses()})
		}
		fresh.SetPeers(hosts, copies.View{})
		item := recovery.Fetch{To: "z", Object: object, Data: id.Data, Parity: id.Parity}
		names := []string{"a", "b", "c"}
		for i, n := range c.nodes[1:] {
			ids, _ := n.kept.Have()
			if id.Data > 0 {
				item.From = append(item.From, recovery.Source{Store: i + 1, Shard: ids[0].Shard})
			} else if n == holder {
				item.From = []recovery.Source{{Store: i + 1, Shard: -1}}
			}
		}
		err := fresh.Fetch(t.Context(), names, []recovery.Fetch{item})
		var failed *FetchError
		if !errors.As(err, &failed) || !slices.Equal(failed.Damaged, []string{holder.name}) {
			t.Fatalf("damaged bytes were fetched: %+v, %v", failed, err)
		}
		if fresh.kept.Has(copies.ID{Object: object.Name}) {
			t.Fatal("damaged bytes are kept")
		}
		c.await("notice", func() bool { return slices.Contains(c.rotten[holder.name], id) })
		c.await("repair", func() bool {
			missing := c.reports["a"][5]
			return missing == 0 && holder.kept.Has(id)
		})
		c.sound(holder)
		if err := fresh.Fetch(t.Context(), names, []recovery.Fetch{item}); err != nil {
			t.Fatal(err)
		}
		c.sound(fresh)
	})
}

// TestOwner_Damaged damages an object before it is copied: no holder takes it.
// When the owner has fetched it again, it is copied.
func TestOwner_Damaged(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		a := c.nodes[0]
		c.start(a) // nobody is there yet
		c.save(a, 5, 900_000)
		object := a.part.Objects[0]
		spare := &node{name: "s"} // has a copy
		c.start(spare)
		defer spare.Close()
		copyTo(t, a, spare, object)
		if err := a.mem.Corrupt("/kept/run/files/"+object.Name, 600_000, 5); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.nodes[1:] {
			c.start(n)
		}
		c.setPeers()
		c.await("notice", func() bool {
			return slices.Contains(c.rotten["a"], copies.ID{Object: object.Name}) && len(c.trouble["a"]) > 0
		})
		for _, n := range c.nodes {
			if ids, _ := n.kept.Have(); len(ids) > 0 {
				t.Errorf("host %s has %v", n.name, ids)
			}
		}
		var hosts []Host
		for _, n := range append(c.nodes[1:], spare) {
			hosts = append(hosts, Host{n.name, n.Addresses()})
		}
		a.SetPeers(hosts, copies.View{})
		if err := a.Fetch(t.Context(), []string{"s"}, []recovery.Fetch{{To: "a", Object: object, From: []recovery.Source{{Store: 0, Shard: -1}}}}); err != nil {
			t.Fatal(err)
		}
		c.setPeers()
		c.stored(a)
		for _, n := range c.nodes {
			c.sound(n)
		}
	})
}

func copyTo(t *testing.T, from, to *node, o recovery.Object) {
	t.Helper()
	to.SetPeers([]Host{{from.name, from.Addresses()}}, copies.View{})
	if err := to.Fetch(t.Context(), []string{from.name}, []recovery.Fetch{{To: to.name, Object: o, From: []recovery.Source{{Store: 0, Shard: -1}}}}); err != nil {
		t.Fatal(err)
	}
}

// TestFetch_Cut breaks the connection at every write while objects are fetched.
func TestFetch_Cut(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		c.startAll()
		for _, n := range c.nodes {
			c.save(n, 5, 1_500_000)
		}
		c.stored(c.nodes...)
		for at, end := 1, false; !end; at++ {
			var mu sync.Mutex
			writes := 0
			c.wrap = func(from, _ string, conn net.Conn) net.Conn {
				return &faultyConn{conn, func(int) bool {
					mu.Lock()
					defer mu.Unlock()
					if from != "z" {
						return false
					}
					writes++
					return writes == at
				}}
			}
			c.recoverFrom(5, c.nodes[at%3])
			mu.Lock()
			end = writes < at
			mu.Unlock()
		}
	})
}

// TestCheckpoint_OfLostHost brings a real checkpoint of a lost host to another
// one, and loads it.
func TestCheckpoint_OfLostHost(t *testing.T) {
	for _, code := range [][2]int{{}, {2, 1}} {
		mem := vfstest.NewMem()
		prog := tiertest.NewProgram(t, mem, "/run", 1)
		prog.Save()
		index := prog.Save()
		want := tiertest.Load(t, mem, "/run", index, 0)
		c := newCluster(t, 3, 1, code)
		c.startAll()
		for _, n := range c.nodes { // the run has another name here
			n.Close()
			var err error
			if n == c.nodes[0] {
				n.mem = mem
			}
			if n.kept, err = kept.Open(n.mem, "/kept", prog.Run); err != nil {
				t.Fatal(err)
			}
			o := n.Service.o
			o.Kept = n.kept
			if n.Service, err = Serve(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		c.setPeers()
		a := c.nodes[0]
		var err error
		if a.part, err = a.kept.Link(t.Context(), "/run", index, 0, kept.More{}); err != nil {
			t.Fatal(err)
		}
		if err := a.Keep(c.tier, []recovery.Part{a.part}); err != nil {
			t.Fatal(err)
		}
		c.stored(a)
		c.lose(a)
		inv, names := c.inventory()
		plan, err := recovery.MakePlan(inv, recovery.Want{Hosts: []string{"c"}})
		if err != nil {
			t.Fatal(err)
		}
		at := c.nodes[2]
		if err := at.Fetch(t.Context(), names, plan.Fetches); err != nil {
			t.Fatal(err)
		}
		if err := at.mem.Mkdir("/new"); err != nil {
			t.Fatal(err)
		}
		if err := at.kept.Place(t.Context(), "/new", plan.Parts[0]); err != nil {
			t.Fatal(err)
		}
		if got := tiertest.Load(t, at.mem, "/new", index, 0); got.Name != want.Name || !slices.Equal(got.Grid, want.Grid) {
			t.Error("the checkpoint has other values")
		}
	}
}

// TestRetain_Linked: a part that not all ranks may have committed stays until a
// newer checkpoint is retained, or none.
func TestRetain_Linked(t *testing.T) {
	for _, newer := range []bool{true, false} {
		mem := vfstest.NewMem()
		prog := tiertest.NewProgram(t, mem, "/run", 1)
		k, err := kept.Open(mem, "/kept", prog.Run)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Serve(t.Context(), Options{Self: "a", Kept: k, Secret: secret})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var parts []recovery.Part
		for range 3 {
			prog.Full()
			p, err := k.Link(t.Context(), "/run", prog.Save(), 0, kept.More{})
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
		}
		has := func(want ...int) {
			t.Helper()
			for i, p := range parts {
				if got := k.Has(copies.ID{Object: p.Objects[0].Name}); got != slices.Contains(want, i) {
					t.Errorf("part %d is here: %v", i, got)
				}
			}
		}
		if err := s.Keep(copies.Local, parts[:1]); err != nil {
			t.Fatal(err)
		}
		s.Retain(map[copies.Tier][]recovery.Checkpoint{copies.Local: {parts[0].Checkpoint}})
		has(0, 1, 2)
		if !newer {
			s.Retain(nil)
			has()
			continue
		}
		if err := s.Keep(copies.Local, parts[2:]); err != nil {
			t.Fatal(err)
		}
		s.Retain(map[copies.Tier][]recovery.Checkpoint{copies.Local: {parts[2].Checkpoint}})
		has(2)
	}
}

// TestRate shows that an owner sends no faster than it may.
func TestRate(t *testing.T) {
	c := newCluster(t, 2, 1, [2]int{})
	c.rates = map[copies.Tier]int64{copies.Partner: 8 << 20}
	c.startAll()
	begin := time.Now()
	c.save(c.nodes[0], 5, 2<<20)
	c.stored(c.nodes[0])
	if took := time.Since(begin); took < 150*time.Millisecond {
		t.Errorf("2 MiB took %v at 8 MiB per second", took)
	}
}

// TestRecover_DamagedObject damages an object at its owner after it was copied.
// The owner gets it again from copies, or from shards, wherever they are. If
// too little is left, it says so.
func TestRecover_DamagedObject(t *testing.T) {
	each(t, func(t *testing.T, make func() *cluster) {
		c := make()
		c.startAll()
		a := c.nodes[0]
		c.save(a, 5, 900_000)
		c.stored(a)
		object := a.part.Objects[0]
		id := copies.ID{Object: object.Name}
		damage := func() {
			t.Helper()
			if err := a.mem.Corrupt("/kept/run/files/"+object.Name, 600_000, 5); err != nil {
				t.Fatal(err)
			}
			if err := a.Verify(t.Context(), id, nil); !errors.Is(err, tier.ErrDamaged) || a.kept.Has(id) {
				t.Fatalf("it is used although it is damaged: %v", err)
			}
		}
		damage()
		from, err := a.Recover(t.Context(), object, c.code[0], c.code[1])
		if err != nil || len(from) == 0 || slices.Contains(from, "a") {
			t.Fatal(from, err)
		}
		c.sound(a)
		damage()
		for _, n := range c.nodes[1:] {
			n.Close()
		}
		if from, err := a.Recover(t.Context(), object, c.code[0], c.code[1]); err == nil {
			t.Fatalf("it came from %v, which are not there", from)
		}
	})
}
