#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-8
	MOVD $runtime·text(SB), R1
	MOVD R1, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-8
	MOVD $runtime·etext(SB), R1
	MOVD R1, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-8
	MOVD $runtime·end(SB), R1
	MOVD R1, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-64
	MOVD $runtime·data(SB), R1
	MOVD R1, data+0(FP)
	MOVD $runtime·edata(SB), R1
	MOVD R1, edata+8(FP)
	MOVD $runtime·noptrdata(SB), R1
	MOVD R1, noptrdata+16(FP)
	MOVD $runtime·enoptrdata(SB), R1
	MOVD R1, enoptrdata+24(FP)
	MOVD $runtime·bss(SB), R1
	MOVD R1, bss+32(FP)
	MOVD $runtime·ebss(SB), R1
	MOVD R1, ebss+40(FP)
	MOVD $runtime·noptrbss(SB), R1
	MOVD R1, noptrbss+48(FP)
	MOVD $runtime·enoptrbss(SB), R1
	MOVD R1, enoptrbss+56(FP)
	RET
