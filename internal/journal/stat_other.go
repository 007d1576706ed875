//go:build !unix

package journal

import "io/fs"

func inode(fs.FileInfo) uint64 { return 0 }

func links(fs.FileInfo) uint64 { return 1 }

func device(fs.FileInfo) uint64 { return 0 }

func isMine(fs.FileInfo) bool { return false }
