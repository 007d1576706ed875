package snap

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// shape says how the digest kernel divides its work. A block consists of rows
// of 1024 bytes, a row of 16 stripes of 64 bytes, a stripe of 4 pairs of lanes
// of 8 bytes. One item sums one pair over stripes of one row.
type shape struct {
	Chunk  int // rows of a block that are summed at once; Chunk*Split is at least 16
	Split  int // items that share the stripes of a pair: 1, 2 or 4
	Blocks int // blocks of a work group, at most 8
	Batch  int // loads in progress per item, at most 16/Split
	// Alone says that one item digests a whole block, with vectors of 8 lanes.
	// It is for processors; the other fields are 1.
	Alone bool
}

// items returns the items of a work group.
func (s shape) items() int {
	if s.Alone {
		return 1
	}
	return s.Chunk * 4 * s.Split * s.Blocks
}

// local returns how much memory a work group shares.
func (s shape) local() int {
	if s.Alone {
		return 0
	}
	return 8 * (24 + s.Blocks*(2*s.Chunk*8*s.Split+16*8+8+2))
}

func (s shape) String() string {
	if s.Alone {
		return "alone"
	}
	return fmt.Sprintf("chunk%d split%d blocks%d batch%d", s.Chunk, s.Split, s.Blocks, s.Batch)
}

// shapes are the choices, the best first.
var shapes = []shape{
	{Chunk: 16, Split: 2, Blocks: 1, Batch: 8},
	{Chunk: 64, Split: 1, Blocks: 1, Batch: 8},
	{Chunk: 64, Split: 1, Blocks: 1, Batch: 4},
	{Chunk: 64, Split: 1, Blocks: 1, Batch: 16},
	{Chunk: 64, Split: 2, Blocks: 1, Batch: 8},
	{Chunk: 64, Split: 2, Blocks: 1, Batch: 4},
	{Chunk: 32, Split: 2, Blocks: 1, Batch: 8},
	{Chunk: 32, Split: 4, Blocks: 1, Batch: 4},
	{Chunk: 32, Split: 1, Blocks: 1, Batch: 8},
	{Chunk: 32, Split: 1, Blocks: 2, Batch: 8},
	{Chunk: 16, Split: 1, Blocks: 4, Batch: 8},
	{Chunk: 16, Split: 2, Blocks: 2, Batch: 8},
	{Chunk: 16, Split: 1, Blocks: 1, Batch: 16},
}

var alone = shape{Chunk: 1, Split: 1, Blocks: 1, Batch: 1, Alone: true}

// choose returns the shape for a device.
func choose(info driver.Info) shape {
	if info.Backend == "opencl" && info.Kind == driver.CPU {
		return alone
	}
	for _, s := range shapes {
		if s.items() <= info.MaxGroup && s.local() <= info.LocalMemory {
			return s
		}
	}
	if info.Backend == "opencl" {
		return alone
	}
	return shapes[0]
}

// source returns the source of the kernels for a shape.
func (s shape) source() driver.Source {
	head := fmt.Sprintf("#define CHUNK %d\n#define SPLIT %d\n#define BLOCKS %d\n#define BATCH %d\n#define PIECE %d\n", s.Chunk, s.Split, s.Blocks, s.Batch, gatherPiece)
	digest := digestGroup
	if s.Alone {
		digest = digestAlone
	}
	return driver.Source{
		OpenCL: head + common + digest + copies,
		Go: map[string]func(*driver.Work){
			"digest":      digestGo(s),
			"gather":      gatherGo,
			"compare":     compareGo,
			"copyChanged": copyChangedGo,
		},
	}
}

