package control

import (
	"errors"
	"fmt"
	"time"
)

// Kind names the type of a message on the wire.
type Kind string

// Message is one of the message types of this package, as a pointer.
type Message interface {
	Kind() Kind
}

// kinds has one value of every message type.
var kinds = []Message{
	(*Hello)(nil), (*Endpoint)(nil), (*Progress)(nil), (*Restored)(nil), (*RolledBack)(nil), (*Saved)(nil), (*SaveFailed)(nil), (*Committed)(nil), (*Refused)(nil), (*Damaged)(nil), (*Finished)(nil), (*Stopped)(nil),
	(*Welcome)(nil), (*Endpoints)(nil), (*Checkpoint)(nil), (*Lost)(nil),
	(*Listening)(nil), (*Precopy)(nil), (*Precopied)(nil), (*Pause)(nil), (*Paused)(nil), (*Sent)(nil), (*Received)(nil), (*Switch)(nil), (*HandedOver)(nil), (*Linked)(nil),
	(*MoveFailed)(nil), (*Spawn)(nil), (*Spawned)(nil),
	(*FromRank)(nil), (*ToRank)(nil), (*Joined)(nil), (*Setup)(nil), (*Ready)(nil), (*Launch)(nil), (*StartDestination)(nil), (*Running)(nil), (*Exited)(nil), (*Drained)(nil),
	(*Output)(nil), (*OutputTaken)(nil), (*FollowOutput)(nil), (*Evacuate)(nil), (*Signaled)(nil), (*Terminate)(nil), (*Kill)(nil), (*KillDestination)(nil), (*Quit)(nil), (*Ping)(nil), (*Pong)(nil),
	(*Scan)(nil), (*Scanned)(nil), (*Fetch)(nil), (*Fetched)(nil), (*StoreAttempt)(nil), (*AttemptStored)(nil), (*VerifyPart)(nil), (*PartVerified)(nil), (*ReadFile)(nil), (*FileData)(nil), (*Discard)(nil), (*Discarded)(nil), (*Keep)(nil), (*Stored)(nil), (*Scrubbed)(nil), (*Turn)(nil), (*Peers)(nil), (*Retain)(nil),
	(*ListFiles)(nil), (*FileList)(nil), (*GetFile)(nil), (*FileBytes)(nil),
	(*PeerHello)(nil), (*PeerMessage)(nil), (*PeerBytes)(nil), (*GetObject)(nil),
	(*Status)(nil), (*Stop)(nil), (*Migrate)(nil), (*Cancel)(nil), (*Answer)(nil),
	(*OpenTiers)(nil), (*TiersOpened)(nil), (*TierNote)(nil),
}

