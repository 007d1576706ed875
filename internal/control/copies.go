package control

import (
	"encoding/json"
	"errors"
	"fmt"
)

// What helpers of different hosts say to each other about copies; see package
// peer of tier.
type (
	// PeerHello begins a connection: Host wants to talk to To, which answers
	// with its own PeerHello.
	PeerHello struct {
		Host  string `json:"host"`
		To    string `json:"to,omitempty"`
		Error string `json:"error,omitempty"`
	}
	// PeerMessage carries a message of package copies. In a Want, Transfer is
	// the number that the bytes are to have, and Offset how many bytes are
	// there already.
	PeerMessage struct {
		Message  json.RawMessage `json:"message,omitempty"`
		Transfer uint64          `json:"transfer,omitempty"`
		Offset   int64           `json:"offset,omitempty"`
	}
	// PeerBytes comes before a chunk of that many bytes, or says why no more
	// bytes come. Damaged says that they are damaged at the sender.
	PeerBytes struct {
		Transfer uint64 `json:"transfer,omitempty"`
		Bytes    int    `json:"bytes,omitempty"`
		Error    string `json:"error,omitempty"`
		Damaged  bool   `json:"damaged,omitempty"`
	}
	// GetObject asks for bytes of a copy (Data 0) or a shard. The answer is
	// PeerBytes and chunks.
	GetObject struct {
		Object string `json:"object"`
		Shard  int    `json:"shard,omitempty"`
		Data   int    `json:"data,omitempty"`
		Parity int    `json:"parity,omitempty"`
		Offset int64  `json:"offset,omitempty"`
		Bytes  int64  `json:"bytes"`
	}
)

const maxPeerChunk = 1 << 20

func (m *PeerHello) check() error {
	if m.Host == "" || len(m.Host) > 255 {
		return errors.New("it names no host")
	}
	return nil
}

func (m *PeerMessage) check() error { return checkOffset(m.Offset) }

func (m *PeerBytes) check() error {
	if m.Bytes < 0 || m.Bytes > maxPeerChunk || (m.Bytes == 0) != (m.Error != "") {
		return fmt.Errorf("a chunk of %d bytes", m.Bytes)
	}
	return nil
}

func (m *GetObject) check() error {
	return errors.Join(checkOffset(m.Offset), checkOffset(m.Bytes))
}

func (*PeerHello) Kind() Kind   { return "peerHello" }
func (*PeerMessage) Kind() Kind { return "peerMessage" }
func (*PeerBytes) Kind() Kind   { return "peerBytes" }
func (*GetObject) Kind() Kind   { return "getObject" }
