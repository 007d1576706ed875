package recovery

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrNone means that there are checkpoints, and that none can be restored.
var ErrNone = errors.New("no checkpoint can be restored")

// Want says what is to be restored where.
type Want struct {
	Hosts []string // by rank: the host that it is to run on
	Avoid []uint64 // checkpoints in quarantine
	Only  uint64   // restore this checkpoint, and no other; 0: the newest
}

// Source is where a host gets an object, or a shard, from.
type Source struct {
	Store int // in Inventory.Stores
	Shard int // number of the shard; -1: a copy
}

// Fetch says how a host gets an object that it does not have: from one copy, or
// from Data shards.
type Fetch struct {
	To           string
	Rank         int
	Object       Object
	From         []Source
	Data, Parity int // of the shards; 0: a copy
}

// Plan says how every host gets the files of its ranks.
type Plan struct {
	Checkpoint
	Parts   []Part // by rank: what is restored
	Fetches []Fetch
	Bytes   int64     // that move to hosts
	Skipped []Missing // newer checkpoints, and why they are not used
}

// Missing says why a checkpoint cannot be restored.
type Missing struct {
	Checkpoint
	Unfinished bool // it was never complete, as far as is known
	Pieces     []Piece
}

// Piece is a rank's part, or an object of it, that is not available.
type Piece struct {
	Rank   int
	Object string // "": the part is not known
	Why    string
	titled bool // Why names the rank and the object's title
}

// The cost of a byte by the way it comes. Copies on other hosts are preferred
// to rebuilding, rebuilding to a shared file system that all hosts read at the
// same time, and that to an object store.
const (
	costHost    = 4
	costRebuild = 1 // in addition, for each byte of the object
	costShared  = 8
	costS3      = 32
)

func (k Kind) cost() int64 {
	switch k {
	case Shared:
		return costShared
	case S3:
		return costS3
	}
	return costHost
}

// MakePlan returns the cheapest way to restore the newest checkpoint of which
// every part is available. It returns nil if no part of any checkpoint is
// stored. The error wraps ErrNone and says which pieces are missing, and where
// they were.
func MakePlan(inv *Inventory, w Want) (*Plan, error) {
	x := inv.index()
	var skipped []Missing
	list := inv.Checkpoints()
	for _, c := range list {
		if w.Only != 0 && c.Index != w.Only {
			continue
		}
		if w.Only == 0 && slices.Contains(w.Avoid, c.Index) {
			skipped = append(skipped, Missing{Checkpoint: c, Pieces: []Piece{{Rank: -1, Why: "it is in quarantine: the program failed with it again and again"}}})
			continue
		}
		p, missing := x.plan(c, w.Hosts)
		if missing == nil {
			p.Skipped = skipped
			return p, nil
		}
		skipped = append(skipped, *missing)
	}
	switch {
	case w.Only != 0:
		return nil, x.onlyError(w, skipped, list)
	case len(list) == 0 && !inv.empty():
		return nil, fmt.Errorf("%w: all that are stored belong to attempts that were given up; nothing is known about %s", ErrNone, lineText(inv.Line))
	case len(list) == 0:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNone, missingText(skipped))
}

func (inv *Inventory) empty() bool {
	return !slices.ContainsFunc(inv.Stores, func(s Store) bool { return len(s.Parts) > 0 })
}

func lineText(line []Span) string {
	last := line[len(line)-1]
	return fmt.Sprintf("the checkpoints of attempt %s", short(last.Attempt))
}

// short returns the start of an attempt's identity.
func short(attempt string) string { return attempt[:min(len(attempt), 8)] }

// onlyError says why the requested checkpoint cannot be restored, and which
// other one can.
func (x *index) onlyError(w Want, skipped []Missing, list []Checkpoint) error {
	what := fmt.Sprintf("checkpoint %d is not stored anywhere", w.Only)
	if len(skipped) > 0 {
		what = missingText(skipped)
	}
	best := Checkpoint{}
	for _, c := range list { // the newest before it, or else the oldest after it
		if best.Index != 0 && c.Index > w.Only || c.Index == w.Only {
			continue
		}
		if _, missing := x.plan(c, w.Hosts); missing == nil {
			best = c
			if c.Index < w.Only {
				break
			}
		}
	}
	if best.Index == 0 {
		return fmt.Errorf("%w: %s; and no other checkpoint can be restored either", ErrNone, what)
	}
	return fmt.Errorf("%w: %s; checkpoint %d can be restored", ErrNone, what, best.Index)
}

