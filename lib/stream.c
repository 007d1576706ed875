/* Copying past the cache: what is copied is not read soon. */
#include "internal.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

void copy_stream(unsigned char *to, const unsigned char *from, size_t n)
{
#ifdef __SSE2__
	enum { PAGE = 4096, LINE = 64, VECTOR = 16 };
	/* Four pages at a time keep more of the memory busy than one stream of addresses. */
	for (; n >= 4 * PAGE && (uintptr_t)to % VECTOR == 0; to += 4 * PAGE, from += 4 * PAGE, n -= 4 * PAGE)
		for (size_t line = 0; line < PAGE; line += LINE)
			for (size_t at = line; at < 4 * PAGE; at += PAGE)
				for (size_t i = at; i < at + LINE; i += VECTOR)
					_mm_stream_si128((__m128i *)(void *)(to + i), _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
	_mm_sfence();
#endif
	memcpy(to, from, n);
}
