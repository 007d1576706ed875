//go:build ppc64 || ppc64le

#include "textflag.h"

// func imageStart() uintptr
TEXT ·imageStart(SB), NOSPLIT, $0-8
	MOVD $runtime·text(SB), R3
	MOVD R3, ret+0(FP)
	RET

// func codeEnd() uintptr
TEXT ·codeEnd(SB), NOSPLIT, $0-8
	MOVD $runtime·etext(SB), R3
	MOVD R3, ret+0(FP)
	RET

// func imageEnd() uintptr
TEXT ·imageEnd(SB), NOSPLIT, $0-8
	MOVD $runtime·end(SB), R3
	MOVD R3, ret+0(FP)
	RET

// func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
TEXT ·sections(SB), NOSPLIT, $0-64
	MOVD $runtime·data(SB), R3
	MOVD R3, data+0(FP)
	MOVD $runtime·edata(SB), R3
	MOVD R3, edata+8(FP)
	MOVD $runtime·noptrdata(SB), R3
	MOVD R3, noptrdata+16(FP)
	MOVD $runtime·enoptrdata(SB), R3
	MOVD R3, enoptrdata+24(FP)
	MOVD $runtime·bss(SB), R3
	MOVD R3, bss+32(FP)
	MOVD $runtime·ebss(SB), R3
	MOVD R3, ebss+40(FP)
	MOVD $runtime·noptrbss(SB), R3
	MOVD R3, noptrbss+48(FP)
	MOVD $runtime·enoptrbss(SB), R3
	MOVD R3, enoptrbss+56(FP)
	RET