// plan returns how to restore one checkpoint, or what is missing.
func (x *index) plan(c Checkpoint, hosts []string) (*Plan, *Missing) {
	p := &Plan{Checkpoint: c, Parts: make([]Part, len(hosts))}
	missing := &Missing{Checkpoint: c, Unfinished: x.inv.Committed > 0 && c.Index > x.inv.Committed}
	load := make([]int64, len(x.inv.Stores)) // bytes that each store sends
	for rank, host := range hosts {
		best, cost := -1, int64(0)
		var from []Fetch
		var pieces []Piece
		parts := x.parts[c][rank]
		for i := range parts {
			if parts[i].Ranks != len(hosts) {
				pieces = append(pieces, Piece{Rank: rank, Why: fmt.Sprintf("it was saved by a run of %d ranks, and this one has %d", parts[i].Ranks, len(hosts))})
				continue
			}
			fetches, n, lacks := x.fetch(&parts[i].Part, host, load)
			if lacks != nil {
				if pieces == nil {
					pieces = lacks
				}
			} else if best < 0 || n < cost {
				best, cost, from = i, n, fetches
			}
		}
		if best < 0 {
			if len(parts) == 0 {
				pieces = []Piece{{Rank: rank, Why: x.where(c, rank, "its part is stored nowhere")}}
			}
			missing.Pieces = append(missing.Pieces, pieces...)
			continue
		}
		p.Parts[rank] = parts[best].Part
		for _, f := range from {
			for _, s := range f.From {
				load[s.Store] += x.sent(&f, s)
				p.Bytes += x.sent(&f, s)
			}
			p.Fetches = append(p.Fetches, f)
		}
	}
	if len(missing.Pieces) > 0 {
		return nil, missing
	}
	return p, nil
}

// Sources returns how a host gets the objects of a part that it does not have,
// and what cannot be had.
func Sources(inv *Inventory, p *Part, host string) (fetches []Fetch, lacks []Piece) {
	fetches, _, lacks = inv.index().fetch(p, host, make([]int64, len(inv.Stores)))
	return fetches, lacks
}

// fetch returns how a host gets the objects of a part that it does not have,
// and what that costs; or what is not available.
func (x *index) fetch(p *Part, host string, load []int64) (out []Fetch, cost int64, lacks []Piece) {
	to, known := x.stores[host]
	if !known {
		to = -1 // a host that has nothing
	}
	for _, o := range p.Objects {
		if slices.Contains(x.copies[o.Name], to) || slices.ContainsFunc(out, func(f Fetch) bool { return f.Object.Name == o.Name }) {
			continue
		}
		f, n, ok := x.source(o, to, load)
		if !ok {
			lacks = append(lacks, x.lacking(p, o.Name))
			continue
		}
		f.To, f.Rank = host, p.Rank
		out = append(out, f)
		cost += n
	}
	return out, cost, lacks
}

// source returns the cheapest source of an object. If several cost the same, it
// returns the one that sends least so far.
func (x *index) source(o Object, to int, load []int64) (best Fetch, cost int64, ok bool) {
	take := func(f Fetch, n int64) {
		if !ok || n < cost {
			best, cost, ok = f, n, true
		}
	}
	copies := slices.Clone(x.copies[o.Name])
	slices.SortStableFunc(copies, func(a, b int) int { return cmp.Compare(load[a], load[b]) })
	for _, s := range copies {
		take(Fetch{Object: o, From: []Source{{s, -1}}}, x.inv.Stores[s].Kind.cost()*o.Size)
	}
	byCode := x.shardsOf(o.Name)
	for _, c := range slices.SortedFunc(maps.Keys(byCode), func(a, b code) int { return cmp.Or(a.data-b.data, a.parity-b.parity) }) {
		if len(byCode[c]) < c.data {
			continue
		}
		var each []Source
		for _, number := range slices.Sorted(maps.Keys(byCode[c])) {
			stores := byCode[c][number]
			each = append(each, Source{slices.MinFunc(stores, func(a, b int) int { return x.prefer(a, b, to, load) }), number})
		}
		slices.SortStableFunc(each, func(a, b Source) int { return x.prefer(a.Store, b.Store, to, load) })
		f := Fetch{Object: o, From: each[:c.data:c.data], Data: c.data, Parity: c.parity}
		n := costRebuild * o.Size
		for _, s := range f.From {
			if s.Store != to {
				n += x.inv.Stores[s.Store].Kind.cost() * shardSize(o.Size, c.data)
			}
		}
		take(f, n)
	}
	return best, cost, ok
}

