/* The f32 product, in two halves: a driver that cuts and packs (matmul.c), and for each instruction set a tile:
 * mr x nr outputs held in registers while k runs over a packed strip.
 *
 * Every output is one chain of k steps in order, acc = a b + acc, whatever the tile, the cut or the thread
 * count; so bits do not depend on threads, and the AVX2 and AVX-512 tiles agree.
 * All packing is into fixed buffers on the thread's stack (56 KiB): a product needs no workspace. */
#ifndef WN_CPU_GEMM_H
#define WN_CPU_GEMM_H
#include <stdint.h>

#define WN_GEMM_KC 128 /* k steps a packed strip holds */
#define WN_GEMM_MC 64  /* rows of A packed together */
#define WN_GEMM_NR_MAX 48
#define WN_GEMM_MR_MAX 8

/* What a tile is asked. Rows beyond m and columns beyond n are computed from padding and not stored. */
struct wn__gemm_tile {
    int64_t kc;     /* k steps: 0..WN_GEMM_KC */
    const float *a; /* (kc, mr) packed */
    const float *b; /* (kc, nr) packed, 64-byte aligned */
    float *c;       /* (m, n), rows ldc apart */
    int64_t ldc, m, n;
    const float *bias;    /* (n) added last, or NULL */
    int32_t first;        /* start at zero instead of c */
    int32_t stream;       /* c is whole cache lines nobody reads soon: write past the caches */
    const char *ahead[2]; /* memory the next strip comes from: touched at these two, then each ... */
    int64_t ahead_step;   /* ... this many bytes on, once a k step (half of the steps each); 0: none */
};

struct wn__gemm_kernel {
    int32_t mr, nr;
    void (*tile)(const struct wn__gemm_tile *t);
    /* Packs B strips that lie k-last, b[j * ldb + k], j < n, k < kc, into out (kc, nr), zeros beyond n. */
    void (*pack_b_rows)(const float *b, int64_t ldb, int64_t n, int64_t kc, float *out);
    /* Packs A that lies k-last, a[i * lda + k], i < m <= mr, into out (kc, mr), zeros beyond m. */
    void (*pack_a_rows)(const float *a, int64_t lda, int64_t m, int64_t kc, float *out);
};

const struct wn__gemm_kernel *wn__gemm_plain(void);
const struct wn__gemm_kernel *wn__gemm_avx2(void);   /* NULL when this machine has none */
const struct wn__gemm_kernel *wn__gemm_avx512(void); /* NULL when this machine has none */
#endif
