// Shallow water with a contaminant. Constants are defined by the program.
// Everything is done as in shwa_physics.go, operation by operation.
//
// State: for each row of cells four lines of nx numbers: depth, momentum to
// the east, momentum to the north, contaminant.

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

typedef struct { float h, u, v, c, bed; } water;
typedef struct { float mass, before, behind, along, dye; } flow;

float trim(float x)
{
    return x < NOTHING && x > -NOTHING ? 0.0f : x;
}

// cell reads the state of a cell, its axes exchanged if turn.
water cell(__global const float *u, __global const float *bed, int nx, int i, int j, int turn)
{
    __global const float *row = u + 4 * j * nx + i;
    water w;
    w.h = row[0];
    w.u = 0.0f;
    w.v = 0.0f;
    w.c = 0.0f;
    w.bed = bed[j * nx + i];
    if (!(w.h < DRY)) {
        float a = row[nx] / w.h, b = row[2 * nx] / w.h;
        w.u = turn ? b : a;
        w.v = turn ? a : b;
        w.c = row[3 * nx] / w.h;
    }
    return w;
}

water mirrored(water w)
{
    w.u = -w.u;
    return w;
}

water turned(water w)
{
    float u = w.u;
    w.u = w.v;
    w.v = u;
    return w;
}

water outside(water w, float level)
{
    float h = level - w.bed;
    w.h = LARGER(0.0f, h);
    w.u = 0.0f;
    w.v = 0.0f;
    w.c = 0.0f;
    return w;
}

// face: the flow from l to r.
flow face(water l, water r)
{
    flow f;
    float bed = LARGER(l.bed, r.bed);
    float hl = (l.h + l.bed) - bed;
    float hr = (r.h + r.bed) - bed;
    hl = LARGER(0.0f, hl);
    hr = LARGER(0.0f, hr);
    float cl = sqrt(GRAVITY * hl), cr = sqrt(GRAVITY * hr);
    float a = l.u - cl, b = r.u - cr;
    float sl = SMALLER(a, b);
    sl = SMALLER(0.0f, sl);
    a = l.u + cl;
    b = r.u + cr;
    float sr = LARGER(a, b);
    sr = LARGER(0.0f, sr);
    float d = sr - sl;
    if (d < NOTHING) {
        f.mass = 0.0f;
        f.before = 0.0f;
        f.behind = 0.0f;
        f.along = 0.0f;
        f.dye = 0.0f;
        return f;
    }
    float w = sl / d;
    float ql = hl * l.u, qr = hr * r.u;
    float pl = (HALF_GRAVITY * hl) * hl, pr = (HALF_GRAVITY * hr) * hr;
    float fl = ql * l.u + pl, fr = qr * r.u + pr;
    float push = fl + w * (sr * (qr - ql) - (fr - fl));
    f.mass = ql + w * (sr * (hr - hl) - (qr - ql));
    f.before = push - pl;
    f.behind = push - pr;
    f.along = f.mass * (f.mass > 0.0f ? l.v : r.v);
    f.dye = f.mass * (f.mass > 0.0f ? l.c : r.c);
    return f;
}

// shwa_limit sets the clock for the next step from the old one and the fastest
// waves of all groups of cells. One group of items. It does not use u.
__kernel void shwa_limit(__global const float *peak, int n, __local float *most,
                         __global const float *old, __global float *clock, float size, float rise,
                         __global const float *u)
{
    int me = get_local_id(0), items = get_local_size(0);
    float fastest = 0.0f;
    for (int i = me; i < n; i += items)
        fastest = LARGER(fastest, peak[i]);
    most[me] = fastest;
    for (int s = items / 2; s > 0; s /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < s)
            most[me] = LARGER(most[me], most[me + s]);
    }
    if (me != 0)
        return;
    fastest = most[0];
    float t = old[TIME], phase = old[PHASE];
    float ratio = COURANT / LARGER(fastest, SLOWEST);
    float step = ratio * size;
    float half_phase = phase > 0.5f ? phase - 0.5f : phase;
    float tide = ((16.0f * half_phase) * (0.5f - half_phase)) * rise;
    if (phase > 0.5f)
        tide = -tide;
    phase = phase + step / PERIOD;
    if (phase >= 1.0f)
        phase = phase - 1.0f;
    clock[TIME] = t + step;
    clock[PHASE] = phase;
    clock[RATIO] = ratio;
    clock[STEP] = step;
    clock[TIDE] = tide;
    float swell = t / SWELL;
    clock[RIVER] = SMALLER(1.0f, swell) * rise;
    clock[SOURCE] = t < DOSE ? 1.0f : 0.0f;
}