// What a rank says.
type (
	// Hello says that the program uses Cairn. Dir is its checkpoint directory,
	// absolute; empty means Welcome.Dir. PerHost says that hosts do not share
	// it. Tiers is the policy that the program names, which has no effect here.
	Hello struct {
		Pid     int    `json:"pid"`
		Dir     string `json:"dir,omitempty"`
		PerHost bool   `json:"perHost,omitempty"`
		Tiers   string `json:"tiers,omitempty"`
	}
	// Endpoint gives this rank's endpoint, and asks for those of all ranks.
	// Ranks exchange endpoints several times; Epoch counts that.
	Endpoint struct {
		Epoch uint64 `json:"epoch"`
		Data  []byte `json:"data"`
	}
	// Progress is how many points this rank has reached and how many messages
	// it has sent and received.
	Progress struct {
		Points   uint64        `json:"points"`
		Messages uint64        `json:"messages"`
		Paused   bool          `json:"paused,omitempty"`  // Cairn has paused the program since the last report
		Blocked  string        `json:"blocked,omitempty"` // why no checkpoint can be taken, if the program's run time knows
		Loop     *Loop         `json:"loop,omitempty"`
		Devices  []DeviceState `json:"devices,omitempty"`
	}
	// Restored says that this rank has restored a checkpoint, or that it
	// begins anew (Fresh), because there is none.
	Restored struct {
		Index  uint64 `json:"index"`
		Fresh  bool   `json:"fresh,omitempty"`
		Stdout int64  `json:"stdout"` // size of the rank's stdout file; NoStdout: not known
		// Settings are those of the program, of rank 0.
		Settings []Setting `json:"settings,omitempty"`
	}
	// RolledBack says that this rank, and all others, have returned to a
	// checkpoint in their running processes, because one of them has lost a
	// device.
	RolledBack struct {
		Rank  int    `json:"rank"`          // that began it
		Why   string `json:"why,omitempty"` // the device that it has lost
		Index uint64 `json:"index"`         // the checkpoint; 0: the beginning
	}
	// Saved says that this rank's part of a checkpoint is durable.
	Saved struct {
		Index   uint64        `json:"index"`
		Reason  string        `json:"reason,omitempty"`
		State   int64         `json:"state"`   // bytes of the rank's state
		Written int64         `json:"written"` // bytes of it that were written
		Pause   time.Duration `json:"pause"`   // how long the program was paused
		Took    time.Duration `json:"took"`    // from the beginning of the pause until the file was durable
		Stdout  int64         `json:"stdout"`  // size of the rank's stdout file in the checkpoint; NoStdout: not known
	}
	// SaveFailed says that this rank's part of a checkpoint was not saved, or
	// that the ranks gave the checkpoint up.
	SaveFailed struct {
		Index uint64 `json:"index"`
		Error string `json:"error"`
	}
	// Committed says that all ranks have saved a checkpoint.
	Committed struct {
		Index uint64 `json:"index"`
	}
	// Refused says that the program cannot resume from its checkpoint as it is
	// started now, so that another attempt is of no use.
	Refused struct {
		Error string `json:"error"`
	}
	// Damaged says that this rank's file of Welcome.Only cannot be loaded.
	Damaged struct {
		Index uint64 `json:"index"`
		Error string `json:"error"`
	}
	// Finished says that the program's work is done.
	Finished struct{}
	// Stopped says that the program stops, as it was asked to, and resumes
	// from checkpoint Index. Error is why it could not save a newer one.
	Stopped struct {
		Index uint64 `json:"index"`
		Error string `json:"error,omitempty"`
	}
)

// What a rank is told, besides Welcome.
type (
	// Endpoints answers Endpoint. It is indexed by rank.
	Endpoints struct {
		Epoch     uint64   `json:"epoch"`
		Endpoints [][]byte `json:"endpoints"`
	}
	// Checkpoint asks for a checkpoint, and if Stop is set, to stop after it.
	// 'cairn checkpoint' sends it to the supervisor, too.
	Checkpoint struct {
		Reason string `json:"reason,omitempty"`
		Stop   bool   `json:"stop,omitempty"`
	}
	// Lost says that another rank is gone. This one is about to be killed.
	Lost struct {
		Rank int    `json:"rank"`
		Why  string `json:"why"`
	}
)

// Move is a move of ranks to other processes, and how their state is sent.
type Move struct {
	ID     uint64 `json:"id"`               // 1, 2, … in the life of the run
	Ranks  []int  `json:"ranks,omitempty"`  // that move
	Chunk  int64  `json:"chunk,omitempty"`  // bytes that are sent at a time; 0: 64 MiB
	Rounds int    `json:"rounds,omitempty"` // of precopy, at most; 0: none
	Files  bool   `json:"files,omitempty"`  // copy the run's open files, too
}

