/* LSTM_CELL, LSTM_CELL_GRAD, GRU_GATES, GRU_CELL, GRU_CELL_GRAD: one step of a recurrent layer (runtime/ops/recurrent.c
 * has the shapes, kernels/cells.h the formulas), with the CPU's bits.
 *
 * A thread computes one element of the state, or what of the result depends on it; neighbouring threads have
 * neighbouring elements. It loads all its operands before it stores, so a result may lie where an input of its type
 * does. */
#include "../cells.h"
#include "map.cuh"

template <class T> struct cell_job {
    const T *in[3];
    T *out;
    int64_t count, size; /* elements of the state; H */
    int32_t of_state;    /* of a gradient: 1 where it is that of the state */
};

/* The gates that an element of T computes as, and the formulas of its numbers. */
template <class N> struct cell;
#define CELL_OF(S, N)                                                                                                  \
    template <> struct cell<N> {                                                                                       \
        typedef struct wn_gates_##S gates;                                                                             \
        static __device__ __forceinline__ N next(gates x, N c)                                                         \
        {                                                                                                              \
            return wn_lstm_next_##S(x, c);                                                                             \
        }                                                                                                              \
        static __device__ __forceinline__ N out(gates x, N next)                                                       \
        {                                                                                                              \
            return wn_lstm_out_##S(x, next);                                                                           \
        }                                                                                                              \
        static __device__ __forceinline__ gates lstm_grad(N dh, N dc, gates x, N c)                                    \
        {                                                                                                              \
            return wn_lstm_grad_##S(dh, dc, x, c);                                                                     \
        }                                                                                                              \
        CELL_OF_STATES(S, N)                                                                                           \
    }
#define CELL_OF_STATES(S, N)                                                                                           \
    static __device__ __forceinline__ N lstm_grad_state(N dh, N dc, gates x, N c)                                      \
    {                                                                                                                  \
        return wn_lstm_grad_state_##S(dh, dc, x, c);                                                                   \
    }                                                                                                                  \
    static __device__ __forceinline__ N gru(gates x, N h)                                                              \
    {                                                                                                                  \
        return wn_gru_##S(x, h);                                                                                       \
    }                                                                                                                  \
    static __device__ __forceinline__ gates gru_grad(N dy, gates x, N h)                                               \
    {                                                                                                                  \
        return wn_gru_grad_##S(dy, x, h);                                                                              \
    }                                                                                                                  \
    static __device__ __forceinline__ N gru_grad_state(N dy, gates x)                                                  \
    {                                                                                                                  \
        return wn_gru_grad_state_##S(dy, x);                                                                           \
    }
CELL_OF(f32, float);
CELL_OF(f64, double);

/* The place of gate p of a row of `parts` gates, for the element of the state that a thread has. */
template <class T> struct place {
    int64_t row, j, size;
    __device__ __forceinline__ place(const cell_job<T> &k, int64_t at) : row(at / k.size), j(at % k.size), size(k.size)
    {
    }
    __device__ __forceinline__ int64_t operator()(int p, int parts) const
    {
        return (row * parts + p) * size + j;
    }
    __device__ __forceinline__ typename cell<typename wn__number<T>::type>::gates load(const T *x) const
    {
        return {wn__load(x[(*this)(0, 4)]), wn__load(x[(*this)(1, 4)]), wn__load(x[(*this)(2, 4)]),
                wn__load(x[(*this)(3, 4)])};
    }
    __device__ __forceinline__ void store(T *x, const typename cell<typename wn__number<T>::type>::gates &v) const
    {
        x[(*this)(0, 4)] = wn__store<T>(v.a);
        x[(*this)(1, 4)] = wn__store<T>(v.b);
        x[(*this)(2, 4)] = wn__store<T>(v.c);
        x[(*this)(3, 4)] = wn__store<T>(v.d);
    }
};

