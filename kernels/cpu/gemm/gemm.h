/* Matrix products c = op(a) op(b) + bias, and an elementwise epilogue over c, in BLIS's terms (Van Zee and van de
 * Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015).
 *
 * A driver (gemm.c for f32, bf16.c for bf16) partitions c into tasks, packs operands into micro-panels, and calls the
 * micro-kernel of this processor, which holds a micro-tile of c, at most (mr, nr), in registers while k runs over a
 * k-block of kc steps.
 *
 *                        n                     packed micro-panel of b: (kc, nr), zeros beyond n
 *               +-------+-------+---+            | b(0, 0..nr) | b(1, 0..nr) | ... | b(kc-1, 0..nr) |
 *            kc |   b   |       |   |
 *               +-------+-------+---+          packed micro-panel of a: (kc, mr)
 *       kc      +-------+-------+---+            | a(0..mr, 0) | a(0..mr, 1) | ... | a(0..mr, kc-1) |
 *    +-----+    |   c   |       |   |
 * mr |  a  |    +-------+-------+---+ m
 *    +-----+    |       |       |   |          Either operand may also be read in place.
 *    |     |    +-------+-------+---+
 *                  nr
 *
 * f32: every output is one chain over all k in ascending order, acc = a(i, k) b(k, j) + acc, then + bias. The chain
 * depends on neither micro-kernel, partition, variant nor number of threads, so the bits do not either; AVX2, AVX-512
 * and NEON agree. bf16: the same chain, over pairs of k where the processor multiplies pairs, with the bits of that
 * instruction; elsewhere the f32 chain. All packing goes to buffers of fixed size on the stack of a thread (up to 320
 * KiB): a product needs no workspace. */
#ifndef WN_CPU_GEMM_H
#define WN_CPU_GEMM_H
#include <stdint.h>
#include "../../../runtime/base/layout.h"
#include "../../scalar.h"
#include "../elementwise.h"

/* A batch of products, operands as strides in elements: a(i, k) = a[i * ai + k * ak], b(k, j) = b[j * bj + k * bk]; of
 * (ai, ak) one is 1, of (bj, bk) one is 1. c: (batch, m, n) row-major. A weight may be in panels
 * (runtime/base/layout.h); then batch = 1, and the stride of b that is not 1 is WN_PANEL:
 *   b_panels, bj = 1: the forward of a layer. Panels of 48 columns of b, n a multiple of 16, each panel (k, width)
 *                     dense: b(k, j) is at wn__panel_row(n, k_all, j) + k * width.
 *   b_panels, bk = 1: dX of a layer. Panels of 48 steps of k, k_all a multiple of 16, each panel (n, width) dense:
 *                     b(k, j) is at wn__panel_row(k_all, n, k) + j * width.
 *   c_panels:         dW of a layer, transposed: a is x', b is dy. Panels of 48 columns of c, n a multiple of 16, each
 *                     panel (m, width) dense: c(i, j) is at wn__panel_row(n, m, j) + i * width. epilogue_in has the
 *                     layout of c, a and b are plain, bias is NULL. */
struct wn__gemm {
    int64_t m, n, k, batch;
    int64_t ai, ak, bj, bk;
    int32_t b_panels, c_panels;
    const void *a, *b, *bias; /* bias: (n), or NULL */
    void *c;
    const struct wn__elementwise
        *epilogue;                  /* an elementwise op applied to each micro-tile once it is complete; or NULL */
    const void *epilogue_in;        /* the second operand of epilogue, of the shape of c; or NULL */
    struct wn__broadcast broadcast; /* over the leading dims: offsets of a (0) and b (1), in matrices */
};

/* Returns where c(row, column) of matrix `batch` is, in elements; *ld becomes the elements from row to row. */
static inline int64_t wn__gemm_c_at(const struct wn__gemm *p, int64_t batch, int64_t row, int64_t column, int64_t *ld)
{
    *ld = p->n;
    int64_t at = p->c_panels ? wn__panel_row(p->n, p->m, column, ld) : batch * p->m * p->n + column;
    return at + row * *ld;
}

/* Returns where b(k, column) of matrix number `matrix` of b is, in elements. *ld becomes the elements from one k to the
 * next, or, where bk = 1, from one column to the next. In panels both hold within the panel alone. */
