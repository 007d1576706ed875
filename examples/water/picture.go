package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
)

// writeResults writes the final height as numbers and as a picture.
func writeResults(dir string, b *basin) error {
	field := make([]float64, 0, b.N*b.N)
	for y := 1; y <= b.N; y++ {
		field = append(field, b.H[y*(b.N+2)+1:][:b.N]...)
	}
	err := writeFile(filepath.Join(dir, "field.f64"), func(w io.Writer) error {
		return binary.Write(w, binary.LittleEndian, field)
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "field.png"), func(w io.Writer) error {
		return png.Encode(w, picture(field, b.N))
	})
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	return errors.Join(err, f.Close())
}

// picture shows the water from above: colour is the height, and light falls
// from the upper left.
func picture(field []float64, n int) image.Image {
	mean, dev := 0.0, 0.0
	for _, h := range field {
		mean += h / float64(len(field))
	}
	for _, h := range field {
		dev += (h - mean) * (h - mean) / float64(len(field))
	}
	unit := math.Sqrt(dev) + 1e-12
	at := func(x, y int) float64 {
		return (field[min(max(y, 0), n-1)*n+min(max(x, 0), n-1)] - mean) / unit
	}
	img := image.NewRGBA(image.Rect(0, 0, n, n))
	for y := range n {
		for x := range n {
			slope := (at(x-1, y) - at(x+1, y) + at(x, y-1) - at(x, y+1)) * float64(n) / 256
			img.SetRGBA(x, y, shade(0.5+at(x, y)/6, 1-slope))
		}
	}
	return img
}

// sea holds the colours from low to high water.
var sea = [][3]float64{{4, 14, 48}, {10, 48, 104}, {22, 104, 156}, {64, 170, 190}, {170, 226, 220}, {255, 255, 250}}

// shade returns the colour of height t in [0, 1], under the given light.
func shade(t, light float64) color.RGBA {
	t = min(max(t, 0), 0.9999) * float64(len(sea)-1)
	light = min(max(light, 0.35), 1.9)
	i, f := int(t), t-math.Floor(t)
	var c [3]uint8
	for k := range c {
		c[k] = uint8(min(255, (sea[i][k]*(1-f)+sea[i+1][k]*f)*light))
	}
	return color.RGBA{c[0], c[1], c[2], 255}
}
