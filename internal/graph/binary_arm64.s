#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-8
	MOVD $runtime·text(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-8
	MOVD $runtime·etext(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-8
	MOVD $runtime·end(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-64
	MOVD $runtime·data(SB), R0
	MOVD R0, data+0(FP)
	MOVD $runtime·edata(SB), R0
	MOVD R0, edata+8(FP)
	MOVD $runtime·noptrdata(SB), R0
	MOVD R0, noptrdata+16(FP)
	MOVD $runtime·enoptrdata(SB), R0
	MOVD R0, enoptrdata+24(FP)
	MOVD $runtime·bss(SB), R0
	MOVD R0, bss+32(FP)
	MOVD $runtime·ebss(SB), R0
	MOVD R0, ebss+40(FP)
	MOVD $runtime·noptrbss(SB), R0
	MOVD R0, noptrbss+48(FP)
	MOVD $runtime·enoptrbss(SB), R0
	MOVD R0, enoptrbss+56(FP)
	RET
