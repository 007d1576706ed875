package supervise

import "time"

// TieredCheckpoint says where a checkpoint of a run is.
type TieredCheckpoint struct {
	Index    uint64    `json:"index"`
	Time     time.Time `json:"time"`
	Tiers    []string  `json:"tiers"`    // those that have all of it
	Complete bool      `json:"complete"` // every rank can get its files, from some tier
	Survives string    `json:"survives"` // what may be lost: "any 2 of 6 hosts"
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
	Checked int          `json:"checked"` // checkpoints; of a tier on hosts: copies and shards
	Bytes   int64        `json:"bytes,omitempty"`
	Damage  []TierDamage `json:"damage"`
}
