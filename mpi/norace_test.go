//go:build !race

package mpi_test

// longest is the length of the longest vectors.
const longest = 100003
