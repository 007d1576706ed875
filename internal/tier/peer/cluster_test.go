package peer

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/placement"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

const run = "run"

var (
	secret  = []byte(strings.Repeat("s", 32))
	attempt = strings.Repeat("a", 32)
)

// node is a host of a cluster.
type node struct {
	name string
	mem  *vfstest.Mem
	kept *kept.Store
	*Service
	part recovery.Part // of its rank
	full atomic.Bool   // its disk
}

// cluster has some hosts in this process.
type cluster struct {
	t     *testing.T
	tier  copies.Tier
	other int // hosts besides the owner that have something
	code  [2]int
	rates map[copies.Tier]int64
	wrap  func(from, to string, conn net.Conn) net.Conn

	mu      sync.Mutex
	changed *sync.Cond
	nodes   []*node
	reports map[string]map[uint64]int // by host and checkpoint: Missing
	trouble map[string][]string
	rotten  map[string][]copies.ID
}

// newCluster makes hosts a, b, c, …: with partner=other, or with a code.
func newCluster(t *testing.T, hosts int, other int, code [2]int) *cluster {
	t.Helper()
	c := &cluster{t: t, tier: copies.Partner, other: other, code: code, reports: map[string]map[uint64]int{}, trouble: map[string][]string{}, rotten: map[string][]copies.ID{}}
	if code[0] > 0 {
		c.tier, c.other = copies.RS, code[0]+code[1]-1
	}
	c.changed = sync.NewCond(&c.mu)
	for i := range hosts {
		c.nodes = append(c.nodes, &node{name: string(rune('a' + i))})
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if n.Service != nil {
				n.Close()
			}
		}
	})
	return c
}

// start starts the helper of a host. If its disk is nil, it gets an empty one.
func (c *cluster) start(n *node) {
	c.t.Helper()
	if n.mem == nil {
		n.mem = vfstest.NewMem()
	}
	var err error
	var fsys vfs.FS = vfstest.Hook(n.mem, func(op, name string) error {
		if n.full.Load() && (op == "allocate" || op == "write") {
			return syscall.ENOSPC
		}
		return nil
	})
	if n.kept, err = kept.Open(fsys, "/kept", run); err != nil {
		c.t.Fatal(err)
	}
	note := func(f func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		f()
		c.changed.Broadcast()
	}
	o := Options{Self: n.name, Kept: n.kept, Secret: secret, Rates: c.rates, pause: time.Millisecond,
		Report: func(r copies.Report) {
			note(func() {
				if c.reports[n.name] == nil {
					c.reports[n.name] = map[uint64]int{}
				}
				c.reports[n.name][r.Checkpoint.Index] = r.Missing
			})
		},
		Trouble: func(x copies.Trouble) { note(func() { c.trouble[n.name] = append(c.trouble[n.name], x.Why) }) },
		Rotten:  func(r kept.Rotten) { note(func() { c.rotten[n.name] = append(c.rotten[n.name], r.ID) }) },
	}
	if c.wrap != nil {
		o.wrap = func(host string, conn net.Conn) net.Conn { return c.wrap(n.name, host, conn) }
	}
	if n.Service, err = Serve(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
}

// startAll starts all helpers and tells them about each other.
func (c *cluster) startAll() {
	c.t.Helper()
	for _, n := range c.nodes {
		c.start(n)
	}
	c.setPeers()
}

// setPeers does what the supervisor does when hosts come or go.
func (c *cluster) setPeers() {
	var hosts []Host
	var places []placement.Host
	for _, n := range c.nodes {
		if n.Service != nil {
			hosts = append(hosts, Host{n.name, n.Addresses()[len(n.Addresses())-1:]})
			places = append(places, placement.Host{Name: n.name})
		}
	}
	holders := map[string][]string{}
	for _, g := range placement.Groups(nil, places, c.other+1) {
		for host, list := range placement.Holders(g, c.other+1) {
			holders[host] = list
		}
	}
	for _, n := range c.nodes {
		if n.Service != nil {
			n.SetPeers(hosts, copies.View{Holders: map[copies.Tier][]string{c.tier: holders[n.name]}, Data: c.code[0], Parity: c.code[1]})
		}
	}
}

// lose ends a host with its disk.
func (c *cluster) lose(n *node) {
	n.Close()
	n.Service, n.mem = nil, nil
}

// save lets the rank of a host save a checkpoint with objects of these sizes.
func (c *cluster) save(n *node, index uint64, sizes ...int) {
	c.t.Helper()
	rank := int(n.name[0] - 'a')
	n.part = recovery.Part{Checkpoint: recovery.Checkpoint{Index: index, Attempt: attempt}, Rank: rank, Ranks: len(c.nodes), Time: int64(index)}
	for i, size := range sizes {
		rng := rand.New(rand.NewPCG(index, uint64(rank*100+i)))
		data := make([]byte, size)
		for k := range data {
			data[k] = byte(rng.Uint32())
		}
		name := kept.ObjectName(rank, tier.File{Index: index - uint64(i), Header: strings.Repeat("b", 32), Object: tier.Object{Digest: tier.BytesSource(data).Digest}})
		in, err := n.kept.Receive(copies.ID{Object: name}, int64(size))
		if err == nil {
			_, err = in.Write(data)
		}
		if err == nil {
			err = in.Commit(c.t.Context())
		}
		if err != nil {
			c.t.Fatal(err)
		}
		n.part.Objects = append(n.part.Objects, recovery.Object{Name: name, Size: int64(size)})
	}
	if err := n.Keep(c.tier, []recovery.Part{n.part}); err != nil {
		c.t.Fatal(err)
	}
}

// await waits until something is so. Events wake it, and a clock, for what a
// store has is no event.
func (c *cluster) await(what string, is func() bool) {
	c.t.Helper()
	stop := time.AfterFunc(3*time.Minute, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.t.Errorf("waiting for %s: reports %v, trouble %v", what, c.reports, c.trouble)
		c.changed.Broadcast()
	})
	defer stop.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-tick.C:
				c.mu.Lock()
				c.changed.Broadcast()
				c.mu.Unlock()
			case <-done:
				return
			}
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !is() {
		if c.t.Failed() {
			c.t.FailNow()
		}
		c.changed.Wait()
	}
}

