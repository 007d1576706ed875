package copies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// Tier is a tier on hosts.
type Tier string

// The tiers on hosts.
const (
	Local   Tier = "local" // the owner's own disk; nothing is copied
	Partner Tier = "partner"
	RS      Tier = "rs"
)

// Config is what a Node has to know.
type Config struct {
	Self string // this host
	// Window is how many objects are offered to a host at the same time, and
	// Incoming how many are received by this one; 0: 2 and 4.
	Window, Incoming int
}

// View says which hosts are holders for this host. It comes from the
// supervisor.
type View struct {
	Holders map[Tier][]string
	Data    int // of RS
	Parity  int
}

// Node is one host's side of the protocol. It is not safe for concurrent use.
type Node struct {
	cfg  Config
	view View
	up   map[string]bool // hosts that are connected
	out  []Action

	own   map[PartID]recovery.Part // of this host's ranks
	kept  []*keep                  // checkpoints to store on tiers, in order
	peers map[string]*peer

	have     map[ID]bool            // on this disk
	parts    map[PartID][]ID        // on this disk, with the objects that they need here
	claims   map[ID][]claim         // offered since the node was made
	incoming map[ID]string          // being received, from whom
	waiting  []offer                // offers that wait
	writing  map[PartID][]partOffer // parts being written, and who offered them
}

// keep is a checkpoint that is to be on a tier.
type keep struct {
	tier       Tier
	checkpoint recovery.Checkpoint
	parts      []recovery.Part
	reported   int // the last Missing; -1: none
}

// peer is what is known about another host.
type peer struct {
	stored map[ID]bool
	asked  map[ID]ask
	failed map[ID]bool // waits for Again
	parts  map[partOn]partState
}

// partOn is a part on a tier.
type partOn struct {
	id   PartID
	tier Tier
}

// partState is what is known about a part at a holder; 0: nothing.
type partState int

const (
	partSent partState = iota + 1
	partStored
	partUnsure   // it was stored; the connection was broken since
	partChecking // … and the holder was asked whether it still is
	partFailed   // waits for Again
)

// ask is the state of an Offer.
type ask int

const (
	offered ask = iota + 1
	sending
)

type claim struct {
	tier       Tier
	checkpoint recovery.Checkpoint
}

type offer struct {
	from string
	id   ID
	size int64
}

type partOffer struct {
	from string // "": nobody waits for the answer
	tier Tier
	ids  []ID
}

// New returns a Node of a host whose disk has these objects, shards and parts.
func New(cfg Config, have []ID, parts []recovery.Part) *Node {
	cfg.Window, cfg.Incoming = cmp.Or(cfg.Window, 2), cmp.Or(cfg.Incoming, 4)
	n := &Node{cfg: cfg, up: map[string]bool{}, own: map[PartID]recovery.Part{}, peers: map[string]*peer{},
		have: map[ID]bool{}, parts: map[PartID][]ID{}, claims: map[ID][]claim{}, incoming: map[ID]string{}, writing: map[PartID][]partOffer{}}
	for _, id := range have {
		n.have[id] = true
	}
	for i := range parts { // whatever there is of its objects belongs to it
		p := &parts[i]
		needs := []ID{}
		for _, id := range have {
			if slices.ContainsFunc(p.Objects, func(o recovery.Object) bool { return o.Name == id.Object }) {
				needs = append(needs, id)
			}
		}
		n.parts[partID(p)] = needs
	}
	return n
}

// Take returns the actions since the last call.
func (n *Node) Take() []Action {
	out := n.out
	n.out = nil
	return out
}

func (n *Node) emit(a Action)                   { n.out = append(n.out, a) }
func (n *Node) send(to string, m Message)       { n.emit(Send{to, m}) }
func (n *Node) answer(to string, k Kind, id ID) { n.send(to, Message{Kind: k, ID: id}) }

// peer returns what is known about a host.
func (n *Node) peer(name string) *peer {
	p := n.peers[name]
	if p == nil {
		p = &peer{map[ID]bool{}, map[ID]ask{}, map[ID]bool{}, map[partOn]partState{}}
		n.peers[name] = p
	}
	return p
}

// forget forgets the parts in a state.
func (p *peer) forget(s partState) {
	maps.DeleteFunc(p.parts, func(_ partOn, now partState) bool { return now == s })
}

// SetView says which hosts are holders for this host from now on.
func (n *Node) SetView(v View) {
	n.view = v
	n.pump()
}

