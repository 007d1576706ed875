//go:build !unix

package control

import "io/fs"

// Inode is the number of a file in its file system; 0: it has none.
func Inode(fs.FileInfo) uint64 { return 0 }
