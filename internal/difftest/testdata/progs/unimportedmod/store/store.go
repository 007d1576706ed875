// Package store has values under keys.
package store

import (
	"hash"
	"hash/crc32"

	"example.org/key"
	"example.org/store/kind"
)

// Store has values under keys.
type Store struct{ values map[key.Key]int }

// New returns an empty one.
func New() *Store { return &Store{map[key.Key]int{}} }

// Key makes a key.
func (s *Store) Key(n int) key.Key { return key.Key{}.Next(n) }

// Kind makes a kind.
func (s *Store) Kind(n int) *kind.Kind { return &kind.Kind{Total: n} }

// Digest makes a hash.
func (s *Store) Digest() hash.Hash32 { return crc32.NewIEEE() }

// Put puts a value under a key.
func (s *Store) Put(k key.Key, v int) { s.values[k] = v }

// Len is how many values there are.
func (s *Store) Len() int { return len(s.values) }
