/* Elementwise loops as other kernels meet them: a few elements of one op, inside a chain (chain.c) or over a product
 * that was just made (gemm.c). The loops are the families' own, so an element has the same bits however it is made. */
#ifndef WN_CPU_ELEMENTWISE_H
#define WN_CPU_ELEMENTWISE_H
#include <stdint.h>
#include "cpu.h"

/* What a loop of unary.c over [begin, end) needs. */
struct wn__unary {
    const void *a, *b; /* the input; the residual of a derivative */
    void *out;
    double low, high; /* clamp */
    /* of the family's own driver */
    wn__parallel_body loop;
    int64_t in_size, out_size; /* bytes an element */
    int32_t streams;
};
/* A loop of binary.c: n elements, steps 0 or 1. */
typedef void (*wn__row_loop)(void *out, const void *a, const void *b, int64_t n, int64_t sa, int64_t sb);

wn__parallel_body wn__cpu_unary_loop(int32_t op, int32_t dtype); /* NULL: no loop for it */
wn__row_loop wn__cpu_binary_loop(int32_t op, int32_t dtype);

/* Elements [at, at + n) of a dropout whose elements from `at` on are x: numbers are addressed by element. */
struct wn__dropout {
    uint64_t seed, counter;
    double p;
};
void wn__cpu_dropout_range(const struct wn__dropout *k, int32_t dtype, void *out, const void *x, int64_t at, int64_t n);

/* One elementwise op, made ready. */
struct wn__elementwise {
    wn__parallel_body unary;
    wn__row_loop binary;
    int32_t dtype, is_dropout;
    double low, high;
    struct wn__dropout dropout;
};
/* 0: there is no such op. Numbers of its own are in f; a dropout draws b's. */
int32_t wn__elementwise_of(int32_t op, int32_t dtype, const double f[2], const struct wn_buffers *b,
                           struct wn__elementwise *out);
/* n elements from element `at` on; steps sa, sb are 0 or 1, and 1 where the op is not one of binary.c. out may be a
 * or b, not a part of one. */
void wn__elementwise_run(const struct wn__elementwise *s, void *out, const void *a, const void *b, int64_t n,
                         int64_t sa, int64_t sb, int64_t at);
#endif
