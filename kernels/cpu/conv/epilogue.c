/* See epilogue.h. */
#include "epilogue.h"
#include <stddef.h>
#include "../../scalar.h"
#include "../common/bf16.h"

/* Defines the norm of n channels of a pixel, in place. */
#define NORM_ROW(S, T, F, TAKE, PUT)                                                                                   \
    static void norm_row_##S(const struct wn__conv_epilogue *e, void *row, int64_t channel, int64_t n)                 \
    {                                                                                                                  \
        T *y = row;                                                                                                    \
        const T *mean = (const T *)(const void *)e->norm[0] + channel;                                                 \
        const T *rstd = (const T *)(const void *)e->norm[1] + channel;                                                 \
        const T *w = (const T *)(const void *)e->norm[2] + channel;                                                    \
        const T *b = (const T *)(const void *)e->norm[3] + channel;                                                    \
        _Pragma("omp simd") for (int64_t j = 0; j < n; j++) y[j] =                                                     \
            PUT(wn_layernorm_##F(TAKE(y[j]), TAKE(mean[j]), TAKE(rstd[j]), TAKE(w[j]), TAKE(b[j])));                   \
    }
NORM_ROW(f32, float, f32, WN_SAME, WN_SAME)
NORM_ROW(f64, double, f64, WN_SAME, WN_SAME)
NORM_ROW(bf16, uint16_t, f32, wn_from_bf16, wn_to_bf16)

static void (*const norm_row_of[WN_DTYPE_COUNT])(const struct wn__conv_epilogue *, void *, int64_t,
                                                 int64_t) = {WN_FLOATS(norm_row)};

int32_t wn__conv_epilogue_of(const struct wn_desc *d, const struct wn_buffers *b, struct wn__conv_epilogue *e)
{
    const struct wn__conv_map m = wn__conv_map_get(&d->attrs);
    *e = (struct wn__conv_epilogue){.channels = d->out.dim[1], .size = wn__dtype_size(d->out.dtype), .steps = m.steps};
    if (m.norm && norm_row_of[d->out.dtype] == NULL) return 0;
    if (!wn__elementwise_steps(&m.steps, d, b, e->step)) return 0;
    if (b == NULL) return 1;
    e->out = b->out;
    if (d->n_in > m.image) e->image = b->in[m.image];
    if (!m.norm) return 1;
    for (int32_t k = 0; k < 4; k++) e->norm[k] = b->in[m.norm + k];
    e->norm_row = norm_row_of[d->out.dtype];
    return 1;
}

/* Computes the steps over n elements of the result from element `at` on. */
static void run_steps(const struct wn__conv_epilogue *e, int64_t at, int64_t n)
{
    char *const out = e->out + at * e->size;
    const struct wn__elementwise_run r = {.c = &e->steps, .step = e->step, .in = &e->image, .value = out, .out = out};
    wn__elementwise_run_steps(&r, n, at);
}

void wn__conv_finish(const struct wn__conv_epilogue *e, int64_t pixel, int64_t count, int64_t channel, int64_t n)
{
    if (e == NULL) return;
    const int64_t at = pixel * e->channels + channel;
    for (int64_t i = 0; i < count && e->norm_row != NULL; i++)
        e->norm_row(e, e->out + (at + i * e->channels) * e->size, channel, n);
    if (n == e->channels) run_steps(e, at, count * n);
    else
        for (int64_t i = 0; i < count; i++) run_steps(e, at + i * e->channels, n);
}
