package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
)

// TestRank_DetectsWrongMemory shows that the rank detects when its memory is
// not what it wrote.
func TestRank_DetectsWrongMemory(t *testing.T) {
	c := newContent(1 << 20)
	c.write(0, len(c.versions), 0)
	for range 40 { // more than one pass over the memory
		c.change(13, 0)
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, v := range c.versions {
		if v > 0 {
			changed++
		}
	}
	if changed != len(c.versions) {
		t.Errorf("%d of %d units were changed", changed, len(c.versions))
	}
	c.words[12345] ^= 1
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "word 12345") {
		t.Errorf("a changed bit: %v", err)
	}
}

// TestStages_SendAll shows that the stages send all that a move sends.
func TestStages_SendAll(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	defer ln.Close()
	sunk := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			err = sink(conn)
		}
		sunk <- err
	}()
	const size = 8 << 20
	var out bytes.Buffer
	if err := errors.Join(runStages(t.Context(), size, ln.Addr().String(), &out), <-sunk); err != nil {
		t.Fatal(err)
	}
	var s stages
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Bytes < size || s.Bytes > size+size/8 || s.Write <= 0 || s.Transfer <= 0 || s.Read <= 0 {
		t.Errorf("%+v", s)
	}
}

// TestMemory_GrowthSeen shows that the growth of a process's memory is seen.
func TestMemory_GrowthSeen(t *testing.T) {
	before, err := memoryOf(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	const size = 64 << 20
	p := bytes.Repeat([]byte{1}, size)
	after, err := memoryOf(os.Getpid())
	if err != nil || after.private-before.private < size/2 || after.highest < after.private {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
	if p[size-1] != 1 {
		t.Error("it is not there")
	}
	if n := twin(os.Getpid()); n == os.Getpid() {
		t.Error("a process is its own twin")
	}
}

// TestFigure_SaysWhichBoundsHold shows that a figure says which bounds hold, in
// the table and in the picture.
func TestFigure_SaysWhichBoundsHold(t *testing.T) {
	f := figure{Title: "a < b", Unit: "one", Parts: []string{"x", "y"}, Bars: []bar{
		{Name: "good", Parts: []float64{0.5, 0.25}, Bound: 1},
		{Name: "bad", Parts: []float64{1, 1}, Bound: 1.15, Note: "why"},
		{Name: "disturbed", Parts: []float64{1.3}, Bound: 1.15, Least: 1.1},
		{Name: "free", Parts: []float64{3}},
		{Name: "faster", Parts: []float64{-0.1}, Bound: 0.05},
	}}
	text := f.table()
	for _, want := range []string{"0.750  bound 1.000 held", "2.000  bound 1.150 NOT HELD", "(why)", "x 0.500", "1.300  least 1.100  bound 1.150 NOT HELD", "-0.100  bound 0.050 held"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	svg := picture([]figure{f, f, f})
	d := xml.NewDecoder(strings.NewReader(svg))
	lines := 0
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "line" {
			for _, a := range e.Attr {
				if a.Name.Local == "stroke" && a.Value == "#c0392b" {
					lines++
				}
			}
		}
	}
	if lines != 3*4 || strings.Count(svg, "a &lt; b") != 3 {
		t.Errorf("%d bounds in\n%s", lines, svg)
	}
	if x := ratio("r", []float64{2, 6, 3}, []float64{1, 2, 4}, 1); x.sum() != 2 || x.Least != 2 || !x.over() {
		t.Errorf("%+v", x)
	}
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Error(m)
	}
}
