package main

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
)

// painter is implemented by programs that draw pictures.
type painter interface {
	// pictures makes the program write a picture into dir, which exists,
	// after every so many steps. It is called before the first step. The
	// name of a picture is its step, and the picture depends on the state
	// alone: a resumed run draws the same as an uninterrupted one.
	pictures(dir string, every int)
}

// chart is a picture of the estuary from above, north at the top.
type chart struct {
	shwaSize
	u, bed []float32
	time   float32
	step   int
}

// legendHeight is the height of the strip below the map.
const legendHeight = 46

// Colours from low to high.
var (
	seaColours  = ramp{{196, 232, 222}, {134, 206, 212}, {74, 164, 196}, {36, 116, 170}, {20, 76, 134}, {12, 46, 96}}
	landColours = ramp{{222, 206, 164}, {200, 172, 122}, {168, 134, 88}, {138, 104, 66}, {112, 82, 54}, {94, 68, 48}}
	dyeColours  = ramp{{255, 236, 130}, {255, 196, 64}, {250, 138, 34}, {226, 66, 30}, {160, 16, 40}}
	paper       = colour{250, 248, 242}
	ink         = colour{40, 44, 52}
)

const (
	deepest = 14    // metres, the end of the ramps
	highest = 28    //
	faint   = 0.004 // the lowest concentration that is visible
)

type colour [3]float64

type ramp []colour

// at returns the colour at t in [0, 1].
func (r ramp) at(t float64) colour {
	t = min(max(t, 0), 0.9999) * float64(len(r)-1)
	i := int(t)
	return r[i].mix(r[i+1], t-float64(i))
}

func (c colour) mix(d colour, f float64) colour {
	for k := range c {
		c[k] += (d[k] - c[k]) * f
	}
	return c
}

func (c colour) light(f float64) colour {
	for k := range c {
		c[k] *= f
	}
	return c
}

// rgba rounds to few levels, which keeps files small.
func (c colour) rgba() color.RGBA {
	b := func(x float64) uint8 { return uint8(min(255, math.Round(max(x, 0)/6)*6)) }
	return color.RGBA{b(c[0]), b(c[1]), b(c[2]), 255}
}

// draw makes the picture.
func (c *chart) draw() *image.RGBA {
	scale := max(1, (640+c.nx/2)/c.nx)
	w, h := c.nx*scale, c.ny*scale
	img := image.NewRGBA(image.Rect(0, 0, w, h+legendHeight))
	depth := make([]float32, c.nx*c.ny)
	dye := make([]float32, c.nx*c.ny)
	for j := range c.ny {
		row := c.u[4*j*c.nx:]
		for i := range c.nx {
			d := row[i]
			if d >= 2*shwaDry {
				dye[j*c.nx+i] = row[3*c.nx+i] / d
			}
			depth[j*c.nx+i] = d
		}
	}
	for y := range h {
		for x := range w {
			// The position of the pixel, in cells from the centre
			// of the first.
			px := (float64(x)+0.5)/float64(scale) - 0.5
			py := float64(c.ny) - 0.5 - (float64(y)+0.5)/float64(scale)
			img.SetRGBA(x, y, c.pixel(depth, dye, px, py).rgba())
		}
	}
	c.legend(img, h)
	return img
}

// between interpolates a field.
func (c *chart) between(field []float32, x, y float64) float64 {
	x = min(max(x, 0), float64(c.nx-1))
	y = min(max(y, 0), float64(c.ny-1))
	i, j := min(int(x), c.nx-2), min(int(y), c.ny-2)
	fx, fy := x-float64(i), y-float64(j)
	f := field[j*c.nx+i:]
	low := float64(f[0])*(1-fx) + float64(f[1])*fx
	high := float64(f[c.nx])*(1-fx) + float64(f[c.nx+1])*fx
	return low*(1-fy) + high*fy
}

func (c *chart) pixel(depth, dye []float32, x, y float64) colour {
	d := c.between(depth, x, y)
	// Light falls from the north-west, on the ground and, weaker, through
	// the water.
	e := max(1, float64(c.nx)/400)
	slope := (c.between(c.bed, x-e, y+e) - c.between(c.bed, x+e, y-e)) / (2 * e * float64(c.cell()))
	ground := c.between(c.bed, x, y)
	land := landColours.at(math.Sqrt(max(ground, 0) / highest)).light(min(max(1-6*slope, 0.72), 1.18))
	if d < 0.05 {
		return land
	}
	p := seaColours.at(math.Sqrt(d / deepest)).light(min(max(1-2.5*slope, 0.86), 1.1))
	p = land.mix(p, min(1, 0.35+d))
	if s := c.between(dye, x, y); s > faint {
		t := math.Log(s/faint) / math.Log(1/faint)
		p = p.mix(dyeColours.at(t), min(0.92, 0.25+1.6*t))
	}
	return p
}