template <class T> static __global__ void lstm_cell(cell_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t own = wn__thread();
    if (own >= k.count) return;
    const place<T> at(k, own);
    const auto x = at.load(k.in[0]);
    const N next = cell<N>::next(x, wn__load(k.in[1][own]));
    k.out[at(0, 2)] = wn__store<T>(cell<N>::out(x, next));
    k.out[at(1, 2)] = wn__store<T>(next);
}

template <class T> static __global__ void lstm_cell_grad(cell_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t own = wn__thread();
    if (own >= k.count) return;
    const place<T> at(k, own);
    const N dh = wn__load(k.in[0][at(0, 2)]), dc = wn__load(k.in[0][at(1, 2)]), c = wn__load(k.in[2][own]);
    const auto x = at.load(k.in[1]);
    if (k.of_state) k.out[own] = wn__store<T>(cell<N>::lstm_grad_state(dh, dc, x, c));
    else at.store(k.out, cell<N>::lstm_grad(dh, dc, x, c));
}

template <class T> static __global__ void gru_gates(cell_job<T> k)
{
    const int64_t own = wn__thread();
    if (own >= k.count) return;
    const place<T> at(k, own);
    const T *x = k.in[0], *y = k.in[1];
    k.out[at(0, 4)] = wn__store<T>(wn__load(x[at(0, 3)]) + wn__load(y[at(0, 3)]));
    k.out[at(1, 4)] = wn__store<T>(wn__load(x[at(1, 3)]) + wn__load(y[at(1, 3)]));
    k.out[at(2, 4)] = x[at(2, 3)];
    k.out[at(3, 4)] = y[at(2, 3)];
}

template <class T> static __global__ void gru_cell(cell_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t own = wn__thread();
    if (own >= k.count) return;
    const place<T> at(k, own);
    k.out[own] = wn__store<T>(cell<N>::gru(at.load(k.in[0]), wn__load(k.in[1][own])));
}

template <class T> static __global__ void gru_cell_grad(cell_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t own = wn__thread();
    if (own >= k.count) return;
    const place<T> at(k, own);
    const N dy = wn__load(k.in[0][own]);
    const auto x = at.load(k.in[1]);
    if (k.of_state) k.out[own] = wn__store<T>(cell<N>::gru_grad_state(dy, x));
    else at.store(k.out, cell<N>::gru_grad(dy, x, wn__load(k.in[2][own])));
}

/* ---- which kernel -------------------------------------------------------------------------------- */

template <class T> static int32_t cell_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn_type *last = &d->in[d->n_in - 1];
    const int64_t parts = d->op == WN_OP_GRU_GATES ? 3 : 1;
    cell_job<T> k = {.in = {NULL},
                     .out = (T *)b->out,
                     .count = wn__numel(last) / parts,
                     .size = last->dim[last->ndim - 1] / parts,
                     .of_state = d->attrs.i[0] == 1};
    if (k.count == 0) return WN_OK;
    for (int32_t i = 0; i < d->n_in; i++) k.in[i] = (const T *)b->in[i];
    const int64_t blocks = wn__blocks(k.count, WN_THREADS);
    switch (d->op) {
    case WN_OP_LSTM_CELL: LAUNCH_BLOCKS((lstm_cell<T>), blocks, stream, k); break;
    case WN_OP_LSTM_CELL_GRAD: LAUNCH_BLOCKS((lstm_cell_grad<T>), blocks, stream, k); break;
    case WN_OP_GRU_GATES: LAUNCH_BLOCKS((gru_gates<T>), blocks, stream, k); break;
    case WN_OP_GRU_CELL: LAUNCH_BLOCKS((gru_cell<T>), blocks, stream, k); break;
    default: LAUNCH_BLOCKS((gru_cell_grad<T>), blocks, stream, k); break;
    }
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_recurrent_kernel(const struct wn_desc *d)
{
    return wn__kernel_of(d->out.dtype, cell_start<float>, cell_start<double>, cell_start<wn_bf16>);
}
