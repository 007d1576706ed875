package copies

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/tier/placement"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// A world has hosts with Nodes and disks, the connections between them, and a
// supervisor that tells all hosts who is there. Everything that can happen is
// an event.

// scenario says what happens in a world.
type scenario struct {
	name  string
	hosts int
	// steps are what the supervisor tells all hosts, in this order, each host
	// at a time of its own:
	//	"keep partner 1", "keep rs 2", "retain partner 2 rs 1"
	steps    []string
	partner  int
	code     [2]int
	owners   int               // hosts that have ranks; 0: all
	objects  map[uint64]string // by checkpoint: its objects, one letter each; letters are shared between checkpoints
	losses   int               // hosts that are lost
	replaced bool              // a lost host comes back with an empty disk
	cuts     int               // connections that break
	failures int               // writes that fail
	rot      int               // objects that are found damaged
	restarts int               // helpers of hosts without ranks that are started again
	away     int               // hosts without ranks that leave the view, and come back later, without being lost
	incoming int
}

type disk struct {
	store int
	ids   map[ID]bool
	parts map[PartID]recovery.Part
}

type host struct {
	node  *Node // nil: it is lost
	disk  disk
	steps int   // that it was told
	view  int   // that it has
	met   []int // by host: its disk when they were last connected
	away  bool
	later bool
	// What its driver is about to do.
	expects    map[ID]int // from whom
	writes     map[ID]bool
	partWrites map[PartID]recovery.Part
	reported   map[string]int // Missing, by tier and checkpoint
}

type world struct {
	sc    *scenario
	hosts []host
	conn  map[[2]int]bool      // lower number first
	links map[[2]int][]Message // from, to
	data  map[[2]int][]ID      // bytes on their way
	views [][]string           // by number: hosts
	left  [6]int               // losses, cuts, failures, rot, restarts, away
	trace func(i int, a Action)
}

func name(i int) string { return string(rune('a' + i)) }

func number(host string) int { return int(host[0] - 'a') }

func newWorld(sc *scenario) *world {
	w := &world{sc: sc, conn: map[[2]int]bool{}, links: map[[2]int][]Message{}, data: map[[2]int][]ID{}, left: [6]int{sc.losses, sc.cuts, sc.failures, sc.rot, sc.restarts, sc.away}}
	view := []string{}
	for i := range sc.hosts {
		w.hosts = append(w.hosts, host{})
		w.start(i)
		view = append(view, name(i))
	}
	w.views = [][]string{view}
	for i := range sc.hosts {
		w.setView(i)
		for j := range i {
			w.connect(j, i)
		}
	}
	return w
}

// start starts a host with an empty disk.
func (w *world) start(i int) {
	h := &w.hosts[i]
	*h = host{disk: disk{h.disk.store + 1, map[ID]bool{}, map[PartID]recovery.Part{}}, view: -1, expects: map[ID]int{}, writes: map[ID]bool{}, partWrites: map[PartID]recovery.Part{}, reported: map[string]int{}, met: make([]int, w.sc.hosts)}
	h.node = New(Config{Self: name(i), Window: 2, Incoming: w.sc.incoming}, nil, nil)
}

// restart starts a host's helper again.
func (w *world) restart(i int) {
	h := &w.hosts[i]
	for j := range w.hosts {
		if j != i {
			w.cut(min(i, j), max(i, j))
		}
	}
	h.expects, h.writes, h.partWrites = map[ID]int{}, map[ID]bool{}, map[PartID]recovery.Part{}
	h.node = New(h.node.cfg, slices.SortedFunc(maps.Keys(h.disk.ids), compareIDs), slices.Collect(maps.Values(h.disk.parts)))
	w.setView(i)
}

// newView makes a view of the hosts that are there.
func (w *world) newView() {
	var view []string
	for i := range w.hosts {
		if w.hosts[i].node != nil && !w.hosts[i].away {
			view = append(view, name(i))
		}
	}
	w.views = append(slices.Clone(w.views), view)
}