// Up says that a host is connected.
func (n *Node) Up(host string) {
	n.up[host] = true
	n.pump()
}

// Down says that the connection to a host is broken. What was on its way, both
// ways, is lost.
func (n *Node) Down(host string) {
	delete(n.up, host)
	if p := n.peers[host]; p != nil {
		clear(p.asked)
		p.forget(partSent)
		for on, s := range p.parts { // a Gone may have been lost, or the disk
			if s == partStored || s == partChecking {
				p.parts[on] = partUnsure
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(n.incoming), compareIDs) {
		if n.incoming[id] == host {
			delete(n.incoming, id)
			n.emit(Abort{id})
		}
	}
	n.waiting = slices.DeleteFunc(n.waiting, func(o offer) bool { return o.from == host })
	for _, list := range n.writing {
		for i := range list {
			if list[i].from == host {
				list[i].from = ""
			}
		}
	}
	n.grant()
	n.pump()
}

func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Data, b.Data), cmp.Compare(a.Parity, b.Parity))
}

// Keep says that a checkpoint is to be stored on a tier. This host has these
// parts of it, with all their objects.
func (n *Node) Keep(t Tier, parts []recovery.Part) {
	if len(parts) == 0 {
		return
	}
	for _, p := range parts {
		n.own[partID(&p)] = p
		var needs []ID
		for _, o := range p.Objects {
			id := ID{Object: o.Name}
			n.have[id] = true
			needs = append(needs, id)
		}
		n.parts[partID(&p)] = merge(n.parts[partID(&p)], needs)
	}
	c := parts[0].Checkpoint
	if t == Local || slices.ContainsFunc(n.kept, func(k *keep) bool { return k.tier == t && k.checkpoint == c }) {
		return
	}
	n.kept = append(n.kept, &keep{t, c, slices.Clone(parts), -1})
	n.pump()
}

