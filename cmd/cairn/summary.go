package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
)

// summary is a checkpoint in a few numbers, as JSON documents show it.
type summary struct {
	Index       uint64     `json:"index"`
	Path        string     `json:"path"`
	Rank        int        `json:"rank"`
	Ranks       int        `json:"ranks"`
	Time        string     `json:"time"` // RFC 3339, UTC
	AgeSeconds  float64    `json:"ageSeconds"`
	Kind        string     `json:"kind"` // "full" or "differential"
	Bases       []baseInfo `json:"bases"`
	FileBytes   int64      `json:"fileBytes"`  // of its own file
	BaseBytes   int64      `json:"baseBytes"`  // of it, stored in files of older checkpoints
	StateBytes  int64      `json:"stateBytes"` // of the program's variables
	Compression string     `json:"compression"`
	Reason      string     `json:"reason"`
	PauseMS     float64    `json:"pauseMs"`
	Points      uint64     `json:"points"`

	taken time.Time
}

// baseInfo is a file of an older checkpoint that a checkpoint needs.
type baseInfo struct {
	Index uint64 `json:"index"`
	File  string `json:"file"`
}

// summarize returns the summary of an open checkpoint.
func (c *call) summarize(s *ckpt.File) summary {
	h := &s.Header
	m := summary{
		Index: h.Index, Path: withSlashes(s.Path), Rank: h.Rank, Ranks: h.Ranks, Time: h.Time, Kind: "full", Bases: []baseInfo{},
		FileBytes: s.Size, Compression: compressionName(h.Compression),
		Reason: h.Note.Reason, PauseMS: h.Note.PauseMS, Points: h.Note.Points,
	}
	if t, err := time.Parse(time.RFC3339, h.Time); err == nil {
		m.taken = t
		m.AgeSeconds = c.now.Sub(t).Seconds()
	}
	for _, b := range h.Bases {
		m.Kind = "differential"
		m.Bases = append(m.Bases, baseInfo{b.Index, b.File})
	}
	for i := range h.Datasets {
		if h.Datasets[i].Pool >= 0 {
			m.StateBytes += h.Datasets[i].Size
		}
		m.BaseBytes += usageOf(s, i).StoredInBases
	}
	return m
}

// when returns the time a checkpoint was taken, and how long ago that is.
func (m *summary) when(now time.Time) (at, ago string) {
	if m.taken.IsZero() {
		return m.Time, "-"
	}
	return clock(m.taken), age(now, m.taken)
}

// kind returns whether the checkpoint is full or has bases.
func (m *summary) kind() string {
	if m.Kind == "full" {
		return m.Kind
	}
	return fmt.Sprintf("%s, %s", m.Kind, control.Count(len(m.Bases), "base"))
}

func compressionName(c ckpt.Compression) string {
	if c == ckpt.None {
		return "none"
	}
	return string(c)
}

// usage is where the bytes of a dataset, or of several, are.
type usage struct {
	Size          int64 `json:"sizeBytes"`
	Zero          int64 `json:"zeroBytes"`          // in blocks of zeros, which are not stored
	Unchanged     int64 `json:"unchangedBytes"`     // in blocks that an older checkpoint's file holds
	Stored        int64 `json:"storedBytes"`        // in this file, after compression
	StoredInBases int64 `json:"storedInBasesBytes"` // in older checkpoints' files, after compression

	unpacked int64 // what is stored, here and there, before compression
}

// usageOf counts the blocks of dataset i.
func usageOf(s *ckpt.File, i int) usage {
	d := &s.Header.Datasets[i]
	u := usage{Size: d.Size}
	for off, row := int64(0), d.First; off < d.Size; off, row = off+d.Block, row+1 {
		n := min(d.Block, d.Size-off)
		whole := n // what a chunk holds: the last one is filled up
		if d.Chunk != nil {
			whole = d.Block
		}
		switch b := s.Blocks[row]; {
		case b.Source == ckpt.SourceZero:
			u.Zero += n
		case b.Source == ckpt.SourceHere:
			u.Stored += int64(b.Stored)
			u.unpacked += whole
		default:
			u.Unchanged += n
			u.StoredInBases += int64(b.Stored)
			u.unpacked += whole
		}
	}
	return u
}

func (u *usage) add(v usage) {
	u.Size += v.Size
	u.Zero += v.Zero
	u.Unchanged += v.Unchanged
	u.Stored += v.Stored
	u.StoredInBases += v.StoredInBases
	u.unpacked += v.unpacked
}

// ratio is how much smaller compression made what is stored; 1 if nothing is.
func (u *usage) ratio() float64 {
	packed := u.Stored + u.StoredInBases
	if packed == 0 {
		return 1
	}
	return float64(u.unpacked) / float64(packed)
}

// cells returns the columns of a table that describe u: size, zero, unchanged,
// stored, ratio.
func (u *usage) cells() []string {
	ratio := "-"
	if u.unpacked != u.Stored+u.StoredInBases {
		ratio = fmt.Sprintf("%.2f×", u.ratio())
	}
	return []string{control.BytesText(u.Size), percent(u.Zero, u.Size), percent(u.Unchanged, u.Size), control.BytesText(u.Stored), ratio}
}

// shape returns dimensions as users read them.
func shape(dims []uint64) string {
	if len(dims) == 0 {
		return "scalar"
	}
	var b strings.Builder
	for i, n := range dims {
		if i > 0 {
			b.WriteString("×")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}
