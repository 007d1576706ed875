//go:build linux && (ppc64 || ppc64le)

package unix

// Calls that are younger than package syscall's tables.
const (
	sysProcessVMReadv = 351
	sysMemfdCreate    = 360
	SYS_USERFAULTFD   = 364
	sysPidfdOpen      = 434
)
