/* Elementwise ops over a few elements (elementwise.h): finds the loop of an op, and calls it. */
#include "elementwise.h"
#include "../common/bf16.h"
#include <stddef.h>

int32_t wn__elementwise_of(int32_t op, int32_t dtype, const double f[2], const struct wn_buffers *b,
                           struct wn__elementwise *out)
{
    *out = (struct wn__elementwise){.dtype = dtype, .low = f[0], .high = f[1], .is_dropout = op == WN_OP_DROPOUT};
    int32_t loop = dtype == WN_BF16 ? WN_F32 : dtype;
    out->unary = wn__cpu_unary_loop(op, loop);
    out->binary = wn__cpu_binary_loop(op, loop);
    if (out->is_dropout && b != NULL) out->dropout = (struct wn__dropout){b->seed, b->counter, f[0]};
    return out->is_dropout || out->unary != NULL || out->binary != NULL;
}

/* Computes bf16 elements, one tile at a time: converts operands, runs the f32 loop, rounds the result. */
static void run_halves(const struct wn__elementwise *s, const struct wn__operands *o, int64_t n)
{
    const uint16_t *a = o->a, *b = o->b;
    float wide_a[WN_TILE], wide_b[WN_TILE], wide[WN_TILE];
    struct wn__unary k = {.a = wide_a, .b = wide_b, .out = wide, .low = s->low, .high = s->high};
    for (int64_t i = 0; i < n; i += WN_TILE) {
        int64_t m = n - i < WN_TILE ? n - i : WN_TILE;
        wn__widen(wide_a, a + i * o->sa, o->sa ? m : 1);
        if (b != NULL) wn__widen(wide_b, b + i * o->sb, o->sb ? m : 1);
        if (s->unary != NULL) s->unary(0, m, &k);
        else s->binary(wide, wide_a, wide_b, m, o->sa, o->sb);
        wn__round((uint16_t *)o->out + i, wide, m);
    }
}

void wn__elementwise_run(const struct wn__elementwise *s, const struct wn__operands *o, int64_t n, int64_t at)
{
    if (s->is_dropout) {
        wn__cpu_dropout_range(&s->dropout, s->dtype, o->out, o->a, at, n);
    } else if (s->dtype == WN_BF16) {
        run_halves(s, o, n);
    } else if (s->unary != NULL) {
        struct wn__unary k = {.a = o->a, .b = o->b, .out = o->out, .low = s->low, .high = s->high};
        s->unary(0, n, &k);
    } else {
        s->binary(o->out, o->a, o->b, n, o->sa, o->sb);
    }
}
