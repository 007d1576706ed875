// Package control is what the processes of a supervised run say to each
// other, and how.
//
//	cairn run ── supervisor ──── cairn status, checkpoint, stop, migrate   (control.sock)
//	   │ socketpair, a remote shell's stdin and stdout, or TCP
//	   └─ helper, one per host
//	         │ socketpair, descriptor CAIRN_CONTROL of the rank
//	         └─ rank
//
// On the wire a message is
//
//	┌────────────┬──────────────────┐
//	│ length u32 │ JSON of Message  │   big-endian; length counts the JSON
//	└────────────┴──────────────────┘
//
// On a Unix socket, descriptors may travel with the first byte of a message.
// A TCP connection begins with a handshake, in which both sides prove that
// they know the run's secret (see Client and Server).
//
// A rank and its helper:
//
//	rank                              helper
//	  Hello{Pid, Dir}            →
//	                             ←    Welcome{Welcome}
//	  Endpoint{Epoch, Data}          →         when all ranks' cards of the epoch are there
//	                             ←    Endpoints{Epoch, Endpoints}
//	  Restored{Index, OK}          →         OK false: there was nothing to restore
//	  Progress{Points, Messages} →         about twice a second
//	                             ←    Checkpoint{Reason, Stop}   to rank 0, or to any rank
//	  Saved{Index, …} | Failed{Index, Error}
//	  Committed{Index}             →         every rank has saved it
//	                             ←    Lost{Rank, Why}            another rank is gone
//	  Stopped{Index} | Finished{}  →
//
// A rank that moves to another host (docs/migration.md): its source is the
// process that leaves, the newcomer the one that takes its place.
//
//	newcomer      source      others       supervisor
//	  Listening ──────────────────────────────▶   it waits for its state
//	                ◀──────────────────────  Precopy: send it while the program goes on
//	               Precopied ─────────────────▶   what is left to send is little
//	                ◀───────────◀──────────  Pause: be held at one common point
//	               Paused ─────────────────▶
//	               Sent ─────────────────▶   the newcomer has all of it
//	  Received ────────────────────────────▶   … and could go on
//	                ◀──────────────────────  Switch{OK}
//	               HandedOver ─────────────────▶   it is nobody any more, and is killed
//	  ◀─────────────────────────◀──────────  Switch{OK, Endpoints}
//	  Linked ──────────────── Linked ────▶   all goes on
//
// The helper passes what a rank says to the supervisor with Rank filled in,
// and what the supervisor says to the rank that Rank names (or AllRanks).
package control

import "time"

// Kind says what a message is.
type Kind string

// What a rank says.
const (
	Hello     Kind = "hello"     // Pid, Dir: the program uses Cairn; Dir is its checkpoint folder, absolute, or empty for Welcome.Dir
	Endpoint  Kind = "card"      // Epoch, Data: asks for everybody's cards of this epoch, and gives its own
	Progress  Kind = "progress"  // Points, Messages: how many there were
	Restored  Kind = "restored"  // Index, OK: restored from Index; OK false: a fresh start
	Saved     Kind = "saved"     // Index, Reason, State, Written, PauseNS, TookNS, Line: this rank's part is durable
	Failed    Kind = "failed"    // Index, Error: this rank's part was not saved, or the round was called off
	Committed Kind = "committed" // Index: all ranks saved it
	Refused   Kind = "refused"   // Error: the program can't go on from its set as it is started now; trying again is of no use
	Finished  Kind = "finished"  // the program's work is done
	Stopped   Kind = "stopped"   // Index: the program was told to stop; Index is what it goes on from
)

// What a rank is told.
const (
	Welcomed   Kind = "welcome"    // Welcome: the answer to Hello
	Endpoints  Kind = "cards"      // Epoch, Endpoints: the answer to Endpoint, indexed by rank
	Checkpoint Kind = "checkpoint" // Reason, Stop: save soon, and stop after that if Stop
	Lost       Kind = "lost"       // Rank, Why: that rank is gone; this one will be ended in a moment
)