// common is what both digest kernels use. The secret and the primes are those
// of XXH3. KEY is the secret's word i, shifted by some bytes. All loads are
// little-endian, as all devices are.
const common = `
__constant ulong secret[24] = {
	0xbe4ba423396cfeb8UL, 0x1cad21f72c81017cUL, 0xdb979083e96dd4deUL, 0x1f67b3b7a4a44072UL,
	0x78e5c0cc4ee679cbUL, 0x2172ffcc7dd05a82UL, 0x8e2443f7744608b8UL, 0x4c263a81e69035e0UL,
	0xcb00c391bb52283cUL, 0xa32e531b8b65d088UL, 0x4ef90da297486471UL, 0xd8acdea946ef1938UL,
	0x3f349ce33f76faa8UL, 0x1d4f0bc7c7bbdcf9UL, 0x3159b4cd4be0518aUL, 0x647378d9c97e9fc8UL,
	0xc3ebd33483acc5eaUL, 0xeb6313faffa081c5UL, 0x49daf0b751dd0d17UL, 0x9e68d429265516d3UL,
	0xfca1477d58be162bUL, 0xce31d07ad1b8f88fUL, 0x280416958f3acb45UL, 0x7e404bbbcafbd7afUL
};
__constant ulong start[8] = {
	0xC2B2AE3DUL, 0x9E3779B185EBCA87UL, 0xC2B2AE3D27D4EB4FUL, 0x165667B19E3779F9UL,
	0x85EBCA77C2B2AE63UL, 0x85EBCA77UL, 0x27D4EB2F165667C5UL, 0x9E3779B1UL
};
#define KEY(s, i, bytes) ((s)[i] >> (8 * (bytes)) | (s)[(i) + 1] << (64 - 8 * (bytes)))
#define MUL32(x) ((ulong)(uint)(x) * (ulong)(uint)((x) >> 32))
#define PRIME32_1 0x9E3779B1UL
#define PRIME64_1 0x9E3779B185EBCA87UL
#define PRIME64_2 0xC2B2AE3D27D4EB4FUL

ulong fold(ulong a, ulong b) { return (a * b) ^ mul_hi(a, b); }

ulong avalanche(ulong h) {
	h ^= h >> 37;
	h *= 0x165667919E3779F9UL;
	return h ^ (h >> 32);
}
`

