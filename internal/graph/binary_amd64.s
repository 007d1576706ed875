#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-8
	LEAQ runtime·text(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-8
	LEAQ runtime·etext(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-8
	LEAQ runtime·end(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-64
	LEAQ runtime·data(SB), AX
	MOVQ AX, data+0(FP)
	LEAQ runtime·edata(SB), AX
	MOVQ AX, edata+8(FP)
	LEAQ runtime·noptrdata(SB), AX
	MOVQ AX, noptrdata+16(FP)
	LEAQ runtime·enoptrdata(SB), AX
	MOVQ AX, enoptrdata+24(FP)
	LEAQ runtime·bss(SB), AX
	MOVQ AX, bss+32(FP)
	LEAQ runtime·ebss(SB), AX
	MOVQ AX, ebss+40(FP)
	LEAQ runtime·noptrbss(SB), AX
	MOVQ AX, noptrbss+48(FP)
	LEAQ runtime·enoptrbss(SB), AX
	MOVQ AX, enoptrbss+56(FP)
	RET
