package copies

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// offer handles an Offer: this host is a holder.
func (n *Node) offer(from string, m Message) {
	t := Partner
	if m.ID.Data > 0 {
		t = RS
	}
	if c := (claim{t, m.Checkpoint}); !slices.Contains(n.claims[m.ID], c) {
		n.claims[m.ID] = append(n.claims[m.ID], c)
	}
	if n.have[m.ID] {
		n.answer(from, Have, m.ID)
		return
	}
	n.waiting = append(n.waiting, offer{from, m.ID, m.Size})
	n.grant()
}

// grant accepts offers as long as there is room for more.
func (n *Node) grant() {
	for i := 0; i < len(n.waiting) && len(n.incoming) < n.cfg.Incoming; {
		o := n.waiting[i]
		if _, busy := n.incoming[o.id]; busy { // another host is sending it
			i++
			continue
		}
		n.waiting = slices.Delete(n.waiting, i, i+1)
		if n.have[o.id] {
			n.answer(o.from, Have, o.id)
			continue
		}
		n.incoming[o.id] = o.from
		n.emit(Expect{o.from, o.id, o.size})
		n.answer(o.from, Want, o.id)
	}
}

// Written says that an expected object, or a shard, is durable, or why it is
// not.
func (n *Node) Written(id ID, err error) {
	from, expected := n.incoming[id]
	delete(n.incoming, id)
	if err == nil {
		n.have[id] = true
	}
	switch {
	case !expected:
	case err == nil:
		n.answer(from, Stored, id)
	default:
		n.send(from, Message{Kind: Failed, ID: id, Why: err.Error()})
	}
	n.grant()
}

// partOffer handles a part: this host is a holder.
func (n *Node) partOffer(from string, m Message) {
	id := partID(m.Part)
	if lacks := n.lacking(m.IDs); len(lacks) > 0 {
		n.send(from, Message{Kind: Lacks, Of: id, Tier: m.Tier, IDs: lacks})
		return
	}
	if n.covers(id, m.IDs) {
		n.send(from, Message{Kind: PartStored, Of: id, Tier: m.Tier})
		return
	}
	if len(n.writing[id]) == 0 {
		n.emit(StorePart{*m.Part})
	}
	n.writing[id] = append(n.writing[id], partOffer{from, m.Tier, m.IDs})
}

// covers reports whether a part is here and protects these objects.
func (n *Node) covers(id PartID, ids []ID) bool {
	return !slices.ContainsFunc(ids, func(x ID) bool { return !slices.Contains(n.parts[id], x) })
}

// lacking returns the IDs that are not here.
func (n *Node) lacking(ids []ID) (out []ID) {
	for _, id := range ids {
		if !n.have[id] {
			out = append(out, id)
		}
	}
	return out
}

// PartWritten says that a part is durable, or why it is not.
func (n *Node) PartWritten(id PartID, err error) {
	list := n.writing[id]
	delete(n.writing, id)
	for _, w := range list {
		if err == nil {
			n.parts[id] = merge(n.parts[id], w.ids)
		}
		if w.from == "" {
			continue
		}
		m := Message{Kind: PartStored, Of: id, Tier: w.tier}
		if err != nil {
			m.Kind, m.Why = Failed, err.Error()
		}
		n.send(w.from, m)
	}
}

// Lost says that an object, or a shard, was found damaged on this disk and is
// not used any more. Lost tells all connected hosts. If the object belongs to
// this host's own ranks, the driver has to fetch it again.
func (n *Node) Lost(id ID) {
	delete(n.have, id)
	for _, host := range slices.Sorted(maps.Keys(n.up)) {
		n.answer(host, Gone, id)
	}
}

// Retain says which checkpoints each tier keeps. The node stops copying the
// others, and removes them.
func (n *Node) Retain(retain map[Tier][]recovery.Checkpoint) {
	keeps := func(t Tier, c recovery.Checkpoint) bool { return slices.Contains(retain[t], c) }
	anyKeeps := func(c recovery.Checkpoint) bool { return keeps(Local, c) || keeps(Partner, c) || keeps(RS, c) }
	n.kept = slices.DeleteFunc(n.kept, func(k *keep) bool { return !keeps(k.tier, k.checkpoint) })
	needed := map[ID]bool{}
	for _, id := range slices.SortedFunc(maps.Keys(n.parts), comparePartIDs) {
		part, own := n.own[id]
		used := false
		for _, x := range n.parts[id] {
			t := Partner
			if x.Data > 0 {
				t = RS
			}
			whole := own && x.Data == 0 && slices.ContainsFunc(part.Objects, func(o recovery.Object) bool { return o.Name == x.Object })
			if keeps(t, id.Checkpoint) || whole && anyKeeps(id.Checkpoint) {
				needed[x], used = true, true
			}
		}
		if !used {
			delete(n.parts, id)
			delete(n.own, id)
			n.emit(RemovePart{id})
		}
	}
	for id, list := range n.claims {
		list = slices.DeleteFunc(list, func(c claim) bool { return !keeps(c.tier, c.checkpoint) })
		if len(list) == 0 {
			delete(n.claims, id)
			continue
		}
		n.claims[id] = list
		needed[id] = true
	}
	for part, list := range n.writing {
		for _, w := range list {
			for _, id := range w.ids {
				needed[id] = needed[id] || keeps(w.tier, part.Checkpoint)
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(n.have), compareIDs) {
		if !needed[id] {
			delete(n.have, id)
			n.emit(Remove{id})
		}
	}
	n.forgetOthers()
	n.pump()
}

// forgetOthers forgets what hosts have of checkpoints that are not kept.
func (n *Node) forgetOthers() {
	objects, parts := map[string]bool{}, map[partOn]bool{}
	for _, k := range n.kept {
		for i := range k.parts {
			parts[partOn{partID(&k.parts[i]), k.tier}] = true
			for _, o := range k.parts[i].Objects {
				objects[o.Name] = true
			}
		}
	}
	for _, p := range n.peers {
		maps.DeleteFunc(p.stored, func(id ID, _ bool) bool { return !objects[id.Object] })
		maps.DeleteFunc(p.failed, func(id ID, _ bool) bool { return !objects[id.Object] })
		maps.DeleteFunc(p.parts, func(on partOn, _ partState) bool { return !parts[on] })
	}
}

func comparePartIDs(a, b PartID) int {
	return slices.Compare([]string{a.Attempt, fmt.Sprintf("%020d.%010d", a.Index, a.Rank)}, []string{b.Attempt, fmt.Sprintf("%020d.%010d", b.Index, b.Rank)})
}
