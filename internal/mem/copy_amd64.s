#include "textflag.h"

// func copyPages(dst, src *byte, n int)
//
// Copies n bytes, a multiple of four pages, to dst, a multiple of 16, past the
// cache. It goes through four pages at a time, which keeps more of the memory
// busy than one stream of addresses does.
TEXT ·copyPages(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

pages:
	MOVQ $64, DX

line:
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVOU 4096(SI), X4
	MOVOU 4112(SI), X5
	MOVOU 4128(SI), X6
	MOVOU 4144(SI), X7
	MOVOU 8192(SI), X8
	MOVOU 8208(SI), X9
	MOVOU 8224(SI), X10
	MOVOU 8240(SI), X11
	MOVOU 12288(SI), X12
	MOVOU 12304(SI), X13
	MOVOU 12320(SI), X14
	MOVOU 12336(SI), X15
	MOVNTO X0, (DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	MOVNTO X4, 4096(DI)
	MOVNTO X5, 4112(DI)
	MOVNTO X6, 4128(DI)
	MOVNTO X7, 4144(DI)
	MOVNTO X8, 8192(DI)
	MOVNTO X9, 8208(DI)
	MOVNTO X10, 8224(DI)
	MOVNTO X11, 8240(DI)
	MOVNTO X12, 12288(DI)
	MOVNTO X13, 12304(DI)
	MOVNTO X14, 12320(DI)
	MOVNTO X15, 12336(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ DX
	JNZ line
	ADDQ $12288, SI
	ADDQ $12288, DI
	SUBQ $16384, CX
	JNZ pages
	SFENCE
	RET