// About a move. In what a rank says, Move is the ID.
type (
	// Listening says where a destination waits for its state (Addresses,
	// host:port), and how other ranks reach it.
	Listening struct {
		Move      uint64   `json:"move"`
		Endpoint  []byte   `json:"endpoint,omitempty"`
		Addresses []string `json:"addresses"`
	}
	// Precopy tells a source to send its state to its destination, which
	// has StartLimit to call Restore.
	Precopy struct {
		Move
		Addresses  []string      `json:"addresses"`
		StartLimit time.Duration `json:"startLimit"`
	}
	// Precopied says that a source is to pause now.
	Precopied struct {
		Move uint64 `json:"move"`
	}
	// Pause tells a rank to pause together with all others. Endpoints are
	// those of the destinations, indexed by rank.
	Pause struct {
		Move
		Endpoints [][]byte `json:"endpoints"`
	}
	// Paused says that all ranks are paused. A source sends it.
	Paused struct {
		Move uint64 `json:"move"`
	}
	// Sent says that a source has sent all of its state.
	Sent struct {
		Move  uint64     `json:"move"`
		Stats *MoveStats `json:"stats,omitempty"`
	}
	// Received says that a destination has all of the state.
	Received struct {
		Move uint64 `json:"move"`
	}
	// Switch decides a move: if OK is set, the destinations take over;
	// otherwise all ranks continue as before. Endpoints are those of the
	// destinations; a destination gets those of all ranks, and the Epoch of
	// their last exchange.
	Switch struct {
		Move
		OK        bool     `json:"ok"`
		Endpoints [][]byte `json:"endpoints,omitempty"`
		Epoch     uint64   `json:"epoch,omitempty"`
	}
	// HandedOver says that a source does nothing any more and can be killed.
	HandedOver struct {
		Move uint64 `json:"move"`
	}
	// Linked says that a destination, or another rank, has its new links.
	Linked struct {
		Move uint64 `json:"move"`
	}
	// MoveFailed says that a rank, or a destination, cannot move.
	MoveFailed struct {
		Move  uint64 `json:"move"`
		Error string `json:"error"`
	}
	// Spawn tells a rank to have the MPI library start a command on a host,
	// for another rank that moves.
	Spawn struct {
		Move    uint64   `json:"move"`
		Moving  int      `json:"moving"` // the rank that moves
		Host    string   `json:"host"`
		Command []string `json:"command"`
		Env     []string `json:"env,omitempty"`
	}
	// Spawned answers Spawn: first that the library begins (Busy), then how
	// that ended.
	Spawned struct {
		Move   uint64 `json:"move"`
		Moving int    `json:"moving"`
		Busy   bool   `json:"busy,omitempty"`
		Error  string `json:"error,omitempty"`
	}
)

// AllRanks, as the Rank of a ToRank, means all ranks of a helper.
const AllRanks = -1

// Process is a process of a rank.
type Process struct {
	Rank int `json:"rank"`
	// ByMove is the ID of the move that started the process; 0: it was started
	// together with all others.
	ByMove uint64 `json:"byMove,omitempty"`
}