static inline int64_t wn__gemm_b_at(const struct wn__gemm *p, int64_t matrix, int64_t k, int64_t column, int64_t *ld)
{
    if (p->bk == 1) {
        *ld = p->bj;
        int64_t at = p->b_panels ? wn__panel_row(p->k, p->n, k, ld) : matrix * p->n * p->k + k;
        return at + column * *ld;
    }
    *ld = p->bk;
    int64_t at = p->b_panels ? wn__panel_row(p->n, p->k, column, ld) : matrix * p->n * p->k + column;
    return at + k * *ld;
}

/* Returns how many of n columns (or steps of k) from `at` on are in the panel of `at`. */
static inline int64_t wn__gemm_in_panel(int64_t at, int64_t n)
{
    int64_t left = WN_PANEL - at % WN_PANEL;
    return n < left ? n : left;
}

/* Compute the product; a, b, bias and c are f32, or bf16. Return WN_OK. */
int32_t wn__gemm_f32(const struct wn__gemm *p);
int32_t wn__gemm_bf16(const struct wn__gemm *p);

/* ---- what the f32 and the bf16 driver share (partition.c) ---------------------------------------- */
/* Writes where matrix `batch` of c has its factors: offset[0] in a and offset[1] in b, in matrices. */
void wn__gemm_offsets(const struct wn__gemm *p, int64_t batch, int64_t offset[2]);

#define WN_GEMM_SMALL 16384 /* so many multiply-adds are not worth a thread */

/* The tasks of a batch. Each matrix of c is divided into row_parts x column_parts parts, at multiples of row_unit rows
 * and column_unit columns; columns in panels are divided between panels. */
struct wn__gemm_partition {
    int64_t row_unit, column_unit;   /* rows, columns */
    int64_t row_parts, column_parts; /* of each matrix */
    int64_t tasks, grain;            /* arguments of wn__parallel_tasks */
};
/* The outputs of one task: rows [row0, row1) and columns [column0, column1) of one matrix of c. */
struct wn__gemm_part {
    int64_t batch, offset[2]; /* the matrix of c; those of a and of b */
    int64_t row0, row1, column0, column1;
};
/* Row weight of small k: a part gets rows of its own unless n > 4 m.
 * Measured: 1024 x 1024 x 32: bf16 -> 0.93-0.98x, f32 -> 0.98-0.995x; with row weight 16: 1.02-1.04x. */
#define WN_GEMM_SMALL_K_TALL 4
/* Returns a partition with a part for each thread: first along the longer side of c, whose micro-panels are then packed
 * once a part. A row counts as row_weight columns. */
struct wn__gemm_partition wn__gemm_partition(const struct wn__gemm *p, int64_t row_unit, int64_t column_unit,
                                             int64_t row_weight);
/* Writes the outputs of task number `task` to *out; returns 0 where it has none. */
int32_t wn__gemm_part(const struct wn__gemm *p, const struct wn__gemm_partition *partition, int64_t task,
                      struct wn__gemm_part *out);
/* Applies p->epilogue, where there is one, to rows [row0, row1) and columns [column, column + n) of a matrix of c. */
void wn__gemm_epilogue(const struct wn__gemm *p, int64_t batch, int64_t row0, int64_t row1, int64_t column, int64_t n);
struct wn__gemm_microtile;
/* Requests that a micro-kernel whose a has k along memory (ak = 1) prefetch each row of a WN_GEMM_PREFETCH_WORDS words
 * before it reads them, and at the end the rows of the next micro-tile, which begin at `next`. */
void wn__gemm_prefetch_rows(struct wn__gemm_microtile *t, const float *next);

#define WN_GEMM_B_FLOATS 6144 /* words of a packed micro-panel of b: KC x NR_MAX */
#define WN_GEMM_KC 128        /* steps of k of a packed micro-panel. Measured: 96: 0-3 % slower, 64: 1-8 % slower */
/* Steps of k that prefetch lines of one row of what is needed next: into the first-level cache, into the second, and
 * into the second where elements are bf16. */
#define WN_GEMM_NEAR_STEPS 16
#define WN_GEMM_FAR_STEPS 4
#define WN_GEMM_FAR_STEPS_BF16 2
#define WN_GEMM_PREFETCH_WORDS 160 /* distance of prefetches along a row, in words. Measured: 256: 0-3 % slower */
#define WN_GEMM_MR_MAX 8
#define WN_GEMM_NR_MAX 48

/* One call of a micro-kernel: the micro-tile c: (m, n), m <= mr, n <= nr, over kc steps of k: out(i, j) = (first ? 0 :
 * c(i, j)) + sum over k of a(i, k) b(k, j) + bias(j) + row_bias(i). b is a packed micro-panel: rows of nr columns,
 * zeros from column n to the next multiple of 16. With `copy` b is read in place instead, n columns wide, and its
 * packed micro-panel is written to copy. */
