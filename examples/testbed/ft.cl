// FT: a diffusion equation by three-dimensional Fourier transforms.
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

// Random numbers x ← 5^13·x mod 2^46.
#define FT_MASK ((1UL << 46) - 1)

// One item per row: after skipping what the rows before it take.
__kernel void ft_initial(__global double2 *u, long first, int nx, int rows)
{
	int row = get_global_id(0);
	if (row >= rows)
		return;
	ulong x = 314159265UL, a = 1220703125UL;
	for (ulong skip = 2UL * (ulong)nx * (ulong)(first + row); skip > 0; skip /= 2) {
		if (skip % 2)
			x = (x * a) & FT_MASK;
		a = (a * a) & FT_MASK;
	}
	u += (long)row * nx;
	for (int i = 0; i < nx; i++) {
		x = (x * 1220703125UL) & FT_MASK;
		u[i].x = (double)x / 70368744177664.0;
		x = (x * 1220703125UL) & FT_MASK;
		u[i].y = (double)x / 70368744177664.0;
	}
}

// Items (x, z, y) of waves[y][z][x]: one step in time.
__kernel void ft_evolve(__global double2 *w, __global const double *dx, __global const double *dy,
	__global const double *dz, int nx, int ny, int nz, int y0)
{
	int x = get_global_id(0), z = get_global_id(1), y = get_global_id(2);
	if (x >= nx || y >= ny || z >= nz)
		return;
	int at = (y * nz + z) * nx + x;
	double d = dx[x] * (dy[y0 + y] * dz[z]);
	w[at].x *= d;
	w[at].y *= d;
}

// Lines of n numbers are transformed in local memory by Stockham's passes, w
// lines to a group: number j of line l is at j*w+l there, and in global memory
// at a*(l/q) + b*(l%q) + s*j. A group has w*n/2 items, one for each pair.

void ft_load(__local double2 *buf, __global const double2 *in, int n, int w, int q, int a, int b, int s)
{
	int first = get_group_id(0) * w, pairs = w * n / 2;
	for (int e = get_local_id(0); e < w * n; e += pairs) {
		int line = s == 1 ? e / n : e % w;
		int j = s == 1 ? e % n : e / w;
		int l = first + line;
		buf[j * w + line] = in[a * (l / q) + b * (l % q) + s * j];
	}
	barrier(CLK_LOCAL_MEM_FENCE);
}

void ft_store(__local double2 *buf, __global double2 *out, int n, int w, int q, int a, int b, int s)
{
	int first = get_group_id(0) * w, pairs = w * n / 2;
	for (int e = get_local_id(0); e < w * n; e += pairs) {
		int line = s == 1 ? e / n : e % w;
		int j = s == 1 ? e % n : e / w;
		int l = first + line;
		out[a * (l / q) + b * (l % q) + s * j] = buf[j * w + line];
	}
}

void ft_passes(__local double2 *buf, __global const double2 *roots, int n, int w)
{
	int t = get_local_id(0), p = t / w, line = t % w;
	for (int stride = 1; stride < n; stride *= 2) {
		int i = p % stride, at = (2 * (p - i) + i) * w + line;
		double2 u = buf[t], v = buf[t + w * n / 2], r = roots[p - i], d;
		barrier(CLK_LOCAL_MEM_FENCE);
		d.x = u.x + v.x;
		d.y = u.y + v.y;
		buf[at] = d;
		u.x = u.x - v.x;
		u.y = u.y - v.y;
		d.x = u.x * r.x - u.y * r.y;
		d.y = u.x * r.y + u.y * r.x;
		buf[at + stride * w] = d;
		barrier(CLK_LOCAL_MEM_FENCE);
	}
}

__kernel void ft_lines(__global const double2 *in, __global double2 *out, __global const double2 *roots,
	__local double2 *buf, int n, int w, int q, int ia, int ib, int is, int oa, int ob, int os)
{
	ft_load(buf, in, n, w, q, ia, ib, is);
	ft_passes(buf, roots, n, w);
	ft_store(buf, out, n, w, q, oa, ob, os);
}

__kernel void ft_lines_here(__global double2 *u, __global const double2 *roots,
	__local double2 *buf, int n, int w, int q, int a, int b, int s)
{
	ft_load(buf, u, n, w, q, a, b, s);
	ft_passes(buf, roots, n, w);
	ft_store(buf, u, n, w, q, a, b, s);
}

// Items (x, b, a): rows in[a][b] go to out[a][from+b] of nb rows each.
__kernel void ft_place(__global const double2 *in, __global double2 *out, int nx, int na, int nb, int all, int from)
{
	int x = get_global_id(0), b = get_global_id(1), a = get_global_id(2);
	if (x < nx && b < nb && a < na)
		out[(a * all + from + b) * nx + x] = in[(a * nb + b) * nx + x];
}

// Items (i, z): the points of plane z that the checksum takes.
__kernel void ft_pick(__global const double2 *u, __global const int *where, __global double2 *picks,
	int per, int planes, int plane)
{
	int i = get_global_id(0), z = get_global_id(1);
	if (i < per && z < planes)
		picks[z * per + i] = u[z * plane + where[z * per + i]];
}

// One group of 128: the checksum of 1024 points.
__kernel void ft_sum(__global const double2 *picks, __global double2 *sums, __local double2 *part, int step, double points)
{
	int t = get_local_id(0);
	double2 s = picks[t], v;
	for (int i = 128; i < 1024; i += 128) {
		v = picks[t + i];
		s.x += v.x;
		s.y += v.y;
	}
	part[t] = s;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int left = 64; left > 0; left /= 2) {
		if (t < left) {
			v = part[t + left];
			s.x += v.x;
			s.y += v.y;
			part[t] = s;
		}
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	if (t == 0) {
		s.x /= points;
		s.y /= points;
		sums[step] = s;
	}
}
