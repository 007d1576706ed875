//go:build linux

package output

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// ended is the launch of pieces that do not come from a helper: their ranks
// have ended.
const ended = "ended"

// ShowRest shows the output of ended ranks that was not shown yet.
func (k *Sink) ShowRest() error {
	k.commitAll(true)
	for r := range k.ranks {
		for i := range k.ranks[r] {
			if k.ranks[r][i].delayed.on {
				continue
			}
			if err := k.showFile(r, i+1, k.own(r, i+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ShowStderr shows at most that many bytes, or a few more, that an ended rank
// has written to stderr and that were not shown yet. It returns how many. The
// next launch shows the rest. read reads from an offset of the rank's file;
// nil: it is in Options.RankOutput. ShowStderr does not wait: see AwaitIdle.
func (k *Sink) ShowStderr(rank, most int, read func(at int64) ([]byte, error)) (n int, err error) {
	if read == nil {
		read = k.own(rank, control.Stderr)
	}
	err = k.showFile(rank, control.Stderr, func(at int64) ([]byte, error) {
		if n >= most {
			return nil, nil
		}
		data, err := read(at)
		n += len(data)
		return data, err
	})
	return n, err
}

// own returns a function that reads a rank's file in Options.RankOutput.
func (k *Sink) own(rank, stream int) func(at int64) ([]byte, error) {
	return func(at int64) ([]byte, error) {
		f, err := vfs.OpenPrivate(rundir.OutputFile(k.o.RankOutput, rank, stream), os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		data := make([]byte, tailSize)
		n, _ := f.ReadAt(data, at)
		return data[:n], nil
	}
}

// showFile shows a stream from its offset to the end of its file.
func (k *Sink) showFile(rank, stream int, read func(at int64) ([]byte, error)) error {
	from := &control.FromRank{Launch: ended, Process: control.Process{Rank: rank}}
	for at := k.Offsets(rank)[stream-1]; ; {
		data, err := read(at)
		if err != nil || len(data) == 0 {
			return err
		}
		k.Take(from, &control.Output{Stream: stream, Offset: at, Data: data}, nil)
		at += int64(len(data))
	}
}

// AwaitIdle waits until nothing is left to show, or ctx ends.
func (k *Sink) AwaitIdle(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.some.Broadcast()
	})()
	k.mu.Lock()
	defer k.mu.Unlock()
	for ctx.Err() == nil && !k.closed && !k.stuck && (len(k.queue) > 0 || !k.began.IsZero()) {
		k.some.Wait()
	}
}