// About a move, see above. All have Move.
const (
	StartDestination Kind = "arrive"  // to a helper: Start, of one rank, with Welcome.Move: start a newcomer
	Listening        Kind = "here"    // of a newcomer: Data is its card, Move.Addresses where it takes its state
	Precopy          Kind = "ahead"   // to a source: Move.Addresses of its newcomer
	Precopied        Kind = "near"    // of a source: to be held now
	Pause            Kind = "gather"  // to all ranks: be held together; Endpoints of the newcomers
	Paused           Kind = "held"    // of a source: all ranks are
	Sent             Kind = "sent"    // of a source: Move.Stats
	Received         Kind = "landed"  // of a newcomer
	Switch           Kind = "switch"  // OK: the newcomers take over, whose Endpoints these are (to a newcomer: those of all); else they do not, and everything goes on
	HandedOver       Kind = "left"    // of a source: to be killed
	Linked           Kind = "linked"  // of newcomers and others
	Spawn            Kind = "spawn"   // to any rank: Host, Start.Command and .Env: have the MPI library start this there, for rank Move.Ranks
	Spawned          Kind = "spawned" // the answer: Busy: it is about to; then Error: it did not, or nothing
	MoveFailed       Kind = "unmoved" // of any rank: Error: it can't be moved
)

// Between helper and supervisor only.
const (
	Joined       Kind = "joined"    // Host, Pid, Rank (of a launched helper): the helper's first message
	Setup        Kind = "setup"     // Host, Dir, OK, EvacuateWhen: the helper's name and the run's folder; OK: the supervisor is on the same machine
	Ready        Kind = "ready"     // Error, Busy, Why: the answer to Setup; Busy: another helper, Why, has the host; to be tried again
	Launch       Kind = "launch"    // Start: start these ranks
	Running      Kind = "running"   // Rank, Pid: the rank was started
	FollowOutput Kind = "follow"    // Rank, ByMove, Ends: pass on the output of a newcomer, from these positions on
	Evacuate     Kind = "leave"     // of a helper: its host is to be left, or Error: what EvacuateWhen says can't be run
	Exited       Kind = "exited"    // Rank, Code, Signal, Error: the rank has ended, or could not be started; Ends: of one that has HandedOver, to where its output was passed on; Why: of a newcomer that was not one of the ranks, what it wrote to stderr last
	Output       Kind = "output"    // Rank, Stream, Offset, Data; no Data: the file was cut to Offset
	OutputTaken  Kind = "shown"     // Rank, Stream: the last Output was taken; send more
	Drained      Kind = "drained"   // Launch, Number (of the last Start): all ranks of the launch have ended, their writers and outputs are done
	Terminate    Kind = "terminate" // SIGTERM to all ranks
	Kill         Kind = "kill"      // SIGKILL to all ranks; with ByMove, to the newcomer of Rank only
	Quit         Kind = "quit"      // the helper ends when its ranks have
	Ping, Pong   Kind = "ping", "pong"
)

// Between cairn's commands and the supervisor: Status, Checkpoint, Stop and
// Migrate are asked; the answer has the same kind, and Error or Run.
const (
	Status  Kind = "status"  // Run
	Stop    Kind = "stop"    // answered when the run has stopped
	Migrate Kind = "migrate" // Move.Ranks or Host, To, and how: the rest of Move. Answered with Run.Moves: with Busy as it goes on, and when it is over
	Cancel  Kind = "cancel"  // after Migrate, on its connection: call it off, unless it is decided. The answer is that to Migrate
)

// AllRanks, as the Rank of a message to a helper, means all ranks there.
const AllRanks = -1

// Streams of a rank, as Output names them.
const (
	Stdout = 1
	Stderr = 2
)

