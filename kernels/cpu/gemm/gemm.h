/* Products in two halves: a driver that cuts and packs (gemm.c for f32, gemm/bf16.c for bf16), and for each
 * instruction set a tile: up to mr x nr outputs held in registers while k runs.
 *
 * f32: every output is one chain of k steps in ascending order, acc = a b + acc, then + bias, whatever the tile, the
 * cut, the thread count and the path; so bits do not depend on any of them, and the AVX2 and AVX-512 tiles agree.
 * bf16: the same of pairs of k where the processor multiplies pairs; its bits are those of that instruction there, and
 * of the f32 chain elsewhere.
 * All packing is into fixed buffers on the thread's stack (up to 320 KiB): a product needs no workspace. */
#ifndef WN_CPU_GEMM_H
#define WN_CPU_GEMM_H
#include <stdint.h>
#include "../../../runtime/base/layout.h"
#include "../../scalar.h"
#include "../elementwise.h"

/* A batch of products c = op(a) op(b) (+ bias), as strides: a(i, k) = a[i * ai + k * ak], b(k, j) =
 * b[j * bj + k * bk]; one stride of each pair is 1. c is (batch, m, n), dense.
 * A weight in panels (runtime/base/layout.h), of one product each (batch is 1):
 *   b_panels, bj is 1: a layer's forward. Columns j of b go 48 to a panel (n is a multiple of 16), each panel dense,
 *             (k, width): b(k, j) stands at wn__panel_row(n, k_all, j) + k * width.
 *   b_panels, bk is 1: its dX. Steps k of b go 48 to a panel (k_all is a multiple of 16), each panel dense, (n, width):
 *             b(k, j) stands at wn__panel_row(k_all, n, k) + j * width.
 *   c_panels: its dW, turned: a is x', b is dy, columns j of c go 48 to a panel (n is a multiple of 16), each panel dense,
 *             (m, width): c(i, j) stands at wn__panel_row(n, m, j) + i * width. map's second operand lies as c does;
 *             a and b are plain, there is no bias.
 * The stride of b that is not 1 is WN_PANEL then. */
struct wn__gemm {
    int64_t m, n, k, batch;
    int64_t ai, ak, bj, bk;
    int32_t b_panels, c_panels;
    const void *a, *b, *bias; /* bias: (n) or NULL */
    void *c;
    const struct wn__elementwise *epilogue; /* an elementwise op over c, done as soon as a tile is; or NULL */
    const void *epilogue_in;                /* (batch, m, n): its second operand, or NULL */
    struct wn__broadcast broadcast;         /* over the leading dims: offsets of a (0) and b (1), in matrices */
};

/* Where c(row, column) of matrix `batch` stands, in elements, and *ld from row to row. */
static inline int64_t wn__gemm_c_at(const struct wn__gemm *p, int64_t batch, int64_t row, int64_t column, int64_t *ld)
{
    *ld = p->n;
    int64_t at = p->c_panels ? wn__panel_row(p->n, p->m, column, ld) : batch * p->m * p->n + column;
    return at + row * *ld;
}

/* Where b(k, column) of the matrix `matrix` matrices behind b stands, in elements, and *ld from one k to the next,
 * or where bk is 1 from one column to the next. In panels that holds as far as the panel goes. */
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

/* How many of the n columns (or steps) from `at` on lie in its panel. */
static inline int64_t wn__gemm_in_panel(int64_t at, int64_t n)
{
    int64_t left = WN_PANEL - at % WN_PANEL;
    return n < left ? n : left;
}

int32_t wn__gemm_f32(const struct wn__gemm *p);

/* ---- what the f32 and the bf16 driver share (gemm/partition.c) --------------------------------------------- */
/* Where matrix `batch` starts in a and in b, in matrices. */
void wn__gemm_offsets(const struct wn__gemm *p, int64_t batch, int64_t offset[2]);

#define WN_GEMM_SMALL 16384 /* multiply-adds not worth a thread */

/* A batch cut into tasks: each matrix into row_parts x column_parts, at multiples of the two units; columns that lie in
 * panels are cut at panels. */
struct wn__gemm_partition {
    int64_t row_unit, column_unit, row_parts, column_parts;
    int64_t tasks, grain; /* of parallel_for */
};
struct wn__gemm_part {
    int64_t batch, offset[2]; /* the matrix; where a and b stand, in matrices */
    int64_t row0, row1, column0, column1;
};
/* Where k is short a thread's outputs are rows of their own up to so many times as many columns: 1024 x 1024 x 32 in
 * bf16 took 0.93-0.98 of the time then, in f32 0.98-0.995; with 16 times as many columns 1.02-1.04. */
#define WN_GEMM_SMALL_K_TALL 4
/* As many parts as threads ask for: first along the longer side, whose micro-panels are packed once a part; a row
 * counts as row_weight columns. */
