// Package coord holds the protocols with which the ranks of a run agree on a
// checkpoint, and with which they pause together so that some of them can move
// to other hosts. The protocols are state machines without I/O, clock or
// goroutines: a Node takes events (the program has reached a point, a control
// message has come, a file is written) and returns actions (send this, pause
// the program, copy now). Its driver carries them out. Nothing here depends on
// how messages travel, so a checkpoint that was taken over one interconnect can
// be restored over another one.
//
// # What the ranks do
//
// Each rank calls Point at certain places. Its calls are numbered 1, 2, 3…
// Between them it computes and exchanges messages in any pattern. The engine
// below numbers messages per ordered pair of ranks and reports totals (Counts).
// Control messages are reliable, and in order per pair of ranks. Nothing is
// assumed about their order relative to data.
//
// Rank 0 is the root of a tree in which every rank has up to Config.Arity
// children: the children of r are r·arity+1 … r·arity+arity. All control
// messages travel along the tree, except for bookmarks, which go straight to
// the peer.
//
// # A checkpoint on request
//
//	root        ranks                                              the program
//	  │◀─ Ask ────│  somebody wants a checkpoint                    runs
//	  │── Poll ──▶│  how many points have you reached?
//	  │◀─ Count ──│  c, the maximum on the way up                   passes points ≤ c
//	  │─ Target ─▶│  T = max(c)+1                                   passes points < T
//	  │           │◀─ Bookmark ─▶ peers: so many I sent you         pauses at T
//	  │◀─ Quiet ──│  nobody below can continue by itself
//	  │◀ Complete │  all below are paused, all channels drained
//	  │── Save ──▶│  checkpoint x: copy now, cut at the bookmarks   copies, continues
//	  │◀─ Saved ──│  durable below, or rank r failed
//	  │─ Outcome ▶│  the checkpoint is committed, or it has failed
//
// Rounds are numbered (Epoch). Every round ends on every rank with Save, Move
// or CalledOff, which pass through the parent, so a rank is never ahead of its
// parent. Only one round is under way at a time, and a round's Save waits for
// the outcome of the previous checkpoint. This checkpoint serves all requests
// that reach the root before it sends Save; it stops the run if one of them
// asks to stop. Later requests begin the next round when the outcome is known.
//
// Negotiation. A rank that has answered c waits in point c+1, if it gets there,
// until it knows T. So no rank has passed T when T becomes known, and no rank
// waits that could continue. There is no circular wait, because a rank that is
// blocked in a receive answers, too.
//
// Bookmarks. A paused rank sends a bookmark to each peer to which it has sent
// messages since the channels were last drained: the total number of messages
// it has sent. It expects a bookmark from each such peer. A rank that gets a
// bookmark from a peer to which it has sent nothing answers with its own, but
// only when everything up to the bookmark has arrived. A rank is complete when
// it is paused, has the bookmarks that it expects, and has received all
// messages that they announce.
//
// When all ranks are complete, every channel is drained. To see this, take a
// channel i→j on which something was sent. Rank i has a bookmark of j. If j
// sent it on its own account, j expects i's bookmark, and is complete only with
// all of i's messages. If it is an answer, the messages had arrived before. So
// one message per edge of the tree informs the root, and traffic in both
// directions needs no more bookmarks than traffic in one.
//
// Cut. Save names, for each peer, the total up to which its messages belong to
// the checkpoint. Messages that have arrived and were not received by the
// program are saved as in flight. A rank continues right after its own copy.
// Its new messages have higher numbers, so no barrier is needed.
//
// # When there is no cut at equal numbers
//
// In "Point; send(1)" on rank 0 and "recv(0); Point" on rank 1, rank 0, paused
// at T, never sends what rank 1 needs to reach T. Therefore ranks that know T
// also report when they are blocked. A rank is quiet when it is paused or
// blocked. It reports this once per wave, when all ranks below are quiet, too,
// with the totals of messages sent and received. If two consecutive waves have
// the same totals, with sent = received, then nothing moved and nothing was in
// flight between them (Mattern's four counters). The second wave also reports
// who waits for whom. After a wave that proves nothing, the root waits for a
// Notice, which a quiet rank sends when its totals have changed. So nobody
// polls in vain.
//
// The root then sends Release: the paused ranks for which blocked ones wait
// continue (all paused ranks, if a rank waits for any other). From now on in
// this round, every rank pauses at its next point, whatever its number. This
// begins a new step, in which bookmarks, waves and completions start anew. A
// moment in which all ranks are paused is a consistent cut, whatever the point
// numbers are. So a false alarm moves the cut and does no harm.
//
// A release lets a program do only work that it would do anyway, so a program
// that ends by itself ends in a round, too. A program may have no cut at all:
// if rank 1 is in a point only while rank 0 waits for it, and vice versa, then
// both are never in points at the same time. After Config.MaxReleases the round
// is called off, with an error that says who waits for whom. The round is
// called off at once if no paused rank can help the blocked ones: then the
// program itself is in a deadlock.
//
// # Due points
//
// With Config.Every, points whose number is a multiple of it are due.
//
// Paused together (the default). A rank that reaches due point N pauses there
// without a poll and sends its bookmarks. It also sends Due up, so that the
// root sends Target N to ranks that may be blocked. No rank passes N before the
// round ends, so the target of a request never lies beyond N: T = min(max(c)+1,
// N). Either T < N, and all ranks pause at T first, or the request and the due
// point are one round. All ranks decide alike, although they hear of the
// request at different times.
//
// Spatial (Config.Spatial). A rank that reaches a due point saves alone,
// without any message, and continues. This is correct if no message crosses the
// point. The root verifies that: Saved carries sums of the message totals (see
// Sums). A checkpoint that a message crosses has failed (ErrCounts), and never
// becomes the recovery line. A checkpoint that is requested for point T
// replaces one that is due at T.
//
// Indices. Every rank counts checkpoints, and each checkpoint takes the next
// index. Without releases, all ranks take the same checkpoints in the same
// order, because a rank knows T before it can pass it. A rank that is released
// from a due point skips the spatial checkpoint there, but counts it. At Save,
// ranks may have counted differently: one may be paused before a due point that
// another one has passed. So Complete reports the highest next index of all
// ranks, and Save makes it the index on all of them. Save also names the last
// due point that any rank has reached, and all ranks skip due points up to
// there. CalledOff does the same where ranks pause at due points; where they
// save alone, nothing is skipped. One index never means two checkpoints. A
// spatial checkpoint that some ranks skipped is never committed.
//
// # Moves
//
// AskMove asks all ranks to pause at the same time, so that links can change
// and a rank can continue in another process, the destination.
//
//	root        ranks                                              the program
//	  │◀ AskMove ─│  somebody wants to move ranks                   runs
//	  │ ⋮         │  Poll … Complete, as for a checkpoint           pauses at T
//	  │── Move ──▶│  all are paused, all channels are drained       stays in T
//	  │           │  Export ─▶ Import in another process
//	  │           │  Moved, on each rank when it is ready           continues from T
//
// Such a round ends differently: nothing is saved, and there is no outcome. Its
// Target says that it is for a move. Then a rank is complete only when its own
// parts of earlier checkpoints are written, or have failed, and it has reported
// so in Saved. So at Move no checkpoint is being written, and all ranks know
// the outcome of every checkpoint that has one. (A spatial checkpoint that some
// ranks have not reached yet has none.)
//
// Between Move and Moved, a Node sends nothing but the news of a loss. It
// queues what comes: control messages, Ask and AskMove. Export returns its
// state, including this queue. The Node that Import makes of it is between Move
// and Moved, too. Any ranks may move, also the root, also all of them. No
// barrier follows: ranks that have continued send messages and may begin the
// next round, while others still have to call Moved and then handle their
// queue. The destination's program enters T once more. Until then its count of
// points may be one too low. That lowers a target at most to T itself, and
// pauses the destination there if no rank has passed it.
//
// Each AskMove has a round of its own, and a round is either for a move or for
// a checkpoint. Requests that come meanwhile wait for the next round. If both
// kinds wait, they take turns: a checkpoint first, but a move that has let a
// checkpoint go first is next. A request to stop goes before everything, also
// in a round that was begun for a move. It cancels the moves that wait, because
// a run that stops does not move.
//
// Due points. Where ranks pause together, a round that was begun for a move and
// reaches a due point N becomes the round of the due checkpoint, and the move
// is next. If the next round reaches a due point, too (every point may be due),
// the move goes first. If all ranks are at N then (no releases), N stays due:
// after Moved, each rank pauses there again, a destination when it gets there
// again, and the checkpoint follows in the next round. After releases, due
// points up to the furthest rank are skipped, as if the round were called off.
// Where ranks save alone, a move changes nothing: a rank that is paused at a
// due point saves alone there after Moved, and one that was released from it
// has skipped that checkpoint.
//
// MoveOff says that there will be no move: there is no cut, a rank has finished
// or was lost, or the run stops. It is given on rank 0, or on the rank that
// asked if that one knows already. If a round for a move is called off,
// requests for checkpoints wait for the next round. CalledOff is not given for
// it, unless a due checkpoint is skipped or a rank has finished.
//
// # Outcome and recovery line
//
// A rank sends Saved up when all ranks below it have written a checkpoint or
// have failed to. The root sends the outcome to all. This holds for spatial
// checkpoints, too, while the program runs. A committed checkpoint is the
// recovery line: all ranks have it, and older ones may be removed. With stop,
// the programs stay paused until the outcome is known, and then stop, even if
// the checkpoint has failed.
//
// # Ends
//
// A rank whose program has ended has no more points. So the round under way is
// called off, and there are no further rounds. Spatial checkpoints still
// complete, because the rank has saved its part of them before. Nodes pass on
// control messages until all programs have ended (AllFinished).
//
// When a rank is lost, every rank that hears of it calls everything off. The
// programs continue (between Move and Moved only after Moved), and the Node
// takes no more checkpoints: the run must be restarted. A rank informs its
// neighbours in the tree and those of the lost rank. So all living ranks hear
// of it, if one of these sees each loss.
//
// # Messages
//
// A message is one byte with its Kind, and the fields of that kind in this
// order. Numbers are unsigned varints in their shortest form.
//
//	kind 1 │ flags 1 │ epoch step wave point index sent received paused move │ rank │
//	length text │ count rank… │ count (rank count rank…)…
//
//	Ask        flags text                        stop
//	Due        epoch
//	Poll       epoch
//	Count      epoch point                       points reached, at most
//	Target     flags epoch point                 move
//	Bookmark   epoch step sent                   total on this channel
//	Quiet      epoch step wave point sent received paused waits
//	Notice     epoch step wave
//	Probe      flags epoch step wave             detail: report waits, too
//	Release    flags epoch step ranks            all, or the ranks named
//	Complete   epoch step point index            furthest point, highest next index
//	Save       flags epoch point index text      stop; last due point that is done; reason
//	Saved      flags index rank text             failed: rank and why
//	Outcome    flags index rank text             failed: rank and why
//	CalledOff  flags epoch point text            stop, over, failed, move; last due point that is done
//	Finished   point rank
//	Ended, End
//	Lost       rank text
//	Fault      epoch step text                   more received than was sent
//	AskMove    move                              its id
//	Move       epoch point move                  last due point that is done
//
// # State
//
// Export writes, with numbers and texts as in messages:
//
//	version 1 │ flags 1 │ rank size arity every │ move epoch due next line │
//	sent received at the start │ count (rank total)… at the last drained cut │
//	count (rank total)… bookmarks │ count (rank epoch step total)… early ones │
//	count (flags 1, index left sums rank text)… results │ root: reason, count move… │
//	count (rank, length message)… queued
//
// # Cost
//
// A checkpoint costs, per rank, a bookmark to each peer with traffic (and an
// answer where traffic went one way), and up to 8 messages along the tree, or
// 11 where ranks block on their way to the target. It takes about 8 times the
// tree's depth in message delays, and a rank is paused for about 2 of these 8.
// Package coordtest measures this. A move needs neither Saved nor Outcome, and
// ranks are paused until Moved.
//
// # Files
//
//	node.go      a rank's state machine: its events, and the program's points
//	round.go     a round: negotiation, bookmarks, draining, Save and CalledOff
//	quiet.go     waves and releases
//	root.go      what only rank 0 decides
//	outcome.go   the outcome of a checkpoint, and the recovery line
//	move.go      moves; state.go: the state that moves with a rank
//	action.go    what a Node asks of its driver
//	message.go   control messages and their encoding
package coord