// Message is everything that is said. Which fields count is written at its
// Kind. On a message from a rank, Rank is filled in by the helper.
type Message struct {
	Kind Kind `json:"kind"`
	Rank int  `json:"rank,omitempty"`

	Pid       int      `json:"pid,omitempty"`
	Dir       string   `json:"dir,omitempty"`
	Epoch     uint64   `json:"epoch,omitempty"`
	Data      []byte   `json:"data,omitempty"`
	Endpoints [][]byte `json:"cards,omitempty"`
	Points    uint64   `json:"points,omitempty"`
	Messages  uint64   `json:"messages,omitempty"`

	Index   uint64 `json:"set,omitempty"`
	OK      bool   `json:"ok,omitempty"`
	Reason  string `json:"reason,omitempty"`
	State   int64  `json:"state,omitempty"`   // bytes of the rank's state
	Written int64  `json:"written,omitempty"` // bytes of it that were written
	PauseNS int64  `json:"heldNS,omitempty"`  // how long the program was held
	TookNS  int64  `json:"tookNS,omitempty"`  // until the file was durable
	Line    uint64 `json:"line,omitempty"`    // the recovery line as this rank knows it

	Stop  bool   `json:"stop,omitempty"`
	Why   string `json:"why,omitempty"`
	Error string `json:"error,omitempty"`
	Busy  bool   `json:"busy,omitempty"`

	Host   string `json:"host,omitempty"`
	Launch string `json:"launch,omitempty"`
	Code   int    `json:"code,omitempty"`
	Signal int    `json:"signal,omitempty"`
	Killed bool   `json:"killed,omitempty"` // by the helper, which was told to
	Stream int    `json:"stream,omitempty"`
	Offset int64  `json:"offset,omitempty"`

	Welcome *Welcome `json:"welcome,omitempty"`
	Move    *Move    `json:"move,omitempty"`
	// ByMove is the number of the move by which the process came that this
	// message is from or for; 0: it was started with all others.
	ByMove       uint64        `json:"place,omitempty"`
	To           string        `json:"to,omitempty"`
	Ends         []int64       `json:"ends,omitempty"` // positions in stdout and stderr
	Number       uint64        `json:"number,omitempty"`
	EvacuateWhen *EvacuateWhen `json:"leaveWhen,omitempty"`
	Start        *Start        `json:"start,omitempty"`
	Run          *RunState     `json:"run,omitempty"`
}

// EvacuateWhen is a command that tells whether a host is to be left: it ends
// with status 0 then.
type EvacuateWhen struct {
	Command string        `json:"command"` // for /bin/sh
	Every   time.Duration `json:"every"`
}

// Paused and Took are PauseNS and TookNS as durations.
func (m *Message) Held() time.Duration { return time.Duration(m.PauseNS) }

// Took is TookNS as a duration.
func (m *Message) Took() time.Duration { return time.Duration(m.TookNS) }

// Welcome is what a rank has to know about its run.
type Welcome struct {
	Rank    int    `json:"rank"`
	Size    int    `json:"size"`
	Host    string `json:"host"`   // ranks with the same Host share memory
	Launch  string `json:"launch"` // unique for this start of all ranks
	Attempt int    `json:"attempt"`
	// Secret is known to the ranks of this launch only.
	Secret []byte `json:"secret"`
	// Transports lists the transports to use, in order; empty: choose.
	Transports []string `json:"transports,omitempty"`
	// Dir is the checkpoint folder of a program that names none.
	Dir string `json:"dir"`
	// Every and EveryPoints say when checkpoints are due; zero: as the
	// program says.
	Every       time.Duration `json:"every,omitempty"`
	EveryPoints uint64        `json:"everyPoints,omitempty"`
	// Fresh says that what the checkpoint directory holds of an earlier run is
	// to be discarded.
	Fresh bool `json:"fresh,omitempty"`
	// Group lets the group of the checkpoint directory read it, AnyOwner
	// accepts one that another user owns.
	Group    bool `json:"group,omitempty"`
	AnyOwner bool `json:"anyOwner,omitempty"`
	// Expect is a checkpoint of this run that was committed; 0: none was. A
	// program that then finds none must not start from the beginning.
	Expect uint64 `json:"expect,omitempty"`
	// FormerDirs are directories in which the run was started before, if it was moved
	// or copied together with its directory, and Listening is that directory now.
	FormerDirs []string `json:"from,omitempty"`
	WorkDir    string   `json:"here,omitempty"`
	// Avoid are sets that are not to be restored.
	Avoid []uint64 `json:"avoid,omitempty"`
	// Move says that this process takes the place of a running one, by this
	// move, and waits for its state.
	Move *Move `json:"move,omitempty"`
	// Epoch, of a newcomer, is the number of the last exchange of cards
	// (Epoch) that all ranks had when it was started; Switch has a later one.
	Epoch uint64 `json:"meetings,omitempty"`
	// Stdout, of a newcomer, is the file that descriptor 1 becomes when the state
	// comes. What the program prints before, its source has printed.
	Stdout string `json:"stdout,omitempty"`
	// Stderr, of a newcomer, is the file that descriptor 2 becomes when it is
	// decided that it takes over. What it prints before is added by its helper then.
	Stderr string `json:"stderr,omitempty"`
	// Output says that descriptor 1 is a regular file that belongs to the
	// run: its size is recorded with each set and it is cut back to that
	// size by Restore.
	Output bool `json:"output,omitempty"`
}

