// Package dep is another module's package, with a loop that calls back.
package dep

// Iterate calls f for each of n steps, until it says no.
func Iterate(n int, f func(int) bool) (done int) {
	for i := range n { //difftest:loop
		if !f(i) {
			return i
		}
		done++
	}
	return done
}
