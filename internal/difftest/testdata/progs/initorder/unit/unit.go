// Package unit is initialised first.
package unit

var Name = "cell"
var Size = len(Name)
var spare *int

func Resize(n int) {
	if spare == nil {
		spare = &Size
	}
	*spare += n
}
