// Package catch recovers for others, and has nothing else to do with them.
package catch

import "fmt"

// Error makes an error of a panic.
func Error(err *error) {
	if e := recover(); e != nil {
		*err = fmt.Errorf("caught %v", e)
	}
}
