//go:build unix

package control

import (
	"io/fs"
	"syscall"
)

// Inode is the number of a file in its file system; 0: it has none.
func Inode(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
