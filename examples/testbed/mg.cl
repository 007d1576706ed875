// The operations of multigrid on a slab of a periodic cubic grid of n points a
// side, n a power of two. An array has the slab's planes of n × n points, and
// a plane of a neighbour below and above them. Items are (x, y, plane).
//
// SIDE adds up the four points beside one in y and z, CROSS the four across.

#define SIDE(a, x) (((a)[mid + back + (x)] + (a)[mid + front + (x)] + (a)[low + line + (x)]) + (a)[high + line + (x)])
#define CROSS(a, x) (((a)[low + back + (x)] + (a)[low + front + (x)] + (a)[high + back + (x)]) + (a)[high + front + (x)])

// Where things are around row y of plane z; at is where the point itself is.
#define AROUND(n, x, y, z)                                     \
    int west = ((x) + (n) - 1) & ((n) - 1);                    \
    int east = ((x) + 1) & ((n) - 1);                          \
    size_t line = (size_t)(y) * (n);                           \
    size_t back = (size_t)(((y) + (n) - 1) & ((n) - 1)) * (n); \
    size_t front = (size_t)(((y) + 1) & ((n) - 1)) * (n);      \
    size_t mid = (size_t)(z) * (n) * (n);                      \
    size_t low = mid - (size_t)(n) * (n);                      \
    size_t high = mid + (size_t)(n) * (n);                     \
    size_t at = mid + line + (x);

// r = v − A·u
__kernel void residual(__global double *r, __global const double *v, __global const double *u,
                       int n, double a0, double a2, double a3)
{
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2) + 1;
    AROUND(n, x, y, z)
    r[at] = v[at] - a0 * u[at]
        - a2 * (CROSS(u, x) + SIDE(u, west) + SIDE(u, east))
        - a3 * (CROSS(u, west) + CROSS(u, east));
}

// u += S·r; without add, u = S·r
__kernel void smooth(__global double *u, __global const double *r,
                     int n, int add, double s0, double s1, double s2)
{
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2) + 1;
    AROUND(n, x, y, z)
    double d = s0 * r[at]
        + s1 * (r[mid + line + west] + r[mid + line + east] + SIDE(r, x))
        + s2 * (CROSS(r, x) + SIDE(r, west) + SIDE(r, east));
    u[at] = add ? u[at] + d : d;
}

// coarse = means of fine. The planes of coarse begin at plane first; n is the
// side of coarse.
__kernel void reduce(__global double *coarse, __global const double *fine, int n, int first)
{
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    int m = 2 * n, xf = 2 * x + 1;
    AROUND(m, xf, 2 * y + 1, 2 * z + 2)
    coarse[((size_t)(z + first) * n + y) * n + x] = 0.5 * fine[at]
        + 0.25 * (fine[mid + line + west] + fine[mid + line + east] + SIDE(fine, xf))
        + 0.125 * (CROSS(fine, xf) + SIDE(fine, west) + SIDE(fine, east))
        + 0.0625 * (CROSS(fine, west) + CROSS(fine, east));
}

#define MEAN(x) (0.25 * (coarse[a + (x)] + coarse[b + (x)] + coarse[c + (x)] + coarse[d + (x)]))

// fine += coarse, interpolated, also in the neighbours' planes; without add,
// fine = coarse. n is the side of fine.
__kernel void extend(__global double *fine, __global const double *coarse, int n, int add)
{
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    int m = n / 2;
    int x0 = ((x + 1) / 2 + m - 1) & (m - 1), x1 = ((x + 2) / 2 - 1) & (m - 1);
    int y0 = ((y + 1) / 2 + m - 1) & (m - 1), y1 = ((y + 2) / 2 - 1) & (m - 1);
    size_t a = ((size_t)(z / 2) * m + y0) * m, b = ((size_t)(z / 2) * m + y1) * m;
    size_t c = ((size_t)((z + 1) / 2) * m + y0) * m, d = ((size_t)((z + 1) / 2) * m + y1) * m;
    double value = 0.5 * (MEAN(x0) + MEAN(x1));
    size_t at = ((size_t)z * n + y) * n + x;
    fine[at] = add ? fine[at] + value : value;
}

// The neighbours' planes, out of their arrays.
__kernel void ghosts(__global double *below, __global double *above,
                     __global const double *last, __global const double *first, int n)
{
    int i = get_global_id(0);
    if (i < n) {
        below[i] = last[i];
        above[i] = first[i];
    }
}

// The same where one array has all planes: n points in each.
__kernel void wrap(__global double *a, int n, int planes)
{
    int i = get_global_id(0);
    if (i < n) {
        a[i] = a[(size_t)planes * n + i];
        a[(size_t)(planes + 1) * n + i] = a[n + i];
    }
}

__kernel void zero(__global double *a, long n)
{
    long i = get_global_id(0);
    if (i < n)
        a[i] = 0;
}
