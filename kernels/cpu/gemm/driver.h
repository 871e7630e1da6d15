/* The driver of products inside: one driver for all element types, over one struct of what differs between them
 * (struct wn__gemm_words). gemm.h has the terms and the pictures.
 *
 * Micro-kernels count words of 32 bits. How a word comes from elements:
 *
 *     f32            a word is an element; operands are read in place
 *     bf16, pairs    a word is two steps of k; operands are read in place where k is even
 *     bf16, widened  a word is one element that packing converts to f32; nothing is read in place
 *
 * The sum over k of an output is the same in all variants; each says in its file what it is for. */
#ifndef WN_CPU_GEMM_DRIVER_H
#define WN_CPU_GEMM_DRIVER_H
#include "gemm.h"
#include "../backend/tuning.h"

/* Block sizes and limits of an element type. */
struct wn__gemm_blocks {
    int64_t part_columns; /* columns of a part are a multiple */
    /* general */
    int64_t column_unit;      /* columns of a block are a multiple */
    int64_t width_unit;       /* columns of a micro-panel are a multiple */
    int32_t epilogue_by_tile; /* 1: the op over c runs after each micro-tile; 0: in longer runs, after each block */
    int64_t transposed_kc;    /* of transposed: most words of k of a k-block */
    /* small m, small k */
    int64_t small_m_least;   /* least rows of small m */
    int64_t small_k;         /* most k of small k */
    int64_t small_k_outputs; /* least outputs of small k */
    int64_t small_k_columns; /* of a micro-panel of small k */
    int64_t stream_share;    /* small k streams 4-byte outputs of so many times wn__tuning.product_stream; 0: never */
};
/* Block sizes of all types; those of buffers on the stack follow from them. */
#define WN_GEMM_KC_PANELS 144   /* words of k of a k-block where k runs along panels. Measured: 120: up to 1.03x time */
#define WN_GEMM_ROWS_PACKED 128 /* most rows of a block whose a is packed */
#define WN_GEMM_ROWS_DIRECT 192 /* least rows with which a is read in place */
#define WN_GEMM_A_MAX (WN_GEMM_ROWS_PACKED * WN_GEMM_KC_PANELS)
#define WN_GEMM_B_MAX (WN_GEMM_KC_PANELS * WN_GEMM_NR_MAX)
#define WN_GEMM_TRANSPOSED_ROWS 64     /* most rows of the variant transposed */
#define WN_GEMM_TRANSPOSED_SUMS 8192   /* words of its sums. Measured: 32768: the same */
#define WN_GEMM_BLOCK_MOST (256 << 10) /* bytes of wn__tuning.product_block that the most below are for */
#define WN_GEMM_ROWS_TALL_MAX 512      /* rows of a block whose a is read in place */
#define WN_GEMM_OUTPUTS_MAX 49152      /* of a block. Measured: 24576: the same */
/* Words of packed a' of transposed, in the second-level cache. Measured: k-blocks of 128: 15-20 % slower. */
#define WN_GEMM_TRANSPOSED_PACKED_MAX 65536
#define WN_GEMM_WIDENED_MAX 6144 /* words of rows of b that the variant transposed widens */
#define WN_GEMM_SMALL_M 64       /* most rows of a with which it pays to read b once, in place */
#define WN_GEMM_SMALL_K 64       /* of small_k */

/* Holds all that differs between element types. */
struct wn__gemm_words {
    const struct wn__gemm_kernel *kernel;
    const struct wn__gemm_blocks *blocks;
    int64_t per;             /* steps of k in a word */
    int64_t size;            /* bytes of an element */
    int32_t in_place;        /* an operand in memory consists of words */
    int32_t is_panel_packed; /* a panel of b whose columns are in panels is a packed micro-panel */
    /* Packs rows of an operand. */
    void (*pack)(const struct wn__gemm_words *w, const struct wn__gemm_rows *x, float *to);
    /* A micro-kernel over whole panels of b in place (struct wn__gemm_bf16_kernel); or NULL. */
    void (*panel)(const struct wn__gemm_microtile *t);
    /* c: (n) = sums + bias, rounded to the element; bias: (n), or NULL. */
    void (*store)(const float *sums, const void *bias, int64_t n, void *c);
    /* Makes the micro-kernel write the finished micro-tile to c, rows ld elements apart, and add bias. NULL: it writes
     * sums, and `store` makes c of them. */
    void (*set_output)(struct wn__gemm_microtile *t, void *c, int64_t ld, const void *bias);
};

/* The tasks of a batch. Each matrix of c is divided into row_parts x column_parts parts, at multiples of row_unit rows
 * and column_unit columns; columns in panels are divided between panels. */
struct wn__gemm_partition {
    int64_t row_unit, column_unit;   /* rows, columns */
    int64_t row_parts, column_parts; /* of each matrix */
    int64_t tasks, grain;            /* arguments of wn__parallel_tasks */
};
/* The outputs of one task, or of a block of it: rows [row0, row1) and columns [column0, column1) of one matrix of c. */
struct wn__gemm_part {
    int64_t batch, offset[2]; /* the matrix of c; those of a and of b */
    int64_t row0, row1, column0, column1;
};