// Between helper and supervisor.
type (
	// FromRank has what a process says, or what its helper says about it.
	FromRank struct {
		Process
		Launch  string  `json:"launch"` // the one that it belongs to
		Carried Carried `json:"message"`
	}
	// ToRank has a message for a process, or for AllRanks.
	ToRank struct {
		Process
		Carried Carried `json:"message"`
	}
	// Joined is the first message of a helper. Rank is that of one which
	// mpirun or srun started; otherwise -1.
	Joined struct {
		Host string `json:"host"`
		Pid  int    `json:"pid"`
		Rank int    `json:"rank"`
	}
	// Setup gives a helper its name and the run directory.
	Setup struct {
		Host         string        `json:"host"`
		Dir          string        `json:"dir"`
		SameMachine  bool          `json:"sameMachine,omitempty"` // as the supervisor's
		EvacuateWhen *EvacuateWhen `json:"evacuateWhen,omitempty"`
		// Local, if not nil, is where this host keeps the files of the run.
		// Then Dir need not exist here.
		Local *LocalDir `json:"local,omitempty"`
	}
	// Ready answers Setup. If Busy is set, another helper, Holder, has the
	// host's lock; the supervisor may try again. Files and Addresses answer
	// Setup.Local: what the host has, and where other helpers get it.
	Ready struct {
		Error  string `json:"error,omitempty"`
		Busy   bool   `json:"busy,omitempty"`
		Holder string `json:"holder,omitempty"`
		// With Error: the directory on the host has the files of this other
		// run, or may have those of one that is not known (AnyRun). Attempt is
		// the newest start of that run, if it is known.
		Other     string         `json:"other,omitempty"`
		Attempt   *AttemptRecord `json:"attempt,omitempty"`
		Files     *HostFiles     `json:"files,omitempty"`
		Addresses []string       `json:"addresses,omitempty"`
		Peer      []string       `json:"peer,omitempty"` // addresses for copies of checkpoints
	}
	// Launch starts ranks.
	Launch struct{ Start }
	// StartDestination starts the destination of one rank.
	StartDestination struct{ Start }
	// Running says that a rank's process was started.
	Running struct {
		Pid int `json:"pid"`
	}
	// Exited says that a rank's process has ended, or could not be started.
	Exited struct {
		Code   int    `json:"code,omitempty"`
		Signal int    `json:"signal,omitempty"`
		Killed bool   `json:"killed,omitempty"` // by the helper, which was told to
		Error  string `json:"error,omitempty"`
		// Stderr is what a destination that did not take over wrote to stderr
		// last.
		Stderr string `json:"stderr,omitempty"`
		// Offsets are how far the output of a source was passed on: two, or
		// none.
		Offsets []int64 `json:"offsets,omitempty"`
	}
	// Drained says that all ranks of a launch have ended, up to start Number,
	// and that their writers and outputs are done.
	Drained struct {
		Launch string `json:"launch"`
		Number uint64 `json:"number"`
	}
	// Output is a piece of a rank's output. No Data means that the file was
	// cut to Offset.
	Output struct {
		Stream int    `json:"stream"` // Stdout or Stderr
		Offset int64  `json:"offset"`
		Data   []byte `json:"data,omitempty"`
	}
	// OutputTaken asks for more, after the last Output of a stream was taken.
	OutputTaken struct {
		Process
		Stream int `json:"stream"`
	}
	// FollowOutput tells a helper to pass on the output of a destination that
	// has taken over, from these offsets of stdout and stderr on.
	FollowOutput struct {
		Process
		Offsets [2]int64 `json:"offsets"`
	}
	// Evacuate says that ranks are to move away from the helper's host, or
	// why the command of EvacuateWhen cannot be run.
	Evacuate struct {
		Error string `json:"error,omitempty"`
	}
	// Signaled says that a helper which a launcher started got SIGTERM.
	Signaled struct{}
	// Terminate sends SIGTERM to all ranks of a helper.
	Terminate struct{}
	// Kill sends SIGKILL to all ranks of a helper.
	Kill struct{}
	// KillDestination kills a destination that is not needed any more.
	KillDestination struct{ Process }
	// Quit tells a helper to end when its ranks have.
	Quit struct{}
	// Ping asks a helper for a Pong.
	Ping struct{}
	// Pong answers Ping.
	Pong struct{}
)

// What cairn's commands ask the supervisor, besides Checkpoint. It replies by
// one Answer, and before it to Migrate by some with More.
type (
	// Status asks for the state of the run.
	Status struct{}
	// Stop asks the run to save and stop. The answer comes when it has.
	Stop struct {
		Reason string `json:"reason,omitempty"`
	}
	// Migrate asks for a move of Ranks, or of all ranks on Host. Answers have
	// it in Run.Moves.
	Migrate struct {
		Move        // without ID
		Host string `json:"host,omitempty"`
		To   string `json:"to,omitempty"` // host; empty: choose
		// StartLimit is how long a destination may take to call Restore; 0: the
		// supervisor's default.
		StartLimit time.Duration `json:"startLimit,omitempty"`
		// Program is the program's path on To, if it differs there, and Env are
		// variables besides those of all ranks.
		Program string   `json:"program,omitempty"`
		Env     []string `json:"env,omitempty"`
	}
	// Cancel, after Migrate, cancels the move unless it is decided. There is
	// no answer but that to Migrate.
	Cancel struct{}
	// Answer is the supervisor's answer to a command.
	Answer struct {
		Error string    `json:"error,omitempty"`
		More  bool      `json:"more,omitempty"` // another answer follows
		Run   *RunState `json:"run,omitempty"`
	}
)

// EvacuateWhen is a command that tells whether ranks are to move away from a
// host: then it ends with status 0.
type EvacuateWhen struct {
	Command string        `json:"command"` // for /bin/sh
	Every   time.Duration `json:"every"`
}

// NoStdout says that a checkpoint does not record the size of stdout.
const NoStdout = -1

// Streams of a rank, as Output names them.
const (
	Stdout = 1
	Stderr = 2
)

