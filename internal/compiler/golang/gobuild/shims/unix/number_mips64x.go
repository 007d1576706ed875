//go:build linux && (mips64 || mips64le)

package unix

// System calls that package syscall's tables lack.
const (
	sysProcessVMReadv = 5304
	sysMemfdCreate    = 5314
	SYS_USERFAULTFD   = 5317
	sysPidfdOpen      = 5434
)
