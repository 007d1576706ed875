//go:build linux && amd64

package unix

// System calls that package syscall's tables lack.
const (
	sysProcessVMReadv = 310
	sysMemfdCreate    = 319
	SYS_USERFAULTFD   = 323
	sysPidfdOpen      = 434
)
