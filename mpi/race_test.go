//go:build race

package mpi_test

// longest is less under the race detector, which is slow, but still long.
const longest = 20003