/* One product, for all its tasks. */
struct wn__gemm_job {
    const struct wn__gemm *p;
    struct wn__gemm_words words;
    struct wn__gemm_partition partition;
    int64_t rows_tall, outputs, transposed_packed; /* block sizes for this machine, at most WN_GEMM_.._MAX */
    int32_t in_place;                              /* operands are read in place: no word crosses the end of k */
    int32_t small_k;                               /* parts of many rows use small k */
    int32_t stream;                                /* small k stores c non-temporally */
};

/* Returns a(part->row0, k). */
static inline const char *wn__gemm_a(const struct wn__gemm_job *w, const struct wn__gemm_part *part, int64_t k)
{
    const struct wn__gemm *p = w->p;
    return (const char *)p->a + (part->offset[0] * p->m * p->k + part->row0 * p->ai + k * p->ak) * w->words.size;
}

/* Returns b(k, column) of the part's matrix; *ld is that of wn__gemm_b_at. */
static inline const char *wn__gemm_b(const struct wn__gemm_job *w, const struct wn__gemm_part *part, int64_t k,
                                     int64_t column, int64_t *ld)
{
    return (const char *)w->p->b + wn__gemm_b_at(w->p, part->offset[1], k, column, ld) * w->words.size;
}

/* Returns c(row, column) of the part's matrix; *ld is that of wn__gemm_c_at. */
static inline char *wn__gemm_c(const struct wn__gemm_job *w, const struct wn__gemm_part *part, int64_t row,
                               int64_t column, int64_t *ld)
{
    return (char *)w->p->c + wn__gemm_c_at(w->p, part->batch, row, column, ld) * w->words.size;
}

/* Returns bias(column), NULL without a bias. */
static inline const void *wn__gemm_bias(const struct wn__gemm_job *w, int64_t column)
{
    return w->p->bias ? (const char *)w->p->bias + column * w->words.size : NULL;
}

/* Returns whether columns are in panels, those of b in a forward or those of c in dW; a micro-panel is then (a part of)
 * a panel. */
static inline int32_t wn__gemm_column_panels(const struct wn__gemm *p)
{
    return (p->b_panels && p->bj == 1) || p->c_panels;
}

/* Returns the columns of a micro-panel of small k. */
static inline int64_t wn__gemm_small_k_width(const struct wn__gemm_job *w)
{
    const int64_t most = wn__gemm_column_panels(w->p) ? WN_PANEL : w->words.blocks->small_k_columns;
    return most < w->words.kernel->nr ? most : w->words.kernel->nr;
}

/* Converts n elements of bf16. */
static inline void wn__gemm_widen(float *restrict to, const uint16_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = wn_from_bf16(from[i]);
}

/* Packs words [k, k + kc) of all rows of a part of a: to (groups of `width` rows, kc, width), zeros beyond the rows. */
void wn__gemm_pack_a(const struct wn__gemm_job *w, const struct wn__gemm_part *part, int64_t k, int64_t kc,
                     int64_t width, float *to);
/* A micro-panel of b: words [k, k + kc), n columns from `column` on, in rows of `width` words. */
struct wn__gemm_micropanel {
    int64_t k, kc, column, n, width;
};
/* Packs a micro-panel of b: to (kc, width), zeros beyond n. */
void wn__gemm_pack_b(const struct wn__gemm_job *w, const struct wn__gemm_part *part,
                     const struct wn__gemm_micropanel *m, float *to);

/* Returns a partition with a part for each thread: first along the longer side of c, whose micro-panels are then packed
 * once a part. A row counts as row_weight columns. */
struct wn__gemm_partition wn__gemm_partition(const struct wn__gemm *p, int64_t row_unit, int64_t column_unit,
                                             int64_t row_weight);
/* Writes the outputs of task number `task` to *out; returns 0 where it has none. */
int32_t wn__gemm_part(const struct wn__gemm *p, const struct wn__gemm_partition *partition, int64_t task,
                      struct wn__gemm_part *out);

/* The variants; each computes a part of c, with its epilogue.
 *   general      any part
 *   transposed   requires bk = 1, k > 0, c not in panels, and at most WN_GEMM_TRANSPOSED_ROWS rows
 *   small_m      requires in_place, bj = 1, k > 0, at most WN_GEMM_SMALL_M rows, and a packing_kernel, or b in panels
 *                and is_panel_packed
 *   small_k      requires 0 < k <= WN_GEMM_SMALL_K and no epilogue */
void wn__gemm_general(const struct wn__gemm_job *w, const struct wn__gemm_part *part);
void wn__gemm_transposed(const struct wn__gemm_job *w, const struct wn__gemm_part *part);
void wn__gemm_small_m(const struct wn__gemm_job *w, const struct wn__gemm_part *part);
void wn__gemm_small_k(const struct wn__gemm_job *w, const struct wn__gemm_part *part);

/* Return what a driver needs to know of f32, and of bf16. */
struct wn__gemm_words wn__gemm_words_f32(void);
struct wn__gemm_words wn__gemm_words_bf16(void);
#endif
