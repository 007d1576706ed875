#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-8
	MOV $runtime·text(SB), X10
	MOV X10, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-8
	MOV $runtime·etext(SB), X10
	MOV X10, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-8
	MOV $runtime·end(SB), X10
	MOV X10, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-64
	MOV $runtime·data(SB), X10
	MOV X10, data+0(FP)
	MOV $runtime·edata(SB), X10
	MOV X10, edata+8(FP)
	MOV $runtime·noptrdata(SB), X10
	MOV X10, noptrdata+16(FP)
	MOV $runtime·enoptrdata(SB), X10
	MOV X10, enoptrdata+24(FP)
	MOV $runtime·bss(SB), X10
	MOV X10, bss+32(FP)
	MOV $runtime·ebss(SB), X10
	MOV X10, ebss+40(FP)
	MOV $runtime·noptrbss(SB), X10
	MOV X10, noptrbss+48(FP)
	MOV $runtime·enoptrbss(SB), X10
	MOV X10, enoptrbss+56(FP)
	RET
