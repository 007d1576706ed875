package control

import "time"

// EnvTiers is the policy of a run's storage tiers: 'cairn run --tiers', or
// Options.Tiers of a program that was not started by 'cairn run'.
const EnvTiers = "CAIRN_TIERS"

// A program with tiers that was not started by 'cairn run' starts a tier helper
// and is connected with it by a socket pair:
//
//	program                              tier helper
//	  OpenTiers                     →
//	                                ←    TiersOpened, with two descriptors: the
//	                                     sockets that CAIRN_CONTROL and
//	                                     CAIRN_WRITER name for other ranks
//	                                ←    TierNote, any number
//	  the program's end, or Close   →
//	                                ←    TierNote, and the helper's end
type (
	// OpenTiers asks for the run in a run directory.
	OpenTiers struct {
		Program  []string `json:"program"` // its path and arguments
		Pid      int      `json:"pid"`
		Run      string   `json:"run"`             // the run directory
		Local    string   `json:"local,omitempty"` // the directory of the host, if Tiers does not name it
		Tiers    string   `json:"tiers"`
		Fresh    bool     `json:"fresh,omitempty"`
		Group    bool     `json:"group,omitempty"`
		AnyOwner bool     `json:"anyOwner,omitempty"`
	}
	// TiersOpened answers OpenTiers. If Error is set, there are no descriptors.
	TiersOpened struct {
		Error    string    `json:"error,omitempty"`
		InUse    bool      `json:"inUse,omitempty"`    // another program uses the run directory
		Finished bool      `json:"finished,omitempty"` // the run has finished, with Status at Time
		Status   int       `json:"status,omitempty"`
		Time     time.Time `json:"time,omitzero"`
	}
	// TierNote is something that the program's log should have.
	TierNote struct {
		Text    string `json:"text"`
		Warning bool   `json:"warning,omitempty"`
	}
)

func (*OpenTiers) Kind() Kind   { return "openTiers" }
func (*TiersOpened) Kind() Kind { return "tiersOpened" }
func (*TierNote) Kind() Kind    { return "tierNote" }