func (w *world) setView(i int) {
	h := &w.hosts[i]
	h.view = len(w.views) - 1
	v := View{Holders: map[Tier][]string{}, Data: w.sc.code[0], Parity: w.sc.code[1]}
	var hosts []placement.Host
	for _, n := range w.views[h.view] {
		hosts = append(hosts, placement.Host{Name: n})
	}
	holders := func(size int) []string {
		for _, g := range placement.Groups(nil, hosts, size) {
			if list, ok := placement.Holders(g, size)[name(i)]; ok {
				return list
			}
		}
		return nil
	}
	if w.sc.partner > 0 {
		v.Holders[Partner] = holders(w.sc.partner + 1)
	}
	if w.sc.code[0] > 0 {
		v.Holders[RS] = holders(w.sc.code[0] + w.sc.code[1])
	}
	h.node.SetView(v)
}

func (w *world) connect(i, j int) {
	w.conn[[2]int{i, j}] = true
	for _, k := range [][2]int{{i, j}, {j, i}} {
		h := &w.hosts[k[0]]
		h.met = slices.Clone(h.met)
		h.met[k[1]] = w.hosts[k[1]].disk.store
		h.node.Up(name(k[1]))
	}
}

// cut breaks a connection. What was on its way is lost.
func (w *world) cut(i, j int) {
	delete(w.conn, [2]int{i, j})
	for _, k := range [][2]int{{i, j}, {j, i}} {
		delete(w.links, k)
		delete(w.data, k)
		if h := &w.hosts[k[0]]; h.node != nil {
			h.node.Down(name(k[1]))
		}
	}
}

// event is something that can happen.
type event struct {
	kind byte
	i, j int
	id   ID
	part PartID
}

func (e event) String() string {
	switch e.kind {
	case 'm':
		return fmt.Sprintf("%s→%s", name(e.i), name(e.j))
	case 'd':
		return fmt.Sprintf("%s⇒%s:%v", name(e.i), name(e.j), e.id)
	case 'w', 'W', 'r':
		return fmt.Sprintf("%c%s:%v", e.kind, name(e.i), e.id)
	case 'p', 'P':
		return fmt.Sprintf("%c%s:%d", e.kind, name(e.i), e.part.Index)
	}
	return fmt.Sprintf("%c%s%s", e.kind, name(e.i), name(e.j))
}

// events returns what can happen now.
func (w *world) events() (out []event) {
	add := func(e event) { out = append(out, e) }
	n := len(w.hosts)
	for i := range n {
		h := &w.hosts[i]
		if h.node == nil {
			continue
		}
		for j := range n {
			if len(w.links[[2]int{i, j}]) > 0 {
				add(event{kind: 'm', i: i, j: j})
			}
			for _, id := range w.data[[2]int{i, j}] {
				add(event{kind: 'd', i: i, j: j, id: id})
			}
		}
		for _, id := range slices.SortedFunc(maps.Keys(h.writes), compareIDs) {
			add(event{kind: 'w', i: i, id: id})
			if w.left[2] > 0 {
				add(event{kind: 'W', i: i, id: id})
			}
		}
		for _, id := range slices.SortedFunc(maps.Keys(h.partWrites), comparePartIDs) {
			add(event{kind: 'p', i: i, part: id})
			if w.left[2] > 0 {
				add(event{kind: 'P', i: i, part: id})
			}
		}
		if h.steps < len(w.sc.steps) {
			add(event{kind: 's', i: i})
		}
		if h.view < len(w.views)-1 {
			add(event{kind: 'v', i: i})
		}
		if h.later {
			add(event{kind: 'a', i: i})
		}
		for j := i + 1; j < n; j++ {
			if w.hosts[j].node == nil {
				continue
			}
			if !w.conn[[2]int{i, j}] {
				add(event{kind: 'u', i: i, j: j})
			} else if w.left[1] > 0 {
				add(event{kind: 'x', i: i, j: j})
			}
		}
		if w.left[0] > 0 {
			add(event{kind: 'l', i: i})
		}
		if w.sc.owners > 0 && i >= w.sc.owners {
			if w.left[4] > 0 {
				add(event{kind: 'h', i: i})
			}
			if w.left[5] > 0 && !h.away {
				add(event{kind: 'o', i: i})
			}
			if h.away {
				add(event{kind: 'b', i: i})
			}
		}
		if w.left[3] > 0 {
			for _, id := range slices.SortedFunc(maps.Keys(h.disk.ids), compareIDs) {
				if !w.owns(i, id) {
					add(event{kind: 'r', i: i, id: id})
				}
			}
		}
	}
	for i := range n {
		if w.sc.replaced && w.hosts[i].node == nil {
			add(event{kind: 'n', i: i})
		}
	}
	return out
}

