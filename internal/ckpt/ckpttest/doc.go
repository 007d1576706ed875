// Package ckpttest has states for tests of checkpoints and migration: plain
// values, and an array whose bytes lie on the host and on fake devices.
package ckpttest
