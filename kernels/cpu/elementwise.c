/* One elementwise op over a few elements: which family's loop it is, and the call. */
#include "elementwise.h"
#include <stddef.h>

int32_t wn__step_of(int32_t op, int32_t dtype, const double f[2], const struct wn_buffers *b, struct wn__step *out)
{
    *out = (struct wn__step){.dtype = dtype, .low = f[0], .high = f[1], .is_dropout = op == WN_OP_DROPOUT};
    out->unary = wn__cpu_unary_loop(op, dtype);
    out->binary = wn__cpu_binary_loop(op, dtype);
    if (out->is_dropout && b != NULL) out->dropout = (struct wn__dropout){b->seed, b->counter, f[0]};
    return out->is_dropout || out->unary != NULL || out->binary != NULL;
}

void wn__step_run(const struct wn__step *s, void *out, const void *a, const void *b, int64_t n, int64_t sa, int64_t sb,
                  int64_t at)
{
    if (s->is_dropout) {
        wn__cpu_dropout_range(&s->dropout, s->dtype, out, a, at, n);
    } else if (s->unary != NULL) {
        struct wn__unary k = {a, b, out, s->low, s->high};
        s->unary(0, n, &k);
    } else {
        s->binary(out, a, b, n, sa, sb);
    }
}
