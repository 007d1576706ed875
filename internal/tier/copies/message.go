package copies

import (
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// ID identifies what is copied: an object, or a shard of it.
type ID struct {
	Object string `json:"object"`
	Shard  int    `json:"shard,omitempty"`  // number of the shard
	Data   int    `json:"data,omitempty"`   // data shards; 0: a whole copy
	Parity int    `json:"parity,omitempty"` // parity shards
}

func (id ID) String() string {
	if id.Data == 0 {
		return id.Object
	}
	return fmt.Sprintf("%s.%d+%d.%d", id.Object, id.Data, id.Parity, id.Shard)
}

// PartID identifies a part.
type PartID struct {
	recovery.Checkpoint
	Rank int
}

// Kind is the kind of a message.
type Kind string

// The kinds of messages.
const (
	Offer      Kind = "offer"      // ID, Size, Checkpoint: I can send this, it belongs to that
	Want       Kind = "want"       // ID: send it
	Have       Kind = "have"       // ID: it is here
	Stored     Kind = "stored"     // ID: it is here now, durably
	Failed     Kind = "failed"     // ID, or Of and Tier: it could not be stored; Why
	Withdraw   Kind = "withdraw"   // ID: it will not be sent
	PartOffer  Kind = "part"       // Part, Tier, IDs: what a rank needs, and what of it is there
	PartStored Kind = "partStored" // Of, Tier: the part is here, durably, with its objects
	Lacks      Kind = "lacks"      // Of, Tier, IDs: these objects of the part are not here
	Gone       Kind = "gone"       // ID: it is not here any more
)

// Message is what helpers say to each other.
type Message struct {
	Kind       Kind                `json:"kind"`
	ID         ID                  `json:"id,omitzero"`
	Size       int64               `json:"size,omitempty"` // of the whole object
	Checkpoint recovery.Checkpoint `json:"checkpoint,omitzero"`
	Part       *recovery.Part      `json:"part,omitempty"`
	Of         PartID              `json:"of,omitzero"`
	Tier       Tier                `json:"tier,omitempty"`
	IDs        []ID                `json:"ids,omitempty"`
	Why        string              `json:"why,omitempty"`
}

// ErrMalformed means that a message makes no sense.
var ErrMalformed = errors.New("a message between helpers makes no sense")

// maxShards bounds the shards of an object.
const maxShards = 256

func (id ID) check() error {
	switch {
	case id.Object == "":
		return fmt.Errorf("%w: no object", ErrMalformed)
	case id.Data == 0 && (id.Shard != 0 || id.Parity != 0),
		id.Data < 0 || id.Parity < 0 || id.Shard < 0,
		id.Data > maxShards || id.Parity > maxShards || id.Data+id.Parity > maxShards,
		id.Data > 0 && id.Shard >= id.Data+id.Parity:
		return fmt.Errorf("%w: shard %d of %d+%d", ErrMalformed, id.Shard, id.Data, id.Parity)
	}
	return nil
}

// Check returns an error if a message makes no sense.
func (m *Message) Check() error {
	switch m.Kind {
	case Offer, Want, Have, Stored, Withdraw, Gone:
		if m.Size < 0 {
			return fmt.Errorf("%w: %d bytes", ErrMalformed, m.Size)
		}
		return m.ID.check()
	case Failed:
		if m.Tier == "" {
			return m.ID.check()
		}
	case PartOffer:
		if m.Part == nil || m.Part.Rank < 0 || m.Part.Ranks <= m.Part.Rank || len(m.Part.Objects) == 0 {
			return fmt.Errorf("%w: no part", ErrMalformed)
		}
	case PartStored, Lacks:
	default:
		return fmt.Errorf("%w: kind %q", ErrMalformed, m.Kind)
	}
	if m.Tier != Partner && m.Tier != RS {
		return fmt.Errorf("%w: tier %q", ErrMalformed, m.Tier)
	}
	for _, id := range m.IDs {
		if err := id.check(); err != nil {
			return err
		}
	}
	return nil
}

func partID(p *recovery.Part) PartID { return PartID{p.Checkpoint, p.Rank} }

// Action is a task that a Node gives to its driver.
type Action interface{ action() }

type (
	// Send: give Message to host To, in the order of Sends. If it is not
	// connected, the message is lost.
	Send struct {
		To string
		Message
	}
	// Transfer: send the bytes of an object, or of a shard, to host To.
	Transfer struct {
		To   string
		ID   ID
		Size int64 // of the whole object
	}
	// Expect: bytes of an object, or of a shard, will come from host From.
	// Call Written when they are durable, or cannot be.
	Expect struct {
		From string
		ID   ID
		Size int64 // of the whole object
	}
	// Abort: the bytes that Expect announced will not come, or are not
	// needed. Discard those that have come, and do not call Written with an
	// error. If all had come already, Written may still be called.
	Abort struct{ ID ID }
	// StorePart: store a part, and call PartWritten.
	StorePart struct{ Part recovery.Part }
	// Remove: remove an object, or a shard. Nothing needs it.
	Remove struct{ ID ID }
	// RemovePart: remove a part. It is removed before its objects.
	RemovePart struct{ ID PartID }
	// Report: this host's parts of a checkpoint are stored on a tier, or not
	// any more. Missing is how many objects and parts holders lack.
	Report struct {
		Tier       Tier
		Checkpoint recovery.Checkpoint
		Missing    int
	}
	// Trouble: a holder could not store an object, a shard (ID), or a part (Of
	// and Tier). It is tried again after Again. Without ID and Tier, something
	// else failed at Peer.
	Trouble struct {
		Peer string
		ID   ID
		Of   PartID
		Tier Tier
		Why  string
	}
	// Later: call Again after a pause.
	Later struct{}
)

func (Send) action()       {}
func (Transfer) action()   {}
func (Expect) action()     {}
func (Abort) action()      {}
func (StorePart) action()  {}
func (Remove) action()     {}
func (RemovePart) action() {}
func (Report) action()     {}
func (Trouble) action()    {}
func (Later) action()      {}