// digestGroup digests BLOCKS blocks per work group. In each turn all items sum
// the terms of CHUNK rows of each block into shared memory; these terms do not
// depend on each other. Then 8 items per block, one for each lane, combine the
// sums in order, while the others work on the next rows in the other half of
// that memory. The bytes after the last whole row, and the last stripe, are
// summed in the same way, as tails. Blocks of up to 240 bytes are left out:
// XXH3 treats them differently.
const digestGroup = `
#define ITEMS (CHUNK * 4 * SPLIT)
#define STRIPES (16 / SPLIT)

ulong2 load16(__global const uchar *p) {
	ulong2 v;
	if (((size_t)p & 7) == 0) {
		__global const ulong *q = (__global const ulong *)p;
		v.x = q[0];
		v.y = q[1];
	} else if (((size_t)p & 3) == 0) {
		__global const uint *q = (__global const uint *)p;
		v.x = (ulong)q[0] | (ulong)q[1] << 32;
		v.y = (ulong)q[2] | (ulong)q[3] << 32;
	} else {
		v.x = 0;
		v.y = 0;
		for (int i = 0; i < 8; i++) {
			v.x |= (ulong)p[i] << (8 * i);
			v.y |= (ulong)p[8 + i] << (8 * i);
		}
	}
	return v;
}

__kernel void digest(__global const uchar *data, __global ulong *scratch, uint outAt,
		ulong off0, ulong len0, ulong block0, uint blocks) {
	__global ulong *out = scratch + outAt;
	__local ulong2 sums[2 * BLOCKS * ITEMS];
	__local ulong2 tails[BLOCKS * 64];
	__local ulong sec[24];
	__local ulong ends[BLOCKS * 8];
	__local ulong where[BLOCKS * 2];

	uint item = (uint)get_local_id(0);
	ulong firstBlock = (ulong)get_group_id(0) * BLOCKS;
	if (item < 24) sec[item] = secret[item];
	if (item >= 32 && item < 32 + BLOCKS) {
		ulong b = firstBlock + (item - 32);
		ulong off = 0;
		ulong len = 0;
		if (b < blocks) {
			off = off0 + b * block0;
			len = len0 - b * block0;
			if (len > block0) len = block0;
		}
		if (len <= 240) len = 0;
		where[2 * (item - 32)] = off;
		where[2 * (item - 32) + 1] = len;
	}
	barrier(CLK_LOCAL_MEM_FENCE);

	uint turns = 0;
	for (uint i = 0; i < BLOCKS; i++) {
		ulong n = where[2 * i + 1];
		uint k = n == 0 ? 0 : (uint)(((n - 1) / 1024 + CHUNK - 1) / CHUNK);
		if (k > turns) turns = k;
	}
	uint mine = item / ITEMS;
	uint t = item % ITEMS;
	uint pair = t & 3;
	uint part = t / 4 % SPLIT;
	uint row = t / (4 * SPLIT);
	ulong off = where[2 * mine];
	ulong len = where[2 * mine + 1];
	ulong rows = len == 0 ? 0 : (len - 1) / 1024;
	__global const uchar *base = data + off;

	// Loaded now, used after everything else.
	ulong2 last;
	last.x = 0;
	last.y = 0;
	uint s = t / 4;
	int tail = t < 64 && len > 0 && (s == 15 || s < (uint)((len - rows * 1024 - 1) / 64));
	if (tail) last = load16(s < 15 ? base + rows * 1024 + t * 16 : base + (len - 64) + pair * 16);

	uint lane = item & 7;
	uint chained = item / 8;
	ulong acc = 0;
	ulong chainLen = 0;
	ulong chainRows = 0;
	ulong key = 0;
	if (chained < BLOCKS) {
		acc = start[lane];
		key = sec[16 + lane];
		chainLen = where[2 * chained + 1];
		chainRows = chainLen == 0 ? 0 : (chainLen - 1) / 1024;
	}
	int aligned = ((size_t)base & 15) == 0;

	for (uint turn = 0; turn < turns; turn++) {
		ulong from = (ulong)turn * CHUNK;
		uint side = (turn & 1) * (BLOCKS * ITEMS);
		if (from + row < rows) {
			ulong a0 = 0;
			ulong a1 = 0;
			__global const uchar *p = base + (from + row) * 1024 + part * 64 + pair * 16;
			__local const ulong *k = sec + 2 * pair + part;
			if (aligned) {
				__global const ulong2 *q = (__global const ulong2 *)p;
				#pragma unroll
				for (int j = 0; j < STRIPES; j += BATCH) {
					ulong2 v[BATCH];
					#pragma unroll
					for (int i = 0; i < BATCH; i++) v[i] = q[(j + i) * SPLIT * 4];
					#pragma unroll
					for (int i = 0; i < BATCH; i++) {
						ulong x = v[i].x ^ k[(j + i) * SPLIT];
						ulong y = v[i].y ^ k[(j + i) * SPLIT + 1];
						a0 += MUL32(x) + v[i].y;
						a1 += MUL32(y) + v[i].x;
					}
				}
			} else {
				for (int j = 0; j < STRIPES; j++) {
					ulong2 v = load16(p + j * SPLIT * 64);
					ulong x = v.x ^ k[j * SPLIT];
					ulong y = v.y ^ k[j * SPLIT + 1];
					a0 += MUL32(x) + v.y;
					a1 += MUL32(y) + v.x;
				}
			}
			ulong2 sum;
			sum.x = a0;
			sum.y = a1;
			sums[side + item] = sum;
		}
		barrier(CLK_LOCAL_MEM_FENCE);
		if (chained < BLOCKS && from < chainRows) {
			uint n = chainRows - from < CHUNK ? (uint)(chainRows - from) : CHUNK;
			__local const ulong *sum = (__local const ulong *)(sums + side + chained * ITEMS) + lane;
			ulong next = sum[0];
			for (int i = 1; i < SPLIT; i++) next += sum[8 * i];
			for (uint r = 0; r < n; r++) {
				acc += next;
				uint ahead = r + 1 < n ? r + 1 : r;
				next = sum[ahead * (8 * SPLIT)];
				for (int i = 1; i < SPLIT; i++) next += sum[ahead * (8 * SPLIT) + 8 * i];
				acc ^= acc >> 47;
				acc ^= key;
				acc *= PRIME32_1;
			}
		}
	}

	if (t < 64) {
		ulong2 v;
		v.x = 0;
		v.y = 0;
		if (tail) {
			ulong k0 = s < 15 ? sec[2 * pair + s] : KEY(sec, 15 + 2 * pair, 1);
			ulong k1 = s < 15 ? sec[2 * pair + s + 1] : KEY(sec, 16 + 2 * pair, 1);
			v.x = MUL32(last.x ^ k0) + last.y;
			v.y = MUL32(last.y ^ k1) + last.x;
		}
		tails[mine * 64 + t] = v;
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	if (chained < BLOCKS) {
		__local const ulong *rest = (__local const ulong *)tails + chained * 128 + lane;
		for (int i = 0; i < 16; i++) acc += rest[i * 8];
		ends[chained * 8 + lane] = acc;
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	if (chained < BLOCKS && lane < 2 && chainLen > 0) {
		__local const ulong *e = ends + chained * 8;
		ulong h;
		if (lane == 0) {
			h = chainLen * PRIME64_1;
			for (int i = 0; i < 8; i += 2) h += fold(e[i] ^ KEY(sec, 1 + i, 3), e[i + 1] ^ KEY(sec, 2 + i, 3));
		} else {
			h = ~(chainLen * PRIME64_2);
			for (int i = 0; i < 8; i += 2) h += fold(e[i] ^ KEY(sec, 14 + i, 5), e[i + 1] ^ KEY(sec, 15 + i, 5));
		}
		out[2 * (firstBlock + chained) + 1 - lane] = avalanche(h);
	}
}
`

