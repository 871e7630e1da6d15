/* EXTREME_GRAD, the gradient of MAX and MIN: dy is shared equally among the elements of x that are the extreme y.
 *
 * Elements of an output are gone over twice, run by run: to count the ties, then to write. Where y is NaN, the NaNs
 * share dy if max() or min() named no dim; else all elements get NaN, as from PyTorch's amax. */
#include <math.h>
#include <stddef.h>
#include "reduce.h"
#include "../common/bf16.h"

#define COUNTED ((int64_t)1 << 30) /* elements whose number fits 32 bits */

/* The gradients of the elements of an output, exact in double. */
struct share {
    double y;         /* the extreme */
    double won, lost; /* the gradient of an element that is the extreme (NaN, if y is), and of one that is not */
};

/* One gradient. */
struct extreme_grad {
    struct wn__reduction of;
    const void *dy, *x, *y;
    void *out;
    int32_t streams; /* out is stored non-temporally */
    int32_t is_all;  /* all dims were reduced by naming none */
};

/* ---- loops --------------------------------------------------------------------------------------- */

#define INLINE static inline __attribute__((always_inline))

/* Defines the loops of a dtype over n elements that are `step` elements apart: TIES counts those that are y, or NaN if
 * y is; PUT writes their gradients. */
#define TIES(S, T)                                                                                                     \
    INLINE int32_t ties_##S(const T *x, int32_t n, int64_t step, T y)                                                  \
    {                                                                                                                  \
        int32_t ties = 0;                                                                                              \
        if (y == y)                                                                                                    \
            for (int32_t i = 0; i < n; i++) ties += x[i * step] == y;                                                  \
        else                                                                                                           \
            for (int32_t i = 0; i < n; i++) ties += x[i * step] != x[i * step];                                        \
        return ties;                                                                                                   \
    }

#define PUT(S, T)                                                                                                      \
    INLINE void put_##S(const T *x, int64_t n, int64_t step, const struct share *s, T *out)                            \
    {                                                                                                                  \
        T y = (T)s->y, won = (T)s->won, lost = (T)s->lost;                                                             \
        if (y == y) _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i * step] = x[i * step] == y ? won : lost; \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) out[i * step] = x[i * step] != x[i * step] ? won : lost;                   \
    }

TIES(f32, float)
TIES(f64, double)
PUT(f32, float)
PUT(f64, double)

/* ---- the driver, inlined once for each dtype ----------------------------------------------------- */

INLINE double number(const int32_t is_f32, const void *from, int64_t i)
{
    return is_f32 ? (double)((const float *)from)[i] : ((const double *)from)[i];
}

/* Returns the number of elements of a run that are y; they are counted in 32 bits, COUNTED at a time. */
INLINE int64_t count(const int32_t is_f32, const void *x, int64_t n, int64_t step, double y)
{
    int64_t ties = 0;
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < COUNTED ? n - at : COUNTED;
        if (is_f32) ties += ties_f32((const float *)x + at * step, (int32_t)m, step, (float)y);
        else ties += ties_f64((const double *)x + at * step, (int32_t)m, step, y);
    }
    return ties;
}

INLINE void put(const int32_t is_f32, const void *x, int64_t n, int64_t step, const struct share *s, void *out)
{
    if (is_f32) put_f32(x, n, step, s, out);
    else put_f64(x, n, step, s, out);
}

/* Returns the gradients of the elements of an output; ties: the number of those that are y. */
INLINE struct share share_of(const int32_t is_f32, int32_t is_all, double y, double dy, int64_t ties)
{
    struct share s = {.y = y};
    if (ties > 0) s.won = is_f32 ? (double)((float)dy / (float)ties) : dy / (double)ties;
    if (y == y || (is_all && ties > 0)) return s;
    s.won = NAN;
    s.lost = is_all ? 0 : NAN;
    return s;
}

INLINE int64_t size_of(const int32_t is_f32)
{
    return is_f32 ? sizeof(float) : sizeof(double);
}

