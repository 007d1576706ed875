//go:build linux && (ppc64 || ppc64le)

package unix

// System calls that package syscall's tables lack.
const (
	sysProcessVMReadv = 351
	sysMemfdCreate    = 360
	SYS_USERFAULTFD   = 364
	sysPidfdOpen      = 434
)