// digestAlone digests one block per item, as the specification of XXH3 does.
const digestAlone = `
ulong8 load64(__global const uchar *p) {
	return (ulong8)(as_ulong(vload8(0, p)), as_ulong(vload8(1, p)), as_ulong(vload8(2, p)), as_ulong(vload8(3, p)),
		as_ulong(vload8(4, p)), as_ulong(vload8(5, p)), as_ulong(vload8(6, p)), as_ulong(vload8(7, p)));
}

#define STRIPE(acc, p, key) { \
	ulong8 v = load64(p); \
	ulong8 x = v ^ (key); \
	acc += (x & 0xFFFFFFFFUL) * (x >> 32) + v.s10325476; \
}

#define KEYS(i, bytes) (ulong8)(KEY(secret, i, bytes), KEY(secret, i + 1, bytes), KEY(secret, i + 2, bytes), KEY(secret, i + 3, bytes), \
	KEY(secret, i + 4, bytes), KEY(secret, i + 5, bytes), KEY(secret, i + 6, bytes), KEY(secret, i + 7, bytes))

ulong merge(ulong8 e, ulong h) {
	return avalanche(h + fold(e.s0, e.s1) + fold(e.s2, e.s3) + fold(e.s4, e.s5) + fold(e.s6, e.s7));
}

__kernel void digest(__global const uchar *data, __global ulong *scratch, uint outAt,
		ulong off0, ulong len0, ulong block0, uint blocks) {
	__global ulong *out = scratch + outAt;
	ulong b = get_global_id(0);
	if (b >= blocks) return;
	ulong off = off0 + b * block0;
	ulong len = len0 - b * block0;
	if (len > block0) len = block0;
	if (len <= 240) return;
	__global const uchar *p = data + off;
	ulong rows = (len - 1) / 1024;
	ulong8 acc = vload8(0, start);
	for (ulong r = 0; r < rows; r++) {
		#pragma unroll
		for (int s = 0; s < 16; s++) STRIPE(acc, p + s * 64, vload8(0, secret + s))
		acc ^= acc >> 47;
		acc ^= vload8(0, secret + 16);
		acc *= PRIME32_1;
		p += 1024;
	}
	uint stripes = (uint)((len - rows * 1024 - 1) / 64);
	for (uint s = 0; s < stripes; s++) STRIPE(acc, p + s * 64, vload8(0, secret + s))
	STRIPE(acc, data + off + len - 64, KEYS(15, 1))
	out[2 * b + 1] = merge(acc ^ KEYS(1, 3), len * PRIME64_1);
	out[2 * b] = merge(acc ^ KEYS(14, 5), ~(len * PRIME64_2));
}
`

// gather copies pieces, one per work group. table has from, to and length.
//
// compare lists the blocks whose digests differ from the expected ones: number
// and digest, as many as fit. It counts all of them. copyChanged copies these
// blocks one after the other, if the list is complete; a work group copies a
// piece at a time.
const copies = `
void piece(__global const uchar *p, __global uchar *q, uint n) {
	uint item = (uint)get_local_id(0);
	uint items = (uint)get_local_size(0);
	uint done = 0;
	size_t low = (size_t)p | (size_t)q;
	if ((low & 15) == 0) {
		__global const ulong2 *a = (__global const ulong2 *)p;
		__global ulong2 *b = (__global ulong2 *)q;
		for (uint i = item; i < n / 16; i += items) b[i] = a[i];
		done = n / 16 * 16;
	} else if ((low & 3) == 0) {
		__global const uint *a = (__global const uint *)p;
		__global uint *b = (__global uint *)q;
		for (uint i = item; i < n / 4; i += items) b[i] = a[i];
		done = n / 4 * 4;
	}
	for (uint i = done + item; i < n; i += items) q[i] = p[i];
}

__kernel void gather(__global const uchar *from, __global uchar *to, __global const ulong *table, uint first, uint pieces) {
	uint i = (uint)get_group_id(0);
	if (i >= pieces) return;
	table += 3 * (first + i);
	piece(from + table[0], to + table[1], (uint)table[2]);
}

__kernel void compare(__global ulong *scratch, uint countAt, uint expectAt, uint digestAt, uint blocks, uint most) {
	uint b = (uint)get_global_id(0);
	if (b >= blocks) return;
	__global const ulong *want = scratch + expectAt + 2 * b;
	__global const ulong *have = scratch + digestAt + 2 * b;
	if (want[0] == have[0] && want[1] == have[1]) return;
	uint i = atomic_inc((__global uint *)(scratch + countAt));
	if (i >= most) return;
	scratch[3 * i] = b;
	scratch[3 * i + 1] = have[0];
	scratch[3 * i + 2] = have[1];
}

__kernel void copyChanged(__global const uchar *from, __global uchar *to, __global const ulong *scratch, uint countAt, uint most,
		ulong off, ulong len, ulong block, ulong at) {
	uint count = *(__global const uint *)(scratch + countAt);
	if (count > most) return;
	uint each = (uint)((block + PIECE - 1) / PIECE);
	for (uint i = (uint)get_group_id(0); i < count * each; i += (uint)get_num_groups(0)) {
		ulong skip = (ulong)(i % each) * PIECE;
		ulong begin = scratch[3 * (i / each)] * block + skip;
		ulong n = block - skip;
		if (begin >= len) continue;
		if (n > len - begin) n = len - begin;
		if (n > PIECE) n = PIECE;
		piece(from + off + begin, to + at + (i / each) * block + skip, (uint)n);
	}
}
`