// owns reports whether an object is of the host's own rank.
func (w *world) owns(i int, id ID) bool { return id.Data == 0 && id.Object[0] == name(i)[0] }

// quiet reports whether only misfortunes are left to happen.
func quiet(todo []event) bool {
	return !slices.ContainsFunc(todo, func(e event) bool {
		switch e.kind {
		case 'W', 'P', 'x', 'l', 'r', 'n', 'h', 'o':
			return false
		}
		return true
	})
}

var errFull = errors.New("no space left")

// apply returns the world after an event.
func (w *world) apply(e event) (*world, error) {
	touched := func(i int) bool {
		switch e.kind {
		case 'l', 'h':
			return true
		case 'm', 'd':
			return i == e.j
		case 'u', 'x':
			return i == e.i || i == e.j
		}
		return i == e.i
	}
	w = w.clone(touched)
	h := &w.hosts[e.i]
	switch e.kind {
	case 'm':
		k := [2]int{e.i, e.j}
		m := w.links[k][0]
		if w.links[k] = w.links[k][1:]; len(w.links[k]) == 0 {
			delete(w.links, k)
		}
		if err := w.hosts[e.j].node.Receive(name(e.i), m); err != nil {
			return nil, err
		}
	case 'd':
		k := [2]int{e.i, e.j}
		w.data[k] = slices.DeleteFunc(slices.Clone(w.data[k]), func(id ID) bool { return id == e.id })
		if len(w.data[k]) == 0 {
			delete(w.data, k)
		}
		to := &w.hosts[e.j]
		if from, ok := to.expects[e.id]; !ok || from != e.i {
			return nil, fmt.Errorf("%s sends %v to %s, which does not expect it", name(e.i), e.id, name(e.j))
		}
		delete(to.expects, e.id)
		to.writes[e.id] = true
	case 'w':
		delete(h.writes, e.id)
		h.disk.ids[e.id] = true
		h.node.Written(e.id, nil)
	case 'W':
		w.left[2]--
		delete(h.writes, e.id)
		h.node.Written(e.id, errFull)
	case 'p':
		h.disk.parts[e.part] = h.partWrites[e.part]
		delete(h.partWrites, e.part)
		h.node.PartWritten(e.part, nil)
	case 'P':
		w.left[2]--
		delete(h.partWrites, e.part)
		h.node.PartWritten(e.part, errFull)
	case 's':
		w.step(e.i)
	case 'v':
		w.setView(e.i)
	case 'a':
		h.later = false
		h.node.Again()
	case 'u':
		w.connect(e.i, e.j)
	case 'x':
		w.left[1]--
		w.cut(e.i, e.j)
	case 'r':
		w.left[3]--
		delete(h.disk.ids, e.id)
		h.node.Lost(e.id)
	case 'l':
		w.left[0]--
		*h = host{disk: disk{store: h.disk.store}}
		for j := range w.hosts {
			if j != e.i {
				w.cut(min(e.i, j), max(e.i, j))
			}
		}
		w.newView()
	case 'n':
		w.start(e.i)
		h.steps = len(w.sc.steps) // its ranks are elsewhere
		w.newView()
		w.setView(e.i)
	case 'h':
		w.left[4]--
		w.restart(e.i)
	case 'o':
		w.left[5]--
		h.away = true
		w.newView()
	case 'b':
		h.away = false
		w.newView()
	}
	return w, w.act(touched)
}

// part returns the part of a host's rank in a checkpoint.
func (w *world) part(i int, index uint64) recovery.Part {
	p := recovery.Part{Checkpoint: recovery.Checkpoint{Index: index, Attempt: "x"}, Rank: i, Ranks: len(w.hosts)}
	letters := w.sc.objects[index]
	if letters == "" {
		letters = fmt.Sprint(index)
	}
	for _, l := range letters {
		p.Objects = append(p.Objects, recovery.Object{Name: fmt.Sprintf("%s%c", name(i), l), Size: 12})
	}
	return p
}

