package mem

import "unsafe"

// HostVisible is a Remote whose bytes the program may see in host memory.
type HostVisible interface {
	Remote
	// HostCopy returns where in host memory they are or were; nil: nowhere.
	HostCopy() (unsafe.Pointer, int64)
	// Show says whether the saved state also refers to the host copy directly,
	// not through an array.
	Show(shown bool)
}

// AllHostVisible returns all HostVisible memory.
func AllHostVisible() []HostVisible {
	remotes.RLock()
	defer remotes.RUnlock()
	var out []HostVisible
	for _, r := range remotes.list {
		if s, ok := r.r.(HostVisible); ok {
			out = append(out, s)
		}
	}
	return out
}
