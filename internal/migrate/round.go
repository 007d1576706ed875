package migrate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
)

// sendHello begins the stream, once.
func (g *Source) sendHello() error {
	g.helloOnce.Do(func() {
		text, err := json.Marshal(g.hello())
		if err == nil {
			g.s.mu.Lock()
			defer g.s.mu.Unlock()
			if err = g.s.write(net.Buffers{preface}); err == nil {
				err = g.s.frameLocked(frameHello, text)
			}
		}
		g.helloErr = err
	})
	return g.helloErr
}

// transmit sends a round without its end: head, files and blocks.
func (g *Source) transmit(img *graph.Image, f *finder, last *rest, extra []byte) error {
	if err := g.sendHello(); err != nil {
		return err
	}
	if err := g.head(img, f, last, extra); err != nil {
		return err
	}
	if last != nil {
		if err := g.sendFiles(last.Files); err != nil {
			return err
		}
	}
	if err := g.blocks(f); err != nil && (last != nil || err != errCanceled) {
		return err
	}
	if last != nil {
		return nil
	}
	return g.s.frameJSON(frameEnd, endFrame{})
}

// head describes the image, and finds out which of its datasets the destination
// has.
func (g *Source) head(img *graph.Image, f *finder, last *rest, extra []byte) error {
	datasets, err := json.Marshal(f.l.Datasets)
	if err != nil {
		return err
	}
	text := [sections][]byte{g.about.Vars, g.about.Types, g.about.Pools, ckpt.EncodeRegions(img.Regions), datasets, nil, extra}
	if last != nil {
		if text[sectionRest], err = json.Marshal(last); err != nil {
			return err
		}
	}
	h := headFrame{Last: last != nil}
	changed := false
	for i, p := range text {
		s := section{Size: int64(len(p)), Digest: ckpt.DigestText(p)}
		same := s == g.sent[i] && sectionLayout(i)
		changed = changed || !same && sectionLayout(i)
		g.sent[i] = s
		s.Same = same
		h.Sections[i] = s
	}
	if err := g.s.frameJSON(frameHead, h); err != nil {
		return err
	}
	for i, p := range text {
		for ; len(p) > 0 && !h.Sections[i].Same; p = p[min(len(p), partSize):] {
			if err := g.s.frame(framePart, p[:min(len(p), partSize)]); err != nil {
				return err
			}
		}
	}
	return g.exchangeTables(f, changed)
}

// partSize is how many bytes of a section go into a frame.
const partSize = 1 << 20

// exchangeTables makes the tables for this image. If its layout is new, the
// destination says which datasets stay where they are.
func (g *Source) exchangeTables(f *finder, changed bool) error {
	f.tables, f.batchSize, f.zeros, f.buffers = g.tables, g.o.BatchSize, g.zeros, g.buffers
	if !changed {
		return nil
	}
	old := make(map[string]int)
	for i := range g.datasets {
		old[g.datasets[i].Path] = i
	}
	tables := make([]*table, len(f.l.Datasets))
	for i := range tables {
		tables[i] = newTable(&f.l.Datasets[i])
	}
	if g.described {
		list, err := waitFor(g, g.kept)
		if err != nil {
			return err
		}
		for ; len(list) >= 4; list = list[4:] {
			i := int(binary.LittleEndian.Uint32(list))
			if i >= len(tables) {
				return fmt.Errorf("%w: the destination has dataset %d of %d", ckpt.ErrCorrupt, i, len(tables))
			}
			d := &f.l.Datasets[i]
			k, ok := old[d.Path]
			if !ok || !d.SameLayout(&g.datasets[k]) {
				return fmt.Errorf("%w: the destination claims to have /%s", ckpt.ErrCorrupt, d.Path)
			}
			tables[i] = g.tables[k]
		}
	}
	g.described, g.datasets, g.tables, f.tables = true, f.l.Datasets, tables, tables
	return nil
}

// queued is how many batches may wait between two stages. Batches with a buffer
// are fewer: there are two buffers.
const queued = 8

// blocks sends the blocks that f finds while f looks for the next ones.
func (g *Source) blocks(f *finder) error {
	out, quit := make(chan batch, queued), make(chan struct{})
	f.out, f.quit = out, quit
	f.stop = func() error {
		if g.canceled.Load() {
			return errCanceled
		}
		return nil
	}
	var failed error
	go func() {
		defer close(quit)
		for p := range out {
			if failed = g.send(&p); failed != nil {
				return
			}
		}
	}()
	err := f.run()
	close(out)
	<-quit
	if failed != nil {
		return failed
	}
	return err
}

func (g *Source) send(p *batch) error {
	if p.wait != nil {
		if err := p.wait(); err != nil {
			return err
		}
	}
	if err := g.s.frame(frameBlocks, encodeRuns(p.runs, p.digests), p.raw...); err != nil {
		return err
	}
	p.release()
	return nil
}