// merge returns all IDs of both lists.
func merge(a, b []ID) []ID {
	out := slices.Clone(a)
	for _, id := range b {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// goal is what one holder is to have of a part.
type goal struct {
	host string
	ids  []ID
}

// goals returns what holders are to have of a part on a tier.
func (n *Node) goals(t Tier, p *recovery.Part) []goal {
	var out []goal
	holders := n.view.Holders[t]
	if t == Partner {
		for _, h := range holders {
			g := goal{host: h}
			for _, o := range p.Objects {
				g.ids = merge(g.ids, []ID{{Object: o.Name}})
			}
			out = append(out, g)
		}
		return out
	}
	if len(holders) == 0 || n.view.Data == 0 {
		return nil
	}
	for _, h := range holders {
		out = append(out, goal{host: h})
	}
	for _, o := range p.Objects {
		for number, at := range n.spread(o.Name, holders) {
			if number > 0 { // the owner has the object itself
				out[at].ids = merge(out[at].ids, []ID{{o.Name, number, n.view.Data, n.view.Parity}})
			}
		}
	}
	return slices.DeleteFunc(out, func(g goal) bool { return len(g.ids) == 0 })
}

// spread returns, by number of the shard, the index of the holder that is to
// have it. A shard stays where it is; the others go to the holders that have
// fewest. If there are too few holders, some get several.
func (n *Node) spread(object string, holders []string) []int {
	at := make([]int, n.view.Data+n.view.Parity)
	load := make([]int, len(holders))
	most := (len(at) - 1 + len(holders) - 1) / len(holders)
	for number := range at {
		at[number] = -1
		id := ID{object, number, n.view.Data, n.view.Parity}
		for i, h := range holders {
			if p := n.peers[h]; number > 0 && p != nil && (p.stored[id] || p.asked[id] != 0) && load[i] < most {
				at[number] = i
				load[i]++
				break
			}
		}
	}
	for number := 1; number < len(at); number++ {
		if at[number] < 0 {
			least := 0
			for i := range load {
				if load[i] < load[least] {
					least = i
				}
			}
			at[number] = least
			load[least]++
		}
	}
	return at
}

// pump offers what holders lack, and reports changes.
func (n *Node) pump() {
	for _, k := range n.kept {
		missing, unsure := 0, 0
		for i := range k.parts {
			goals := n.goals(k.tier, &k.parts[i])
			if len(goals) == 0 {
				missing++ // this host has no holders
			}
			for _, g := range goals {
				m, u := n.advance(k, &k.parts[i], g)
				missing, unsure = missing+m, unsure+u
			}
		}
		if missing == 0 && unsure > 0 && k.reported != 0 {
			continue // the holder will tell
		}
		if missing != k.reported && (missing == 0 || k.reported <= 0) {
			n.emit(Report{k.tier, k.checkpoint, missing})
			k.reported = missing
		}
	}
}

// advance brings a holder closer to its goal. It returns how many objects and
// parts the holder lacks, and how many it may lack.
func (n *Node) advance(k *keep, part *recovery.Part, g goal) (missing, unsure int) {
	if g.host == n.cfg.Self {
		return 1, 0 // a mistake of the view: this is no copy
	}
	p := n.peer(g.host)
	for _, id := range g.ids {
		if p.stored[id] {
			continue
		}
		missing++
		if n.up[g.host] && p.asked[id] == 0 && !p.failed[id] && len(p.asked) < n.cfg.Window {
			p.asked[id] = offered
			n.send(g.host, Message{Kind: Offer, ID: id, Size: sizeOf(part, id.Object), Checkpoint: k.checkpoint})
		}
	}
	if missing > 0 {
		return missing + 1, 0
	}
	on := partOn{partID(part), k.tier}
	state := p.parts[on]
	if n.up[g.host] && (state == 0 || state == partUnsure) {
		p.parts[on] = partSent
		if state == partUnsure {
			p.parts[on] = partChecking
		}
		part := *part
		n.send(g.host, Message{Kind: PartOffer, Part: &part, Tier: k.tier, IDs: g.ids})
	}
	switch state {
	case partStored:
		return 0, 0
	case partUnsure, partChecking:
		return 0, 1
	}
	return 1, 0
}

func sizeOf(p *recovery.Part, object string) int64 {
	for _, o := range p.Objects {
		if o.Name == object {
			return o.Size
		}
	}
	return 0
}

// Again tries again what holders could not store.
func (n *Node) Again() {
	for _, p := range n.peers {
		clear(p.failed)
		p.forget(partFailed)
	}
	n.pump()
}

// Receive handles a message of a connected host.
func (n *Node) Receive(from string, m Message) error {
	if err := m.Check(); err != nil {
		return fmt.Errorf("host %s: %w", from, err)
	}
	switch m.Kind {
	case Offer:
		n.offer(from, m)
	case Withdraw:
		n.waiting = slices.DeleteFunc(n.waiting, func(o offer) bool { return o.from == from && o.id == m.ID })
		if n.incoming[m.ID] == from {
			delete(n.incoming, m.ID)
			n.emit(Abort{m.ID})
			n.grant()
		}
	case PartOffer:
		n.partOffer(from, m)
	default:
		n.answered(from, m)
		n.pump()
	}
	return nil
}

// answered handles what a holder says.
func (n *Node) answered(from string, m Message) {
	p := n.peer(from)
	switch m.Kind {
	case Want:
		size, needed := n.needed(m.ID)
		if p.asked[m.ID] != offered || !needed {
			delete(p.asked, m.ID)
			n.answer(from, Withdraw, m.ID)
			return
		}
		p.asked[m.ID] = sending
		n.emit(Transfer{from, m.ID, size})
	case Have, Stored:
		delete(p.asked, m.ID)
		delete(p.failed, m.ID)
		p.stored[m.ID] = true
	case Failed:
		if m.Tier != "" {
			p.parts[partOn{m.Of, m.Tier}] = partFailed
		} else {
			delete(p.asked, m.ID)
			p.failed[m.ID] = true
		}
		n.emit(Trouble{Peer: from, ID: m.ID, Of: m.Of, Tier: m.Tier, Why: m.Why})
		n.emit(Later{})
	case PartStored:
		p.parts[partOn{m.Of, m.Tier}] = partStored
	case Lacks:
		delete(p.parts, partOn{m.Of, m.Tier})
		for _, id := range m.IDs {
			delete(p.stored, id)
		}
	case Gone:
		delete(p.stored, m.ID)
	}
}

// needed reports whether something is still to be copied, and the size of the
// object.
func (n *Node) needed(id ID) (size int64, ok bool) {
	for _, k := range n.kept {
		for i := range k.parts {
			for _, o := range k.parts[i].Objects {
				if o.Name == id.Object && (k.tier == RS) == (id.Data > 0) {
					return o.Size, true
				}
			}
		}
	}
	return 0, false
}
