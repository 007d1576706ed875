package coord

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Counts gives a Node the counts of its rank's points and messages. The driver
// implements it. A Node calls it only during its own methods.
type Counts interface {
	// Point returns how many points the program has entered.
	Point() uint64
	// Peers returns the ranks to or from which messages ever went, in any
	// order. The Node does not keep the slice.
	Peers() []int
	// Sent returns how many messages were sent to peer, including announced
	// ones. Received returns how many have arrived from it completely. When no
	// message is in flight, Received on one rank equals Sent on the other.
	Sent(peer int) uint64
	Received(peer int) uint64
	// Totals returns the sums of Sent and Received over all peers but the
	// rank itself.
	Totals() (sent, received uint64)
}

// DefaultArity is the number of children in the tree of ranks if Config.Arity
// is 0.
const DefaultArity = 4

// Config describes a rank. Rank, Size and Counts must be given.
type Config struct {
	Rank, Size int
	Counts     Counts

	// Arity is the number of children in the tree of ranks; 0 means
	// DefaultArity.
	Arity int
	// NextIndex is the index of the next checkpoint, the same on all ranks.
	NextIndex uint64
	// Every makes a point due if its number is a multiple of Every; 0: none is
	// due. The same on all ranks.
	Every uint64
	// Spatial: at due points, ranks save without exchanging messages.
	// Without it, all ranks pause there and drain their channels. The same
	// on all ranks.
	Spatial bool
	// Due is Save.Due of the checkpoint that was restored, 0 at a fresh
	// start.
	Due uint64
	// MaxReleases is how often a round may release paused ranks because others
	// wait for them, before the root calls it off. 0 means 16 + 4·Size; a
	// negative number means that it releases none.
	MaxReleases int

	trustWaves bool // for tests: every wave counts as a proof, because false alarms must be harmless
}

type phase uint8

const (
	phaseIdle     phase = iota // no round that this rank knows of
	phasePolled                // the count was sent, the target is not known
	phaseTargeted              // the target is known
)

type bookmark struct {
	epoch, step, total uint64
}

// Node is one rank's part in the protocols of this package. It takes events and
// returns actions. The driver calls its methods one at a time (under its lock).
// After each call, or after several, it carries out the actions that Take
// returns, in order. No method blocks. When a Node is made, no message may be
// in flight between the ranks.
type Node struct {
	cfg      Config
	parent   int // -1: this is the root
	children []int
	out      []Action

	// Agreed by all ranks that have seen the end of the same round.
	epoch uint64 // the round that is under way, or the next one
	due   uint64 // due points up to here are done
	dueAt uint64 // the first due point after that
	next  uint64 // the next checkpoint's index

	// The program.
	at       uint64 // the point that it is in, 0: none
	paused   bool
	blocked  bool
	on       []int // what it is blocked on; empty: any
	copying  bool  // Save was given, Copied not yet called
	stopping bool  // stays paused until the outcome of index is known
	index    uint64
	stopped  bool
	finished bool

	asked, askedStop bool   // an Ask is on its way to the root
	over             bool   // no more rounds, because ranks finish
	overWhy          string //
	lost             []int  // ranks known to be dead
	ended            int    // children whose whole subtree has finished
	toldFinished     bool   // the first Finished was passed on

	// The round.
	phase    phase
	answered uint64 // the count that was the answer to Poll
	target   uint64
	dueSent  bool
	pollLeft int
	pollMax  uint64

	step        uint64
	base        map[int]uint64   // totals sent at the last drained checkpoint
	early       map[int]bookmark // of a later step than this rank's
	told        map[int]uint64   // bookmarks sent in this step
	marks       map[int]uint64   // bookmarks received in this step
	undrained   []int            // peers in marks from which messages are still to come
	owed        int              // peers that got a bookmark and have not sent theirs
	snapshot    map[int]uint64   // Received when this rank was complete
	complete    bool             // this rank's channels are drained
	reported    bool             // Complete was sent
	childDone   int
	maxPoint    uint64 // of the ranks that sent Complete
	maxNext     uint64
	faulty      bool
	sent0       uint64 // totals when the Node was made
	received0   uint64
	wave        uint64
	detail      bool
	quietSent   bool
	noticed     bool
	childQuiet  int
	sum         Message         // of the Quiets of this wave
	mine        [3]uint64       // sent, received and paused, as reported in this wave
	results     []result        // checkpoints that some rank of this subtree has not reported yet
	line        uint64          // newest committed checkpoint
	hasLine     bool            //
	writing     int             // Saves for which Saved was not called yet
	awaitWrites bool            // the round may end in a move: complete only when nothing is being written
	moving      uint64          // Move was given, Moved not yet called
	queue       []queuedMessage // messages and requests since Move
	root        *rootState      // of rank 0
}