// digestGo is the digest kernel for the host's processors.
func digestGo(s shape) func(*driver.Work) {
	return func(w *driver.Work) {
		data, out := w.Args[0], driver.Slice[uint64](w, 1)[driver.Value[uint32](w, 2):]
		off, n, block := driver.Value[uint64](w, 3), driver.Value[uint64](w, 4), driver.Value[uint64](w, 5)
		data = data[off : off+n]
		lo, hi := w.Range(0)
		items := w.Local[0]
		for b := lo / items * s.Blocks; b < min((hi+items-1)/items*s.Blocks, int(driver.Value[uint32](w, 6))); b++ {
			at := uint64(b) * block
			d := mem.Digest(data[at:min(at+block, n)])
			out[2*b], out[2*b+1] = d.Hi, d.Lo
		}
	}
}

// gatherGo is the gather kernel for the host's processors.
func gatherGo(w *driver.Work) {
	from, to, table := w.Args[0], w.Args[1], driver.Slice[uint64](w, 2)
	table = table[3*driver.Value[uint32](w, 3):]
	pieces := int(driver.Value[uint32](w, 4))
	lo, hi := w.Range(0)
	items := w.Local[0]
	for i := lo / items; i < min((hi+items-1)/items, pieces); i++ {
		copy(to[table[3*i+1]:], from[table[3*i]:][:table[3*i+2]])
	}
}

// compareGo is the compare kernel for the host's processors.
func compareGo(w *driver.Work) {
	scratch := driver.Slice[uint64](w, 0)
	count := (*uint32)(unsafe.Pointer(&scratch[driver.Value[uint32](w, 1)]))
	want, have := scratch[driver.Value[uint32](w, 2):], scratch[driver.Value[uint32](w, 3):]
	lo, hi := w.Range(0)
	for b := lo; b < min(hi, int(driver.Value[uint32](w, 4))); b++ {
		if want[2*b] == have[2*b] && want[2*b+1] == have[2*b+1] {
			continue
		}
		if i := atomic.AddUint32(count, 1) - 1; i < driver.Value[uint32](w, 5) {
			scratch[3*i], scratch[3*i+1], scratch[3*i+2] = uint64(b), have[2*b], have[2*b+1]
		}
	}
}

// copyChangedGo is the copyChanged kernel for the host's processors.
func copyChangedGo(w *driver.Work) {
	from, to, list := w.Args[0], w.Args[1], driver.Slice[uint64](w, 2)
	count := *(*uint32)(unsafe.Pointer(&list[driver.Value[uint32](w, 3)]))
	if count > driver.Value[uint32](w, 4) {
		return
	}
	off, n, block := driver.Value[uint64](w, 5), driver.Value[uint64](w, 6), driver.Value[uint64](w, 7)
	to = to[driver.Value[uint64](w, 8):]
	lo, hi := w.Range(0)
	items, groups := w.Local[0], w.Global[0]/w.Local[0]
	for g := lo / items; g < (hi+items-1)/items; g++ {
		for i := uint64(g); i < uint64(count); i += uint64(groups) {
			start := list[3*i] * block
			copy(to[i*block:], from[off+start:][:min(block, n-start)])
		}
	}
}

// value returns a scalar argument.
func value[T uint32 | uint64](v T) driver.Arg {
	p := make([]byte, unsafe.Sizeof(v))
	*(*T)(unsafe.Pointer(unsafe.SliceData(p))) = v
	return driver.Arg{Value: p}
}

// whole returns all of a buffer as an argument.
func whole(b driver.Buffer) driver.Arg { return driver.Arg{Buffer: b, Len: b.Size()} }
