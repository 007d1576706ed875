package main

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// figure is a bar chart. With -o it is written as SVG, and its numbers as JSON.
type figure struct {
	Name   string   `json:"name"` // of the files
	Title  string   `json:"title"`
	Unit   string   `json:"unit"`            // what the bars measure
	Parts  []string `json:"parts,omitempty"` // what the parts of a bar are
	Groups []group  `json:"groups"`
	Note   string   `json:"note,omitempty"`
}

// group is bars that belong together.
type group struct {
	Name string `json:"name"`
	Bars []bar  `json:"bars"`
}

// bar is a measured value, or one from a paper.
type bar struct {
	Name  string    `json:"name"`
	Parts []float64 `json:"parts"`
	Paper bool      `json:"paper,omitempty"`
	Most  bool      `json:"most,omitempty"` // the paper says that it is at most this
}

func (b *bar) sum() (v float64) {
	for _, p := range b.Parts {
		v += p
	}
	return v
}

// Dimensions of a figure.
const (
	figureWide = 760
	labelsWide = 270
	barHigh    = 16
	edge       = 16
)

var colours = []string{"#1b6ca8", "#d35400", "#148f77", "#6c3483"}

// save writes the figure's files into the directory of -o, if there is one.
func (f *figure) save() error {
	if *outDir == "" {
		return nil
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(*outDir, f.Name)
	if err := os.WriteFile(path+".json", append(text, '\n'), 0o666); err != nil {
		return err
	}
	return os.WriteFile(path+".svg", []byte(f.svg()), 0o666)
}

// redraw draws the figures of JSON files again.
func redraw(files []string) error {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var f figure
		if err := json.Unmarshal(text, &f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(strings.TrimSuffix(name, ".json")+".svg", []byte(f.svg()), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// svg draws the figure.
func (f *figure) svg() string {
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	most := 0.0
	for _, g := range f.Groups {
		for _, x := range g.Bars {
			most = max(most, x.sum())
		}
	}
	scale := float64(figureWide-labelsWide-edge-60) / max(most, 1e-9)
	put(`<text x="%d" y="22" font-size="13" font-weight="bold">%s</text>`, edge, html.EscapeString(f.Title))
	put(`<text x="%d" y="38" fill="#666">%s</text>`, edge, html.EscapeString(f.Unit))
	y := 48
	for _, g := range f.Groups {
		put(`<text x="%d" y="%d" font-weight="bold">%s</text>`, edge, y+barHigh-4, html.EscapeString(g.Name))
		if len(g.Name) > 14 { // it needs a line of its own
			y += barHigh
		}
		for _, x := range g.Bars {
			put(`<text x="%d" y="%d" text-anchor="end">%s</text>`, labelsWide-6, y+barHigh-4, html.EscapeString(x.Name))
			at := float64(labelsWide)
			for i, v := range x.Parts {
				v = max(v, 0) // less than nothing is noise
				fill, stroke := colours[i%len(colours)], "none"
				if x.Paper {
					fill, stroke = []string{"#bbb", "#ddd", "#999"}[i%3], "#888"
				}
				if x.Most {
					fill = "none"
				}
				put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="%s"/>`, at, y+2, v*scale, barHigh-5, fill, stroke)
				at += v * scale
			}
			value := fmt.Sprintf("%.3g", x.sum())
			if x.Most {
				value = "≤ " + value
			}
			put(`<text x="%.1f" y="%d">%s</text>`, at+5, y+barHigh-4, value)
			y += barHigh
		}
		y += 6
	}
	put(`<line x1="%d" y1="44" x2="%d" y2="%d" stroke="#888"/>`, labelsWide, labelsWide, y)
	at := edge
	for i, name := range f.Parts {
		put(`<rect x="%d" y="%d" width="10" height="10" fill="%s"/>`, at, y+6, colours[i%len(colours)])
		put(`<text x="%d" y="%d">%s</text>`, at+14, y+15, html.EscapeString(name))
		at += 30 + 7*len(name)
	}
	if len(f.Parts) > 0 {
		y += 20
	}
	if f.Note != "" {
		put(`<text x="%d" y="%d" fill="#666">%s</text>`, edge, y+14, html.EscapeString(f.Note))
		y += 18
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="#222">
<rect width="%d" height="%d" fill="#fff"/>
%s</svg>
`, figureWide, y+8, figureWide, y+8, b.String())
}