// stored waits until the checkpoints of all hosts are stored.
func (c *cluster) stored(nodes ...*node) {
	c.t.Helper()
	c.await("copies", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool {
			missing, told := c.reports[n.name][n.part.Index]
			return n.Service != nil && (!told || missing != 0)
		})
	})
}

// inventory returns what hosts have.
func (c *cluster) inventory(lost ...*node) (*recovery.Inventory, []string) {
	inv := new(recovery.Inventory)
	var names []string
	for _, n := range c.nodes {
		if n.Service == nil || slices.Contains(lost, n) {
			continue
		}
		s := n.kept.Inventory()
		s.Name = n.name
		inv.Stores = append(inv.Stores, s)
		names = append(names, n.name)
	}
	return inv, names
}

// sound checks all that a host has.
func (c *cluster) sound(n *node) {
	c.t.Helper()
	ids, _ := n.kept.Have()
	for _, id := range ids {
		if err := n.kept.Verify(c.t.Context(), id, nil); err != nil {
			c.t.Errorf("host %s: %v", n.name, err)
		}
	}
}

// recoverFrom checks that a checkpoint survives the loss of hosts: it plans,
// and brings the objects of the lost ranks to a new host.
func (c *cluster) recoverFrom(index uint64, lost ...*node) {
	c.t.Helper()
	fresh := &node{name: "z"}
	c.start(fresh)
	defer fresh.Close()
	var hosts []Host
	for _, n := range c.nodes {
		if n.Service != nil && !slices.Contains(lost, n) {
			hosts = append(hosts, Host{n.name, n.Addresses()[len(n.Addresses())-1:]})
		}
	}
	fresh.SetPeers(hosts, copies.View{})
	inv, names := c.inventory(lost...)
	want := recovery.Want{}
	for _, n := range c.nodes {
		at := n.name
		if slices.Contains(lost, n) || n.Service == nil {
			at = fresh.name
		}
		want.Hosts = append(want.Hosts, at)
	}
	plan, err := recovery.MakePlan(inv, want)
	if err != nil || plan == nil || plan.Index != index {
		c.t.Fatalf("after the loss of %d hosts: %+v, %v", len(lost), plan, err)
	}
	if err := fresh.Fetch(c.t.Context(), names, plan.Fetches); err != nil {
		c.t.Fatal(err)
	}
	for rank, at := range want.Hosts {
		for _, o := range plan.Parts[rank].Objects {
			if at == fresh.name && !fresh.kept.Has(copies.ID{Object: o.Name}) {
				c.t.Errorf("%s was not brought", o.Name)
			}
		}
	}
	c.sound(fresh)
}

// faultyConn counts writes, and breaks at one of them, in the middle of it.
type faultyConn struct {
	net.Conn
	before func(n int) (cut bool)
}

var errCut = errors.New("cut")

func (f *faultyConn) Write(p []byte) (int, error) {
	if f.before(len(p)) {
		n, _ := f.Conn.Write(p[:len(p)/2])
		f.Conn.Close()
		return n, errCut
	}
	return f.Conn.Write(p)
}

func tierFile(t *testing.T, data []byte) tier.File {
	t.Helper()
	return tier.File{Index: 5, Header: strings.Repeat("b", 32), Object: tier.Object{Digest: tier.BytesSource(data).Digest}}
}

func newChunk(data []byte) tier.Chunk {
	c := tier.NewChunk(int64(len(data)))
	copy(c.Data(), data)
	return c
}
