/* Matrix products c = op(a) op(b) + bias, and an elementwise epilogue over c, in BLIS's terms (Van Zee and van de
 * Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015).
 *
 * The driver (gemm.c) partitions c into tasks, packs operands into micro-panels, and calls the micro-kernel of this
 * processor, which holds a micro-tile of c, at most (mr, nr), in registers while k runs over a k-block of kc steps.
 * It is one driver for all element types: driver.h has the struct of what differs between them.
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
 * f32: every output is one sum over all k in ascending order, acc = a(i, k) b(k, j) + acc, then + bias. The sum
 * depends on neither micro-kernel, partition, variant nor number of threads, so the bits do not either; AVX2, AVX-512
 * and NEON agree. bf16: the same sum, over pairs of k where the processor multiplies pairs, with the bits of that
 * instruction; elsewhere the f32 sum over widened elements. The sum plus bias is rounded once, at the end. All
 * packing goes to buffers of fixed size on the stack of a thread (up to 320 KiB): a product needs no workspace. */
#ifndef WN_CPU_GEMM_H
#define WN_CPU_GEMM_H
#include <stddef.h>
#include <stdint.h>
#include "../../../runtime/base/layout.h"
#include "../../scalar.h"
#include "../element/elementwise.h"

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
        *epilogue;           /* an elementwise op applied to each micro-tile once it is complete; or NULL */
    const void *epilogue_in; /* the second operand of epilogue, of the shape of c; or NULL */
    /* Called instead of an epilogue where c is plain and batch is 1, for rows [row, row + rows) and columns [column,
     * column + n) of c once they are complete; or NULL. */
    void (*finish)(const void *context, int64_t row, int64_t rows, int64_t column, int64_t n);
    const void *finish_context;
    struct wn__broadcast broadcast; /* of several: over the leading dims: offsets of a (0) and b (1), in matrices */
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

/* Returns whether something follows the product. */
static inline int32_t wn__gemm_has_epilogue(const struct wn__gemm *p)
{
    return p->epilogue != NULL || p->finish != NULL;
}
/* Applies p->epilogue or p->finish, where there is one, to rows [row0, row1) and columns [column, column + n) of a
 * matrix of c. */
void wn__gemm_epilogue(const struct wn__gemm *p, int64_t batch, int64_t row0, int64_t row1, int64_t column, int64_t n);
/* Prefetches what wn__gemm_epilogue will read of epilogue_in there; where c is in panels, the columns are of one. */
void wn__gemm_prefetch_epilogue(const struct wn__gemm *p, int64_t batch, int64_t row0, int64_t row1, int64_t column,
                                int64_t n);
/* Writes where matrix `batch` of c has its factors: offset[0] in a and offset[1] in b, in matrices. */
void wn__gemm_offsets(const struct wn__gemm *p, int64_t batch, int64_t offset[2]);

/* ---- kernels --------------------------------------------------------------------------------------- */

struct wn__gemm_microtile;
/* Requests that a micro-kernel whose a has k along memory (ak = 1) prefetch each row of a product_ahead bytes
 * before it reads them, and at the end the rows of the next micro-tile, which begin at `next`. */
void wn__gemm_prefetch_rows(struct wn__gemm_microtile *t, const float *next);

#define WN_GEMM_KC 128 /* steps of k of a packed micro-panel. Measured: 96: 0-3 % slower, 64: 1-8 % slower */
/* Steps of k that prefetch lines of one row of what is needed next: into the first-level cache, into the second, and
 * into the second where elements are bf16. */
#define WN_GEMM_NEAR_STEPS 16
#define WN_GEMM_FAR_STEPS 4
#define WN_GEMM_FAR_STEPS_BF16 2
#define WN_GEMM_MR_MAX 8
#define WN_GEMM_NR_MAX 48

