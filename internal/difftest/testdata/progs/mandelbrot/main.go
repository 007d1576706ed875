// Command mandelbrot covers complex numbers and a loop per row.
package main

import "fmt"

func escape(c complex128) int {
	z := complex(0, 0)
	for i := range 200 {
		if real(z)*real(z)+imag(z)*imag(z) > 4 {
			return i
		}
		z = z*z + c
	}
	return 200
}

func main() {
	const shades = " .:-=+*#%@"
	drift := 0.01i
	total := complex64(0)
	for y := -1.2; y <= 1.2; y += 0.2 { //difftest:loop
		row := []byte{}
		for x := -2.0; x < 0.6; x += 0.06 {
			n := escape(complex(x, y) + drift)
			row = append(row, shades[n*9/200])
			total += complex(float32(n), -1)
		}
		drift *= complex(0.9, 0.1)
		fmt.Println(string(row))
	}
	fmt.Printf("%.3f %.6f\n", total, drift)
}
