#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-4
	MOVW $runtime·text(SB), R0
	MOVW R0, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-4
	MOVW $runtime·etext(SB), R0
	MOVW R0, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-4
	MOVW $runtime·end(SB), R0
	MOVW R0, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-32
	MOVW $runtime·data(SB), R0
	MOVW R0, data+0(FP)
	MOVW $runtime·edata(SB), R0
	MOVW R0, edata+4(FP)
	MOVW $runtime·noptrdata(SB), R0
	MOVW R0, noptrdata+8(FP)
	MOVW $runtime·enoptrdata(SB), R0
	MOVW R0, enoptrdata+12(FP)
	MOVW $runtime·bss(SB), R0
	MOVW R0, bss+16(FP)
	MOVW $runtime·ebss(SB), R0
	MOVW R0, ebss+20(FP)
	MOVW $runtime·noptrbss(SB), R0
	MOVW R0, noptrbss+24(FP)
	MOVW $runtime·enoptrbss(SB), R0
	MOVW R0, enoptrbss+28(FP)
	RET
