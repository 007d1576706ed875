package interconnects

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Dimensions of the picture.
const (
	width, height      = 1000, 460
	left, right        = 70, 20
	top, bottom        = 30, 120
	plotWide, plotHigh = width - left - right, height - top - bottom
)

// Picture draws the latency over the steps as SVG: a point for the mean of each
// sample, and a line from the minimum to the mean, on a logarithmic scale. All
// phases are equally wide, whatever their number of steps.
func Picture(phases []Phase) string {
	phases = slices.DeleteFunc(slices.Clone(phases), func(p Phase) bool { return len(p.Samples) == 0 })
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range phases {
		for _, s := range p.Samples {
			low, high = min(low, s.Least), max(high, s.Mean)
		}
	}
	if low > high {
		low, high = 1, 10
	}
	from, to := math.Floor(math.Log10(low)*3)/3, math.Ceil(math.Log10(high)*3)/3
	y := func(us float64) float64 {
		return top + plotHigh*(1-(math.Log10(us)-from)/(to-from))
	}
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`, width, height)
	put(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	put(`<text x="%d" y="18" font-size="14">One run of %d ranks, stopped and resumed on other interconnects: latency of a hop</text>`, left, Ranks)
	for e := math.Floor(from); e <= to; e++ {
		for k := 1; k < 10; k++ {
			v := float64(k) * math.Pow(10, e)
			if at := y(v); at >= top-0.5 && at <= top+plotHigh+0.5 {
				colour := "#eee"
				if k == 1 {
					colour = "#bbb"
				}
				put(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s"/>`, left, at, left+plotWide, at, colour)
				if k == 1 || k == 2 || k == 5 {
					put(`<text x="%d" y="%.1f" text-anchor="end">%g</text>`, left-6, at+4, v)
				}
			}
		}
	}
	put(`<text x="16" y="%d" transform="rotate(-90 16 %d)" text-anchor="middle">µs per hop (log)</text>`, top+plotHigh/2, top+plotHigh/2)
	wide := float64(plotWide) / float64(max(1, len(phases)))
	for i, p := range phases {
		x0 := left + float64(i)*wide
		colour := colours[int(p.Label[0]-'A')%len(colours)]
		put(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#888"/>`, x0, top, x0, top+plotHigh+6)
		for _, s := range p.Samples {
			x := x0 + 4 + (wide-8)*float64(s.Step-p.From)/float64(max(1, p.To-p.From))
			put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-opacity="0.35"/>`, x, y(s.Least), x, y(s.Mean), colour)
			put(`<circle cx="%.1f" cy="%.1f" r="1.8" fill="%s"/>`, x, y(s.Mean), colour)
		}
		middle, below := x0+wide/2, float64(top+plotHigh)
		put(`<text x="%.1f" y="%.1f" font-size="11" fill="#666">%d</text>`, x0+2, below+16, p.From)
		put(`<text x="%.1f" y="%.1f" text-anchor="middle" font-size="16" fill="%s">%s</text>`, middle, below+36, colour, html.EscapeString(p.Label))
		for j, line := range append(wrap(p.Title, 18), routesText(p.Routes)...) {
			put(`<text x="%.1f" y="%.1f" text-anchor="middle" font-size="11">%s</text>`, middle, below+54+14*float64(j), html.EscapeString(line))
		}
	}
	put(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888"/>`, left, top, plotWide, plotHigh)
	put(`<text x="%d" y="%d" text-anchor="end" font-size="11" fill="#666">numbers below the axis: first step of each phase; all hosts share the processors of one machine</text>`, left+plotWide, height-4)
	put(`</svg>`)
	return b.String()
}

var colours = []string{"#1b6ca8", "#c0392b", "#d35400", "#8e6b00", "#6c3483", "#148f77", "#1b6ca8"}

// routesText counts the hops of each transport.
func routesText(routes []string) []string {
	count := make(map[string]int)
	var names []string
	for _, r := range routes {
		if count[r]++; count[r] == 1 {
			names = append(names, r)
		}
	}
	slices.Sort(names)
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%d × %s", count[n], n))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{strings.Join(parts, ", ")}
}

// wrap breaks a text into lines.
func wrap(text string, limit int) (lines []string) {
	for _, w := range strings.Fields(text) {
		if n := len(lines); n > 0 && len(lines[n-1])+1+len(w) <= limit {
			lines[n-1] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}
