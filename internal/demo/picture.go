package main

import (
	"bufio"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
)

// columns is the width of the picture in the terminal.
const columns = 72

// draw shows a picture in the terminal: two pixels in a character, in colour,
// or shades of ASCII where there is no colour.
func draw(out *os.File, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		return err
	}
	colour := false
	if st, err := out.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" {
		colour = true
	}
	w := bufio.NewWriter(out)
	render(w, img, colour)
	return w.Flush()
}

func render(w io.Writer, img image.Image, colour bool) {
	const rows = columns / 2 // a character is about twice as high as wide
	for y := range rows {
		fmt.Fprint(w, "   ")
		for x := range columns {
			if colour {
				a, b := mean(img, x, 2*y, columns), mean(img, x, 2*y+1, columns)
				fmt.Fprintf(w, "\x1b[38;2;%d;%d;%dm\x1b[48;2;%d;%d;%dm▀", a[0], a[1], a[2], b[0], b[1], b[2])
				continue
			}
			const shades = " .:-=+*#%@"
			a, b := mean(img, x, 2*y, columns), mean(img, x, 2*y+1, columns)
			light := 0
			for k := range a {
				light += a[k] + b[k]
			}
			fmt.Fprintf(w, "%c", shades[light*len(shades)/(6*256)])
		}
		if colour {
			fmt.Fprint(w, "\x1b[0m")
		}
		fmt.Fprintln(w)
	}
}

// mean is the mean colour of one cell when the picture is cut into n×n.
func mean(img image.Image, x, y, n int) (rgb [3]int) {
	r := img.Bounds()
	x0, x1 := r.Min.X+x*r.Dx()/n, r.Min.X+max((x+1)*r.Dx()/n, x*r.Dx()/n+1)
	y0, y1 := r.Min.Y+y*r.Dy()/n, r.Min.Y+max((y+1)*r.Dy()/n, y*r.Dy()/n+1)
	count := 0
	for j := y0; j < y1; j++ {
		for i := x0; i < x1; i++ {
			r, g, b, _ := img.At(i, j).RGBA()
			rgb[0], rgb[1], rgb[2] = rgb[0]+int(r>>8), rgb[1]+int(g>>8), rgb[2]+int(b>>8)
			count++
		}
	}
	for k := range rgb {
		rgb[k] /= count
	}
	return rgb
}
