// Package kind counts.
package kind

// Kind counts.
type Kind struct{ Total int }

// Count counts n.
func (k *Kind) Count(n int) { k.Total = (k.Total*7 + n) % 10007 }
