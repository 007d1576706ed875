#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-4
	LEAL runtime·text(SB), AX
	MOVL AX, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-4
	LEAL runtime·etext(SB), AX
	MOVL AX, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-4
	LEAL runtime·end(SB), AX
	MOVL AX, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-32
	LEAL runtime·data(SB), AX
	MOVL AX, data+0(FP)
	LEAL runtime·edata(SB), AX
	MOVL AX, edata+4(FP)
	LEAL runtime·noptrdata(SB), AX
	MOVL AX, noptrdata+8(FP)
	LEAL runtime·enoptrdata(SB), AX
	MOVL AX, enoptrdata+12(FP)
	LEAL runtime·bss(SB), AX
	MOVL AX, bss+16(FP)
	LEAL runtime·ebss(SB), AX
	MOVL AX, ebss+20(FP)
	LEAL runtime·noptrbss(SB), AX
	MOVL AX, noptrbss+24(FP)
	LEAL runtime·enoptrbss(SB), AX
	MOVL AX, enoptrbss+28(FP)
	RET
