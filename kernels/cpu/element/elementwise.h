/* Elementwise loops as other kernels call them: a few elements of one op, inside a fused elementwise op (fused.c) or
 * over a product that was just computed (gemm/). The loops are those of the ops' own kernels, so an element has the
 * same bits however it is computed. */
#ifndef WN_CPU_ELEMENTWISE_H
#define WN_CPU_ELEMENTWISE_H
#include <stdint.h>
#include "../common/cpu.h"

/* The arguments of a loop of unary.c over [begin, end). */
struct wn__unary {
    const void *a, *b; /* the input; the residual of a derivative, else NULL */
    void *out;
    double low, high; /* bounds of clamp */
    /* unary.c alone uses the rest. */
    wn__parallel_body loop;
    int64_t in_size, out_size; /* bytes of an element */
    int32_t streams;           /* out is stored non-temporally */
};
/* A loop of binary.c: out[i] = op(a[i * sa], b[i * sb]), i < n; sa and sb are 0 or 1. */
typedef void (*wn__row_loop)(void *out, const void *a, const void *b, int64_t n, int64_t sa, int64_t sb);

/* Return the loop of an op and dtype, NULL where there is none. */
wn__parallel_body wn__cpu_unary_loop(int32_t op, int32_t dtype);
wn__row_loop wn__cpu_binary_loop(int32_t op, int32_t dtype);

/* Returns whether arithmetic, rather than memory, bounds the loop of an op. */
int32_t wn__cpu_is_math(int32_t op);

/* The numbers of a dropout. */
struct wn__dropout {
    uint64_t seed, counter;
    double p;
};
/* Computes elements [at, at + n) of a dropout from x: (n), its input from element `at` on. */
void wn__cpu_dropout_range(const struct wn__dropout *k, int32_t dtype, void *out, const void *x, int64_t at, int64_t n);

/* One elementwise op with its loop; of unary, binary and is_dropout one is set. */
struct wn__elementwise {
    wn__parallel_body unary;
    wn__row_loop binary;
    int32_t dtype, is_dropout;
    double low, high; /* bounds of clamp */
    struct wn__dropout dropout;
};
/* Writes the op to *out; returns 0 where it has no loop. f: its numbers; a dropout takes seed and counter from b. */
int32_t wn__elementwise_of(int32_t op, int32_t dtype, const double f[2], const struct wn_buffers *b,
                           struct wn__elementwise *out);
/* The addresses of the first elements of a row, and the steps of a and b: 0 or 1, and 1 where the op is not one of
 * binary.c. out may be a or b, but may not overlap them otherwise. */
struct wn__operands {
    void *out;
    const void *a, *b; /* b: NULL where the op has one operand */
    int64_t sa, sb;
};
/* Computes n elements, from element `at` of the whole value on; at counts for dropout alone. */
void wn__elementwise_run(const struct wn__elementwise *s, const struct wn__operands *o, int64_t n, int64_t at);
#endif
