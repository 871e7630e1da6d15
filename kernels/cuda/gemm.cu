/* MATMUL, LINEAR, MATMUL_MAP, LINEAR_MAP by tiles (gemm.cuh), with the CPU's bits in f32 and f64. bf16 is summed in f32
 * in the same order and rounded once, while the CPU may sum pairs; tensor cores compute most products of it
 * (gemm_mma.cu), and few_rows.cu those of f32 that have few rows. gemm_store.cuh says what follows a sum. */
#include "gemm_store.cuh"

/* Finishes and stores the outputs of a row from `at` on: V by one store. */
template <class T, int V>
static __device__ __forceinline__ void finish(const struct wn__gemm_job &w, const wn__tile_place &at,
                                              typename wn__number<T>::type (&sum)[V])
{
    wn__gemm_finish<T, V>(w, at, sum);
    wn__put((T *)w.c + wn__gemm_element(w, at), sum);
}

/* Finishes and stores the outputs of a thread, R x R from `first` on, those that lie in the matrix. The loops are not
 * unrolled, since what finishes an output is long; a row and an output of it are selected, so that sums stay in
 * registers. */
template <class T, int R>
static __device__ __forceinline__ void finish_all(const struct wn__gemm_job &w, const wn__tile_place &first,
                                                  const typename wn__number<T>::type (&sum)[R][R])
{
    typedef typename wn__number<T>::type N;
    wn__tile_place at = first;
    WN_ROLLED
    for (int r = 0; r < R && at.row < w.p.m; r++, at.row++) {
        N row[R], one[1];
        WN_UNROLL
        for (int i = 0; i < R * R; i++)
            if (i / R == r) row[i % R] = sum[i / R][i % R];
        at.column = first.column;
        if (w.p.n % R == 0) { /* R outputs are one store */
            if (at.column < w.p.n) finish<T, R>(w, at, row);
            continue;
        }
        WN_ROLLED
        for (int s = 0; s < R && at.column < w.p.n; s++, at.column++) {
            WN_UNROLL
            for (int i = 0; i < R; i++)
                if (i == s) one[0] = row[i];
            finish<T, 1>(w, at, one);
        }
    }
}

template <class T, int R> static __global__ void __launch_bounds__(256, 2) multiply(struct wn__gemm_job w)
{
    typename wn__number<T>::type sum[R][R];
    wn__tile_place tile = wn__tile_at(w.p, 16 * R);
    int64_t matrix[2] = {0, 0};
    if (w.p.batch > 1) wn__broadcast_offsets(w.p.lead, tile.batch, matrix);
    wn__tile_sums<T, R>(w.p, matrix, tile.row, tile.column, sum);
    finish_all<T, R>(w, {tile.batch, tile.row + wn__tile_row(R), tile.column + wn__tile_column(R)}, sum);
}

/* ---- starting it ------------------------------------------------------------------------------------------------ */

template <class T> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__gemm_job w = wn__gemm_job_of(d, b);
    if (wn__numel(&d->out) == 0) return WN_OK;
    if (b->made != NULL) return wn__cublaslt_run(d, b, stream);
    if (wn__product_is_small(&w.p)) LAUNCH((multiply<T, 1>), wn__grid(wn__tiles(&w.p, 16)), 256, 0, stream, w);
    else LAUNCH((multiply<T, 4>), wn__grid(wn__tiles(&w.p, 64)), 256, 0, stream, w);
    return wn__cuda_launched();
}

static int32_t is_in_rows(const struct wn_type *t)
{
    return t->layout == WN_PLAIN || t->layout == WN_ROWS;
}

wn_kernel_fn wn__cuda_matmul_kernel(const struct wn_desc *d)
{
    int32_t has_epilogue = d->op == WN_OP_MATMUL_MAP || d->op == WN_OP_LINEAR_MAP;
    if (d->in[0].dtype != d->out.dtype || d->in[1].dtype != d->out.dtype) return NULL;
    if (!is_in_rows(&d->in[0]) || !is_in_rows(&d->in[1]) || !is_in_rows(&d->out)) return NULL;
    if (has_epilogue && wn__elementwise_operands((int32_t)d->attrs.i[2]) == 0) return NULL;
    wn_kernel_fn by_tensor_cores = d->out.dtype == WN_BF16 ? wn__cuda_matmul_mma_kernel(d) : NULL;
    if (by_tensor_cores != NULL) return by_tensor_cores;
    wn_kernel_fn of_few_rows = wn__cuda_matmul_few_kernel(d);
    if (of_few_rows != NULL) return of_few_rows;
    return wn__kernel_of(d->out.dtype, start<float>, start<double>, start<wn_bf16>);
}
