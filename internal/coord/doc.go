// Package coord holds the protocols with which the ranks of a run agree on a
// checkpoint, and with which they pause together so that some of them can move
// to other hosts. The protocols are state machines without I/O, clock or
// goroutines. Each rank has a Node. It takes events (the program has reached a
// point, a control message has come, a file is written) and returns actions
// (send this, pause the program, copy now). The caller, here called the driver,
// carries the actions out. Nothing here depends on how messages travel, so a
// checkpoint that was taken over one interconnect can be restored over another
// one.
//
// A cut is a choice of one moment on each rank. It is consistent if no message
// is received before the cut and sent after it. A checkpoint saves the ranks at
// a consistent cut, and the messages that cross it. A channel is an ordered
// pair of ranks, i→j, with the messages that i sends to j; it is drained when
// all of them have arrived at j. docs/terms.md has the other words.
//
// # What the ranks do
//
// The program of each rank calls Point at certain places. Its calls are
// numbered 1, 2, 3… Between them it computes and exchanges messages in any
// pattern. The engine that transports these messages numbers them per channel
// and reports totals (Counts). The Nodes exchange control messages, which are
// reliable, and in order per channel. They may overtake the program's messages,
// and be overtaken by them.
//
// Rank 0 is the root of a tree in which every rank has up to Config.Arity
// children: the children of r are r·arity+1 … r·arity+arity. The ranks below r
// are its children, their children, and so on. Control messages travel along
// the tree: up, to the parent, or down, to the children. There are two
// exceptions: a Bookmark goes straight to the peer, and Lost goes also to the
// neighbours of the lost rank.
//
// # A checkpoint on request
//
//	root        ranks                                              the program
//	  │◀─ Ask ────│  somebody wants a checkpoint                    runs
//	  │── Poll ──▶│  how many points have you reached?
//	  │◀─ Count ──│  c, the maximum on the way up                   passes points ≤ c
//	  │─ Target ─▶│  T = max(c)+1                                   passes points < T
//	  │           │◀─ Bookmark ─▶ peers: I have sent you n messages pauses at T
//	  │◀─ Quiet ──│  nobody below can continue by itself
//	  │◀ Complete │  all below are paused, all channels drained
//	  │── Save ──▶│  checkpoint x: copy now, cut at the bookmarks   copies, continues
//	  │◀─ Saved ──│  durable below, or rank r failed
//	  │─ Outcome ▶│  the checkpoint is committed, or it has failed
//
// The ranks' agreement on one checkpoint or move is a round. Rounds are
// numbered (Epoch). Every round ends on every rank with Save, Move or
// CalledOff. A rank gets these from its parent, so it never ends a round before
// its parent does. Only one round is under way at a time, and the root sends
// its Save only when it knows the outcome of the previous checkpoint. The
// checkpoint of a round serves all requests that reach the root before it sends
// Save. It stops the run if one of them asks to stop. Later requests begin the
// next round when the outcome is known.
//
// Negotiation. A rank that has answered c does not leave point c+1 before it
// knows T. T is at least c+1, so no rank has passed T when it learns T. A rank
// below T continues as soon as it learns T. The negotiation always ends,
// because a rank that is blocked in a receive answers, too.
//
// Bookmarks. A bookmark from i to j is the total number of messages that i has
// sent to j. A paused rank sends a bookmark to each peer to which it has sent
// messages since the channels were last drained, and expects one from each of
// these peers. If a rank gets a bookmark from a peer to which it has sent
// nothing, it answers with its own, but only when all messages that the
// bookmark counts have arrived. A rank is complete when it is paused, has the
// bookmarks that it expects, and has received all messages that they count.
//
// When all ranks are complete, every channel is drained. To see this, take a
// channel i→j on which i has sent something. Then i expects a bookmark of j,
// and has it, because i is complete. There are two cases. If j sent it because
// j had sent messages to i, then j expects i's bookmark, and is complete only
// when all of i's messages have arrived. If j sent it as an answer, then i's
// messages had arrived before. So the root needs only one message per edge of
// the tree, Complete. Traffic in both directions needs no more bookmarks than
// traffic in one.
//
// Cut. Save (the action) names, for each peer, the total up to which its
// messages belong to the checkpoint. Messages that have arrived, and that the
// program has not received, are saved as in flight. A rank continues right
// after its own copy. The messages that it sends then have higher numbers than
// the bookmarks, so no barrier is needed.
//
// # When the ranks cannot all pause at T
//
// Let rank 0 execute "Point; send(1)" and rank 1 "recv(0); Point". Rank 0
// pauses at T, so it does not send what rank 1 needs to reach T. The root must
// find out that this has happened.
//
// A rank is quiet when it is paused, or when it knows T and is blocked in a
// message operation. The root collects reports of quiet ranks in waves. In each
// wave, every rank sends one Quiet up, when it and all ranks below it are
// quiet. Quiet carries the totals of messages sent and received. The first wave
// begins by itself; the root begins each further one with Probe. If two
// consecutive waves have the same totals, and as many messages were received as
// sent, then no rank moved and nothing was in flight between them (Mattern's
// four counters). The second of these waves also reports who waits for whom. If
// as many messages were received as sent, the root begins the next wave at
// once. Otherwise it waits for a Notice, which a rank sends when its totals
// have changed since its Quiet. So the root does not probe without need.
//
// When the root knows that no rank makes progress, it sends Release: the paused
// ranks for which blocked ranks wait continue (all paused ranks, if a rank
// waits for any rank). From then on in this round, every rank pauses at its
// next point, whatever its number. A release begins a new step, in which
// bookmarks, waves and completions start again. A moment in which all ranks are
// paused is a consistent cut, whatever the numbers of their points are. So an
// unnecessary release only moves the cut to later points.
//
// A released rank does only work that it would do anyway, so a program that
// ends without checkpoints also ends with them. A program may have no cut at
// all: if rank 1 is at a point only while rank 0 waits for it, and vice versa,
// then the two are never at points at the same time. After Config.MaxReleases
// releases, the root calls the round off, with an error that says which rank
// waits for which. It calls the round off at once if blocked ranks wait only
// for blocked ranks: then the program itself is in a deadlock.
//
// # Due points
//
// With Config.Every, points whose number is a multiple of it are due.
//
// Paused together (the default). A rank that reaches due point N pauses there
// without a Poll and sends its bookmarks. It also sends Due to the root, which
// sends Target N to all ranks, because some may be blocked before N. No rank
// passes N before the round ends, so the target of a request is never greater
// than N: T = min(max(c)+1, N). If T < N, all ranks pause at T first. If T = N,
// the request and the due point share one round. All ranks decide alike,
// although they hear of the request at different times.
//
// Spatial (Config.Spatial). A rank that reaches a due point saves alone,
// without any control message, and continues. This is correct if no message
// crosses the point. The root verifies that: Saved carries sums of the message
// totals (see Sums). A checkpoint that a message crosses fails (ErrCounts), and
// never becomes the recovery line. A checkpoint that is requested for point T
// replaces one that is due at T.
//
// Indices. Every rank counts checkpoints, and each checkpoint takes the next
// index. Without releases, all ranks take the same checkpoints in the same
// order, because a rank knows T before it can pass T. A rank that is released
// from a due point skips the spatial checkpoint there, but counts it. Still,
// ranks may have different counts at Save: one rank may be paused before a due
// point that another one has passed. Therefore Complete reports the highest
// next index of all ranks, and Save makes all ranks use it. Save also names the
// last due point that any rank has reached, and all ranks skip due points up to
// it. So does CalledOff if ranks pause together at due points; with spatial
// checkpoints, CalledOff skips nothing. One index never means two checkpoints.
// A spatial checkpoint that some ranks skipped is never committed.
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
// A round for a move saves nothing and has no outcome. Its Target says that it
// is for a move. Then a rank is complete only when its own parts of earlier
// checkpoints are written, or have failed, and when it has reported this with
// Saved. So at Move no checkpoint is being written, and all ranks know the
// outcome of every checkpoint that has one. (A spatial checkpoint that some
// ranks have not reached yet has none.)
//
// Between Move and Moved, a Node sends only Lost. It queues what comes: control
// messages, and calls of Ask and AskMove. Export returns its state, including
// this queue. Import makes a Node of that state in the destination, which is
// between Move and Moved, too. Any rank may move, also the root, also all ranks
// at once. No barrier follows: ranks that have continued send messages and may
// begin the next round, while on others Moved has not been called yet; these
// handle their queue after Moved. The destination's program enters point T
// again. Until then its count of points may be one too low. This can lower the
// target of the next round, but not below T. If no rank has passed T, the
// target may be T, and the destination pauses there.
//
// Each AskMove has a round of its own, and a round is either for a move or for
// a checkpoint. Requests that the round under way cannot serve wait for the
// next one. If both kinds wait, they take turns: a checkpoint comes first, and
// then the move that has waited for it. A request to stop comes before
// everything, even in a round that was begun for a move. It cancels the moves
// that wait, because a run that stops does not move.
//
// Moves and due points. If ranks pause together at due points, and a round that
// was begun for a move reaches a due point, then the round takes the due
// checkpoint, and the move gets the next round. If that one reaches a due point
// N, too (every point may be due), the move goes first. If the round had no
// releases, all ranks are at N then, and N stays due: after Moved, each rank
// pauses there again (a destination, when it reaches N again), and the next
// round takes the checkpoint. If it had releases, all ranks skip due points up
// to that of the furthest rank, as if the round were called off. With spatial
// checkpoints, a move changes nothing: a rank that is paused at a due point
// saves alone there after Moved, and one that was released from it has skipped
// that checkpoint.
//
// The action MoveOff says that there will be no move: there is no cut, a rank
// has finished or was lost, or the run stops. The Node of rank 0 returns it; or
// that of the rank that asked, if it already knows that there will be no move.
// If a round for a move is called off, requests for checkpoints wait for the
// next round. The action CalledOff is then returned only if a due checkpoint is
// skipped or a rank has finished.
//
// # Outcome and recovery line
//
// A rank sends Saved up when it and all ranks below have written a checkpoint,
// or have failed to write it. The root sends the outcome to all. It does so for
// spatial checkpoints, too, while the program runs. A committed checkpoint is
// the recovery line: all ranks have it, and older ones may be removed. If the
// run is to stop, the programs stay paused until the outcome is known, and then
// stop, even if the checkpoint has failed.
//
// # When a program ends or a rank is lost
//
// A rank whose program has ended has no more points. So the root calls off the
// round under way, and begins no further rounds. Spatial checkpoints still
// complete, because the rank has saved its part of them before. Nodes pass on
// control messages until all programs have ended (AllFinished).
//
// When a rank is lost, every rank that hears of it ends its round, and gives up
// checkpoints and moves. The program continues (between Move and Moved: after
// Moved), and the Node takes no more checkpoints: the run must be restarted. A
// rank that hears of a loss sends Lost to its neighbours in the tree and to
// those of the lost rank. So all living ranks hear of it, if at least one
// living rank sees each loss.
//
// # Messages
//
// A message is one byte with its Kind, and the fields of that kind in this
// order. Below, "kind 1" is a field of one byte; other numbers are unsigned
// varints in their shortest form.
//
//	kind 1 │ flags 1 │ epoch step wave point index sent received paused move │ rank │
//	length text │ count rank… │ count (rank count rank…)…
//
//	Ask        flags text                        stop; reason
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
//	Saved      flags index sent received rank text
//	                                             sums; failed: rank and why
//	Outcome    flags index rank text             failed: rank and why
//	CalledOff  flags epoch point text            stop, over, failed, move; last due point
//	                                             that is done
//	Finished   point rank
//	Ended, End
//	Lost       rank text
//	Fault      epoch step text                   more received than was sent
//	AskMove    move                              its id
//	Move       epoch point move                  last due point that is done
//
// # State
//
// Export writes these fields, with numbers and texts as in messages ("version
// 1" is a field of one byte):
//
//	version 1 │ flags 1 │ rank size arity every │ move epoch due next line │
//	sent received at the start │ count (rank total)… at the last drained cut │
//	count (rank total)… bookmarks │ count (rank epoch step total)… bookmarks of later steps │
//	count (flags 1, index left sums rank text)… results │ root: reason, count move… │
//	count (rank, length message)… queued
//
// # Cost
//
// For a checkpoint, a rank sends a bookmark to each peer with traffic (and an
// answer if traffic went one way), and up to 8 messages along the tree, or 11
// if ranks block on their way to the target. A checkpoint takes as long as
// about 8 messages through the whole depth of the tree, and a rank is paused
// for about 2 of these 8. Package coordtest measures this. A move needs neither
// Saved nor Outcome, and ranks are paused until Moved.
//
// # Files
//
//	node.go      a rank's state machine: its events, and the program's points
//	round.go     a round: negotiation, bookmarks, draining, Save and CalledOff
//	quiet.go     waves and releases
//	root.go      what only rank 0 decides
//	outcome.go   the outcome of a checkpoint, and the recovery line
//	move.go      moves
//	state.go     the state that moves with a rank
//	action.go    what a Node asks of its driver
//	message.go   control messages and their encoding
package coord
