/* Elementwise ops: one loop over a row for each op and dtype, and one driver for all of them (elementwise.c). A loop
 * computes a few elements inside a fused elementwise op or over a product that was just computed (gemm/), or a whole
 * value, so an element has the same bits however it is computed. */
#ifndef WN_CPU_ELEMENTWISE_H
#define WN_CPU_ELEMENTWISE_H
#include <stdint.h>
#include "../common/cpu.h"

enum { WN_OPERANDS = 3 }; /* most operands of an elementwise op */

/* The operands of a row of n elements: out[i] = op(in[0][i step[0]], in[1][i step[1]], ..). A step is 0 or 1, and 1 for
 * the operands of ops of unary.c. out may be an operand of step 1, but may not overlap one otherwise. */
struct wn__operands {
    void *out;
    const void *in[WN_OPERANDS];
    int64_t step[WN_OPERANDS];
};

struct wn__whole;
struct wn__elementwise;
/* Computes a row of n > 0 elements, which begins at element `at` of the whole value. */
typedef void (*wn__row_loop)(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at);

/* One elementwise op with its loop. */
struct wn__elementwise {
    wn__row_loop loop;       /* for bf16 that of f32, over operands that were converted */
    int32_t n;               /* operands */
    int32_t is_bf16;         /* the operands are bf16 */
    int32_t is_math;         /* arithmetic, rather than memory, bounds the loop */
    int64_t size;            /* bytes of an element of the result */
    double f[2];             /* the numbers of the op */
    uint64_t seed, counter;  /* of dropout and random values */
    int64_t first;           /* of random values: the element of the whole that they begin with */
    wn__row_loop of_words;   /* of random values: the loop over words that `loop` draws (creation.c) */
    struct wn__whole *whole; /* of ADD, SUB and MUL of i32 (whole.h) */
};

/* Writes the op to *e, whose operands and result have a dtype; returns 0 where it has no loop. f: its numbers; a
 * dropout takes seed and counter from b. */
int32_t wn__elementwise_of(int32_t op, int32_t dtype, const double f[2], const struct wn_buffers *b,
                           struct wn__elementwise *e);
/* Computes n elements, from element `at` of the whole value on; at counts for dropout alone. */
void wn__elementwise_run(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at);
/* Computes an application of one op, of as many operands as it has. grain: least elements of a thread. */
void wn__elementwise_whole(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__elementwise *e,
                           int64_t grain);

/* Fills step: (c->n) for the steps of a fused op with the dtype of d->out; returns 0 where one has no loop. b: as
 * above. */
int32_t wn__elementwise_steps(const struct wn__fused *c, const struct wn_desc *d, const struct wn_buffers *b,
                              struct wn__elementwise *step);
/* Steps over elements that were just computed: operand 0 of a step is `value`, which each step overwrites but for the
 * last, which writes `out`; operand k > 0 is the whole of in[k - 1]. */
struct wn__elementwise_run {
    const struct wn__fused *c;
    const struct wn__elementwise *step;
    const void *const *in;
    char *value, *out;
};
/* Computes the steps over n elements, from element `at` of the whole value on. */
void wn__elementwise_run_steps(const struct wn__elementwise_run *r, int64_t n, int64_t at);

/* Computes n elements of `size` bytes from their random words: calls of_words for some of them at a time, with their
 * words as the last operand (creation.c). */
void wn__elementwise_draw(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at,
                          int64_t size, wn__row_loop of_words);

/* Return the loop of an op over elements of a dtype, NULL where the file has none. */
wn__row_loop wn__cpu_unary_loop(int32_t op, int32_t dtype);
wn__row_loop wn__cpu_binary_loop(int32_t op, int32_t dtype);
wn__row_loop wn__cpu_dropout_loop(int32_t dtype);
/* Returns whether arithmetic, rather than memory, bounds the loop of an op of unary.c. */
int32_t wn__cpu_unary_is_math(int32_t op);
#endif
