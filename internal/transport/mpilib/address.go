package mpilib

import (
	"encoding/binary"
	"hash/fnv"
	"runtime"
)

const (
	addressMagic   = "cnMp"
	addressVersion = 2
	// Where the parts of an address begin.
	whoAt     = len(addressMagic) + 1
	libraryAt = whoAt + len(identity{})
	portAt    = libraryAt + 8
	maxPort   = 1024 // MPI_MAX_PORT_NAME is less
)

// identity names a process: its rank in the world that it began in, and that
// world.
type identity [4 + 16]byte

func identify(rank int, world [16]byte) (who identity) {
	binary.LittleEndian.PutUint32(who[:], uint32(rank))
	copy(who[4:], world[:])
	return who
}

// address is what an address says.
type address struct {
	who     identity
	library uint64 // 0: not known
	port    string // where a process that comes later is reached
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

// digest tells libraries apart: only processes with the same one come
// together.
func (l *library) digest() uint64 {
	text := l.version()
	if text == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(l.kind + "\x00" + runtime.GOARCH + "\x00" + text))
	return h.Sum64()
}
