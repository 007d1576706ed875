//go:build linux && (mips64 || mips64le)

package unix

// Calls that are younger than package syscall's tables.
const (
	sysProcessVMReadv = 5304
	sysMemfdCreate    = 5314
	SYS_USERFAULTFD   = 5317
	sysPidfdOpen      = 5434
)
