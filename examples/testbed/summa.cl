// One step of SUMMA: c += a·b, where a is a panel of columns, rows × depth,
// and b a panel of rows, depth × columns. All sizes are multiples of TILE.
// Every element of c gets its products one after the other.
#define TILE 16

__kernel void panel(__global double *c, __global const double *a, __global const double *b,
                    int columns, int depth)
{
    __local double ta[TILE][TILE];
    __local double tb[TILE][TILE];
    int x = get_local_id(0), y = get_local_id(1);
    size_t column = get_global_id(0), row = get_global_id(1);

    double sum = c[row * columns + column];
    for (int t = 0; t < depth; t += TILE) {
        ta[y][x] = a[row * depth + t + x];
        tb[y][x] = b[(size_t)(t + y) * columns + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++)
            sum += ta[y][k] * tb[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * columns + column] = sum;
}