struct wn__gemm_microtile {
    int64_t kc;     /* steps of k, 0 or more; with copy at most WN_GEMM_KC */
    const float *a; /* a(i, k) = a[i * ai + k * ak], i < m */
    int64_t ai, ak;
    const float *b; /* b(k, j) = b[k * bk + j]; without copy bk is a multiple of 16 and b is 64-byte aligned */
    int64_t bk;
    float *copy; /* NULL, or (kc, nr): the micro-kernel writes the packed micro-panel here */
    float *c;    /* (m, n), rows ldc words apart: sums so far */
    int64_t ldc, m, n;
    float *out; /* NULL: sums go to c; else (m, n), rows out_ld words apart: sums go here */
    int64_t out_ld;
    const float *bias;     /* (n), added last; or NULL */
    const float *row_bias; /* (m), added last; or NULL */
    int32_t first;         /* sums start at zero instead of c */
    int32_t stream;        /* c is whole cache lines that nobody reads soon: non-temporal stores */
    /* Step k prefetches the line at prefetch + k / steps * prefetch_row + k % steps * prefetch_step, in bytes, where
     * steps is WN_GEMM_NEAR_STEPS if prefetch_near, else WN_GEMM_FAR_STEPS (bf16: WN_GEMM_FAR_STEPS_BF16). */
    const char *prefetch;
    int64_t prefetch_step;
    int64_t prefetch_row;
    int32_t prefetch_near; /* 1: into the first-level cache, 0: into the second */
    /* Not NULL (wn__gemm_prefetch_rows): step k prefetches prefetch + k / 8 * 32 + k % 8 * prefetch_row instead, and
     * from step prefetch_turn on, a multiple of 8, prefetch_then + (k - prefetch_turn) / 8 * 32 + k % 8 *
     * prefetch_row. */
    const char *prefetch_then;
    int64_t prefetch_turn;
    /* bf16 alone. half: NULL, or (m, n), rows half_ld elements apart: the sums plus half_bias go here, rounded, and c
     * is only read. half_bias: (n), or NULL. */
    uint16_t *half;
    int64_t half_ld;
    const uint16_t *half_bias;
};

/* One call of a packing kernel: sums: (mr, nr) += a' b with a: (kc, mr) and b: (kc, nr) packed, while it packs rows of
 * the next micro-panel of b. */
struct wn__gemm_packing {
    int64_t kc, n; /* n: columns of b that count; sums of a vector without such a column are left as they are */
    const float *a, *b;
    float *sums;
    int32_t first;         /* sums start at zero */
    int32_t every;         /* 1, 2 or 4: so many steps of k pack one row */
    int64_t rows;          /* number of rows to pack; every * rows <= kc */
    const float *from;     /* the rows to pack: next_n columns, bk words apart */
    int64_t bk, next_n;    /* of bf16 a word is two rows, and rows are bk elements apart */
    float *next;           /* (rows, nr): where they go, zeros beyond next_n */
    const float *prefetch; /* rows to be packed later, bk words apart: prefetched */
};

/* One call of a macro-kernel: `tiles` micro-tiles c: (mr, n) = a' b with a: (kc, mr) and b: (kc, n) packed, along a row
 * of micro-panels of b, or down the micro-panels of a. */
struct wn__gemm_macrotile {
    int64_t kc, n, tiles; /* n: 48; of bf16 also 32 */
    const float *a, *b;
    void *c;
    int64_t a_step, b_step, c_step; /* from one micro-tile to the next: words, words, elements */
    int64_t ldc;                    /* elements from row to row of c */
    const void *then;               /* c of the micro-tile that is computed after the last: prefetched */
    int32_t stream;                 /* non-temporal stores, as in wn__gemm_microtile */
};

/* The kernels of an instruction set. */
struct wn__gemm_kernel {
    int32_t mr, nr; /* mr: 4 or 8; nr: a multiple of 16 */
    void (*microkernel)(const struct wn__gemm_microtile *t);
    /* A micro-kernel over `panels` whole panels of a, `apart` words from one to the next: k runs along memory in each
     * of the mr rows of a panel (dX). kc does not count; t->n is a multiple of 16. It prefetches as many bytes as it
     * reads, from t->prefetch on. Or NULL. */
    void (*panels_kernel)(const struct wn__gemm_microtile *t, int64_t panels, int64_t apart);
    /* to[j * ldt + i] = x[i * ldx + j], i < m, j < n; writes nothing else. */
    void (*transpose)(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt);
    void (*packing_kernel)(const struct wn__gemm_packing *t); /* or NULL */
    void (*macrokernel)(const struct wn__gemm_macrotile *t);  /* or NULL */
};