// New returns the Node of a rank. It panics if cfg is invalid.
func New(cfg Config) *Node {
	n := newNode(cfg)
	for _, p := range cfg.Counts.Peers() {
		n.base[p] = cfg.Counts.Sent(p)
	}
	n.sent0, n.received0 = cfg.Counts.Totals()
	n.newStep(0)
	return n
}

// newNode returns a Node that has not read Counts.
func newNode(cfg Config) *Node {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size || cfg.Counts == nil || cfg.Arity < 0 {
		panic(fmt.Sprintf("coord: New: rank %d of %d, arity %d, counts %v", cfg.Rank, cfg.Size, cfg.Arity, cfg.Counts))
	}
	cfg.Arity = cmp.Or(cfg.Arity, DefaultArity)
	if cfg.MaxReleases == 0 {
		cfg.MaxReleases = 16 + 4*cfg.Size
	}
	n := &Node{cfg: cfg, parent: -1, epoch: 1, next: cfg.NextIndex,
		base: map[int]uint64{}, early: map[int]bookmark{}}
	n.setDue(cfg.Due)
	if cfg.Rank > 0 {
		n.parent = (cfg.Rank - 1) / cfg.Arity
	} else {
		n.root = &rootState{}
	}
	n.children = childrenOf(cfg.Rank, cfg.Size, cfg.Arity)
	return n
}

func childrenOf(rank, size, arity int) []int {
	var list []int
	for c := rank*arity + 1; c <= rank*arity+arity && c < size; c++ {
		list = append(list, c)
	}
	return list
}

// Idle reports that this rank knows of no round. Then the program may pass
// points below Limit without AtPoint, and Blocked and Unblocked need no Take
// after them.
func (n *Node) Idle() bool {
	return n.phase == phaseIdle && !n.paused && n.at == 0 && n.step == 0 && !n.stopped && n.moving == 0
}

// Limit returns the number of the first point for which AtPoint must be called,
// or 0 while a round is under way.
//
// A driver may keep the limit in an atomic variable, and let the program's
// goroutine pass lower points without a lock. Then it must keep this order: the
// program increments the atomic that Counts.Point reads, and then loads the
// limit; the driver stores 0 before it calls Receive, Ask, AskMove, Moved,
// Finished or Lost, and stores Limit() after Take. So either the program sees
// the 0, or the Node sees the point.
func (n *Node) Limit() uint64 {
	switch {
	case !n.Idle():
		return 0
	case n.cfg.Every == 0 || len(n.lost) > 0 || n.over && !n.cfg.Spatial:
		return math.MaxUint64
	}
	return n.dueAt
}

// Pulling reports that the engine must fetch messages that were announced to
// this rank, even if the program does not receive them yet: while it is paused
// or blocked.
func (n *Node) Pulling() bool { return n.paused || n.phase == phaseTargeted }

// setDue notes that due points up to due are done.
func (n *Node) setDue(due uint64) {
	n.due, n.dueAt = due, math.MaxUint64
	if every := n.cfg.Every; every > 0 {
		n.dueAt = due - due%every + every
	}
}

// Plan changes Config.Every and Config.Spatial. All ranks call it, before any
// of them comes to a point, and with no round under way.
func (n *Node) Plan(every uint64, spatial bool) {
	n.cfg.Every, n.cfg.Spatial = every, spatial
	n.setDue(n.due)
}

// isDue reports whether a checkpoint is due at point k.
func (n *Node) isDue(k uint64) bool { return k >= n.dueAt && k%n.cfg.Every == 0 }

// Take returns the actions to carry out, in this order, and removes them. While
// the Node is not idle, call it also when Counts have grown.
func (n *Node) Take() []Action {
	n.settle()
	out := n.out
	n.out = nil
	return out
}

func (n *Node) emit(a Action) { n.out = append(n.out, a) }

