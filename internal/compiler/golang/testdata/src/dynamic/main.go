package main

type shape interface{ area() float64 }

type small struct{ a float64 }

type big struct{ a, b float64 }

type never struct{} // no value of it is made

func (s small) area() float64 { return s.a }

func (b big) area() float64 {
	x := b.a
	x *= b.b
	return x
}

func (never) area() (x float64) {
	for x < 100 {
		x++
		x = x + x*x
		x = x + x*x
		x = x + x*x
	}
	return x
}

var modes = map[string]func(int) int{"a": one, "b": two}

func one(n int) int { return n }

func two(n int) int {
	for n < 100 { // s=2 a=1
		n = n * 3
	}
	return n
}

func sum(list []shape) (t float64) {
	for _, s := range list { // s=4 a=4
		t += s.area()
	}
	return t
}

func each(f func(int)) {
	for i := range 3 { // s=2 a=1
		f(i)
	}
}

func main() { // total s=10 a=8
	println(sum([]shape{small{1}, big{2, 3}}))
	println(modes["b"](4))
	each(func(n int) { println(n) })
}
