// The kernels of the suite for devices with double precision.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

__kernel void exact64(__global const double *a, __global const double *b, __global const double *c, __global double *out, double s, int n) {
	int i = get_global_id(0);
	if (i >= n) return;
	out[6 * i] = a[i] * b[i] + c[i];
	double t = a[i] * b[i];
	out[6 * i + 1] = t - c[i];
	out[6 * i + 2] = fma(a[i], b[i], c[i]);
	out[6 * i + 3] = a[i] / b[i];
	out[6 * i + 4] = sqrt(fabs(a[i]));
	out[6 * i + 5] = a[i] * s;
}
