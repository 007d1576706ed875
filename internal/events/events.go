// Package events is the history of a run: what happened, when, and its figures,
// for people and for other programs. The supervisor writes it to
// RUN/events.jsonl, one JSON document per line, and 'cairn run --events' to a
// file or a pipe. docs/events.md describes the fields.
package events

import (
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// Version is the version of the schema. It grows when a field gets another
// meaning or vanishes; a new field or kind does not change it.
const Version = 1

// Kind says what happened.
type Kind string

const (
	Start      Kind = "start"      // an attempt began: all ranks were started
	Restore    Kind = "restore"    // the ranks continue from a checkpoint
	Rollback   Kind = "rollback"   // running ranks returned to a checkpoint
	Checkpoint Kind = "checkpoint" // a checkpoint was committed
	Unsaved    Kind = "unsaved"    // a checkpoint could not be saved
	Failure    Kind = "failure"    // the attempt failed
	Wait       Kind = "wait"       // the next attempt starts after a pause
	Stop       Kind = "stop"       // the ranks were told to save and stop
	Move       Kind = "move"       // ranks move to another host, have moved, or have not
	Tier       Kind = "tier"       // a storage tier got a checkpoint, fails, or works again
	Quarantine Kind = "quarantine" // a checkpoint is not restored any more
	End        Kind = "end"        // the supervisor ends: State says how
	Warning    Kind = "warning"    // something that needs attention
	Note       Kind = "note"       // anything else that 'cairn run' shows
)

// Event is something that happened in a run. Fields that say nothing about its
// kind are left out.
type Event struct {
	Version int       `json:"v"`
	Seq     uint64    `json:"seq"` // 1, 2, … in the life of the run
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"event"`
	Text    string    `json:"text"`    // one line for people
	Attempt int       `json:"attempt"` // the start that it belongs to; 0: before the first

	State      string                   `json:"state,omitempty"`      // of End: finished, stopped, failed or finishing
	Status     int                      `json:"status,omitempty"`     // of End and Failure: the exit status
	Ranks      int                      `json:"ranks,omitempty"`      // of Start: how many
	Hosts      []string                 `json:"hosts,omitempty"`      // of Start: the host of each rank
	Rank       *int                     `json:"rank,omitempty"`       // of Failure and Unsaved: the first rank that failed; of Rollback: the rank that began it
	Host       string                   `json:"host,omitempty"`       // of Failure: where that was
	Index      uint64                   `json:"index,omitempty"`      // of Restore, Rollback, Unsaved, Tier and Quarantine: the checkpoint
	LostNS     int64                    `json:"lostNS,omitempty"`     // of Start and Restore: computing time since the checkpoint, which is repeated
	DelayNS    int64                    `json:"delayNS,omitempty"`    // of Wait: until the next start
	Checkpoint *control.CheckpointState `json:"checkpoint,omitempty"` // of Checkpoint
	Move       *control.MoveState       `json:"move,omitempty"`       // of Move
	Tier       *control.TierState       `json:"tier,omitempty"`       // of Tier
}