/* ---- variants that f32 and bf16 share ------------------------------------------------------------ */

/* The element type as small_m.c and small_k.c see it. Steps of k are counted in words of 32 bits.
 * nr divides WN_PANEL where columns of b or of c are in panels; macrokernel takes micro-panels of nr columns. */
struct wn__gemm_variant {
    const struct wn__gemm *p;
    const void *job; /* of the driver, for pack_a and pack_b */
    int64_t mr, nr;  /* rows and columns of a micro-tile */
    int64_t per;     /* elements along k in a word: 1, or 2 for pairs of bf16 */
    int64_t size;    /* bytes of an element */
    int32_t direct;  /* micro-kernels read panels of b in place */
    void (*packing_kernel)(const struct wn__gemm_packing *t);
    void (*macrokernel)(const struct wn__gemm_macrotile *t);
    void (*microkernel)(const struct wn__gemm_microtile *t);
    /* Packs steps [k, k + steps) of all rows of a part of a: to (groups of mr rows, steps, mr). */
    void (*pack_a)(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, int64_t k, int64_t steps,
                   float *to);
    /* Packs n columns of b: to (steps, nr), zeros beyond n. ld: the stride of b that is not 1, as wn__gemm_b_at has
     * it. */
    void (*pack_b)(const struct wn__gemm_variant *w, const float *b, int64_t ld, int64_t n, int64_t steps, float *to);
    /* c: (n) = sums + bias, rounded to the element; bias: (n), or NULL. */
    void (*store)(const float *sums, const void *bias, int64_t n, void *c);
    /* Makes the micro-kernel write to c and add bias. */
    void (*set_output)(struct wn__gemm_microtile *t, void *c, const void *bias);
};

#define WN_GEMM_SMALL_M 64 /* most rows of a with which it pays to read b once, in place */
#define WN_GEMM_SMALL_K 64 /* most steps of k of small_k.c in f32 */
/* Computes a part of at most WN_GEMM_SMALL_M rows (small_m.c). Requires p->bj = 1, p->k > 0 and a multiple of per, and
 * a packing_kernel, or b in panels and direct. */
void wn__gemm_small_m(const struct wn__gemm_variant *w, const struct wn__gemm_part *part);
/* Computes a part of few steps of k (small_k.c). Requires 0 < p->k <= WN_GEMM_SMALL_K and no epilogue. stream: store c
 * non-temporally. */
void wn__gemm_small_k(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, int32_t stream);

/* The kernels of each class, of which a class has its own (micro.h). */
extern const struct wn__gemm_kernel wn__gemm_plain, wn__gemm_avx2, wn__gemm_avx512, wn__gemm_neon;

/* ---- bf16 (bf16.c) ------------------------------------------------------------------------------- */

/* Kernels of bf16. Operands are packed into words of 32 bits that hold `per` steps of k: a pair of bf16, or one bf16 as
 * a float. kc, ai, ak and bk of a micro-tile count words; c holds f32 sums; half is used only where per = 2. */
struct wn__gemm_bf16_kernel {
    int32_t mr, nr, per;
    void (*microkernel)(const struct wn__gemm_microtile *t);
    /* Packs rows of x, x(i, k) = x[i * xi + k * xk], one of xi and xk being 1, into micro-panels of `width` rows, each
     * (steps, width) words: word (s, i) holds x(i, k) of the k of step s, zeros beyond rows and beyond k. */
    void (*pack)(const uint16_t *x, int64_t xi, int64_t xk, int64_t rows, int64_t k, int64_t width, float *to);
    void (*packing_kernel)(const struct wn__gemm_packing *t); /* or NULL */
    void (*macrokernel)(const struct wn__gemm_macrotile *t);  /* or NULL */
    /* As in wn__gemm_kernel; or NULL. */
    void (*panels_kernel)(const struct wn__gemm_microtile *t, int64_t panels, int64_t apart);
    /* A micro-kernel that reads a whole panel of b in place, dense rows of 48 columns, with a packed. It prefetches
     * line k of t->prefetch in step k. Or NULL. */
    void (*panel)(const struct wn__gemm_microtile *t);
};

extern const struct wn__gemm_bf16_kernel wn__gemm_bf16_avx512;
/* Returns the kernels of bf16 products on this processor: its own, or the f32 micro-kernel of the class. */
struct wn__gemm_bf16_kernel wn__gemm_bf16_here(void);
#endif