func (n *Node) send(to int, m Message) { n.emit(Send{To: to, Msg: m}) }

func (n *Node) sendUp(m Message) { n.send(n.parent, m) }

func (n *Node) sendDown(m Message) {
	for _, c := range n.children {
		n.send(c, m)
	}
}

// Ask asks for a checkpoint. Any rank may call it at any time. One checkpoint
// serves all requests that reach the root before it decides to save. With stop,
// all programs stop after it.
func (n *Node) Ask(reason string, stop bool) {
	m := Message{Kind: KindAsk, Text: cut(reason)}
	if stop {
		m.Flags = FlagStop
	}
	switch {
	case n.stopped:
	case len(n.lost) > 0:
		n.emit(CalledOff{Err: n.lostError(""), Stop: stop})
	case n.over:
		n.emit(CalledOff{Err: n.overError(), Stop: stop})
	case n.moving != 0:
		n.queue = append(n.queue, queuedMessage{n.cfg.Rank, m})
	default:
		n.ask(m)
	}
}

// Asked reports whether an Ask of this rank has not been served, and whether
// one asks to stop: a driver that replaces the Node asks again.
func (n *Node) Asked() (asked, stop bool) {
	stop = n.askedStop || n.stopping
	return n.asked || stop, stop
}

// ask sends an Ask up, unless one that was sent before serves it, too.
func (n *Node) ask(m Message) {
	stop := m.Flags&FlagStop != 0
	if n.root != nil {
		n.root.ask(m)
		n.asked, n.askedStop = true, n.askedStop || stop
		return
	}
	if n.asked && (n.askedStop || !stop) {
		return
	}
	n.asked, n.askedStop = true, n.askedStop || stop
	n.sendUp(m)
}

// AtPoint tells the Node that the program has entered point k, which
// Counts.Point already counts. If it returns true, the program may leave the
// point at once. Otherwise it stays there until Continue or Stop.
func (n *Node) AtPoint(k uint64) bool {
	if n.phase == phaseIdle && n.step == 0 && !n.stopped && k < n.dueAt && n.moving == 0 {
		return true
	}
	n.at = k
	had := len(n.out)
	n.decide()
	if n.at == 0 { // passed: take the Continue back
		n.out = slices.Delete(n.out, had, had+1)
		return true
	}
	return false
}

// decide determines whether a program that waits in a point pauses there or
// continues.
func (n *Node) decide() {
	if n.at == 0 || n.paused || n.copying || n.stopping || n.stopped || n.moving != 0 {
		return
	}
	dead := n.over || len(n.lost) > 0
	switch {
	case dead:
	case n.step > 0,
		!n.cfg.Spatial && n.isDue(n.at),
		n.phase == phaseTargeted && n.at >= n.target:
		n.pause()
		return
	case n.phase == phasePolled && n.at > n.answered:
		return // until the target is known
	}
	if n.cfg.Spatial && n.isDue(n.at) && len(n.lost) == 0 {
		n.setDue(n.at)
		n.save(Save{Index: n.next, Due: n.at, Reason: n.dueReason(), Alone: true})
		return
	}
	n.continueProgram()
}

func (n *Node) continueProgram() {
	n.at = 0
	n.emit(Continue{})
}

func (n *Node) dueReason() string { return fmt.Sprintf("every %d points", n.cfg.Every) }

// save tells the driver to copy.
func (n *Node) save(s Save) {
	s.Point = n.at
	n.copying, n.index = true, s.Index
	n.writing++
	n.stopping = s.Stop
	n.next = s.Index + 1
	n.emit(s)
}

// Blocked tells the Node that the program waits in a message operation. It
// cannot continue before one of the ranks in on (any rank, if on is empty)
// sends it a message or receives one from it. The Node keeps the slice until
// Unblocked.
func (n *Node) Blocked(on []int) { n.blocked, n.on = true, on }

// Unblocked tells the Node that the program can continue. The driver calls it
// when the awaited message has arrived, before the program runs again.
func (n *Node) Unblocked() { n.blocked, n.on = false, nil }

// Copied tells the Node that the copy for Save is made, and that the program
// may change its state again.
func (n *Node) Copied(index uint64) {
	if !n.copying || index != n.index {
		return
	}
	n.copying = false
	if !n.stopping {
		n.continueProgram()
	}
}