struct wn__gemm_partition wn__gemm_partition(const struct wn__gemm *p, int64_t row_unit, int64_t column_unit,
                                             int64_t row_weight);
/* What task number `task` makes; 0: nothing. */
int32_t wn__gemm_part(const struct wn__gemm *p, const struct wn__gemm_partition *partition, int64_t task,
                      struct wn__gemm_part *out);
/* p's elementwise op, if it has one, over rows [row0, row1), columns [column, column + n) of a matrix just made. */
void wn__gemm_epilogue(const struct wn__gemm *p, int64_t batch, int64_t row0, int64_t row1, int64_t column, int64_t n);
struct wn__gemm_microtile;
/* Lets a tile whose rows of a lie along memory touch them WN_GEMM_PREFETCH_WORDS words before it needs them, then
 * those of the tile after it, which begin at `next`. */
void wn__gemm_prefetch_rows(struct wn__gemm_microtile *t, const float *next);
int32_t wn__gemm_bf16(const struct wn__gemm *p); /* a, b, bias, c are bf16 */

#define WN_GEMM_B_FLOATS 6144 /* a packed micro-panel */
#define WN_GEMM_KC 128        /* k steps a packed micro-panel holds; 96: 0-3 % less, 64: 1-8 % */
#define WN_GEMM_NEAR_STEPS 16 /* k steps that touch ahead in one row of what is needed next */
#define WN_GEMM_FAR_STEPS 4   /* ... when it is to come no nearer than the second cache */
#define WN_GEMM_FAR_STEPS_BF16 2
#define WN_GEMM_PREFETCH_WORDS 160 /* words prefetched along a row; 256: 0-3 % less */
#define WN_GEMM_MR_MAX 8
#define WN_GEMM_NR_MAX 48

/* What a tile is asked. The micro-panel of b is padded with zeros to a multiple of 16 columns, unless `copy` is set. */
struct wn__gemm_microtile {
    int64_t kc; /* k steps: 0..WN_GEMM_KC */
    const float *a;
    int64_t ai, ak; /* a(i, k) = a[i * ai + k * ak], i < m */
    const float *b;
    int64_t bk;  /* b(k, j) = b[k * bk + j]; a multiple of 16, and b 64-byte aligned, unless `copy` is set */
    float *copy; /* NULL, or: b lies in place, n columns wide; leave the packed micro-panel (kc, nr) here */
    float *c;    /* (m, n) sums, rows ldc apart; m <= mr, n <= nr */
    int64_t ldc, m, n;
    float *out; /* NULL, or: where the sums go instead, rows out_ld apart */
    int64_t out_ld;
    const float *bias;     /* (n) added last, or NULL */
    const float *row_bias; /* (m) added last, or NULL */
    int32_t first;         /* start at zero instead of c */
    int32_t stream;        /* c is whole cache lines nobody reads soon: write past the caches */
    const char *prefetch;  /* memory that is needed next, prefetched once a k step: at ... */
    int64_t prefetch_step; /* ... ahead + k / steps * ahead_row + k % steps * ahead_step bytes, where steps */
    int64_t prefetch_row;  /* ... is one of the two above */
    int32_t prefetch_near; /* into the first cache, else the second */
    const char *
        prefetch_then; /* NULL, or: all rows of a are prefetched side by side (wn__gemm_prefetch_rows): at ahead + k / 8 * 32 + */
    int64_t prefetch_turn; /* ... k % 8 * ahead_row; from this step on (a multiple of 8) at ahead_then + ... instead */
    uint16_t *half;        /* bf16 only: NULL, or (m, n), rows half_ld apart: where the sums go, rounded, and ... */
    int64_t half_ld;
    const uint16_t *half_bias; /* ... (n) added before, or NULL; c is then only read */
};

/* sums (mr, nr) += a (kc, mr)^T b (kc, nr), all dense and packed, while rows of the next micro-panel are packed. */
struct wn__gemm_packing {
    int64_t kc, n; /* n: columns of b that matter; sums of other vectors are left as they are */
    const float *a, *b;
    float *sums;
    int32_t first;     /* start at zero instead of sums */
    int32_t every;     /* 1, 2 or 4 steps take one row along ... */
    int64_t rows;      /* ... up to this many; every * rows <= kc */
    const float *from; /* where they lie, next_n columns, rows bk apart ... */
    int64_t bk, next_n;
    float *next;           /* ... and go, (rows, nr), zeros beyond next_n */
    const float *prefetch; /* rows that are to be packed later: prefetched */
};

/* c (mr, n) = a (kc, mr)^T b (kc, n), dense and packed, for so many tiles: along a row of micro-panels, or down a
 * micro-panel. */
struct wn__gemm_macrotile {
    int64_t kc, n, tiles; /* n: 48; of bf16 32 too */
    const float *a, *b;
    void *c;
    int64_t a_step, b_step, c_step; /* words, words, elements from one tile to the next */
    int64_t ldc;                    /* elements from row to row of c */
    const void *then;               /* c of the tile that is made after the last */
    int32_t stream;                 /* as a tile's */
};

