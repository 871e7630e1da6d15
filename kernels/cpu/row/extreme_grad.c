/* EXTREME_GRAD, the gradient of MAX and MIN: dy is shared equally among the elements of x that are the extreme y.
 *
 * Elements of an output are gone over twice, run by run: to count the ties, then to write. Where y is NaN, the NaNs
 * share dy if max() or min() named no dim; else all elements get NaN, as from PyTorch's amax. */
#include <math.h>
#include <stddef.h>
#include "reduce.h"
#include "../common/bf16.h"

#define COUNTED ((int64_t)1 << 30) /* elements whose number fits 32 bits */

/* One gradient. */
struct extreme_grad {
    struct wn__reduction of;
    const void *dy, *x, *y;
    void *out;
    int32_t streams; /* out is stored non-temporally */
    int32_t is_all;  /* all dims were reduced by naming none */
};

#define TYPE f32
#include "extreme_grad.inc"
#define TYPE f64
#include "extreme_grad.inc"

static int32_t extreme_grad(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
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
