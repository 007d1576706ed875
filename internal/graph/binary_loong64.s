#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-8
	MOVV $runtime·text(SB), R4
	MOVV R4, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-8
	MOVV $runtime·etext(SB), R4
	MOVV R4, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-8
	MOVV $runtime·end(SB), R4
	MOVV R4, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-64
	MOVV $runtime·data(SB), R4
	MOVV R4, data+0(FP)
	MOVV $runtime·edata(SB), R4
	MOVV R4, edata+8(FP)
	MOVV $runtime·noptrdata(SB), R4
	MOVV R4, noptrdata+16(FP)
	MOVV $runtime·enoptrdata(SB), R4
	MOVV R4, enoptrdata+24(FP)
	MOVV $runtime·bss(SB), R4
	MOVV R4, bss+32(FP)
	MOVV $runtime·ebss(SB), R4
	MOVV R4, ebss+40(FP)
	MOVV $runtime·noptrbss(SB), R4
	MOVV R4, noptrbss+48(FP)
	MOVV $runtime·enoptrbss(SB), R4
	MOVV R4, enoptrbss+56(FP)
	RET