/* Writes a contiguous row past the caches. */
INLINE void stream_row(const int32_t is_f32, const char *x, int64_t n, const struct share *s, char *out)
{
    struct wn__stream_block block;
    int64_t size = size_of(is_f32), ahead = wn__next_row(n * size);
    for (int64_t at = 0, stop; at < n; at = stop) {
        const char *from = x + at * size;
        stop = n - at > WN_STREAM_BLOCK ? at + WN_STREAM_BLOCK : n;
        put(is_f32, from, stop - at, 1, s, block.bytes);
        wn__stream_fetching(out + at * size, block.bytes, (stop - at) * size,
                            (const char *)((uintptr_t)from + (uintptr_t)ahead));
    }
}

/* Computes the gradient of output o, whose elements are one contiguous row. */
INLINE void compute_row(const int32_t is_f32, const struct extreme_grad *g, int64_t o)
{
    int64_t at = wn__operand_at(&g->of.kept, o) * size_of(is_f32), n = g->of.length;
    const char *x = (const char *)g->x + at;
    double y = number(is_f32, g->y, o), dy = number(is_f32, g->dy, o);
    struct share s = share_of(is_f32, g->is_all, y, dy, count(is_f32, x, n, 1, y));
    if (g->streams) stream_row(is_f32, x, n, &s, (char *)g->out + at);
    else put(is_f32, x, n, 1, &s, (char *)g->out + at);
}

/* Computes the gradient of output o, whose elements are runs. */
INLINE void compute_runs(const int32_t is_f32, const struct extreme_grad *g, int64_t o)
{
    const struct wn__broadcast *w = &g->of.reduced;
    int64_t n = w->dim[w->ndim - 1], step = wn__broadcast_inner(w, 0), base = wn__operand_at(&g->of.kept, o), ties = 0;
    double y = number(is_f32, g->y, o), dy = number(is_f32, g->dy, o);
    for (int64_t r = 0; r < g->of.length; r += n)
        ties += count(is_f32, (const char *)g->x + (base + wn__operand_at(w, r)) * size_of(is_f32), n, step, y);
    struct share s = share_of(is_f32, g->is_all, y, dy, ties);
    for (int64_t r = 0; r < g->of.length; r += n) {
        int64_t at = (base + wn__operand_at(w, r)) * size_of(is_f32);
        put(is_f32, (const char *)g->x + at, n, step, &s, (char *)g->out + at);
    }
}

INLINE void compute_outputs(const int32_t is_f32, int64_t begin, int64_t end, const struct extreme_grad *g)
{
    if (g->of.reduced.ndim == 1 && wn__broadcast_inner(&g->of.reduced, 0) == 1)
        for (int64_t o = begin; o < end; o++) compute_row(is_f32, g, o);
    else
        for (int64_t o = begin; o < end; o++) compute_runs(is_f32, g, o);
    if (g->streams) wn__stream_end();
}

static void outputs_f32(int64_t begin, int64_t end, void *ctx)
{
    compute_outputs(1, begin, end, ctx);
}

static void outputs_f64(int64_t begin, int64_t end, void *ctx)
{
    compute_outputs(0, begin, end, ctx);
}

static int32_t extreme_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct extreme_grad g = {.dy = b->in[0], .x = b->in[1], .y = b->in[2], .out = b->out, .is_all = d->attrs.n == 0};
    g.of = wn__reduction_of(d, &d->in[1]);
    g.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[0], b->in[1]);
    int64_t grain = WN_CPU_GRAIN_MATH / (g.of.length + 1) + 1;
    wn__parallel_for(g.of.outputs, grain, d->out.dtype == WN_F32 ? outputs_f32 : outputs_f64, &g);
    return WN_OK;
}

wn_kernel_fn wn__cpu_extreme_grad_kernel(const struct wn_desc *d)
{
    int32_t is_float = d->out.dtype == WN_F32 || d->out.dtype == WN_F64;
    return is_float && d->in[0].dtype == d->out.dtype ? extreme_grad : wn__cpu_copies_kernel(d);
}
