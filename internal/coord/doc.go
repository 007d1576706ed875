// Package coord holds the protocols by which the ranks of a run take a set
// together, and stand still together so that some can move to other hosts. They
// are state machines with no I/O, no clock and no goroutine: a Node takes
// events (a point reached, a control message, a file saved) and returns actions
// (send this, hold the program, copy now). The driver carries them out. Nothing
// here depends on how messages travel, so that a set taken over one
// interconnect is restored over another one.
//
// # What the ranks do
//
// Each rank calls Point at certain places; its calls are numbered 1, 2, 3…
// Between them it computes and exchanges messages in any pattern. The engine
// below numbers messages per ordered pair of ranks and reports totals
// (Counts). Control messages are reliable and in order per pair of ranks;
// nothing is assumed about their order relative to data.
//
// Rank 0 is the root of a tree in which every rank has up to Config.Arity
// children: the children of r are r·arity+1 … r·arity+arity. All control
// messages travel along the tree but bookmarks, which go straight to the peer.
//
// # A set on request
//
//	root        ranks                                              the program
//	  │◀─ Ask ────│  somebody wants a set                           runs
//	  │── Poll ──▶│  how many points have you reached?
//	  │◀─ Count ──│  c, the maximum on the way up                   passes points ≤ c
//	  │─ Target ─▶│  T = max(c)+1                                   passes points < T
//	  │           │◀─ Bookmark ─▶ peers: so many I sent you         held at T
//	  │◀─ Quiet ──│  nobody below can go on by itself
//	  │◀ Complete │  all below are held, all channels drained
//	  │── Save ──▶│  set x: copy now, cut at the bookmarks          copies, goes on
//	  │◀─ Saved ──│  durable below, or rank r failed
//	  │─ Outcome ▶│  the set counts, or not
//
// Rounds are numbered (Epoch) and every round ends on every rank with Save,
// Move or CalledOff, which pass through the parent: a rank is never ahead of its
// parent. Only one round is under way at a time, and a round's Save waits for
// the outcome of the set before. Asks that reach the root before it says Save
// are served by that set; stop is or-ed. Later ones begin the next round when
// the outcome is known.
//
// Negotiation. A rank that has answered c stays in point c+1, if it gets
// there, until it knows T. So nobody has passed T when T becomes known, nobody
// waits who could go on, and there is no circle: a rank that is blocked in a
// receive answers too.
//
// Bookmarks. A rank that is held tells each peer to which it sent something
// since the last drained set how much that was in all, and expects a bookmark
// of each such peer. A rank that gets a bookmark from a peer to which it has
// sent nothing answers with its own, but only when everything up to the
// bookmark has arrived. A rank is complete when it is held, has what it
// expects, and all that was announced to it has arrived. When all are
// complete, every channel is drained. For i→j, with something sent: i has a
// bookmark of j. Either j sent it on its own account; then j expects i's, and
// is complete only with all of i's messages. Or it is an answer, and they had
// arrived. So one message per edge of the tree tells the root, and traffic
// both ways costs no more bookmarks than traffic one way.
//
// Cut. Save names for each peer the total up to which its messages belong to
// the set. What has arrived and was not received by the program is saved as in
// flight. A rank goes on right after its own copy; its new messages have
// higher numbers, and no barrier is needed.
//
// # When there is no cut at equal numbers
//
// In "Point; send(1)" on rank 0 and "recv(0); Point" on rank 1, rank 0 held at
// T never sends what rank 1 needs to reach T. Therefore ranks that know T also
// tell when they are blocked. A rank is quiet when it is held or blocked; it
// says so once per wave, when all below are quiet too, with the totals of
// messages sent and received. Two waves one after the other with sent =
// received, the same in both, prove that nothing moved and nothing was on its
// way in between (Mattern's four counters). The second wave also brings who
// waits for whom. After a wave that proves nothing the root waits for a
// Notice, which a quiet rank sends when its totals have changed: nobody polls
// in vain.
//
// The root then sends Release: those held ranks for which blocked ones wait go
// on (all of them if someone waits for anybody), and from now on in this round
// every rank is held at its next point, whatever its number. This begins a new
// step, in which bookmarks, waves and completions count from the start. A
// moment in which all ranks are held is a consistent cut, whatever the point
// numbers are; a false alarm moves the cut and does no harm.
//
// Each release lets a program do work that it would do anyway, so a program
// that ends by itself ends in a round too. It may have no cut at all: where
// rank 1 is in a point only while rank 0 waits for it, and the other way
// around, no moment has both in points. After Config.MaxReleases the round is
// called off with an error that says who waits for whom. The same at once if
// no held rank can help the blocked ones: then the program is in a deadlock of
// its own.
//
// # Due points
//
// With Config.Every, points with a multiple of that number are due.
//
// Paused together (the default): a rank that reaches due point N is held there
// with no poll and sends its bookmarks. It also sends Due up, so that the root
// sends Target N to those that may be blocked. Nobody passes N before the
// round ends, so a request's target never lies beyond it: T = min(max(c)+1,
// N). Either T < N and all hold at T first, or the request and the due point
// are one round. All ranks decide alike although they hear of the request at
// different times.
//
// Spatial (Config.Spatial): a rank that reaches a due point saves alone, with
// no message, and goes on. That is right where no message crosses the point.
// Saved carries sums of the totals of messages (see Sums), by which the root
// finds out: a set that a message crosses has failed (ErrCounts), and never
// becomes the recovery line. A set that is asked for at T takes the place of one
// that is due at T.
//
// Indices. Every rank counts sets: each takes the index after the one before.
// Without releases all ranks take the same sets in the same order, since a
// rank knows T before it can pass it. A rank that is let on from a due point
// leaves out the spatial set there, but counts it. At Save ranks may have
// counted differently (one is held before a due point that another one has
// passed), so the root takes the highest next index of all ranks, told in
// Complete; Save sets the count of all ranks right. It also says up to which
// due point any rank has got, and all ranks leave out due points up to there.
// CalledOff says the same where ranks are held at due points; where they save
// alone nothing is left out. An index never means two sets; a spatial set
// that some ranks left out is never committed.
//
// # Moves
//
// AskMove asks that all ranks stand still at once, so that links can change
// and a rank can go on in another process.
//
//	root        ranks                                              the program
//	  │◀ AskMove ─│  somebody wants to move ranks                   runs
//	  │ ⋮         │  Poll … Complete, as for a set                  held at T
//	  │── Move ──▶│  all are held, all channels are drained         stays in T
//	  │           │  Export ─▶ Import in another process
//	  │           │  Moved, on each rank when it is ready           goes on from T
//
// Such a round differs from a set's in its end: nothing is saved, and there is
// no outcome. Its Target says what it is for, and then a rank is complete only
// when its own parts of earlier sets are written (or have failed); it has told
// so before, in Saved. So at Move no set is being written, and
// all ranks know the outcome of all sets that have one. (A spatial set that
// some ranks have not come to yet has none.)
//
// Between Move and Moved a Node stands still. It sends nothing but the news of
// a loss, and puts aside what comes: control messages, Ask and AskMove. Export
// writes down what it knows, with what it has put aside; the Node that Import makes
// of that is between Move and Moved, too. Any ranks may change places, also the
// root, also all. No barrier follows: ranks that are on send messages and
// may begin the next round, while others still have to call Moved and then take
// up what they have put aside. A newcomer's program enters T once more, so that
// until then its count of points may be one short: that lowers a target at
// most to T itself, and holds the newcomer there if nobody has passed it.
//
// Each AskMove has a round of its own, and a round is either a move's or a
// set's. Asks that come during the one wait for the next round, where they
// take turns if both kinds wait: a set first, but a move that has let a set go
// first is next. A stop goes before everything, also in a round that was begun
// for a move, and the moves that wait are off: a run that stops does not move.
//
// Due points. Where ranks are held together, a round that was begun for a move and
// gets to a due point N is the due set's, and the move is next. If that one
// gets to a due point, too (every point may be due), the move goes first. If
// all ranks are at N then (no releases), N stays due: after Moved each is held
// there again, a newcomer when it gets there again, and the set follows in the
// next round. After releases due points up to the furthest rank are left out,
// as if the round were called off. Where ranks save alone a move changes
// nothing: a rank that is held at a due point saves alone there after Moved, and
// one that was let on from it has left that set out.
//
// MoveOff says that there will be no move: no cut, a rank finished or lost, or
// the run stops. It comes on rank 0 (on the rank that asked, if that knows it
// already). A move's round that is called off lets asks for sets wait for the
// next one, and no CalledOff is given for it, unless a due set is left out or
// a rank has finished.
//
// # Outcome and recovery line
//
// Saved goes up when all ranks below have a set or have failed; the root tells
// all. This goes for spatial sets too, behind the program's back. A set that
// is committed is the recovery line: all ranks have it, and older ones may go
// (Garbage). With stop the programs stay held until the outcome is known, and
// then stop, also if the set failed.
//
// # Ends
//
// A rank whose program has ended has no more points: the round under way is
// called off and there are no further ones. Spatial sets go on, since the rank
// has taken its part of them before. Nodes go on passing control messages
// until all programs have ended (AllFinished).
//
// When a rank is lost, everything is called off on every rank that hears of
// it, programs go on (between Move and Moved only after Moved), and the Node
// takes no more sets: the run is to be restarted. A rank tells its neighbours in the tree and those of the lost
// rank, so that all hear of it that are alive, if each loss is seen by one of
// them.
//
// # Messages
//
// A message is one byte with its Kind and the fields of that kind in this
// order; numbers are unsigned varints in their shortest form.
//
//	kind 1 │ flags 1 │ epoch step wave point set sent received held move │ rank │
//	length text │ count rank… │ count (rank count rank…)…
//
//	Ask        flags text                        stop
//	Due        epoch
//	Poll       epoch
//	Count      epoch point                       points reached, at most
//	Target     flags epoch point                 move
//	Bookmark   epoch step sent                   total on this channel
//	Quiet      epoch step wave point sent received held waits
//	Notice     epoch step wave
//	Probe      flags epoch step wave             detail: with waits, please
//	Release    flags epoch step ranks            all, or the ranks named
//	Complete   epoch step point set              furthest point, highest next set
//	Save       flags epoch point set text        stop; due points done with; reason
//	Saved      flags set rank text               failed: rank and why
//	Outcome    flags set rank text               failed: rank and why
//	CalledOff  flags epoch point text            stop, over, failed, move; due points done with
//	Finished   point rank
//	Ended, End
//	Lost       rank text
//	Fault      epoch step text                   more received than was sent
//	AskMove    move                              its id
//	Move       epoch point move                  due points done with
//
// # State
//
// Export writes, with numbers and texts as in messages:
//
//	version 1 │ flags 1 │ rank size arity every │ move epoch due next line │
//	sent received at the start │ count (rank total)… at the last drained cut │
//	count (rank total)… bookmarks │ count (rank epoch step total)… early ones │
//	count (flags 1, set left rank text)… results │ root: reason, count move… │
//	count (rank, length message)… put aside
//
// # Cost
//
// A set costs, per rank, a bookmark to each peer with traffic (and an answer
// where it went one way), and up to 8 messages along the tree, 11 where ranks
// block on their way to the target; about 8 times the tree's depth in message
// delays, of which a rank is held for about 2. See Simulate. A move saves
// Saved and Outcome, and ranks are held until Moved.
package coord