struct wn__gemm_kernel {
    int32_t mr, nr; /* nr: a multiple of 16 */
    void (*microkernel)(const struct wn__gemm_microtile *t);
    /* A tile whose rows of a (mr of them, along memory) go on in `panels` whole panels, `apart` words from one to the
     * next; kc is not asked. t->n is a multiple of 16. Prefetched: as much as it reads, from `ahead` on. Or NULL. */
    void (*panels_kernel)(const struct wn__gemm_microtile *t, int64_t panels, int64_t apart);
    /* to[j * ldt + i] = x[i * ldx + j], i < m, j < n. Writes nothing else. */
    void (*transpose)(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt);
    void (*packing_kernel)(const struct wn__gemm_packing *t); /* or NULL */
    void (*macrokernel)(const struct wn__gemm_macrotile *t);  /* or NULL */
};

/* ---- ways that are the same for every element ------------------------------------------------------------- */

/* What such a way needs to know of the element. Steps are words. nr divides WN_PANEL where b's columns or c's are in
 * panels; sweep takes micro-panels of nr columns. */
struct wn__gemm_variant {
    const struct wn__gemm *p;
    const void *job;           /* of whoever asks */
    int64_t mr, nr, per, size; /* columns of a micro-panel; steps of k in a word; bytes of an element */
    int32_t direct;            /* tiles read b's panels where they lie */
    void (*packing_kernel)(const struct wn__gemm_packing *t);
    void (*macrokernel)(const struct wn__gemm_macrotile *t);
    void (*microkernel)(const struct wn__gemm_microtile *t);
    /* Rows of A in groups: (group, steps, mr), from step k on. */
    void (*pack_a)(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, int64_t k, int64_t steps,
                   float *to);
    /* n columns of B: (steps, nr), zeros beyond n. ld: b's stride that is not 1, as it is there. */
    void (*pack_b)(const struct wn__gemm_variant *w, const float *b, int64_t ld, int64_t n, int64_t steps, float *to);
    void (*store)(const float *sums, const void *bias, int64_t n, void *c);      /* bias: (n) or NULL */
    void (*set_output)(struct wn__gemm_microtile *t, void *c, const void *bias); /* where a tile's outputs go */
};

#define WN_GEMM_SMALL_M 64 /* rows of A up to which it pays to read B once, as it lies */
/* gemm/small_m.c. part: at most WN_GEMM_SMALL_M rows; p->bj is 1, p->k a multiple of per and not 0; carry, or b in
 * panels and direct. */
void wn__gemm_small_m(const struct wn__gemm_variant *w, const struct wn__gemm_part *part);
/* gemm/small_k.c. p->k: at most WN_GEMM_SMALL_K steps, and not 0; no map. stream: as a tile's. */
#define WN_GEMM_SMALL_K 64
void wn__gemm_small_k(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, int32_t stream);

const struct wn__gemm_kernel *wn__gemm_best(void); /* what this machine runs fastest */
const struct wn__gemm_kernel *wn__gemm_plain(void);
const struct wn__gemm_kernel *wn__gemm_avx2(void);   /* NULL when this machine has none */
const struct wn__gemm_kernel *wn__gemm_avx512(void); /* NULL when this machine has none */

/* ---- bf16 (gemm/bf16.c) ---------------------------------------------------------------------------- */

/* Operands are packed into words of 32 bits, `per` steps of k each: a pair of bf16, or one of them as a float. The
 * tile is asked as for floats, in words; c is f32 sums, `half` only where per is 2. */
struct wn__gemm_bf16_kernel {
    int32_t mr, nr, per;
    void (*microkernel)(const struct wn__gemm_microtile *t);
    /* Strips of `width` rows of x, each (steps, width) words: word (s, i) is x(i, k) = x[i * xi + k * xk] for the k of
     * step s; zeros for i beyond rows and beyond k. One of xi, xk is 1. */
    void (*pack)(const uint16_t *x, int64_t xi, int64_t xk, int64_t rows, int64_t k, int64_t width, float *to);
    void (*packing_kernel)(const struct wn__gemm_packing *t); /* or NULL; b's rows of a step: bk halves apart */
    void (*macrokernel)(const struct wn__gemm_macrotile *t);  /* or NULL */
    void (*panels_kernel)(const struct wn__gemm_microtile *t, int64_t panels,
                          int64_t apart); /* as that of f32; or NULL */
    /* As tile, of a whole panel where it lies: b's rows dense, 48 columns, a packed; line k at ahead is prefetched
     * in step k. Or NULL. */
    void (*panel)(const struct wn__gemm_microtile *t);
};

const struct wn__gemm_bf16_kernel *wn__gemm_bf16_avx512(void); /* NULL when this machine has none */

const char *wn__gemm_name(void); /* what the products of this machine are made of, in words */
#endif
