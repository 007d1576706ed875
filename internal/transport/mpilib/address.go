package mpilib

import (
	"encoding/binary"
	"hash/fnv"
	"runtime"
)

const (
	addressMagic   = "cnMp"
	addressVersion = 2
	// Positions of the parts of an address.
	whoAt     = len(addressMagic) + 1
	libraryAt = whoAt + len(identity{})
	portAt    = libraryAt + 8
	maxPort   = 1024 // longer than MPI_MAX_PORT_NAME
)

// identity names a process: the world in which it began, and its rank there.
type identity [4 + 16]byte

func identify(rank int, world [16]byte) (who identity) {
	binary.LittleEndian.PutUint32(who[:], uint32(rank))
	copy(who[4:], world[:])
	return who
}

// address is a parsed address.
type address struct {
	who     identity
	library uint64 // 0: unknown
	port    string // at which a process that came later can be reached
}

func (c *address) encode() []byte {
	b := append([]byte(addressMagic), addressVersion)
	b = append(b, c.who[:]...)
	b = binary.LittleEndian.AppendUint64(b, c.library)
	return append(b, c.port...)
}

func decode(b []byte) (c address, ok bool) {
	if len(b) < libraryAt || string(b[:len(addressMagic)]) != addressMagic {
		return c, false
	}
	copy(c.who[:], b[whoAt:])
	switch version := b[len(addressMagic)]; {
	case version == 1 && len(b) == libraryAt:
		return c, true
	case version == addressVersion && len(b) >= portAt && len(b) <= portAt+maxPort:
		c.library, c.port = binary.LittleEndian.Uint64(b[libraryAt:]), string(b[portAt:])
		return c, true
	}
	return c, false
}

// digest identifies a library. Only processes with the same digest can join
// each other.
func (l *library) digest() uint64 {
	text := l.version()
	if text == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(l.kind + "\x00" + runtime.GOARCH + "\x00" + text))
	return h.Sum64()
}
