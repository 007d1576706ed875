package journal

import (
	"fmt"
	"io"
	"os"

	"github.com/cairnrun/cairn/internal/mem"
)

// maxFullHash is the largest size of a kept hard link that has a digest of all
// its bytes. For a larger file, the digest covers its two ends only; its line
// also has its size and modification time. It is the program's own file under
// another name, and to read all of it would take longer than the program's
// change.
const maxFullHash = 16 << 20

const (
	hashStep = 1 << 20
	hashEnds = 64 << 10
)

// hasher computes a digest of what is written to it.
type hasher struct {
	sum string
	buf []byte
}

func (h *hasher) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), hashStep-len(h.buf))
		h.buf, p = append(h.buf, p[:k]...), p[k:]
		if len(h.buf) == hashStep {
			h.flush()
		}
	}
	return n, nil
}

func (h *hasher) flush() {
	d := mem.Digest(h.buf)
	h.sum = digestOf(fmt.Appendf([]byte(h.sum), " %d %016x%016x", len(h.buf), d.Hi, d.Lo))
	h.buf = h.buf[:0]
}

// String returns the digest.
func (h *hasher) String() string {
	if len(h.buf) > 0 || h.sum == "" {
		h.flush()
	}
	return h.sum
}

// hashRange returns the digest of a range of a file.
func hashRange(f *os.File, off, n int64) (string, error) {
	var h hasher
	got, err := io.Copy(&h, io.NewSectionReader(f, off, n))
	if err == nil && got < n {
		err = io.ErrUnexpectedEOF
	}
	return h.String(), err
}

// hashKept returns the digest of a whole kept file.
func hashKept(f *os.File, copied bool) (string, error) {
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	n := st.Size()
	if copied || n <= maxFullHash {
		return hashRange(f, 0, n)
	}
	a, err := hashRange(f, 0, hashEnds)
	if err != nil {
		return "", err
	}
	b, err := hashRange(f, n-hashEnds, hashEnds)
	return a + b, err
}
