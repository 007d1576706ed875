package shm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// An address has the following form. It is little-endian; each text is preceded
// by its length (u16):
//
//	"cshm" 2 │ order u32: 1 little, 2 big │ page u32 │ rank u32 │ uid u32 │ pid u32 │
//	start u64 │ word u64 │ nonce [16] │ dev u64 │ ino u64 │ host │ pid namespace │ path
//
// order and page (the page size) are those of the process, which differ from
// the machine's if the process is emulated. nonce is unique to the driver. path
// is the beginning of its files' names. dev and ino identify the directory with
// the files, so that ranks in containers that do not share it know that they
// cannot reach each other. word is the address of a copy of the nonce in the
// memory of the process: a peer reads it to find out whether Pull works.
type address struct {
	order, page       uint32
	rank, uid, pid    uint32
	start, word       uint64
	nonce             [16]byte
	dev, ino          uint64
	host, pidns, path string
}

const addressMagic = "cshm\x02"

var errAddress = errors.New("not an address of this transport")

func (c *address) encode() []byte {
	le := binary.LittleEndian
	b := []byte(addressMagic)
	for _, n := range []uint32{c.order, c.page, c.rank, c.uid, c.pid} {
		b = le.AppendUint32(b, n)
	}
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

func decodeAddress(b []byte) (c address, err error) {
	le := binary.LittleEndian
	const fixed = len(addressMagic) + 5*4 + 2*8 + 16 + 2*8
	if len(b) < fixed || string(b[:len(addressMagic)]) != addressMagic {
		return c, errAddress
	}
	b = b[len(addressMagic):]
	for i, n := range []*uint32{&c.order, &c.page, &c.rank, &c.uid, &c.pid} {
		*n = le.Uint32(b[4*i:])
	}
	b = b[8:]
	c.start, c.word = le.Uint64(b[12:]), le.Uint64(b[20:])
	copy(c.nonce[:], b[28:])
	c.dev, c.ino = le.Uint64(b[44:]), le.Uint64(b[52:])
	b = b[60:]
	for _, s := range []*string{&c.host, &c.pidns, &c.path} {
		if len(b) < 2 || len(b)-2 < int(le.Uint16(b)) {
			return c, errAddress
		}
		n := int(le.Uint16(b))
		*s = string(b[2 : 2+n])
		b = b[2+n:]
	}
	if len(b) > 0 {
		return c, errAddress
	}
	return c, nil
}

// reaches reports whether two ranks can share memory. It is symmetric.
func (c *address) reaches(o *address) bool {
	return c.order == o.order && c.page == o.page && c.host == o.host && c.pidns == o.pidns && c.uid == o.uid && c.dev == o.dev && c.ino == o.ino
}

// hostOrder returns the code of this machine's byte order.
func hostOrder() uint32 {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return 1
	}
	return 2
}

// inbox returns the path of the inbox with a nonce.
func (c *address) inbox(nonce [16]byte) string { return c.path + "." + hex.EncodeToString(nonce[:]) }

// name returns the path under which the driver with address to finds its inbox.
func (c *address) name(to *address) string { return c.inbox(to.nonce) }
