/* Stores of a product, for gemm.cu, gemm_mma.cu and few_rows.cu: they add the bias of LINEAR, and apply the elementwise
 * op of MATMUL_MAP and LINEAR_MAP.
 *
 * LINEAR adds b(j) to the whole sum, which is rounded once. An epilogue is applied to the rounded product, so a product
 * has the same bits with the op and without it. */
#ifndef WN_CUDA_GEMM_STORE_CUH
#define WN_CUDA_GEMM_STORE_CUH
#include "elementwise.cuh"
#include "gemm.cuh"
extern "C" {
#include "cublaslt.h"
}

/* One product with what follows it. */
struct wn__gemm_job {
    struct wn__product p;
    void *c;
    const void *bias; /* (n) or NULL */
    int32_t has_step; /* 1: an epilogue follows */
    struct wn__step step;
    const void *other; /* the second operand of the epilogue, of the shape of c, or NULL */
};

static inline struct wn__gemm_job wn__gemm_job_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    struct wn__gemm_job w;
    memset(&w, 0, sizeof w);
    w.p = wn__product_of(d, b);
    w.c = b->out;
    if (d->op == WN_OP_LINEAR || d->op == WN_OP_LINEAR_MAP) w.bias = b->in[2];
    if (d->op != WN_OP_MATMUL_MAP && d->op != WN_OP_LINEAR_MAP) return w;
    int32_t op = (int32_t)d->attrs.i[2];
    w.has_step = 1;
    w.step = wn__step_of(op, d->out.dtype, d->attrs.f, b->random);
    if (wn__elementwise_operands(op) == 2) w.other = b->in[d->n_in - 1];
    return w;
}

/* Returns the place of an output in c, in elements. It is the number of the output too where an epilogue follows, which
 * is never over padded rows. */
WN_DEVICE_FN int64_t wn__gemm_element(const struct wn__gemm_job &w, const wn__tile_place &at)
{
    return (at.batch * w.p.m + at.row) * w.p.ld + at.column;
}

/* Makes outputs, not yet rounded, of the sums of V outputs in a row, of which the first is `at`: adds the bias and
 * applies the epilogue. Requires V = 1, or ld % V == 0 and a column that is a multiple of V. */
template <class T, int V>
WN_DEVICE_FN void wn__gemm_finish(const struct wn__gemm_job &w, const wn__tile_place &at,
                                  typename wn__number<T>::type (&sum)[V])
{
    typedef typename wn__number<T>::type N;
    const int64_t element = wn__gemm_element(w, at);
    N with[V];
    WN_UNROLL
    for (int v = 0; v < V; v++) with[v] = (N)0;
    if (w.bias != NULL) {
        wn__get((const T *)w.bias + at.column, with);
        WN_UNROLL
        for (int v = 0; v < V; v++) sum[v] = sum[v] + with[v];
    }
    if (w.has_step) {
        if (w.other != NULL) wn__get((const T *)w.other + element, with);
        WN_UNROLL
        for (int v = 0; v < V; v++) sum[v] = wn__load(wn__store<T>(sum[v]));
        wn__elementwise_pack<N, V>(w.step, sum, with, sum, element);
    }
}

/* Returns the kernel that computes a bf16 product by tensor cores, or NULL where gemm.cu computes it (gemm_mma.cu). */
wn_kernel_fn wn__cuda_matmul_mma_kernel(const struct wn_desc *d);
/* Returns the kernel that computes a product of f32 of few rows, or NULL where it has more (few_rows.cu). */
wn_kernel_fn wn__cuda_matmul_few_kernel(const struct wn_desc *d);
#endif
