// Command picture covers an image that is drawn line by line and encoded at
// the end, with colours behind interfaces.
package main

import (
	"crypto/sha256"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
)

func shade(x, y int) color.Color {
	n := 0
	for k := range 200 {
		n = (n*x + y + k) % 251
	}
	if n%2 == 0 {
		return color.Gray{uint8(n)}
	}
	return color.RGBA{uint8(n), uint8(x), uint8(y), 255}
}

func main() {
	img := image.NewRGBA(image.Rect(0, 0, 24, 10))
	var last color.Color = color.Black
	for y := range 10 { //difftest:loop
		for x := range 24 {
			c := shade(x, y)
			img.Set(x, y, c)
			last = c
		}
		r, g, b, _ := last.RGBA()
		fmt.Println(y, r, g, b)
	}
	f, err := os.Create("out.png")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if err := png.Encode(f, img); err != nil {
		panic(err)
	}
	fmt.Printf("%x\n", sha256.Sum256(img.Pix))
}