// step tells a host what the supervisor says.
func (w *world) step(i int) {
	h := &w.hosts[i]
	words := fields(w.sc.steps[h.steps])
	h.steps++
	switch words[0] {
	case "keep":
		index := uint64(words[2][0] - '0')
		if w.sc.owners > 0 && i >= w.sc.owners {
			return
		}
		p := w.part(i, index)
		h.disk.parts[partID(&p)] = p
		for _, o := range p.Objects {
			h.disk.ids[ID{Object: o.Name}] = true
		}
		h.node.Keep(Tier(words[1]), []recovery.Part{p})
	case "retain":
		h.node.Retain(w.retained(words))
	}
}

func (w *world) retained(words []string) map[Tier][]recovery.Checkpoint {
	r := map[Tier][]recovery.Checkpoint{}
	for k := 1; k < len(words); k += 2 {
		r[Tier(words[k])] = append(r[Tier(words[k])], recovery.Checkpoint{Index: uint64(words[k+1][0] - '0'), Attempt: "x"})
	}
	return r
}

// keeps reports whether the supervisor still retains a checkpoint on a tier,
// for all that any host has heard.
func (w *world) keeps(t Tier, c recovery.Checkpoint) bool {
	told := 0
	for i := range w.hosts {
		told = max(told, w.hosts[i].steps)
	}
	for _, s := range w.sc.steps[:told] {
		if words := fields(s); words[0] == "retain" && !slices.Contains(w.retained(words)[t], c) {
			return false
		}
	}
	return true
}

// act carries out what the nodes want, and checks it.
func (w *world) act(touched func(i int) bool) error {
	for i := range w.hosts {
		h := &w.hosts[i]
		if h.node == nil || !touched(i) {
			continue
		}
		for _, a := range h.node.Take() {
			if w.trace != nil {
				w.trace(i, a)
			}
			if err := w.perform(i, a); err != nil {
				return fmt.Errorf("%s: %T%+v: %w", name(i), a, a, err)
			}
		}
	}
	return nil
}

func (w *world) perform(i int, a Action) error {
	h := &w.hosts[i]
	switch a := a.(type) {
	case Send:
		j := number(a.To)
		if w.conn[[2]int{min(i, j), max(i, j)}] {
			w.links[[2]int{i, j}] = append(slices.Clone(w.links[[2]int{i, j}]), a.Message)
		}
	case Transfer:
		j := number(a.To)
		switch k := [2]int{i, j}; {
		case !w.conn[[2]int{min(i, j), max(i, j)}]:
			return errors.New("not connected")
		case slices.Contains(w.data[k], a.ID):
			return errors.New("twice")
		case !h.disk.ids[ID{Object: a.ID.Object}]:
			return errors.New("it is not here")
		default:
			w.data[k] = append(slices.Clone(w.data[k]), a.ID)
		}
	case Expect:
		if len(h.expects)+len(h.writes) >= h.node.cfg.Incoming {
			return errors.New("too many")
		}
		h.expects[a.ID] = number(a.From)
	case Abort:
		delete(h.expects, a.ID)
		delete(h.writes, a.ID)
	case StorePart:
		h.partWrites[partID(&a.Part)] = a.Part
	case Remove:
		if w.needs(i, a.ID) {
			return errors.New("it is needed")
		}
		delete(h.disk.ids, a.ID)
	case RemovePart:
		delete(h.disk.parts, a.ID)
	case Report:
		h.reported[fmt.Sprint(a.Tier, a.Checkpoint.Index)] = a.Missing
		if a.Missing == 0 && w.keeps(a.Tier, a.Checkpoint) {
			return w.stored(i, a.Tier, a.Checkpoint)
		}
	case Later:
		h.later = true
	}
	return nil
}

// needs reports whether an object is on its owner's disk for a checkpoint that
// is retained. (Holders remove what owners may still count on: Lacks tells
// them.)
func (w *world) needs(i int, id ID) bool {
	if !w.owns(i, id) {
		return false
	}
	for pid, p := range w.hosts[i].disk.parts {
		for _, t := range []Tier{Local, Partner, RS} {
			if p.Rank == i && w.toldToKeep(i, t, pid.Checkpoint) && slices.ContainsFunc(p.Objects, func(o recovery.Object) bool { return o.Name == id.Object }) {
				return true
			}
		}
	}
	return false
}

