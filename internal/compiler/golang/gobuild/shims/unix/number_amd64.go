//go:build linux && amd64

package unix

// Calls that are younger than package syscall's tables.
const (
	sysProcessVMReadv = 310
	sysMemfdCreate    = 319
	SYS_USERFAULTFD   = 323
	sysPidfdOpen      = 434
)