// Move is a change of places.
type Move struct {
	ID    uint64 `json:"id"`              // of this run: 1, 2, …
	Ranks []int  `json:"ranks,omitempty"` // that move
	// Addresses are where a newcomer listens, host:port.
	Addresses []string `json:"addresses,omitempty"`
	Chunk     int64    `json:"chunk,omitempty"`  // bytes that are sent at a time; 0: 64 MiB
	Rounds    int      `json:"rounds,omitempty"` // of sending ahead, at most; 0: none
	Files     bool     `json:"files,omitempty"`  // the run's open files are copied, too
	// Sequential writes, sends and reads one after the other, for comparison.
	Sequential bool       `json:"sequential,omitempty"`
	Stats      *MoveStats `json:"stats,omitempty"`
	// StartLimit is how long a newcomer may take to come to Restore: from its
	// start on, and in Precopy from then on. 0: the supervisor's default.
	StartLimit time.Duration `json:"startLimit,omitempty"`
	// Program and Env, of Migrate, are what ranks are started with on the host
	// that they go to: the program's path there, if it is not that of the
	// others, and variables besides those that all have.
	Program string   `json:"program,omitempty"`
	Env     []string `json:"env,omitempty"`
}

// MoveStats is what a move did, as its source saw it.
type MoveStats struct {
	State      int64 `json:"state"`      // bytes of the rank's state
	Precopied  int64 `json:"ahead"`      // bytes that were sent before the program was held,
	Rounds     int   `json:"rounds"`     // in so many rounds
	Sent       int64 `json:"sent"`       // bytes that were sent while it was held
	Zero       int64 `json:"zero"`       // bytes that were not, being zero
	WriteNS    int64 `json:"writeNS"`    // of that: finding and digesting,
	TransferNS int64 `json:"transferNS"` // the network,
	ReadNS     int64 `json:"readNS"`     // checking and putting in place,
	AllNS      int64 `json:"allNS"`      // and from first to last
}

// Start tells a helper what to start. The helper makes each rank's Welcome
// from the one given.
type Start struct {
	Launch   string   `json:"launch"`
	Number   uint64   `json:"number"` // of the starts of this launch on this host: 1, 2, …
	Ranks    []int    `json:"ranks"`
	Command  []string `json:"command"`         // absolute path of the program, arguments
	Dir      string   `json:"dir"`             // working folder
	Env      []string `json:"env,omitempty"`   // none: that of the helper
	ExtraEnv []string `json:"set,omitempty"`   // variables besides, or instead of, those
	Output   string   `json:"output"`          // folder of the ranks' output files
	Input    string   `json:"input,omitempty"` // file that rank 0 reads as stdin
	// KeepOutput says that stdout files keep what is in them, because the ranks
	// will restore and cut them; otherwise they are emptied.
	KeepOutput bool `json:"keep,omitempty"`
	// OutputTaken are the positions, of stdout and stderr of each of Ranks, from
	// which output is passed on.
	OutputOffsets [][2]int64    `json:"shown"`
	Grace         time.Duration `json:"grace"` // for ranks to stop in when the supervisor is gone
	Welcome       Welcome       `json:"welcome"`
}