/* Hints of a micro-tile, as BLIS's auxinfo_t: they change no number. */
struct wn__gemm_auxinfo {
    /* Step k prefetches the line at line + k / steps * row + k % steps * step, in bytes, where steps is
     * WN_GEMM_NEAR_STEPS if is_near, else WN_GEMM_FAR_STEPS (bf16: WN_GEMM_FAR_STEPS_BF16). */
    const char *line;
    int64_t step, row;
    int32_t is_near; /* 1: into the first-level cache, 0: into the second */
    int32_t stream;  /* c is whole cache lines that nobody reads soon: non-temporal stores */
    /* Not NULL (wn__gemm_prefetch_rows): step k prefetches line + k / 8 * 32 + k % 8 * row instead, and from step turn
     * on, a multiple of 8, then + (k - turn) / 8 * 32 + k % 8 * row. */
    const char *then;
    int64_t turn;
};

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
    struct wn__gemm_auxinfo aux;
    /* The result in bf16, of kernels with stores_half. half: NULL, or (m, n), rows half_ld elements apart: the sums
     * plus half_bias go here, rounded, and c is only read. half_bias: (n), or NULL. */
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
    int32_t stream;                 /* non-temporal stores, as in wn__gemm_auxinfo */
    int32_t half;                   /* f32 words alone: c is bf16 */
};

/* The kernels of an instruction set. */
struct wn__gemm_kernel {
    int32_t mr, nr; /* mr: 4 or 8; nr: a multiple of 16 */
    void (*microkernel)(const struct wn__gemm_microtile *t);
    /* A micro-kernel over `panels` whole panels of a, `apart` words from one to the next: k runs along memory in each
     * of the mr rows of a panel (dX). kc does not count; t->n is a multiple of 16. It prefetches as many bytes as it
     * reads, from t->aux.line on. Or NULL. */
    void (*panels_kernel)(const struct wn__gemm_microtile *t, int64_t panels, int64_t apart);
    /* to[j * ldt + i] = x[i * ldx + j], i < m, j < n; writes nothing else. */
    void (*transpose)(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt);
    void (*packing_kernel)(const struct wn__gemm_packing *t); /* or NULL */
    void (*macrokernel)(const struct wn__gemm_macrotile *t);  /* or NULL */
    int32_t stores_half; /* 1: micro- and macro-kernel store bf16 where they are told to; without it, sums alone */
    /* 0, or most words of the packed operand of dX over panels. A micro-tile of several register tiles reads it and the
     * rows of a panel several times, and needs them in the first-level cache. */
    int32_t panels_packed;
};

/* The kernels of each class, of which a class has its own (common/micro.h). */
extern const struct wn__gemm_kernel wn__gemm_plain, wn__gemm_avx2, wn__gemm_avx512, wn__gemm_neon;

/* Rows of x to pack, x(i, k) = x[i * xi + k * xk], i < rows, k < k; one of xi and xk is 1. They are packed into
 * micro-panels of `width` rows, each (steps, width) words: word (s, i) holds x(i, k) of the k of step s, zeros beyond
 * rows and beyond k. */
struct wn__gemm_rows {
    const void *x;
    int64_t xi, xk, rows, k, width;
};

/* The kernels of a processor that multiplies pairs of bf16: a word holds two steps of k. kc, ai, ak and bk of a
 * micro-tile count words; c holds f32 sums. */
struct wn__gemm_bf16_kernel {
    struct wn__gemm_kernel words; /* without a transpose */
    void (*pack)(const struct wn__gemm_rows *x, float *to);
    /* A micro-kernel that reads a whole panel of b in place, dense rows of 48 columns, with a packed. It prefetches
     * line k of t->aux.line in step k. */
    void (*panel)(const struct wn__gemm_microtile *t);
};
extern const struct wn__gemm_bf16_kernel wn__gemm_bf16_avx512;

/* The two ways of computing products of bf16 where the processor multiplies pairs: by pairs, or by the f32 micro-kernel
 * over widened elements, as everywhere else. The bits differ. */
enum { WN_GEMM_PAIRS, WN_GEMM_WIDENED };
/* Returns the kernels of pairs, NULL where elements are widened; choice: WN_GEMM_PAIRS or WN_GEMM_WIDENED. */
const struct wn__gemm_bf16_kernel *wn__gemm_bf16_here(int32_t choice);
#endif
