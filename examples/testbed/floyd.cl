// Floyd and Warshall's shortest paths. Items are (j, i): column and row.

uint floyd_mix(uint x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ (x >> 16);
}

// The graph: see weight in floyd.go.
__kernel void floyd_graph(__global uint *dist, __global uint *path, uint n, uint limit)
{
	uint j = get_global_id(0), i = get_global_id(1);
	if (j >= n || i >= n)
		return;
	uint at = i * n + j, d = 1u << 30;
	if (i == j)
		d = 0;
	else if (floyd_mix(2u * at) < limit)
		d = 1u + floyd_mix(2u * at + 1u) % 1000u;
	dist[at] = d;
	path[at] = i;
}

// Paths by way of k. Row and column k stay as they are, so that the order of
// the items does not matter.
__kernel void floyd_step(__global uint *dist, __global uint *path, uint n, uint k)
{
	uint j = get_global_id(0), i = get_global_id(1);
	if (j >= n || i >= n)
		return;
	uint at = i * n + j, d = dist[i * n + k] + dist[k * n + j];
	if (d < dist[at]) {
		dist[at] = d;
		path[at] = k;
	}
}