// Welcome is what a rank has to know about its run. It answers Hello.
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
	// Dir is the checkpoint directory of a program that names none. With
	// PerHost it is that of all programs, and each host has one of its own.
	Dir     string `json:"dir"`
	PerHost bool   `json:"perHost,omitempty"`
	// With PerHost, the supervisor knows what all hosts have, and decides:
	// RunID and AttemptID are those of the checkpoints that this start saves,
	// Only is the checkpoint that all ranks restore (0: they begin anew), and
	// Above is the highest index that was ever used.
	RunID     string `json:"runId,omitempty"`
	AttemptID string `json:"attemptId,omitempty"`
	Only      uint64 `json:"only,omitempty"`
	Above     uint64 `json:"above,omitempty"`
	// Settings are options of the library that the user of 'cairn run' has set
	// in place of the program, such as keep=3.
	Settings map[string]string `json:"settings,omitempty"`
	// Fresh tells the ranks to discard what the checkpoint directory holds of
	// an earlier run.
	Fresh bool `json:"fresh,omitempty"`
	// Group lets the group of the checkpoint directory read it, AnyOwner
	// accepts one that another user owns.
	Group    bool `json:"group,omitempty"`
	AnyOwner bool `json:"anyOwner,omitempty"`
	// Expect is a committed checkpoint of this run; 0: there is none. If Expect
	// is set, a program that finds no checkpoint must not start from the
	// beginning.
	Expect uint64 `json:"expect,omitempty"`
	// FormerDirs are the working directories in which the run was started
	// before, if it was moved or copied together with its directory. WorkDir
	// is the present one.
	FormerDirs []string `json:"formerDirs,omitempty"`
	WorkDir    string   `json:"workDir,omitempty"`
	// Avoid lists checkpoints that must not be restored.
	Avoid []uint64 `json:"avoid,omitempty"`
	// Move, if not nil, says that this process is a destination of that move:
	// it waits for the state of its source.
	Move *Move `json:"move,omitempty"`
	// Stdout, of a destination, is the file that descriptor 1 becomes when the
	// state comes. What the program prints before, its source has printed.
	Stdout string `json:"stdout,omitempty"`
	// Stderr, of a destination, is the file that descriptor 2 becomes when the
	// destination takes over. Its helper appends what it prints before.
	Stderr string `json:"stderr,omitempty"`
	// Output says that descriptor 1 is a regular file of the run. Each
	// checkpoint records its size, and Restore cuts it back to that size.
	Output bool `json:"output,omitempty"`
}

// Start tells a helper what to start. The helper makes each rank's Welcome
// from the one given.
type Start struct {
	Launch   string   `json:"launch"`
	Number   uint64   `json:"number"` // of the starts of this launch on this host: 1, 2, …
	Ranks    []int    `json:"ranks"`
	Command  []string `json:"command"`            // absolute path of the program, arguments
	Dir      string   `json:"dir"`                // working directory
	Env      []string `json:"env,omitempty"`      // none: that of the helper
	ExtraEnv []string `json:"extraEnv,omitempty"` // overrides Env
	Output   string   `json:"output"`             // directory of the ranks' output files
	Input    string   `json:"input,omitempty"`    // file that rank 0 reads as stdin
	// KeepOutput says that stdout files keep their content, because the ranks
	// restore and cut them; otherwise they are emptied.
	KeepOutput bool `json:"keepOutput,omitempty"`
	// OutputOffsets are the offsets, of stdout and stderr of each of Ranks,
	// from which on output is passed on.
	OutputOffsets [][2]int64    `json:"outputOffsets"`
	Grace         time.Duration `json:"grace"` // for ranks to stop in when the supervisor is gone
	Welcome       Welcome       `json:"welcome"`
	// Attempt, of a run with Setup.Local, is stored before a rank starts.
	Attempt *AttemptRecord `json:"attempt,omitempty"`
}

// check refuses impossible values.
func (w *Welcome) check() error {
	if w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size {
		return fmt.Errorf("rank %d of %d", w.Rank, w.Size)
	}
	return nil
}

func (s *Start) check() error {
	switch {
	case len(s.Command) == 0:
		return errors.New("no command")
	case len(s.OutputOffsets) != len(s.Ranks):
		return fmt.Errorf("%d ranks and %d output offsets", len(s.Ranks), len(s.OutputOffsets))
	}
	return nil
}