// Saved tells the Node, once for each Save, that the rank's part of a
// checkpoint is durable, or why it never will be. It implies Copied.
func (n *Node) Saved(index uint64, err error) { n.SavedAlone(index, Sums{}, err) }

// SavedAlone is Saved for a checkpoint that the rank saved alone. If the sums
// of all ranks show that a message crossed it, its outcome is Failed, with
// ErrCounts.
func (n *Node) SavedAlone(index uint64, sums Sums, err error) {
	n.Copied(index)
	n.writing = max(0, n.writing-1)
	m := Message{Kind: KindSaved, Index: index, Rank: n.cfg.Rank, Sent: sums.Sent, Received: sums.Received}
	if err != nil {
		m.Flags, m.Text = FlagFailed, cut(err.Error())
	}
	n.result(m)
}

// Finished tells the Node that the program has ended: there are no more points
// and no more messages. The driver passes on control messages until
// AllFinished. After Move, Finished implies Moved.
func (n *Node) Finished() {
	if n.finished {
		return
	}
	n.at = 0
	_ = n.Moved(n.moving) // a bad message matters only to ranks that continue
	n.finished, n.blocked = true, false
	if len(n.lost) > 0 {
		n.emit(AllFinished{})
		return
	}
	if !n.stopped {
		n.rankFinished(Message{Kind: KindFinished, Rank: n.cfg.Rank, Point: n.cfg.Counts.Point()})
	}
	n.maybeEnded()
}

// rankFinished reports the first finished rank to the root, which calls the
// round off.
func (n *Node) rankFinished(m Message) {
	if n.over || n.toldFinished {
		return
	}
	n.toldFinished = true
	if n.root == nil {
		n.sendUp(m)
		return
	}
	n.callOff(Message{Flags: FlagOver | n.root.stopFlag(),
		Text: fmt.Sprintf("rank %d, after %d points", m.Rank, m.Point)})
}

func (n *Node) maybeEnded() {
	if !n.finished || n.ended < len(n.children) {
		return
	}
	if n.root == nil {
		n.sendUp(Message{Kind: KindEnded})
		return
	}
	n.sendDown(Message{Kind: KindEnd})
	n.emit(AllFinished{})
}

// Lost tells the Node that a rank died, and why. It ends the round and gives up
// all requests, here and, by messages along the tree, on all living ranks.
func (n *Node) Lost(rank int, why string) {
	if rank == n.cfg.Rank || slices.Contains(n.lost, rank) {
		return
	}
	first := len(n.lost) == 0
	n.lost = append(n.lost, rank)
	slices.Sort(n.lost)
	m := Message{Kind: KindLost, Rank: rank, Text: cut(why)}
	for _, r := range n.lostNeighbours(rank) {
		n.send(r, m)
	}
	if !first {
		return
	}
	stop := n.stopping || n.askedStop || slices.ContainsFunc(n.queue, func(l queuedMessage) bool {
		return l.from == n.cfg.Rank && l.m.Flags&FlagStop != 0
	})
	n.endRound()
	n.root.served()
	n.stopping = false
	n.results = nil
	if !n.stopped {
		n.emit(CalledOff{Err: n.lostError(why), Stop: stop})
	}
	n.lostMoves(n.lostError(why))
	if n.finished {
		n.emit(AllFinished{})
	}
	n.decide()
}

// busy reports whether this rank knows of a round.
func (n *Node) busy() bool { return n.phase != phaseIdle || n.paused }

// lostNeighbours returns the living ranks to inform of a loss: this rank's
// neighbours in the tree, and those of the dead rank, which cannot inform them.
func (n *Node) lostNeighbours(dead int) []int {
	var list []int
	for _, r := range []int{n.cfg.Rank, dead} {
		if r > 0 {
			list = append(list, (r-1)/n.cfg.Arity)
		}
		list = append(list, childrenOf(r, n.cfg.Size, n.cfg.Arity)...)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(r int) bool {
		return r == n.cfg.Rank || slices.Contains(n.lost, r)
	})
}

func (n *Node) lostError(why string) error {
	if why != "" {
		why = ": " + why
	}
	return fmt.Errorf("coord: %w: rank %d%s; restart the run from its recovery line", ErrLost, n.lost[0], why)
}

func (n *Node) overError() error {
	return fmt.Errorf("coord: %w (%s), so there is no common point any more", ErrFinished, n.overWhy)
}
