/* The epilogue of a convolution: a batch norm whose statistics are given, and elementwise steps, over pixels of its
 * result that were just computed and that the caches still hold. The formulas are those of the ops' own kernels and
 * every value is rounded where a node's would be, so an element has the bits of the separate nodes. */
#ifndef WN_CPU_CONV_EPILOGUE_H
#define WN_CPU_CONV_EPILOGUE_H
#include "../../../runtime/base/opcode.h"
#include "../element/elementwise.h"

struct wn__conv_epilogue {
    char *out;         /* (pixels, channels) */
    const void *image; /* operand 1 of steps, of the shape of out; or NULL */
    int64_t channels, size;
    const char *norm[4]; /* mean, rstd, weight, bias: (channels); all NULL: there is no norm */
    void (*norm_row)(const struct wn__conv_epilogue *e, void *row, int64_t channel, int64_t n);
    struct wn__fused steps; /* operand 0: the value so far, 1: the image */
    struct wn__elementwise step[WN_CONV_STEPS];
};

/* Fills *e for a CONV2D_MAP. Returns 0 where a step has no loop. b: NULL where only that is asked. */
int32_t wn__conv_epilogue_of(const struct wn_desc *d, const struct wn_buffers *b, struct wn__conv_epilogue *e);
/* Finishes channels [channel, channel + n) of `count` pixels of the result from `pixel` on. e: NULL: does nothing. */
void wn__conv_finish(const struct wn__conv_epilogue *e, int64_t pixel, int64_t count, int64_t channel, int64_t n);
#endif