// toldToKeep reports whether the last Retain that a host got has a checkpoint.
func (w *world) toldToKeep(i int, t Tier, c recovery.Checkpoint) bool {
	keeps := false
	for _, s := range w.sc.steps[:w.hosts[i].steps] {
		if words := fields(s); words[0] == "retain" {
			keeps = slices.Contains(w.retained(words)[t], c)
		}
	}
	return keeps
}

// stored checks that holders have what a host has just reported as stored. A
// holder may have been lost, or have found damage, and the host not know it
// yet.
func (w *world) stored(i int, t Tier, c recovery.Checkpoint) error {
	h := &w.hosts[i]
	p := w.part(i, c.Index)
	goals := h.node.goals(t, &p)
	if len(goals) == 0 {
		return errors.New("there are no holders")
	}
	seen := map[ID]bool{}
	for _, g := range goals {
		j := number(g.host)
		if j == i {
			return errors.New("a copy on the same host")
		}
		on := &w.hosts[j]
		if on.node == nil || on.disk.store != h.met[j] {
			continue
		}
		for _, id := range g.ids {
			seen[id] = true
			if !on.disk.ids[id] && w.left[3] == w.sc.rot {
				return fmt.Errorf("%s has no %v", g.host, id)
			}
		}
		if _, ok := on.disk.parts[partID(&p)]; !ok {
			return fmt.Errorf("%s has no part", g.host)
		}
	}
	return nil
}

// end checks a world in which nothing happens any more: whatever is retained is
// stored at its holders, and survives what was promised.
func (w *world) end() error {
	alive := 0
	for i := range w.hosts {
		if w.hosts[i].node != nil && !w.hosts[i].away {
			alive++
		}
	}
	for i := range w.hosts {
		h := &w.hosts[i]
		if h.node == nil {
			continue
		}
		if n := len(h.expects) + len(h.writes) + len(h.node.incoming) + len(h.node.waiting) + len(h.node.writing); n > 0 {
			return fmt.Errorf("%s still waits for %d things", name(i), n)
		}
		for _, k := range h.node.kept {
			missing, told := h.reported[fmt.Sprint(k.tier, k.checkpoint.Index)]
			if alive == 1 {
				if missing == 0 {
					return fmt.Errorf("%s is alone, and %s %d is stored", name(i), k.tier, k.checkpoint.Index)
				}
				continue
			}
			if !told || missing != 0 {
				return fmt.Errorf("%s lacks %d for %s %d", name(i), missing, k.tier, k.checkpoint.Index)
			}
			if err := w.stored(i, k.tier, k.checkpoint); err != nil {
				return fmt.Errorf("at the end %s, %s %d: %w", name(i), k.tier, k.checkpoint.Index, err)
			}
			if err := w.survives(i, k.tier, k.checkpoint, alive); err != nil {
				return err
			}
		}
	}
	return nil
}

// survives checks the promise of a tier: package recovery finds that the part
// survives as many losses.
func (w *world) survives(i int, t Tier, c recovery.Checkpoint, alive int) error {
	inv := new(recovery.Inventory)
	for j := range w.hosts {
		h := &w.hosts[j]
		if h.node == nil {
			continue
		}
		s := recovery.Store{Name: name(j)}
		for id := range h.disk.ids {
			if id.Data == 0 {
				s.Copies = append(s.Copies, id.Object)
			} else {
				s.Shards = append(s.Shards, recovery.Shard{Object: id.Object, Number: id.Shard, Data: id.Data, Parity: id.Parity})
			}
		}
		for _, p := range h.disk.parts {
			if p.Rank == i {
				p.Rank, p.Ranks = 0, 1
				s.Parts = append(s.Parts, p)
			}
		}
		inv.Stores = append(inv.Stores, s)
	}
	want := min(w.sc.partner, alive-1)
	if t == RS {
		want = w.sc.code[1]
		if alive < w.sc.code[0]+w.sc.code[1] {
			want = min(1, w.sc.code[1]) * min(1, alive-w.sc.code[0]) // some hosts have several shards
		}
	}
	if got := recovery.Survives(inv, c, 1); !got.Complete || got.Hosts < want {
		return fmt.Errorf("%s, %s %d survives %v, not %d", name(i), t, c.Index, got, want)
	}
	return nil
}
