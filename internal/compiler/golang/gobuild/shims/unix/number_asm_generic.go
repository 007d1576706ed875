//go:build linux && (arm64 || riscv64 || loong64)

package unix

// Calls that are younger than package syscall's tables.
const (
	sysProcessVMReadv = 270
	sysMemfdCreate    = 279
	SYS_USERFAULTFD   = 282
	sysPidfdOpen      = 434
)
