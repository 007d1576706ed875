package main

import (
	"bufio"
	"errors"
	"image"
	"image/color"
	"image/png"
	"os"
)

// glow holds the colours from cold to hot.
var glow = [][3]float64{{0, 0, 10}, {60, 10, 110}, {170, 30, 80}, {240, 100, 20}, {255, 200, 60}, {255, 255, 230}}

// writePicture writes a PNG of n×n temperatures.
func writePicture(path string, field []float64, n int) error {
	img := image.NewRGBA(image.Rect(0, 0, n, n))
	for i, t := range field {
		f := min(max(t/hot, 0), 0.9999) * float64(len(glow)-1)
		k := int(f)
		f -= float64(k)
		var c [3]uint8
		for j := range c {
			c[j] = uint8(glow[k][j]*(1-f) + glow[k+1][j]*f)
		}
		img.SetRGBA(i%n, i/n, color.RGBA{c[0], c[1], c[2], 255})
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	if err = png.Encode(w, img); err == nil {
		err = w.Flush()
	}
	return errors.Join(err, file.Close())
}