// RunState is what 'cairn status' shows of a run.
type RunState struct {
	Run         string           `json:"run"`   // its folder, absolute
	State       string           `json:"state"` // starting, running, waiting, stopping, finishing; stopped, finished, failed, interrupted when its supervisor is gone, or silent when it does not answer
	Command     []string         `json:"command"`
	Dir         string           `json:"dir"` // checkpoint folder
	Pid         int              `json:"pid,omitempty"`
	Attempt     int              `json:"attempt"`
	Failures    int              `json:"failures"` // in a row without progress
	Why         string           `json:"why,omitempty"`
	Quarantined []uint64         `json:"aside"`              // sets put aside
	Restored    *uint64          `json:"restored,omitempty"` // the set this attempt goes on from
	Last        *CheckpointState `json:"last,omitempty"`     // the newest set known to be committed
	Unsaved     *Unsaved         `json:"unsaved,omitempty"`  // checkpoints fail
	Ranks       []RankState      `json:"ranks"`
	Moves       []MoveState      `json:"moves,omitempty"` // the latest, the newest at the end
}

// Unsaved tells of checkpoints that could not be saved since the last one that
// was.
type Unsaved struct {
	Since time.Time `json:"since"` // when the first of them failed
	Count int       `json:"sets"`  // how many there are
	Why   string    `json:"why"`   // of the last one
	Lost  bool      `json:"lost"`  // the run was stopped without: the work since the last checkpoint is lost
}

// States of a move.
const (
	MoveWaiting    = "waiting"   // for ranks to run, or for the move before it
	MovePreparing  = "preparing" // the target's helper is started
	MoveStarting   = "arriving"  // newcomers come
	MovePrecopy    = "ahead"     // state is sent while the program goes on
	MoveFinalCopy  = "gathering" // ranks are to be held, or are, and the rest is sent
	MoveSwitching  = "leaving"   // it is decided: sources go
	MoveLinking    = "linking"   // newcomers and others connect
	MoveRestarting = "returning" // it has failed, and the run with it, which is started again
	Moved          = "moved"
	NotMoved       = "not moved"    // everything goes on as before
	MoveRolledBack = "brought back" // the run was, from its recovery line
	MoveUnknown    = "not known"    // how it ended: the supervisor was lost on the way
)

// MoveState is a move of ranks, under way or over. Times are those of its
// phases, in nanoseconds.
type MoveState struct {
	ID    uint64    `json:"id"`    // 1, 2, … in the life of the run
	Ranks []int     `json:"ranks"` // none, and Moved: there were none on the host FormerDirs
	From  string    `json:"from"`  // hosts
	To    string    `json:"to"`    // likewise
	State string    `json:"state"`
	Why   string    `json:"why,omitempty"`
	Time  time.Time `json:"time"` // of the last change

	SpawnNS       int64 `json:"spawnNS"`       // until the newcomers were there
	PrecopyNS     int64 `json:"aheadNS"`       // sending state while the program goes on
	NegotiationNS int64 `json:"negotiationNS"` // until all ranks were held
	TransferNS    int64 `json:"transferNS"`    // from then on, until all was sent
	RestartNS     int64 `json:"restartNS"`     // and then until all ranks went on
	PauseNS       int64 `json:"pauseNS"`       // for which ranks were held: the last two

	Stats *MoveStats `json:"stats,omitempty"` // of all its ranks; times are those of the slowest
}

// Over reports whether the move has ended, one way or another.
func (m *MoveState) Over() bool {
	switch m.State {
	case Moved, NotMoved, MoveRolledBack, MoveUnknown:
		return true
	}
	return false
}

// CheckpointState is a committed set, with the numbers of all ranks added up;
// PauseNS and TookNS are those of the slowest.
type CheckpointState struct {
	Index   uint64    `json:"set"`
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason,omitempty"`
	State   int64     `json:"state"`
	Written int64     `json:"written"`
	PauseNS int64     `json:"heldNS"`
	TookNS  int64     `json:"tookNS"`
}

// RankState is one rank of a running run.
type RankState struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"`
	Pid      int    `json:"pid,omitempty"`
	State    string `json:"state"` // starting, running, ended, unknown
	Cairn    bool   `json:"cairn"` // the program said hello
	Points   uint64 `json:"points"`
	Messages uint64 `json:"messages"`
}
