/* Norms over the channels of images in memory order (N, H, W, C), shared by channel.c, channel_norm.c and the workspace
 * rule: how an image is cut, and the rows of an elementwise pass, a formula each.
 *
 * An image is (pixels, channels) row-major. A slab is what one statistic is the mean over: all pixels for batch norm,
 * those of one image for group norm, whose statistics are then of the channels of a group. Sums over the pixels of a
 * slab have parts (row_parts.h). */
#ifndef WN_CPU_CHANNEL_H
#define WN_CPU_CHANNEL_H
#include <stdint.h>
#include "../../../runtime/base/opcode.h"
#include "../../row_parts.h"
#include "../../scalar.h"

enum { WN_CHANNELS = 2048 }; /* most channels whose numbers are at hand at once */

/* Invariants: pixels are slabs * rows; channels are groups * each; groups = channels for batch norm. */
struct wn__channel_cut {
    int64_t slabs, rows, parts; /* rows: the pixels of a slab */
    int64_t channels, groups, each;
    int64_t sums; /* a channel of a slab has: 2 for BATCH_NORM_SUMS and RELU_NORM_SUMS, else 1 */
};

static inline struct wn__channel_cut wn__channel_cut_of(const struct wn_desc *d)
{
    int32_t has_sums = d->op == WN_OP_BATCH_NORM_SUMS || d->op == WN_OP_RELU_NORM_SUMS;
    int32_t is_backward = has_sums || d->op == WN_OP_BATCH_NORM_DX || d->op == WN_OP_RELU_NORM_DX;
    const struct wn_type *x = &d->in[is_backward];
    int64_t groups = d->attrs.i[d->op == WN_OP_BATCH_NORM_MAP ? WN_NORM_MAP_GROUPS : 0];
    struct wn__channel_cut c = {.channels = x->dim[1], .sums = has_sums ? 2 : 1};
    c.slabs = groups > 0 ? x->dim[0] : 1;
    c.rows = x->dim[2] * x->dim[3] * (groups > 0 ? 1 : x->dim[0]);
    c.groups = groups > 0 ? groups : c.channels;
    c.each = c.channels / c.groups;
    c.parts = wn__parts_of(c.rows);
    return c;
}

/* Returns the doubles of the sums of all parts, (slabs, parts, sums, channels). */
static inline int64_t wn__channel_sums(const struct wn__channel_cut *c)
{
    return c->slabs * c->parts * c->sums * c->channels;
}

/* The numbers of up to WN_CHANNELS channels. w, c1 and c2: the weight, and (A, B) / n of BATCH_NORM_DX; b: the bias of
 * BATCH_NORM. */
struct wn__channels_f32 {
    float mean[WN_CHANNELS], rstd[WN_CHANNELS], w[WN_CHANNELS], b[WN_CHANNELS], c1[WN_CHANNELS], c2[WN_CHANNELS];
};
struct wn__channels_f64 {
    double mean[WN_CHANNELS], rstd[WN_CHANNELS], w[WN_CHANNELS], b[WN_CHANNELS], c1[WN_CHANNELS], c2[WN_CHANNELS];
};

/* The norm up to which a ReLU over it has the value 0: in bf16, half of the least number above 0 is rounded to 0. */
#define WN_RELU_LIMIT_f32 0.0f
#define WN_RELU_LIMIT_f64 0.0
#define WN_RELU_LIMIT_bf16 0x1p-134f

/* Define one pixel of BATCH_NORM and of BATCH_NORM_DX, n channels. S, T: of elements; F: the suffix of their numbers;
 * TAKE and PUT convert. `to` may be x or dy. */
#define WN_CHANNEL_ROWS(S, T, F, TAKE, PUT)                                                                            \
    static inline __attribute__((always_inline)) void wn__batch_norm_row_##S(                                          \
        T *to, const T *x, const struct wn__channels_##F *v, int64_t n)                                                \
    {                                                                                                                  \
        _Pragma("omp simd") for (int64_t j = 0; j < n; j++) to[j] =                                                    \
            PUT(wn_layernorm_##F(TAKE(x[j]), v->mean[j], v->rstd[j], v->w[j], v->b[j]));                               \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) void wn__batch_norm_dx_row_##S(                                       \
        T *to, const T *dy, const T *x, const struct wn__channels_##F *v, int64_t n)                                   \
    {                                                                                                                  \
        _Pragma("omp simd") for (int64_t j = 0; j < n; j++) to[j] =                                                    \
            PUT(wn_layernorm_dx_##F(TAKE(dy[j]) * v->w[j], TAKE(x[j]), v->mean[j], v->rstd[j], v->c1[j], v->c2[j]));   \
    }

/* Defines one pixel of RELU_NORM_DX, n channels. */
#define WN_RELU_NORM_ROWS(S, T, F, TAKE, PUT)                                                                          \
    static inline __attribute__((always_inline)) void wn__relu_norm_dx_row_##S(                                        \
        T *to, const T *dy, const T *x, const struct wn__channels_##F *v, int64_t n)                                   \
    {                                                                                                                  \
        _Pragma("omp simd") for (int64_t j = 0; j < n; j++) to[j] = PUT(wn_layernorm_dx_##F(                           \
            (wn_layernorm_##F(TAKE(x[j]), v->mean[j], v->rstd[j], v->w[j], v->b[j]) <= WN_RELU_LIMIT_##S               \
                 ? 0                                                                                                   \
                 : TAKE(dy[j])) *                                                                                      \
                v->w[j],                                                                                               \
            TAKE(x[j]), v->mean[j], v->rstd[j], v->c1[j], v->c2[j]));                                                  \
    }
#endif
