package ckpt

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"

	"github.com/cairnrun/cairn/internal/graph"
)

// greet opens the stream, once.
func (g *Outgoing) greet() error {
	g.greeting.Do(func() {
		text, err := json.Marshal(moveHello{g.o.Rank, g.o.Ranks, g.o.Chunk, g.o.Sequential, g.o.Files})
		if err == nil {
			g.s.mu.Lock()
			defer g.s.mu.Unlock()
			if err = g.s.write(net.Buffers{movePreface}); err == nil {
				err = g.s.frameLocked(frameHello, text)
			}
		}
		g.greeted = err
	})
	return g.greeted
}

// transmit is a round up to its end: head, files and blocks.
func (g *Outgoing) transmit(img *graph.Image, f *finder, last *moveRest, extra []byte) error {
	if err := g.greet(); err != nil {
		return err
	}
	if last != nil && g.o.Sequential {
		g.s.mu.Lock()
		g.s.store()
		g.s.mu.Unlock()
	}
	if err := g.head(img, f, last, extra); err != nil {
		return err
	}
	if last != nil && g.o.Files {
		if err := g.sendFiles(last.Files); err != nil {
			return err
		}
	}
	if err := g.blocks(f); err != nil && (last != nil || err != errCut) {
		return err
	}
	if last != nil {
		return nil
	}
	return g.s.frameJSON(frameEnd, moveEnd{})
}

// head says what there is, and finds out what the newcomer has of it.
func (g *Outgoing) head(img *graph.Image, f *finder, last *moveRest, extra []byte) error {
	datasets, err := json.Marshal(f.l.datasets)
	if err != nil {
		return err
	}
	text := [sections][]byte{g.about.vars, g.about.types, g.about.pools, encodeRegions(img.Regions), datasets, nil, extra}
	if last != nil {
		if text[sectionRest], err = json.Marshal(last); err != nil {
			return err
		}
	}
	h := moveHead{Last: last != nil}
	changed := false
	for i, p := range text {
		s := section{Size: int64(len(p)), Digest: digestText(p)}
		same := s == g.told[i] && sectionLayout(i)
		changed = changed || !same && sectionLayout(i)
		g.told[i] = s
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
	return g.retable(f, changed)
}

// partSize is how much of a section goes into a frame.
const partSize = 1 << 20

// retable makes the tables for what is sent now. If it is not what was sent
// before, the newcomer says which datasets stay where they are.
func (g *Outgoing) retable(f *finder, changed bool) error {
	f.tables, f.chunk, f.zeros, f.sides = g.tables, g.o.Chunk, g.zeros, g.sides
	if !changed {
		return nil
	}
	old := make(map[string]int)
	for i := range g.datasets {
		old[g.datasets[i].Path] = i
	}
	tables := make([]*moveTable, len(f.l.datasets))
	for i := range tables {
		tables[i] = newMoveTable(&f.l.datasets[i])
	}
	if g.headed {
		list, err := hear(g, g.keeps)
		if err != nil {
			return err
		}
		for ; len(list) >= 4; list = list[4:] {
			i := int(binary.LittleEndian.Uint32(list))
			if i >= len(tables) {
				return fmt.Errorf("%w: the newcomer has dataset %d of %d", ErrCorrupt, i, len(tables))
			}
			d := &f.l.datasets[i]
			k, ok := old[d.Path]
			if !ok || !d.sameLayout(&g.datasets[k]) {
				return fmt.Errorf("%w: the newcomer claims to have /%s", ErrCorrupt, d.Path)
			}
			tables[i] = g.tables[k]
		}
	}
	g.headed, g.datasets, g.tables, f.tables = true, f.l.datasets, tables, tables
	return nil
}

// queued is how many parcels may wait between two stages. Those with memory of
// their own are fewer: there are only two pieces of it.
const queued = 8

// blocks sends the blocks that f finds, some while it looks for the next.
func (g *Outgoing) blocks(f *finder) error {
	out, quit := make(chan parcel, queued), make(chan struct{})
	f.out, f.quit = out, quit
	f.stop = func() error {
		if g.cut.Load() {
			return errCut
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

func (g *Outgoing) send(p *parcel) error {
	if p.wait != nil {
		if err := p.wait(); err != nil {
			return err
		}
	}
	if err := g.s.frame(frameBlocks, encodeRuns(p.runs, p.digests), p.raw...); err != nil {
		return err
	}
	p.giveBack()
	return nil
}