// legend draws the strip below the map.
func (c *chart) legend(img *image.RGBA, top int) {
	w := img.Bounds().Dx()
	fill(img, 0, top, w, legendHeight, paper)
	fill(img, 0, top, w, 1, ink)
	seconds := int(c.time)
	write(img, 12, top+8, 2, fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60))
	write(img, 12, top+30, 1, fmt.Sprintf("step %d", c.step))
	for k, bar := range []struct {
		r              ramp
		name, from, to string
	}{
		{seaColours, "water depth", "0", fmt.Sprintf("%d m", deepest)},
		{landColours, "land", "0", fmt.Sprintf("%d m", highest)},
		{dyeColours, "contaminant", fmt.Sprint(faint), "1"},
	} {
		const wide = 120
		x := w - (3-k)*(wide+28)
		write(img, x, top+6, 1, bar.name)
		for i := range wide {
			fill(img, x+i, top+17, 1, 10, bar.r.at(float64(i)/wide))
		}
		write(img, x, top+31, 1, bar.from)
		write(img, x+wide-6*len(bar.to), top+31, 1, bar.to)
	}
}

func fill(img *image.RGBA, x, y, w, h int, c colour) {
	for j := y; j < y+h; j++ {
		for i := x; i < x+w; i++ {
			img.SetRGBA(i, j, c.rgba())
		}
	}
}

// write writes text at x, y in letters of 5×8 pixels.
func write(img *image.RGBA, x, y, scale int, text string) {
	for _, r := range text {
		for i, column := range letters[r] {
			for j := range 8 {
				if column>>j&1 != 0 {
					fill(img, x+i*scale, y+j*scale, scale, scale, ink)
				}
			}
		}
		x += 6 * scale
	}
}

// save writes the picture to dir, completely or not at all.
func (c *chart) save(dir string) error {
	path := filepath.Join(dir, fmt.Sprintf("shwa-%06d.png", c.step))
	f, err := os.Create(path + ".part")
	if err != nil {
		return fmt.Errorf("picture after step %d: %w", c.step, err)
	}
	w := bufio.NewWriter(f)
	err = png.Encode(w, c.draw())
	if err == nil {
		err = w.Flush()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		os.Remove(path + ".part")
		return fmt.Errorf("picture after step %d: %w", c.step, err)
	}
	return nil
}

// letters holds the columns of each letter, the top pixel in the lowest bit.
var letters = map[rune][5]byte{
	'0': {0x3e, 0x51, 0x49, 0x45, 0x3e}, '1': {0x00, 0x42, 0x7f, 0x40, 0x00},
	'2': {0x42, 0x61, 0x51, 0x49, 0x46}, '3': {0x21, 0x41, 0x45, 0x4b, 0x31},
	'4': {0x18, 0x14, 0x12, 0x7f, 0x10}, '5': {0x27, 0x45, 0x45, 0x45, 0x39},
	'6': {0x3c, 0x4a, 0x49, 0x49, 0x30}, '7': {0x01, 0x71, 0x09, 0x05, 0x03},
	'8': {0x36, 0x49, 0x49, 0x49, 0x36}, '9': {0x06, 0x49, 0x49, 0x29, 0x1e},
	':': {0x00, 0x36, 0x36, 0x00, 0x00}, '.': {0x00, 0x60, 0x60, 0x00, 0x00},
	'a': {0x20, 0x54, 0x54, 0x54, 0x78}, 'c': {0x38, 0x44, 0x44, 0x44, 0x20},
	'd': {0x38, 0x44, 0x44, 0x48, 0x7f}, 'e': {0x38, 0x54, 0x54, 0x54, 0x18},
	'h': {0x7f, 0x08, 0x04, 0x04, 0x78}, 'i': {0x00, 0x44, 0x7d, 0x40, 0x00},
	'l': {0x00, 0x41, 0x7f, 0x40, 0x00}, 'm': {0x7c, 0x04, 0x18, 0x04, 0x78},
	'n': {0x7c, 0x08, 0x04, 0x04, 0x78}, 'o': {0x38, 0x44, 0x44, 0x44, 0x38},
	'p': {0xfc, 0x24, 0x24, 0x24, 0x18}, 'r': {0x7c, 0x08, 0x04, 0x04, 0x08},
	's': {0x48, 0x54, 0x54, 0x54, 0x20}, 't': {0x04, 0x3f, 0x44, 0x40, 0x20},
	'w': {0x3c, 0x40, 0x30, 0x40, 0x3c},
}
