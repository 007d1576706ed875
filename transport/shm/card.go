package shm

import (
	"encoding/binary"
	"errors"
)

// A card, in little-endian order; texts have their length (u16) before them:
//
//	"cshm" 1 │ rank u32 │ uid u32 │ pid u32 │ start u64 │ word u64 │ nonce [16] │
//	dev u64 │ ino u64 │ host │ pid namespace │ path
//
// dev and ino are of the folder with the files, so that ranks in containers
// that do not share it know that they cannot reach each other. word is the address of a copy of the
// nonce in the memory of the process: reading it shows whether Pull works.
type card struct {
	rank, uid, pid    uint32
	start, word       uint64
	nonce             [16]byte
	dev, ino          uint64
	host, pidns, path string
}

const cardMagic = "cshm\x01"

var errCard = errors.New("not a card of this transport")

func (c *card) encode() []byte {
	le := binary.LittleEndian
	b := []byte(cardMagic)
	b = le.AppendUint32(b, c.rank)
	b = le.AppendUint32(b, c.uid)
	b = le.AppendUint32(b, c.pid)
	b = le.AppendUint64(b, c.start)
	b = le.AppendUint64(b, c.word)
	b = append(b, c.nonce[:]...)
	b = le.AppendUint64(b, c.dev)
	b = le.AppendUint64(b, c.ino)
	for _, s := range []string{c.host, c.pidns, c.path} {
		b = le.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return b
}

func decodeCard(b []byte) (c card, err error) {
	le := binary.LittleEndian
	const fixed = len(cardMagic) + 3*4 + 2*8 + 16 + 2*8
	if len(b) < fixed || string(b[:len(cardMagic)]) != cardMagic {
		return c, errCard
	}
	b = b[len(cardMagic):]
	c.rank, c.uid, c.pid = le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
	c.start, c.word = le.Uint64(b[12:]), le.Uint64(b[20:])
	copy(c.nonce[:], b[28:])
	c.dev, c.ino = le.Uint64(b[44:]), le.Uint64(b[52:])
	b = b[60:]
	for _, s := range []*string{&c.host, &c.pidns, &c.path} {
		if len(b) < 2 || len(b)-2 < int(le.Uint16(b)) {
			return c, errCard
		}
		n := int(le.Uint16(b))
		*s = string(b[2 : 2+n])
		b = b[2+n:]
	}
	if len(b) > 0 {
		return c, errCard
	}
	return c, nil
}

// reaches reports whether two ranks share memory. It is symmetric.
func (c *card) reaches(o *card) bool {
	return c.host == o.host && c.pidns == o.pidns && c.uid == o.uid && c.dev == o.dev && c.ino == o.ino
}
