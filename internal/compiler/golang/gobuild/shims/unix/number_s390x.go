//go:build linux && s390x

package unix

// Calls that are younger than package syscall's tables.
const (
	sysProcessVMReadv = 340
	sysMemfdCreate    = 350
	SYS_USERFAULTFD   = 355
	sysPidfdOpen      = 434
)
