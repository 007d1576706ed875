//go:build linux

package output

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/cairnrun/cairn/internal/vfs"
)

// outputOffsets is RUN/output-offsets: up to where stdout and stderr of each
// rank have been shown, two numbers of a fixed width per rank. Each number is
// overwritten right after a line was written. So after kill -9 of the
// supervisor, the next one continues there: at most the line that was being
// written is shown again, and none is lost. The file is not synced: after a
// crash of the machine, more lines may be shown again.
type outputOffsets struct{ f *os.File }

// offsetWidth is the width of a number. No number crosses a page boundary, so
// each is written completely or not at all.
const offsetWidth = 16

func offsetText(at int64) (text [offsetWidth]byte) {
	text[offsetWidth-1] = '\n'
	for i := offsetWidth - 2; i >= 0; i-- {
		text[i] = byte('0' + at%10)
		at /= 10
	}
	return text
}

// readOffsets reads the offsets of the previous supervisor. It returns nil if
// there are none.
func readOffsets(run string, n int) [][2]int64 {
	text, err := os.ReadFile(filepath.Join(run, "output-offsets"))
	if err != nil || len(text) != n*2*offsetWidth {
		return nil
	}
	out := make([][2]int64, n)
	for i := range 2 * n {
		at, err := strconv.ParseUint(string(text[i*offsetWidth:][:offsetWidth-1]), 10, 63)
		if err != nil {
			return nil
		}
		out[i/2][i%2] = int64(at)
	}
	return out
}

// newOutputOffsets replaces an earlier file, which a process that is ending may
// still write to.
func newOutputOffsets(run string, now [][2]int64) (*outputOffsets, error) {
	text := make([]byte, 0, len(now)*2*offsetWidth)
	for _, at := range now {
		for i := range at {
			number := offsetText(at[i])
			text = append(text, number[:]...)
		}
	}
	name := filepath.Join(run, "output-offsets")
	f, err := vfs.OpenPrivate(name+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(text); err == nil {
		err = os.Rename(name+".tmp", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &outputOffsets{f}, nil
}

// put records a position. If it cannot be recorded, output is shown again at
// worst.
func (s *outputOffsets) put(rank, stream int, at int64) {
	if s != nil {
		text := offsetText(at)
		_, _ = s.f.WriteAt(text[:], int64(2*rank+stream-1)*offsetWidth)
	}
}