// shwa_fluxes sums up the flows through the faces of each cell. u and bed have
// skip rows before those that are computed, and view in all: without a row
// beyond there is a wall. gate: three numbers for each row, what flows in from
// the sea, out to the river, and what came in so far.
__kernel void shwa_fluxes(__global const float *u, __global const float *bed, __global const float *clock,
                          __global float *rate, __global float *gate,
                          int nx, int rows, int skip, int view, int open)
{
    int i = get_global_id(0), j = get_global_id(1);
    if (i >= nx || j >= rows)
        return;
    int y = j + skip;
    water me = cell(u, bed, nx, i, y, 0), other;

    if (i > 0)
        other = cell(u, bed, nx, i - 1, y, 0);
    else if (open)
        other = outside(me, clock[TIDE]);
    else
        other = mirrored(me);
    flow west = face(other, me);
    if (i < nx - 1)
        other = cell(u, bed, nx, i + 1, y, 0);
    else if (open)
        other = outside(me, clock[RIVER]);
    else
        other = mirrored(me);
    flow east = face(me, other);

    me = turned(me);
    other = y > 0 ? cell(u, bed, nx, i, y - 1, 1) : mirrored(me);
    flow south = face(other, me);
    other = y < view - 1 ? cell(u, bed, nx, i, y + 1, 1) : mirrored(me);
    flow north = face(me, other);

    __global float *to = rate + 4 * j * nx + i;
    to[0] = (west.mass - east.mass) + (south.mass - north.mass);
    to[nx] = (west.behind - east.before) + (south.along - north.along);
    to[2 * nx] = (west.along - east.along) + (south.behind - north.before);
    to[3 * nx] = (west.dye - east.dye) + (south.dye - north.dye);
    if (i == 0)
        gate[3 * j] = west.mass;
    if (i == nx - 1)
        gate[3 * j + 1] = east.mass;
}

// shwa_update does the step, and finds the fastest wave of each group of
// cells. first is the number of the first row; the source is a disc of cells.
__kernel void shwa_update(__global float *u, __global const float *rate, __global const float *clock,
                          __global float *gate, __global float *peak, __local float *most,
                          int nx, int rows, int first, int si, int sj, int r2)
{
    int i = get_global_id(0), j = get_global_id(1), me = get_local_id(0);
    float speed = 0.0f;
    if (i < nx && j < rows) {
        __global float *at = u + 4 * j * nx + i;
        __global const float *by = rate + 4 * j * nx + i;
        float k = clock[RATIO], step = clock[STEP];
        float h = at[0] + k * by[0], hc = at[3 * nx] + k * by[3 * nx];
        float hu = 0.0f, hv = 0.0f;
        h = LARGER(0.0f, h);
        hc = LARGER(0.0f, hc);
        hc = trim(hc);
        hc = SMALLER(h, hc);
        speed = sqrt(GRAVITY * h);
        if (!(h < DRY)) {
            int dj = j + first - sj;
            if ((i - si) * (i - si) + dj * dj <= r2 && clock[SOURCE] > 0.0f)
                hc = h;
            hu = at[nx] + k * by[nx];
            hv = at[2 * nx] + k * by[2 * nx];
            float v = sqrt(hu * hu + hv * hv) / h;
            float brake = 1.0f + ((step * DRAG) * v) / h;
            hu = trim(hu / brake);
            hv = trim(hv / brake);
            float a = LARGER(hu, -hu), b = LARGER(hv, -hv);
            speed = speed + LARGER(a, b) / h;
        }
        at[0] = h;
        at[nx] = hu;
        at[2 * nx] = hv;
        at[3 * nx] = hc;
        if (i == 0)
            gate[3 * j + 2] = gate[3 * j + 2] + step * (gate[3 * j] - gate[3 * j + 1]);
    }
    most[me] = speed;
    for (int s = get_local_size(0) / 2; s > 0; s /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < s)
            most[me] = LARGER(most[me], most[me + s]);
    }
    if (me == 0 && j < rows)
        peak[j * get_num_groups(0) + get_group_id(0)] = most[0];
}
