//go:build linux && s390x

package unix

// System calls that package syscall's tables lack.
const (
	sysProcessVMReadv = 340
	sysMemfdCreate    = 350
	SYS_USERFAULTFD   = 355
	sysPidfdOpen      = 434
)
