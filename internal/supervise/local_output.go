//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/vfs"
)

// collectOutput makes the ranks' output files here equal to those on their
// hosts. Most of them are equal already: the sink has written what helpers
// passed on.
func (s *Supervisor) collectOutput(ctx context.Context) error {
	for r := range s.n {
		h := s.a.ranks[r].on
		for _, stream := range []int{control.Stdout, control.Stderr} {
			name := rundir.OutputFile(s.o.RankOutput, r, stream)
			if err := s.collectFile(ctx, h, "output/"+filepath.Base(name), name); err != nil {
				return fmt.Errorf("the output of rank %d on %s: %w", r, h.title(), err)
			}
		}
	}
	return nil
}

// collectFile makes a file here equal to one of a host.
func (s *Supervisor) collectFile(ctx context.Context, h *host, path, name string) error {
	there, err := s.readFrom(ctx, h, &control.ReadFile{Path: path, Sum: true})
	if err != nil {
		return err
	}
	if sum, size, err := local.SumOf(name); err == nil && size == there.Size && sum == there.Sum {
		return nil
	}
	f, err := vfs.OpenPrivate(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	for at := int64(0); at < there.Size; {
		piece, err := s.readFrom(ctx, h, &control.ReadFile{Path: path, Offset: at})
		if err == nil && len(piece.Data) == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			_, err = f.WriteAt(piece.Data, at)
		}
		if err != nil {
			return err
		}
		at += int64(len(piece.Data))
	}
	if sum, size, err := local.SumOf(name); err != nil || size != there.Size || sum != there.Sum {
		return errors.Join(fmt.Errorf("%s changed while it was copied", path), err)
	}
	return nil
}

// readFrom asks a host for a piece of a file.
func (s *Supervisor) readFrom(ctx context.Context, h *host, m *control.ReadFile) (*control.FileData, error) {
	var got *control.FileData
	s.askHosts(ctx, func(x *host) control.Message {
		if x != h {
			return nil
		}
		return m
	}, func(_ *host, answer control.Message) { got, _ = answer.(*control.FileData) })
	switch {
	case got == nil:
		return nil, errors.New("its helper is lost")
	case got.Error != "":
		return nil, errors.New(got.Error)
	}
	return got, nil
}
