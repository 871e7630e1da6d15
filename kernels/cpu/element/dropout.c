/* DROPOUT, which is its own gradient: y[e] = word(seed, counter, e) < floor((1 - p) 2^32) ? x[e] / (1 - p) : 0, with
 * threshold and scale of kernels/scalar.h.
 *
 * The word is a function of the element, so the counter of the node draws the same mask again. */
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "elementwise.h"

/* Defines the loop of a dtype. Nothing is drawn where p <= 0, which keeps all, and where nothing is kept; else the
 * largest word that keeps an element fits 32 bits. */
#define DROPOUT(S, T)                                                                                                  \
    static void drop_##S(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n,                     \
                         __attribute__((unused)) int64_t at)                                                           \
    {                                                                                                                  \
        const T *x = o->in[0], scale = wn_dropout_scale_##S(e->f[0]);                                                  \
        const uint32_t *word = o->in[WN_OPERANDS - 1], last = (uint32_t)(wn_dropout_threshold(e->f[0]) - 1);           \
        T *out = o->out;                                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                            \
        {                                                                                                              \
            T kept = x[i] * scale;                                                                                     \
            out[i] = word[i] <= last ? kept : (T)0;                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static void dropout_##S(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)      \
    {                                                                                                                  \
        if (e->f[0] > 0 && wn_dropout_threshold(e->f[0]) > 0) wn__elementwise_draw(e, o, n, at, sizeof(T), drop_##S);  \
        else if (e->f[0] > 0) memset(o->out, 0, (size_t)n * sizeof(T));                                                \
        else if (o->out != o->in[0]) memcpy(o->out, o->in[0], (size_t)n * sizeof(T));                                  \
    }

DROPOUT(f32, float)
DROPOUT(f64, double)

wn__row_loop wn__cpu_dropout_loop(int32_t dtype)
{
    return dtype == WN_F32 ? dropout_f32 : dtype == WN_F64 ? dropout_f64 : NULL;
}

static int32_t dropout(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__elementwise e;
    wn__elementwise_of(d->op, d->out.dtype, d->attrs.f, b, &e);
    wn__elementwise_whole(d, b, &e, WN_CPU_GRAIN_MATH);
    return WN_OK;
}

wn_kernel_fn wn__cpu_dropout_kernel(const struct wn_desc *d)
{
    return wn__dtype_is_float(d->out.dtype) && d->in[0].dtype == d->out.dtype ? dropout : NULL;
}
