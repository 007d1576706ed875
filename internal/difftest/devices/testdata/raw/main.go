// Raw computes in memory that it brings itself, and cannot be made restartable.
package main

import (
	"fmt"
	"log"
	"unsafe"

	"github.com/cairnrun/cairn/device"
)

var double = device.NewKernel("", "double", func(w *device.Work) {
	x := device.Slice[float64](w, 0)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		x[i] *= 2
	}
})

var memory [64]float64

func main() {
	devs, err := device.Open("host")
	if err != nil {
		log.Fatal(err)
	}
	a, err := device.Raw[float64](uintptr(unsafe.Pointer(&memory)), len(memory))
	if err != nil {
		log.Fatal(err)
	}
	memory[1] = 1
	for range 10 {
		if err := devs[0].Launch(double, device.Size{len(memory)}, device.InOut(a)); err != nil {
			log.Fatal(err)
		}
	}
	v, err := a.Read()
	fmt.Println(v[1], err)
}