func shardSize(size int64, data int) int64 { return (size + int64(data) - 1) / int64(data) }

// prefer orders stores as sources for a host: itself, then cheap ones, then
// those that have to send little.
func (x *index) prefer(a, b, to int, load []int64) int {
	kind := func(s int) int64 {
		if s == to {
			return 0
		}
		return x.inv.Stores[s].Kind.cost()
	}
	return cmp.Or(cmp.Compare(kind(a), kind(b)), cmp.Compare(load[a], load[b]))
}

// sent returns the bytes that a source of a fetch sends: none to itself.
func (x *index) sent(f *Fetch, s Source) int64 {
	st := &x.inv.Stores[s.Store]
	switch {
	case st.Kind == OnHost && st.Name == f.To:
		return 0
	case f.Data == 0:
		return f.Object.Size
	}
	return shardSize(f.Object.Size, f.Data)
}

// lacking returns the Piece for an object that is not available.
func (x *index) lacking(p *Part, object string) Piece {
	title := x.inv.Titles[object]
	if title == "" {
		return Piece{Rank: p.Rank, Object: object, Why: x.where(p.Checkpoint, p.Rank, x.lack(object))}
	}
	var all []string
	for i := range x.inv.Stores {
		for _, d := range x.inv.Stores[i].Damaged {
			if d.Object == object {
				all = append(all, fmt.Sprintf("rank %d's %s on %s cannot be loaded: %s", p.Rank, title, x.inv.Stores[i].Name, d.Why))
			}
		}
	}
	if len(all) == 0 {
		all = append(all, x.where(p.Checkpoint, p.Rank, fmt.Sprintf("rank %d's %s: %s", p.Rank, title, x.lack(object))))
	}
	return Piece{p.Rank, object, strings.Join(all, ", "), true}
}

// lack says what is stored of an object that is not available.
func (x *index) lack(object string) string {
	var all []string
	byCode := x.shardsOf(object)
	for _, c := range slices.SortedFunc(maps.Keys(byCode), func(a, b code) int { return cmp.Or(a.data-b.data, a.parity-b.parity) }) {
		all = append(all, fmt.Sprintf("%d shards are there, and %d are needed", len(byCode[c]), c.data))
	}
	for i := range x.inv.Stores {
		s := &x.inv.Stores[i]
		for _, d := range s.Damaged {
			if d.Object == object {
				all = append(all, fmt.Sprintf("the one on %s is damaged (%s)", s.Name, d.Why))
			}
		}
	}
	if len(all) == 0 {
		return "it is stored nowhere"
	}
	return strings.Join(all, ", ")
}

// where adds to text which hosts had the objects of a rank.
func (x *index) where(c Checkpoint, rank int, text string) string {
	for _, h := range x.inv.Homes {
		if h.Attempt != c.Attempt || h.Rank != rank {
			continue
		}
		var gone, here []string
		for _, name := range h.Hosts {
			if _, ok := x.stores[name]; ok {
				here = append(here, name)
			} else {
				gone = append(gone, name)
			}
		}
		if len(gone) > 0 {
			text += fmt.Sprintf("; %s had it, and %s missing", names(gone), isAre(len(gone)))
		}
		if len(here) > 0 {
			text += fmt.Sprintf("; %s had it, but not any more", names(here))
		}
		break
	}
	return text
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func names(list []string) string {
	const most = 8
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	if len(list) > 1 {
		return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
	}
	return strings.Join(list, "")
}

// String says what is missing.
func (m *Missing) String() string {
	const most = 4
	var pieces []string
	for i, p := range m.Pieces {
		if i == most {
			pieces = append(pieces, fmt.Sprintf("and %d more pieces", len(m.Pieces)-most))
			break
		}
		switch {
		case p.Rank < 0 || p.titled:
			pieces = append(pieces, p.Why)
		case p.Object == "":
			pieces = append(pieces, fmt.Sprintf("rank %d: %s", p.Rank, p.Why))
		default:
			pieces = append(pieces, fmt.Sprintf("rank %d: %s: %s", p.Rank, p.Object, p.Why))
		}
	}
	what := ""
	if m.Unfinished {
		what = " was not committed"
	}
	return fmt.Sprintf("checkpoint %d%s: %s", m.Index, what, strings.Join(pieces, "; "))
}

func missingText(list []Missing) string {
	const most = 3
	var out []string
	for i := range list {
		if i == most {
			out = append(out, fmt.Sprintf("and %d older ones", len(list)-most))
			break
		}
		out = append(out, list[i].String())
	}
	return strings.Join(out, "\n")
}
