/* Conversions in bulk, and the kernel of ops whose f32 loops want whole rows (softmax and its kin, layer norm, the
 * gradients of lookups): f32 copies of what is bf16 lie in the workspace, the f32 kernel runs on them, and its result
 * is rounded once. All inputs are read before the result is written, so in place is safe. */
#include "bf16.h"
#include <stddef.h>
#include "../scalar.h"
#include "cpu.h"

#define MOST_INPUTS 8 /* of an op that goes by copies; layer norm has 5 */

WN_CLONES void wn__widen(float *restrict to, const uint16_t *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = wn_from_bf16(from[i]);
}

WN_CLONES void wn__round(uint16_t *restrict to, const float *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = wn_to_bf16(from[i]);
}

struct conversion {
    float *wide;
    uint16_t *to;
    const uint16_t *from;
};

static void widen_part(int64_t begin, int64_t end, void *ctx)
{
    const struct conversion *c = ctx;
    wn__widen(c->wide + begin, c->from + begin, end - begin);
}

static void round_part(int64_t begin, int64_t end, void *ctx)
{
    const struct conversion *c = ctx;
    wn__round(c->to + begin, c->wide + begin, end - begin);
}

/* The bytes of a copy as wn__workspace_f32_copies counts them. */
static int64_t copy_bytes(const struct wn_type *t)
{
    return wn__padded(wn__numel(t) * (int64_t)sizeof(float));
}

/* The description with f32 in the place of bf16; the types of its inputs go to `in`. */
static struct wn_desc in_f32(const struct wn_desc *d, struct wn_type *in)
{
    struct wn_desc wide = *d;
    wide.in = in;
    if (wide.out.dtype == WN_BF16) wide.out.dtype = WN_F32;
    for (int32_t i = 0; i < d->n_in; i++) {
        in[i] = d->in[i];
        if (in[i].dtype == WN_BF16) in[i].dtype = WN_F32;
    }
    return wide;
}

static int32_t by_copies(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn_type in[MOST_INPUTS];
    const void *at[MOST_INPUTS];
    struct wn_desc wide = in_f32(d, in);
    struct wn_buffers copies = *b;
    char *next = b->workspace;
    copies.in = at;
    for (int32_t i = 0; i < d->n_in; i++) {
        at[i] = b->in[i];
        if (d->in[i].dtype != WN_BF16) continue;
        struct conversion c = {.wide = (float *)next, .from = b->in[i]};
        wn__parallel_for(wn__numel(&d->in[i]), WN_CPU_GRAIN, widen_part, &c);
        at[i] = next;
        next += copy_bytes(&d->in[i]);
    }
    if (d->out.dtype == WN_BF16) copies.out = next;
    copies.workspace = d->out.dtype == WN_BF16 ? next + copy_bytes(&d->out) : next; /* what the f32 kernel asks for */
    WN_TRY(wn_cpu_kernel(&wide)(&wide, &copies, stream));
    if (d->out.dtype != WN_BF16) return WN_OK;
    struct conversion c = {.wide = copies.out, .to = b->out};
    wn__parallel_for(wn__numel(&d->out), WN_CPU_GRAIN, round_part, &c);
    return WN_OK;
}

wn_kernel_fn wn__cpu_copies_kernel(const struct wn_desc *d)
{
    int32_t n_half = d->out.dtype == WN_BF16;
    for (int32_t i = 0; i < d->n_in; i++) n_half += d->in[i].dtype == WN_BF16;
    if (n_half == 0 || d->n_in > MOST_INPUTS) return NULL;
    struct wn_type in[MOST_INPUTS];
    struct wn_desc wide = in_f32(d, in);
    return wn_cpu_kernel(&wide) ? by_copies : NULL;
}
