/* The step of one element of ACCUMULATE and of the optimizers by the rules of kernels/updates.h, for update.cu and for
 * product_update.cu, which uses a gradient as soon as it is computed. Cells get the CPU's bits. */
#ifndef WN_CUDA_UPDATE_CUH
#define WN_CUDA_UPDATE_CUH
#include "map.cuh"
#include "mma.cuh"
#include "../updates.h"

/* The cells that an update writes, and the numbers of its optimizer in the device's memory. */
template <class T> struct wn__update_job {
    T *cell[3];
    const double *hyper; /* (8) */
};

/* The constants of a step in numbers of N, which one thread of a block fills in shared memory; ACCUMULATE has none. */
template <class N> struct wn__constants {
};
template <> struct wn__constants<float> : wn_constants_f32 {
};
template <> struct wn__constants<double> : wn_constants_f64 {
};

/* Returns the number of cells that an update op writes. */
static inline constexpr __host__ __device__ int wn__update_cells(int32_t op)
{
    switch (op) {
#define WN_CELLS(NAME, name, n)                                                                                        \
    case WN_OP_##NAME: return n;
        WN_OPTIMIZERS(WN_CELLS)
#undef WN_CELLS
    default: return 1;
    }
}

/* Describes an update. hyper: the input after the gradient, where there is one. */
template <int OP, class T> static wn__update_job<T> wn__update_job_of(const struct wn_buffers *b, const void *hyper)
{
    wn__update_job<T> u = {{NULL, NULL, NULL}, (const double *)hyper};
    for (int c = 0; c < wn__update_cells(OP); c++) u.cell[c] = (T *)b->cell[c];
    return u;
}

/* Fills the constants of a step; every thread of the block calls it. */
template <int OP, class N> WN_DEVICE_FN void wn__constants_fill(wn__constants<N> *c, const double *hyper)
{
    if constexpr (OP != WN_OP_ACCUMULATE)
        if (threadIdx.x == 0) wn_fill_constants(c, OP, hyper);
    __syncthreads();
}

/* Steps one element: the sum of ACCUMULATE, or the rule of an optimizer. cell: (3) the numbers of its cells. */
template <int OP, class N> WN_DEVICE_FN void wn__update_element(const wn__constants<N> &c, N g, N (&cell)[3])
{
#define WN_CELLS_1 cell
#define WN_CELLS_2 cell, cell + 1
#define WN_CELLS_3 cell, cell + 1, cell + 2
#define WN_RULE(NAME, name, n) else if constexpr (OP == WN_OP_##NAME) wn_##name(&c, g, WN_CELLS_##n);
    if constexpr (OP == WN_OP_ACCUMULATE) cell[0] = wn_add(cell[0], g);
    WN_OPTIMIZERS(WN_RULE)
}

/* Asks for the cells of an element and of those in its line. */
template <int OP, class T> WN_DEVICE_FN void wn__update_prefetch(const wn__update_job<T> &u, int64_t at)
{
    const int cells = wn__update_cells(OP);
    WN_UNROLL
    for (int k = 0; k < cells; k++) wn__prefetch(u.cell[k] + at);
}

/* Steps V elements of the cells, in a row, with their gradients. */
template <int OP, class T, int V, class N>
WN_DEVICE_FN void wn__update_pack(const wn__update_job<T> &u, const wn__constants<N> &c, int64_t at, const N (&grad)[V])
{
    const int cells = wn__update_cells(OP);
    N old[cells][V];
    WN_UNROLL
    for (int k = 0; k < cells; k++) wn__get(u.cell[k] + at, old[k]);
    WN_UNROLL
    for (int v = 0; v < V; v++) {
        N cell[3];
        WN_UNROLL
        for (int k = 0; k < cells; k++) cell[k] = old[k][v];
        wn__update_element<OP>(c, grad[v], cell);
        WN_UNROLL
        for (int k = 0; k < cells; k++) old[k][v] = cell[k];
    }
    WN_UNROLL
    for (int k = 0; k < cells; k++) wn__put(u.cell[k] + at, old[k]);
}
#endif
