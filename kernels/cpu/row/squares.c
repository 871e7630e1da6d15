/* SQUARES: x: (n) elements -> (stripes) in double, the sum of squares of each stripe of 4,096 elements.
 * Lane j adds the elements j, j + 16, j + 32, ... of a stripe, and the 16 lanes are added in order, as in a sum
 * (reduction.h). Threads share the stripes. */
#include "../../scalar.h"
#include "../common/cpu.h"

#define LANES 16

struct squares {
    const void *x;
    double *out;
    int64_t n; /* elements */
};

/* Defines NAME, which sums the squares of stripes [begin, end); LOAD: the double of an element of type T. */
#define SQUARES_OF(NAME, T, LOAD)                                                                                      \
    static void NAME(int64_t begin, int64_t end, void *ctx)                                                            \
    {                                                                                                                  \
        const struct squares *s = ctx;                                                                                 \
        for (int64_t k = begin; k < end; k++) {                                                                        \
            const T *x = (const T *)s->x + k * WN_STRIPE;                                                              \
            int64_t n = s->n - k * WN_STRIPE < WN_STRIPE ? s->n - k * WN_STRIPE : WN_STRIPE, i = 0;                    \
            double lane[LANES] = {0}, sum = 0;                                                                         \
            for (; i + LANES <= n; i += LANES)                                                                         \
                for (int32_t j = 0; j < LANES; j++) lane[j] += LOAD(x[i + j]) * LOAD(x[i + j]);                        \
            for (int32_t j = 0; i < n; i++, j++) lane[j] += LOAD(x[i]) * LOAD(x[i]);                                   \
            for (int32_t j = 0; j < LANES; j++) sum += lane[j];                                                        \
            s->out[k] = sum;                                                                                           \
        }                                                                                                              \
    }
#define WIDENED(v) ((double)(v))
#define WIDENED_BF16(v) ((double)wn_from_bf16(v))
SQUARES_OF(squares_f32, float, WIDENED)
SQUARES_OF(squares_f64, double, WIDENED)
SQUARES_OF(squares_bf16, uint16_t, WIDENED_BF16)

static wn__parallel_body body_of(int32_t dtype)
{
    return dtype == WN_F32 ? squares_f32 : dtype == WN_F64 ? squares_f64 : dtype == WN_BF16 ? squares_bf16 : NULL;
}

static int32_t squares(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct squares s = {.x = b->in[0], .out = b->out, .n = wn__numel(&d->in[0])};
    wn__parallel_for(d->out.dim[0], 1 + WN_CPU_GRAIN / WN_STRIPE, body_of(d->in[0].dtype), &s);
    return WN_OK;
}

wn_kernel_fn wn__cpu_squares_kernel(const struct wn_desc *d)
{
    return body_of(d->in[0].dtype) == NULL ? NULL : squares;
}
