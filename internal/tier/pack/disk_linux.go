package pack

import (
	"path/filepath"
	"slices"
	"syscall"
)

// localDisks are the kinds of file systems that only one host sees, as in
// linux/magic.h.
var localDisks = []uint32{
	0xef53,     // ext2, ext3, ext4
	0x58465342, // xfs
	0x9123683e, // btrfs
	0x01021994, // tmpfs
	0x858458f6, // ramfs
	0x794c7630, // overlayfs
	0x2fc12fc1, // zfs
	0xf2f52010, // f2fs
	0xca451a4e, // bcachefs
}

// OnLocalDisk reports whether only this host sees the file system of a path. It
// is that of the nearest directory that exists.
func OnLocalDisk(path string) bool {
	for {
		path = filepath.Dir(path)
		var st syscall.Statfs_t
		if err := syscall.Statfs(path, &st); err == nil {
			return slices.Contains(localDisks, uint32(st.Type))
		} else if path == "/" {
			return false
		}
	}
}
