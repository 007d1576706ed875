// Sparse matrix times vector, rows in compressed form. LANES items add up the
// products of one row; the sums are added in a fixed order.
#define LANES 32

__kernel void spmv(__global double *y, __global const double *value, __global const int *column,
                   __global const int *start, __global const double *x, int rows,
                   __local double *sums)
{
    int item = get_local_id(0);
    int row = get_global_id(0) / LANES;
    int lane = item % LANES;

    // value and column are the part that belongs to these rows.
    double sum = 0;
    if (row < rows) {
        int end = start[row + 1] - start[0];
        for (int k = start[row] - start[0] + lane; k < end; k += LANES)
            sum += value[k] * x[column[k]];
    }
    sums[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int stride = LANES / 2; stride > 0; stride /= 2) {
        if (lane < stride)
            sums[item] += sums[item + stride];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lane == 0 && row < rows)
        y[row] = sums[item];
}

__kernel void scale(__global double *x, __global const double *y, double factor, int n)
{
    int i = get_global_id(0);
    if (i < n)
        x[i] = factor * y[i];
}
