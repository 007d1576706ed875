//go:build linux && (arm64 || riscv64 || loong64)

package unix

// System calls that package syscall's tables lack.
const (
	sysProcessVMReadv = 270
	sysMemfdCreate    = 279
	SYS_USERFAULTFD   = 282
	sysPidfdOpen      = 434
)
