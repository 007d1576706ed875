package main

import (
	"os"

	"github.com/cairnrun/cairn/device"
)

func main() {
	devs, err := device.Devices()
	if err != nil {
		os.Exit(1)
	}
	x, y := device.New[float32](100), device.New[float32](100)
	scale := device.NewKernel("", "scale", func(w *device.Work) {
		s := device.Slice[float32](w, 1)
		for i := range s {
			s[i] *= 2
		}
	})
	for range 1000 {
		if err := devs[0].Launch(scale, device.Size{100}, device.In(x), device.InOut(y), float32(2)); err != nil {
			os.Exit(1)
		}
		x, y = y, x
	}
}
