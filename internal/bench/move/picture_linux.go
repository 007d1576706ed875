package main

import (
	"fmt"
	"html"
	"strings"
)

// Dimensions of the picture.
const (
	wide      = 500 // width of a column
	columns   = 2
	labels    = 190 // width of the labels left of the bars
	margin    = 20
	barHigh   = 16
	titleHigh = 52
)

var colours = []string{"#1b6ca8", "#d35400", "#148f77", "#6c3483"}

// high returns the height of a figure.
func (f *figure) high() int {
	n := titleHigh + barHigh*len(f.Bars) + margin
	if len(f.Parts) > 0 {
		n += barHigh
	}
	return n
}

// picture draws figures as SVG: bars with their values, and a red line at each
// bound.
func picture(all []figure) string {
	var body strings.Builder
	var depth [columns]int
	for i := range all {
		c := 0
		for k := range depth {
			if depth[k] < depth[c] {
				c = k
			}
		}
		all[i].draw(&body, c*wide, depth[c])
		depth[c] += all[i].high()
	}
	height := 24
	for _, d := range depth {
		height = max(height, d+24)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="#222">
<rect width="%d" height="%d" fill="#fff"/>
%s<text x="%d" y="%d" fill="#666">red strokes: bounds; all hosts share the processors of one machine</text>
</svg>
`, columns*wide, height, columns*wide, height, body.String(), margin, height-8)
}

func (f *figure) draw(b *strings.Builder, x0, y0 int) {
	put := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	put(`<text x="%d" y="%d" font-size="12" font-weight="bold">%s</text>`, x0+margin, y0+24, html.EscapeString(f.Title))
	put(`<text x="%d" y="%d" fill="#666">1 = %s</text>`, x0+margin, y0+40, html.EscapeString(f.Unit))
	most := 1.0
	for _, x := range f.Bars {
		most = max(most, x.sum(), x.Bound)
	}
	left := float64(x0 + labels)
	scale := float64(wide-labels-margin-46) / most
	y := y0 + titleHigh
	for _, x := range f.Bars {
		put(`<text x="%.1f" y="%d" text-anchor="end">%s</text>`, left-6, y+barHigh-5, html.EscapeString(x.Name))
		at := left
		for i, v := range x.Parts {
			v = max(v, 0) // noise may be below
			put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, at, y+2, v*scale, barHigh-4, colours[i%len(colours)])
			at += v * scale
		}
		put(`<text x="%.1f" y="%d">%.2f</text>`, max(at, left+x.Bound*scale)+5, y+barHigh-5, x.sum())
		if x.Bound > 0 {
			put(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c0392b" stroke-width="2"/>`, left+x.Bound*scale, y, left+x.Bound*scale, y+barHigh)
		}
		if x.AtLeast > 0 {
			put(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c0392b" stroke-width="2"/>`, left+x.AtLeast*scale, y, left+x.AtLeast*scale, y+barHigh)
		}
		y += barHigh
	}
	one := left + scale
	put(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#888" stroke-dasharray="2 2"/>`, one, y0+titleHigh, one, y)
	put(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#888"/>`, left, y0+titleHigh, left, y)
	at := x0 + margin
	for i, name := range f.Parts {
		put(`<rect x="%d" y="%d" width="10" height="10" fill="%s"/>`, at, y+6, colours[i%len(colours)])
		put(`<text x="%d" y="%d">%s</text>`, at+14, y+15, html.EscapeString(name))
		at += 30 + 7*len(name)
	}
}
