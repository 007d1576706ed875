package supervise

import (
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// TieredCheckpoint says where a checkpoint of a run is.
type TieredCheckpoint struct {
	Index    uint64    `json:"index"`
	Time     time.Time `json:"time"`
	Tiers    []string  `json:"tiers"`    // those that have all of it
	Complete bool      `json:"complete"` // every rank can get its files, from some tier
	Survives string    `json:"survives"` // what may be lost: "any 2 of 6 hosts"
}

// PlacedCheckpoint is a checkpoint at a place.
type PlacedCheckpoint struct {
	Index uint64    `json:"index"`
	Time  time.Time `json:"time"`
	Ranks int       `json:"ranks"`
	Bytes int64     `json:"bytes"` // of all objects that it needs
	Pins  []string  `json:"pins,omitempty"`
}

// FinishedRun says how a run has finished, and what its tiers keep.
type FinishedRun struct {
	Run    string         `json:"run"`
	Status int            `json:"status"`
	Time   time.Time      `json:"time"`
	Tiers  []FinishedTier `json:"tiers"`
}

// FinishedTier is a tier of a run that has finished.
type FinishedTier struct {
	Tier  string `json:"tier"`
	End   bool   `json:"end"`             // it keeps the end of the run
	Error string `json:"error,omitempty"` // why that is not known
}

// CopiedRun is the result of CopyRun.
type CopiedRun struct {
	Run         string   `json:"run"` // the copy
	Of          string   `json:"of"`  // the run that was copied
	From        string   `json:"from"`
	To          string   `json:"to"`
	Checkpoints []uint64 `json:"checkpoints"` // newest first
	Bytes       int64    `json:"bytes"`       // that were not there
}

// CollectedTier is the result of CollectTier.
type CollectedTier struct {
	Tier    string   `json:"tier"`
	DryRun  bool     `json:"dryRun"`
	Kept    []uint64 `json:"kept"`
	Pinned  []uint64 `json:"pinned"` // older ones that 'cairn pin' keeps
	Removed []uint64 `json:"removed"`
}

// PinnedOn is a pinned checkpoint on a tier.
type PinnedOn struct {
	Name  string
	Index uint64
	Tier  string
	Place string // as 'cairn run --from' takes it
}

// TierDamage is something on a tier that is not what was written.
type TierDamage struct {
	Place  string `json:"place"` // a tier, or a host
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// VerifiedTier is the result of VerifyTier.
type VerifiedTier struct {
	Tier    string       `json:"tier"`
	Checked int          `json:"checked"`       // checkpoints; of a tier on hosts: copies and shards
	End     bool         `json:"end,omitempty"` // also the end of the run
	Bytes   int64        `json:"bytes,omitempty"`
	Damage  []TierDamage `json:"damage"`
}

// Repair is something that a tier had lost.
type Repair = control.TierRepair

// RepairedRun is the result of RepairRun.
type RepairedRun struct {
	Run         string   `json:"run"`
	Running     bool     `json:"running"`       // then hosts are not repaired
	End         bool     `json:"end,omitempty"` // the run has finished: its end was looked at
	Checkpoints []uint64 `json:"checkpoints"`   // that were looked at, newest first
	Repaired    []Repair `json:"repaired"`
	Lost        []Repair `json:"lost"`  // what cannot be repaired
	Notes       []string `json:"notes"` // what else the user should know
}
