package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cairnrun/cairn"
)

// This file is the program that is moved: bench -as rank, under "cairn run".

// unit is the number of words that share a version.
const unit = 4096 / 8

// content is the state of the rank. Each word follows from its place and
// version, so that the rank can check all of it at the end.
type content struct {
	words    []uint64
	versions []uint32 // one version for each unit
	step     int
}

func newContent(size int64) *content {
	n := int(size / 8 / unit)
	return &content{words: make([]uint64, n*unit), versions: make([]uint32, n)}
}

// word returns the word at a place.
func word(i int, version uint32) uint64 {
	x := uint64(i)*0x9e3779b97f4a7c15 + uint64(version)*0xd1b54a32d192ed03 + 1
	x ^= x >> 31
	x *= 0xbf58476d1ce4e5b9
	return x ^ x>>29
}

// write gives some units a version.
func (c *content) write(lo, hi int, version uint32) {
	for u := lo; u < hi; u++ {
		c.versions[u] = version
		for i, w := u*unit, c.words[u*unit:][:unit]; len(w) > 0; i, w = i+1, w[1:] {
			w[0] = word(i, version)
		}
	}
}

// change writes the next units, and starts again at the end. It takes about as
// long as period, and writes all the time.
func (c *content) change(units int, period time.Duration) {
	n := len(c.versions)
	c.step++
	began := time.Now()
	const slices = 16
	for k := range slices {
		for u := units * k / slices; u < units*(k+1)/slices; u++ {
			at := ((c.step-1)*units + u) % n
			c.write(at, at+1, uint32(c.step))
		}
		if k == slices-1 || units > 0 {
			time.Sleep(time.Until(began.Add(period * time.Duration(k+1) / slices)))
		}
	}
}

// check compares all words with their expected values.
func (c *content) check() error {
	for i, w := range c.words {
		if want := word(i, c.versions[i/unit]); w != want {
			return fmt.Errorf("word %d is %#x and should be %#x", i, w, want)
		}
	}
	return nil
}

// runRank is the rank. It creates a file when it has begun. When another file
// tells it to end, it writes the result of its check. If computes is set, rank
// 0 computes without a pause, and the others wait for it. Such ranks are
// killed.
func runRank(ctx context.Context, size int64, dirty float64, period time.Duration, files string, computes bool) (err error) {
	p, err := cairn.Open(ctx, cairn.Options{Every: 24 * time.Hour})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	c := newContent(size)
	for name, v := range map[string]any{"words": &c.words, "versions": &c.versions, "step": &c.step} {
		switch v := v.(type) {
		case *[]uint64:
			err = cairn.Protect(p, name, v)
		case *[]uint32:
			err = cairn.Protect(p, name, v)
		case *int:
			err = cairn.Protect(p, name, v)
		}
		if err != nil {
			return err
		}
	}
	resumed, err := p.Restore(ctx)
	if err != nil {
		return err
	}
	if !resumed {
		c.write(0, len(c.versions), 0)
	}
	units := int(dirty * float64(len(c.versions)))
	change := func() error {
		c.change(units, period)
		return nil
	}
	if computes {
		m, err := meterOf(files, p.Rank())
		if err != nil {
			return err
		}
		defer m.f.Close()
		change = func() error { return m.compute(c, p.World()) }
	}
	for {
		if err := p.Point(ctx); err != nil {
			return err
		}
		if c.step == 3 && !resumed { // by now it has allocated what a run without moves has
			if err := os.WriteFile(files+".begun", nil, 0o666); err != nil {
				return err
			}
		}
		if _, err := os.Stat(files + ".end"); err == nil {
			break
		}
		if err := change(); err != nil {
			return err
		}
	}
	said := fmt.Sprintf("right after %d steps\n", c.step)
	if err := c.check(); err != nil {
		said = fmt.Sprintf("wrong after %d steps: %v\n", c.step, err)
	}
	if err := os.WriteFile(files+".said", []byte(said), 0o666); err != nil {
		return err
	}
	p.Finish()
	return nil
}