func (s *StartDestination) check() error {
	if m := s.Welcome.Move; len(s.Ranks) != 1 || m == nil || m.ID == 0 {
		return errors.New("a destination takes over one rank, by a move")
	}
	return s.Start.check()
}

func (o *Output) check() error {
	if o.Offset < 0 {
		return fmt.Errorf("offset %d", o.Offset)
	}
	return checkStream(o.Stream)
}

func (o *OutputTaken) check() error { return checkStream(o.Stream) }

func checkStream(stream int) error {
	if stream != Stdout && stream != Stderr {
		return fmt.Errorf("stream %d", stream)
	}
	return nil
}

func (e *Exited) check() error {
	if n := len(e.Offsets); n != 0 && n != 2 {
		return fmt.Errorf("%d output offsets", n)
	}
	return nil
}

// Kind names the type on the wire.

func (*Hello) Kind() Kind            { return "hello" }
func (*Endpoint) Kind() Kind         { return "endpoint" }
func (*Progress) Kind() Kind         { return "progress" }
func (*Restored) Kind() Kind         { return "restored" }
func (*RolledBack) Kind() Kind       { return "rolledBack" }
func (*Saved) Kind() Kind            { return "saved" }
func (*SaveFailed) Kind() Kind       { return "saveFailed" }
func (*Committed) Kind() Kind        { return "committed" }
func (*Refused) Kind() Kind          { return "refused" }
func (*Damaged) Kind() Kind          { return "damaged" }
func (*Finished) Kind() Kind         { return "finished" }
func (*Stopped) Kind() Kind          { return "stopped" }
func (*Welcome) Kind() Kind          { return "welcome" }
func (*Endpoints) Kind() Kind        { return "endpoints" }
func (*Checkpoint) Kind() Kind       { return "checkpoint" }
func (*Lost) Kind() Kind             { return "lost" }
func (*Listening) Kind() Kind        { return "listening" }
func (*Precopy) Kind() Kind          { return "precopy" }
func (*Precopied) Kind() Kind        { return "precopied" }
func (*Pause) Kind() Kind            { return "pause" }
func (*Paused) Kind() Kind           { return "paused" }
func (*Sent) Kind() Kind             { return "sent" }
func (*Received) Kind() Kind         { return "received" }
func (*Switch) Kind() Kind           { return "switch" }
func (*HandedOver) Kind() Kind       { return "handedOver" }
func (*Linked) Kind() Kind           { return "linked" }
func (*MoveFailed) Kind() Kind       { return "moveFailed" }
func (*Spawn) Kind() Kind            { return "spawn" }
func (*Spawned) Kind() Kind          { return "spawned" }
func (*FromRank) Kind() Kind         { return "fromRank" }
func (*ToRank) Kind() Kind           { return "toRank" }
func (*Joined) Kind() Kind           { return "joined" }
func (*Setup) Kind() Kind            { return "setup" }
func (*Ready) Kind() Kind            { return "ready" }
func (*Launch) Kind() Kind           { return "launch" }
func (*StartDestination) Kind() Kind { return "startDestination" }
func (*Running) Kind() Kind          { return "running" }
func (*Exited) Kind() Kind           { return "exited" }
func (*Drained) Kind() Kind          { return "drained" }
func (*Output) Kind() Kind           { return "output" }
func (*OutputTaken) Kind() Kind      { return "outputTaken" }
func (*FollowOutput) Kind() Kind     { return "followOutput" }
func (*Evacuate) Kind() Kind         { return "evacuate" }
func (*Signaled) Kind() Kind         { return "signaled" }
func (*Terminate) Kind() Kind        { return "terminate" }
func (*Kill) Kind() Kind             { return "kill" }
func (*KillDestination) Kind() Kind  { return "killDestination" }
func (*Quit) Kind() Kind             { return "quit" }
func (*Ping) Kind() Kind             { return "ping" }
func (*Pong) Kind() Kind             { return "pong" }
func (*Status) Kind() Kind           { return "status" }
func (*Stop) Kind() Kind             { return "stop" }
func (*Migrate) Kind() Kind          { return "migrate" }
func (*Cancel) Kind() Kind           { return "cancel" }
func (*Answer) Kind() Kind           { return "answer" }
