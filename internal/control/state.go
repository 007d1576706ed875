package control

import "time"

// RunState is what 'cairn status' shows of a run.
type RunState struct {
	Run         string           `json:"run"`   // its directory, absolute
	State       string           `json:"state"` // see the constants of package rundir
	Command     []string         `json:"command"`
	Dir         string           `json:"dir"`              // checkpoint directory
	Output      string           `json:"output,omitempty"` // directory of the ranks' output files
	Pid         int              `json:"pid,omitempty"`
	Job         string           `json:"job,omitempty"`  // the scheduler's job that it belongs to
	Began       time.Time        `json:"began,omitzero"` // when it was started first
	Ended       time.Time        `json:"ended,omitzero"` // when it was stopped, has finished or has failed
	Attempt     int              `json:"attempt"`
	LostNS      int64            `json:"lostNS"`   // computing time that was repeated after failures
	Failures    int              `json:"failures"` // in a row without progress
	Why         string           `json:"why,omitempty"`
	Quarantined []uint64         `json:"quarantined"`          // checkpoints that are not restored
	Restored    *uint64          `json:"restored,omitempty"`   // the checkpoint that this attempt resumed from
	Last        *CheckpointState `json:"last,omitempty"`       // the newest checkpoint known to be committed
	Unsaved     *Unsaved         `json:"unsaved,omitempty"`    // checkpoints fail
	RolledBack  *RollbackState   `json:"rolledBack,omitempty"` // the last rollback in running processes
	Tiers       []TierState      `json:"tiers,omitempty"`      // besides the hosts' disks
	Scrub       *ScrubState      `json:"scrub,omitempty"`      // what hosts have read again
	Ranks       []RankState      `json:"ranks"`
	// ProgramEnded says that the program has ended, and only its tier helper
	// is left.
	ProgramEnded bool        `json:"programEnded,omitempty"`
	Moves        []MoveState `json:"moves,omitempty"` // the latest, the newest at the end
	Settings     []Setting   `json:"settings,omitempty"`
}

// RankState is one rank of a running run.
type RankState struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"`
	Pid      int    `json:"pid,omitempty"`
	State    string `json:"state"` // starting, running, ended, unknown
	Cairn    bool   `json:"cairn"` // the program uses Cairn: it said Hello
	Points   uint64 `json:"points"`
	Messages uint64 `json:"messages"`
	// Loop is how far the program is, and Ends when that loop is expected to
	// end; zero: there is no estimate yet.
	Loop    *Loop         `json:"loop,omitempty"`
	Ends    time.Time     `json:"ends,omitzero"`
	Devices []DeviceState `json:"devices,omitempty"`
}

// CheckpointState is a committed checkpoint. Its sizes are those of all ranks
// together; PauseNS and TookNS are those of the slowest rank. TookNS is the
// time from the beginning of the pause until the checkpoint was durable.
type CheckpointState struct {
	Index   uint64    `json:"index"`
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason,omitempty"`
	State   int64     `json:"state"`
	Written int64     `json:"written"`
	PauseNS int64     `json:"pauseNS"`
	TookNS  int64     `json:"tookNS"`
}

// RollbackState describes the last time that all ranks returned to a checkpoint
// in their running processes.
type RollbackState struct {
	Time  time.Time `json:"time"`
	Count int       `json:"count"` // how many there were
	Text  string    `json:"text"`
}

// Unsaved describes the checkpoints that could not be saved since the last one
// that was.
type Unsaved struct {
	Since time.Time `json:"since"` // when the first of them failed
	Count int       `json:"count"` // how many there are
	Why   string    `json:"why"`   // of the last one
	Lost  bool      `json:"lost"`  // the run was stopped nevertheless: the work since the last checkpoint is lost
}

// TierState is what a tier has of a run. Checkpoint 0 stands for none.
type TierState struct {
	Tier      string    `json:"tier"`                // as in the policy: shared=/gpfs/me
	Index     uint64    `json:"index"`               // the newest checkpoint that it has
	Time      time.Time `json:"time,omitzero"`       // since when
	Uploading uint64    `json:"uploading,omitempty"` // the checkpoint that is on its way
	Failing   *Unsaved  `json:"failing,omitempty"`   // why it does not get there
}

// ScrubState is what hosts have found when they read old checkpoints again.
type ScrubState struct {
	Time     time.Time    `json:"time"`  // when they did last
	Files    int          `json:"files"` // all that were read again
	Bytes    int64        `json:"bytes"`
	Repaired int          `json:"repaired"`
	Lost     []TierRepair `json:"lost,omitempty"` // damaged now, and cannot be repaired
}

// States of a move.
const (
	MoveWaiting    = "waiting"     // for ranks to run, or for the move before it
	MovePreparing  = "preparing"   // the helpers of the destinations start
	MoveStarting   = "starting"    // the destinations start
	MovePrecopy    = "precopy"     // sources send state while the program computes
	MoveFinalCopy  = "final copy"  // ranks pause, and sources send the rest
	MoveSwitching  = "switching"   // it is decided: sources hand over
	MoveLinking    = "linking"     // destinations and others connect
	MoveRestarting = "restarting"  // the move and the run failed; the run restarts
	Moved          = "moved"       //
	NotMoved       = "not moved"   // all ranks continue as before
	MoveRolledBack = "rolled back" // the run restarted from its recovery line
	MoveUnknown    = "unknown"     // the supervisor was lost before the move ended
)

// DefaultRounds is how many rounds of precopy a move has at most, if the
// request does not say.
const DefaultRounds = 3

// DefaultStartLimit is how long a destination may take to call Restore, if the
// request does not say.
const DefaultStartLimit = 10 * time.Minute

// MoveState is a move of ranks, in progress or over. Times are those of its
// phases, in nanoseconds.
type MoveState struct {
	ID    uint64    `json:"id"`    // 1, 2, … in the life of the run
	Ranks []int     `json:"ranks"` // none, and Moved: there were none on the host From
	From  string    `json:"from"`  // hosts
	To    string    `json:"to"`    // likewise
	State string    `json:"state"`
	Why   string    `json:"why,omitempty"`
	Time  time.Time `json:"time"` // of the last change

	SpawnNS       int64 `json:"spawnNS"`       // until the destinations listened
	PrecopyNS     int64 `json:"precopyNS"`     // sending state while the program computed
	NegotiationNS int64 `json:"negotiationNS"` // until all ranks were paused
	TransferNS    int64 `json:"transferNS"`    // from then on, until all was sent
	RestartNS     int64 `json:"restartNS"`     // and then until all ranks continued
	PauseNS       int64 `json:"pauseNS"`       // the last two: how long ranks were paused

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

// MoveStats is what a move did, as its source saw it.
type MoveStats struct {
	State      int64 `json:"state"`      // bytes of the rank's state
	Precopied  int64 `json:"precopied"`  // bytes that were sent before the pause,
	Rounds     int   `json:"rounds"`     // in so many rounds
	Sent       int64 `json:"sent"`       // bytes that were sent during the pause
	Zero       int64 `json:"zero"`       // bytes that were not sent, being zero
	WriteNS    int64 `json:"writeNS"`    // of the pause: finding and digesting,
	TransferNS int64 `json:"transferNS"` // the network,
	ReadNS     int64 `json:"readNS"`     // checking and putting in place,
	AllNS      int64 `json:"allNS"`      // and from first to last
}
