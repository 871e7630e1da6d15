/* The driver of bf16 products: the variants of gemm.c over words of 32 bits. A word is a pair of steps of k where this
 * processor multiplies pairs, else a float that packing converted, for the f32 micro-kernel.
 *
 * Sums are f32 over all of k, in a buffer on the stack of the thread (320 KiB with the packed operands), and are
 * rounded to bf16 once, after bias; no partial sum is ever bf16. So a block of outputs is complete before the next one
 * begins, and k runs inside. Blocks of `general` are tall where a is read in place, and flat where it is packed. The
 * chain over k of an output depends on k alone, so the bits depend on neither partition nor number of threads.
 *
 * A weight in panels (gemm.h): a panel is in the order of f32, not in pairs of k.
 * Forward: general, whatever the rows. Where a is packed, kernel.panel makes the pairs from a whole panel in place.
 * Measured, against plain weights, 1 to 128 rows: 0.85-1.08x time; packed by the first micro-tile 1.0-2.1x; small m
 * 1.04-1.2x.
 * dX: k has 48 steps a panel. Few rows: transposed, and kernel.panels_kernel goes on from panel to panel; more rows:
 * micro-panels are packed one panel at a time.
 * Measured, against plain weights: 0.85-0.99x time; a micro-tile of one panel at a time 1.6x. */
#include <stddef.h>
#include <string.h>
#include "gemm.h"
#include "../micro.h"
#include "../nontemporal.h"
#include "../../../runtime/base/number.h"

/* Each limit says its unit, then what was measured with another value. */
#define STEPS WN_GEMM_KC /* words of k of a packed micro-panel */
#define SUMS 49152       /* f32 sums of a block */
#define PANEL_STEPS 144  /* words of k of a packed micro-panel of dX: whole panels; 120: up to 1.03x time */
#define FLAT 128         /* most rows of a block whose a is packed */
#define A_WORDS (FLAT * PANEL_STEPS)
_Static_assert(PANEL_STEPS >= STEPS && PANEL_STEPS % WN_PANEL == 0, "buffers hold a stretch; it is of whole panels");
#define B_WORDS (PANEL_STEPS * WN_GEMM_NR_MAX)
#define TRANSPOSED_PACKED 65536 /* words of packed a', in the second-level cache; k-blocks of 128: 15-20 % slower */
#define TRANSPOSED_SUMS 8192    /* words of sums of transposed; 32768: the same */
#define TRANSPOSED_ROWS 64      /* most rows of the variant transposed */
#define SMALL_M_LEAST 16        /* least rows of small m; 8: 1.1-1.5x time */
#define DIRECT_ROWS 192         /* least rows with which a is read in place */
#define TALL 512                /* most rows of a block whose a is read in place */
#define LINE 32                 /* columns of a part are a multiple; 96: parts of 1024 columns differed by 13 % */
#define BLOCK_UNIT 96           /* columns of a block are a multiple: two micro-panels, three cache lines of c */
#define SMALL_K 32              /* most k of small k; 64: its narrower micro-panels cost 10 % */
#define SMALL_K_LEAST (1 << 14) /* least outputs of small k; fewer: no difference */
#define SMALL_K_WIDTH 32        /* columns of a micro-panel of small k: a cache line of a row of c */
#define STREAM_LEAST (1 << 22)  /* least outputs of small k that are stored non-temporally */

struct job {
    const struct wn__gemm *p;
    const struct wn__gemm_bf16_kernel *kernel;
    struct wn__gemm_partition partition;
    int32_t in_place; /* k is a multiple of kernel->per, so a word never crosses the end of k */
    int32_t small_k;  /* parts of many rows use small k */
    int32_t stream;   /* small k stores c non-temporally */
};

/* A block of outputs: rows [row0, row1) and columns [column0, column1) of matrix number `batch` of c. */
struct block {
    const uint16_t *a, *b;
    uint16_t *c;
    int64_t batch, row0, row1, column0, column1;
};

/* ---- panels -------------------------------------------------------------------------------------- */

/* Returns b(k, column) of the block's matrix; *ld is that of wn__gemm_b_at. */
static const uint16_t *b_at(const struct job *w, const struct block *q, int64_t k, int64_t column, int64_t *ld)
{
    return q->b + wn__gemm_b_at(w->p, 0, k, column, ld);
}

static uint16_t *c_at(const struct job *w, const struct block *q, int64_t row, int64_t column, int64_t *ld)
{
    return q->c + wn__gemm_c_at(w->p, 0, row, column, ld);
}

/* Returns whether columns are in panels, those of b in a forward or those of c in dW; a micro-panel is then (a part of)
 * a panel. */
static int32_t column_panels(const struct wn__gemm *p)
{
    return (p->b_panels && p->bj == 1) || p->c_panels;
}

/* Returns the words of which a k-block is a multiple: a panel where k runs along panels (dX), else 16. */
static int64_t k_unit(const struct job *w)
{
    return w->p->b_panels && w->p->bk == 1 ? WN_PANEL / w->kernel->per : 16;
}

/* Computes c[j] = sums[j] + bias[j], rounded once; bias: (n), or NULL. */
static void round_row(const float *sums, const uint16_t *bias, int64_t n, uint16_t *c)
{
    if (bias)
        for (int64_t j = 0; j < n; j++) c[j] = wn_to_bf16(sums[j] + wn_from_bf16(bias[j]));
    else
        for (int64_t j = 0; j < n; j++) c[j] = wn_to_bf16(sums[j]);
}

/* ---- transposed ---------------------------------------------------------------------------------- */

/* Packs a' of words [k, k + kc): micro-panel s, (kc, width), at packed + s * kc * width, zeros beyond the rows. */
static void pack_transposed(const struct job *w, const struct block *q, int64_t k, int64_t kc, int64_t width,
                            float *packed)
{
    const struct wn__gemm *p = w->p;
    int64_t per = w->kernel->per;
    w->kernel->pack(q->a + q->row0 * p->ai + k * per * p->ak, p->ai, p->ak, q->row1 - q->row0, kc * per, width, packed);
}

/* Writes sums: (n, rows), rows `wide` words apart, transposed and rounded, to columns [column, column + n) of c. */
static void finish_transposed(const struct job *w, const struct block *q, const float *sums, int64_t wide,
                              int64_t column, int64_t n)
{
    float transposed[TRANSPOSED_SUMS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    int64_t rows = q->row1 - q->row0;
    wn__micro.gemm->transpose(sums, wide, n, rows, transposed, n);
    const uint16_t *bias = p->bias ? (const uint16_t *)p->bias + column : NULL;
    for (int64_t i = 0; i < rows; i++) round_row(transposed + i * n, bias, n, q->c + (q->row0 + i) * p->n + column);
    wn__gemm_epilogue(p, q->batch, q->row0, q->row1, column, n);
}

/* A k-block of columns [column, column + n), from word k on: sums: (n, ldc) += b' a'. */
struct transposed {
    const struct job *w;
    const struct block *q;
    int64_t column, n, k;
    int64_t width, apart; /* rows of a in a micro-panel of packed; words from one micro-panel to the next */
    int64_t ldc;
    const float *packed;
    float *sums;
    const uint16_t *next; /* where b is read after this k-block */
};

/* Adds words [k, k + kc), within which rows of b are contiguous, to columns column + from and after. */
static void run_transposed_piece(const struct transposed *o, int64_t k, int64_t kc, int64_t from)
{
    const struct job *w = o->w;
    int64_t mr = w->kernel->mr, ld;
    const float *b = (const float *)(const void *)b_at(w, o->q, k * w->kernel->per, o->column, &ld);
    struct wn__gemm_microtile t = {.kc = kc, .ak = 1, .bk = o->width, .n = o->width, .ldc = o->ldc, .first = k == 0};
    t.ai = ld / w->kernel->per;
    for (int64_t i = from; i < o->n; i += mr) {
        t.m = wn_min(o->n - i, mr);
        t.a = b + i * t.ai;
        wn__gemm_prefetch_rows(&t, i + mr < o->n ? t.a + mr * t.ai : (const float *)(const void *)o->next);
        for (int64_t row = 0; row < o->ldc; row += o->width) {
            t.b = o->packed + row / o->width * o->apart + (k - o->k) * o->width;
            t.c = o->sums + i * o->ldc + row;
            w->kernel->microkernel(&t);
        }
    }
}

/* Adds `panels` whole panels, each micro-tile over all of them; returns the number of columns done: whole
 * micro-tiles. */
static int64_t run_panels_kernel(const struct transposed *o, int64_t panels)
{
    const struct job *w = o->w;
    int64_t mr = w->kernel->mr, ld, n = o->n / mr * mr;
    const float *b = (const float *)(const void *)b_at(w, o->q, o->k * w->kernel->per, o->column, &ld);
    struct wn__gemm_microtile t = {.m = mr, .n = o->width, .bk = o->width, .ldc = o->ldc, .first = o->k == 0};
    ld /= w->kernel->per;
    for (int64_t i = 0; i < n; i += mr) {
        t.a = b + i * ld;
        t.prefetch = (const char *)(i + mr < n ? t.a + mr * ld : (const float *)(const void *)o->next);
        for (int64_t row = 0; row < o->ldc; row += o->width) {
            t.b = o->packed + row / o->width * o->apart;
            t.c = o->sums + i * o->ldc + row;
            w->kernel->panels_kernel(&t, panels, w->p->n * ld);
        }
    }
    return n;
}

/* Adds kc words in panels: whole panels together, then the columns and steps that are left. */
static void run_transposed_panels(const struct transposed *o, int64_t kc)
{
    int64_t run = k_unit(o->w), whole = o->w->kernel->panels_kernel ? kc / run : 0,
            done = whole ? run_panels_kernel(o, whole) : 0;
    for (int64_t at = 0; at < kc; at += run) {
        int64_t from = at < whole * run ? done : 0;
        run_transposed_piece(o, o->k + at, wn_min(kc - at, run), from);
    }
}

static void run_transposed_part(const struct job *w, const struct block *q, int64_t column, int64_t n, int64_t width)
{
    float packed[TRANSPOSED_PACKED] __attribute__((aligned(64)));
    float sums[TRANSPOSED_SUMS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    int64_t per = w->kernel->per, words = p->k / per, wide = wn_round_up(q->row1 - q->row0, width), ld;
    int64_t step = TRANSPOSED_PACKED / wide / k_unit(w) * k_unit(w);
    struct transposed o = {w, q, column, n, 0, width, 0, wide, packed, sums, NULL}; /* zeros beyond the rows */
    for (; o.k < words; o.k += step) {
        int64_t kc = wn_min(words - o.k, step), last = o.k + kc == words;
        pack_transposed(w, q, o.k, kc, width, packed);
        o.apart = kc * width;
        o.next = b_at(w, q, last ? 0 : (o.k + kc) * per, last ? column + n : column, &ld);
        if (p->b_panels) run_transposed_panels(&o, kc);
        else run_transposed_piece(&o, o.k, kc, 0);
    }
    finish_transposed(w, q, sums, wide, column, n);
}

static void run_transposed(const struct job *w, const struct block *q)
{
    int64_t rows = q->row1 - q->row0, micropanels = (rows + w->kernel->nr - 1) / w->kernel->nr;
    int64_t width = wn_round_up((rows + micropanels - 1) / micropanels, 16);
    int64_t step = TRANSPOSED_SUMS / (micropanels * width) / w->kernel->mr * w->kernel->mr;
    for (int64_t column = q->column0; column < q->column1; column += step)
        run_transposed_part(w, q, column, wn_min(q->column1 - column, step), width);
}

/* ---- what small_m.c and small_k.c call ----------------------------------------------------------- */

static void pack_variant_a(const struct wn__gemm_variant *f, const struct wn__gemm_part *t, int64_t k, int64_t steps,
                           float *to)
{
    const struct wn__gemm *p = f->p;
    const struct job *w = f->job;
    const uint16_t *a = (const uint16_t *)p->a + t->offset[0] * p->m * p->k + t->row0 * p->ai + k * f->per * p->ak;
    int64_t n = wn_min(p->k - k * f->per, steps * f->per);
    w->kernel->pack(a, p->ai, p->ak, t->row1 - t->row0, n, f->mr, to);
}

static void pack_variant_b(const struct wn__gemm_variant *f, const float *b, int64_t ld, int64_t n, int64_t steps,
                           float *to)
{
    const struct wn__gemm *p = f->p;
    const struct job *w = f->job;
    int64_t bj = p->bk == 1 ? ld : 1, bk = p->bk == 1 ? 1 : ld;
    w->kernel->pack((const uint16_t *)(const void *)b, bj, bk, n, wn_min(p->k, steps * f->per), f->nr, to);
}

static void store_variant(const float *sums, const void *bias, int64_t n, void *c)
{
    round_row(sums, bias, n, c);
}

static void set_output(struct wn__gemm_microtile *t, void *c, const void *bias)
{
    t->half = c;
    t->half_bias = bias;
}

/* ---- general ------------------------------------------------------------------------------------- */

/* The prefetches that the micro-tiles of a k-block request. */
struct prefetch {
    const uint16_t *micropanel; /* the next micro-panel of b */
    const uint16_t *rows;       /* the next k-block of a where it will be packed, else NULL */
    int64_t tiles;              /* number of micro-tiles that share the micro-panel */
    int64_t parts, given;       /* parts of `rows`: two lines of a quarter of its steps; given: prefetched already */
};

/* Requests two neighbouring cache lines in each row of a quarter of the k-block. */
static void prefetch_rows(const struct job *w, const uint16_t *from, int64_t row, int64_t quarter,
                          struct wn__gemm_microtile *t)
{
    t->prefetch = (const char *)(from + quarter * (t->kc * w->kernel->per / 4) * row);
    t->prefetch_row = row * 2;
    t->prefetch_step = 64;
    t->prefetch_near = 0;
}

/* Requests share i of the next micro-panel: a quarter; of a dense panel, a line a step; of dX, a panel. */
static void prefetch_micropanel(const struct job *w, const uint16_t *micropanel, int64_t i,
                                struct wn__gemm_microtile *t)
{
    const struct wn__gemm *p = w->p;
    if (p->b_panels) prefetch_rows(w, micropanel + i * (p->bj == 1 ? t->kc * 32 : p->n * WN_PANEL), 64, 0, t);
    else if (p->bk == 1) prefetch_rows(w, micropanel + i * (t->kc * w->kernel->per / 4), p->bj, 0, t);
    else prefetch_rows(w, micropanel, p->bk, i, t);
}

/* Requests the prefetches of micro-tile i: the next micro-panel of b, then the next k-block of a, then its next
 * rows. */
static void prefetch_next(const struct job *w, struct prefetch *to, int64_t i, struct wn__gemm_microtile *t)
{
    const struct wn__gemm *p = w->p;
    if (i < to->tiles) {
        prefetch_micropanel(w, to->micropanel, i, t);
    } else if (to->rows && to->given < to->parts) {
        prefetch_rows(w, to->rows + (to->given >> 2) * 64, p->ak, to->given & 3, t);
        to->given++;
    } else {
        t->prefetch = (const char *)(t->a + w->kernel->mr * t->ai);
        t->prefetch_row = t->ak == 1 ? t->ai * (int64_t)sizeof(float) : 64;
        t->prefetch_step = t->ak == 1 ? t->kc / 4 : 0;
        t->prefetch_near = 1;
    }
}

/* Packs words [k, k + kc) of n columns of b: to (kc, width). */
static void pack_micropanel(const struct job *w, const struct block *q, int64_t k, int64_t kc, int64_t column,
                            int64_t n, int64_t width, float *to)
{
    const int32_t transposed = w->p->bk == 1;
    int64_t per = w->kernel->per, whole = w->p->b_panels && transposed ? k_unit(w) : kc, ld;
    for (int64_t end = k + kc; k < end; k += whole, to += whole * width) {
        const uint16_t *b = b_at(w, q, k * per, column, &ld);
        w->kernel->pack(b, transposed ? ld : 1, transposed ? 1 : ld, n, wn_min(w->p->k - k * per, whole * per), width,
                        to);
    }
}

/* Returns whether kernel.panel reads the micro-panel, a whole panel, in place: in pieces as long as the packed a.
 * Measured: pieces of 128 words, which stay in the first-level cache: 1.05-1.09x time (32 x 4096 x 4096). */
static int32_t lies_whole(const struct job *w, const struct wn__gemm_microtile *t)
{
    return w->in_place && w->kernel->panel && w->p->b_panels && w->p->bk != 1 && t->n == WN_PANEL && t->ak != 1;
}

/* Multiplies all rows of a block by words [k, k + t.kc) of one micro-panel of b; t: where a and the sums are. */
static void run_micropanel(const struct job *w, const struct block *q, int64_t k, int64_t column, int64_t width,
                           int64_t group, struct prefetch *prefetch, float *packed, struct wn__gemm_microtile t)
{
    const struct wn__gemm *p = w->p;
    int64_t mr = w->kernel->mr, nr = w->kernel->nr, per = w->kernel->per, rows = q->row1 - q->row0, ld;
    int32_t copy = w->in_place && p->bk != 1, half = per > 1 && k + t.kc == (p->k + per - 1) / per;
    int32_t lies = lies_whole(w, &t);
    const float *b = (const float *)(const void *)b_at(w, q, k * per, column, &ld);
    uint16_t *c = c_at(w, q, q->row0, column, &t.half_ld);
    const float *a = t.a;
    float *sums = t.c;
    t.first = k == 0;
    t.half_bias = p->bias ? (const uint16_t *)p->bias + column : NULL;
    if (!copy) pack_micropanel(w, q, k, t.kc, column, t.n, width, packed);
    for (int64_t i = 0; i < rows; i += mr) {
        t.copy = copy && !lies && i == 0 ? packed : NULL; /* the first micro-tile packs b */
        t.b = t.copy || lies ? b : packed;
        t.bk = t.copy ? ld : copy ? nr : width;
        t.a = a + i / mr * group;
        t.c = sums + i * t.ldc;
        t.half = half ? c + i * t.half_ld : NULL;
        t.m = wn_min(rows - i, mr);
        prefetch_next(w, prefetch, i / mr, &t);
        (lies ? w->kernel->panel : w->kernel->microkernel)(&t);
    }
}

/* Computes words [k, k + kc) of a block, one micro-panel of b after the other, in pieces of t.kc words. */
static void run_micropanels(const struct job *w, const struct block *q, int64_t k, int64_t kc,
                            struct wn__gemm_microtile t)
{
    float packed_b[B_WORDS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    int64_t nr = w->kernel->nr, per = w->kernel->per, rows = q->row1 - q->row0, columns = q->column1 - q->column0;
    int64_t micropanels = (columns + nr - 1) / nr,
            width = column_panels(p) ? nr : wn_round_up((columns + micropanels - 1) / micropanels, 16);
    int64_t group = w->kernel->mr * (t.ak == 1 ? t.ai : kc); /* words from the rows of a of a micro-tile to the next */
    int64_t end = k + kc, most = t.kc, ld;
    const int32_t last = end * per >= p->k;
    const float *a = t.a;
    float *sums = t.c;
    struct prefetch prefetch = {.tiles = 4, .parts = 4 * (rows / 64 + 1)};
    if (p->b_panels) prefetch.tiles = p->bj == 1 ? 3 : t.kc / k_unit(w);
    if (t.ak != 1 && p->ak != 1) prefetch.rows = q->a + q->row0 * p->ai + (last ? 0 : end * per) * p->ak;
    for (int64_t column = q->column0; column < q->column1; column += width) {
        t.n = wn_min(q->column1 - column, width);
        const int64_t piece = lies_whole(w, &t) ? kc : most;
        for (int64_t at = k; at < end || at == k; at += piece) {
            t.kc = wn_min(end - at, piece);
            prefetch.micropanel = b_at(w, q, (at + piece) * per, column, &ld);
            if (at + t.kc == end) prefetch.micropanel = b_at(w, q, k * per, column + width, &ld);
            if (at + t.kc == end && column + width >= q->column1)
                prefetch.micropanel = b_at(w, q, last ? 0 : end * per, last ? q->column1 : q->column0, &ld);
            t.a = a + (at - k) * t.ak;
            t.c = sums + column - q->column0;
            run_micropanel(w, q, at, column, width, group, &prefetch, packed_b, t);
        }
    }
}

/* Rounds the sums of a block to c, where the micro-kernel does not. */
static void round_block(const struct job *w, const struct block *q, const float *sums, int64_t ldc)
{
    const struct wn__gemm *p = w->p;
    int64_t rows = q->row1 - q->row0, width = p->c_panels ? WN_PANEL : q->column1 - q->column0, ld;
    for (int64_t column = q->column0; column < q->column1; column += width, sums += width) {
        uint16_t *c = c_at(w, q, q->row0, column, &ld);
        const uint16_t *bias = p->bias ? (const uint16_t *)p->bias + column : NULL;
        for (int64_t i = 0; i < rows; i++)
            round_row(sums + i * ldc, bias, wn_min(q->column1 - column, width), c + i * ld);
    }
}

static void run_block(const struct job *w, const struct block *q, int32_t direct)
{
    float sums[SUMS] __attribute__((aligned(64)));
    float packed_a[A_WORDS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    int64_t per = w->kernel->per, words = (p->k + per - 1) / per, k = 0, unit = k_unit(w);
    int64_t most = p->b_panels && p->bk == 1 ? PANEL_STEPS : STEPS;
    int64_t rows = q->row1 - q->row0, columns = q->column1 - q->column0, pieces = (words + most - 1) / most;
    int64_t piece = words ? wn_round_up((words + pieces - 1) / pieces, unit) : 1, step = piece;
    /* A panel is read along k for as long as the packed a lasts. */
    if (p->b_panels && p->bj == 1 && !direct) step = A_WORDS / wn_round_up(rows, w->kernel->mr) / piece * piece;
    struct wn__gemm_microtile t = {.c = sums, .ldc = wn_round_up(columns, 16), .kc = piece};
    t.ai = direct ? p->ai / per : 1;
    t.ak = direct ? 1 : w->kernel->mr;
    do { /* once where k = 0, too: c is then the bias, or zeros */
        const uint16_t *a = q->a + q->row0 * p->ai + k * per * p->ak;
        int64_t kc = wn_min(words - k, step);
        t.a = direct ? (const float *)(const void *)a : packed_a;
        if (!direct) w->kernel->pack(a, p->ai, p->ak, rows, wn_min(p->k - k * per, kc * per), w->kernel->mr, packed_a);
        run_micropanels(w, q, k, kc, t);
        k += kc;
    } while (k < words);
    if (per == 1) round_block(w, q, sums, t.ldc); /* pairs: the micro-kernel rounded */
}

static void run_general(const struct job *w, const struct block *q)
{
    const struct wn__gemm *p = w->p;
    int64_t mr = w->kernel->mr, rows = q->row1 - q->row0;
    int32_t direct = w->in_place && p->ak == 1 && rows >= DIRECT_ROWS;
    int64_t most = direct ? TALL : FLAT, parts = (rows + most - 1) / most;
    int64_t tall = wn_round_up((rows + parts - 1) / parts, mr);
    if (tall > most) tall = most / mr * mr;
    int64_t wide = SUMS / tall / BLOCK_UNIT * BLOCK_UNIT;
    for (int64_t row = q->row0; row < q->row1; row += tall)
        for (int64_t column = q->column0; column < q->column1; column += wide) {
            struct block part = *q;
            part.row0 = row;
            part.row1 = wn_min(row + tall, q->row1);
            part.column0 = column;
            part.column1 = wn_min(column + wide, q->column1);
            run_block(w, &part, direct);
            wn__gemm_epilogue(p, q->batch, part.row0, part.row1, part.column0, part.column1 - part.column0);
        }
}

/* ---- tasks --------------------------------------------------------------------------------------- */

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    const struct wn__gemm *p = w->p;
    const struct wn__gemm_variant small_m = {.p = p,
                                             .job = w,
                                             .mr = w->kernel->mr,
                                             .nr = w->kernel->nr,
                                             .per = w->kernel->per,
                                             .size = sizeof(uint16_t),
                                             .packing_kernel = w->kernel->packing_kernel,
                                             .macrokernel = w->kernel->macrokernel,
                                             .microkernel = w->kernel->microkernel,
                                             .pack_a = pack_variant_a,
                                             .pack_b = pack_variant_b,
                                             .store = store_variant,
                                             .set_output = set_output};
    struct wn__gemm_variant small_k = small_m;
    small_k.nr = column_panels(p) ? WN_PANEL : SMALL_K_WIDTH;
    for (int64_t task = begin; task < end; task++) {
        struct wn__gemm_part t;
        if (!wn__gemm_part(p, &w->partition, task, &t)) continue;
        struct block q = {.batch = t.batch, t.row0, t.row1, t.column0, t.column1};
        q.a = (const uint16_t *)p->a + t.offset[0] * p->m * p->k;
        q.b = (const uint16_t *)p->b + t.offset[1] * p->n * p->k;
        q.c = (uint16_t *)p->c + t.batch * p->m * p->n;
        const int64_t rows = q.row1 - q.row0;
        const int32_t in_place = w->in_place && !p->c_panels && p->k > 0,
                      is_small_m = rows >= SMALL_M_LEAST && rows <= WN_GEMM_SMALL_M;
        if (in_place && p->bk == 1 && rows <= TRANSPOSED_ROWS) run_transposed(w, &q);
        else if (in_place && p->bk != 1 && !p->b_panels && is_small_m) wn__gemm_small_m(&small_m, &t);
        else if (w->small_k) wn__gemm_small_k(&small_k, &t, w->stream);
        else run_general(w, &q);
    }
    if (w->stream) wn__stream_end();
}

int32_t wn__gemm_bf16(const struct wn__gemm *p)
{
    int64_t numel = p->batch * p->m * p->n;
    if (numel == 0) return WN_OK;
    struct wn__gemm_bf16_kernel kernel = wn__gemm_bf16_here();
    struct job w = {.p = p, .kernel = &kernel, .in_place = kernel.per > 1 && p->k % kernel.per == 0};
    w.small_k = kernel.per == 2 && !p->epilogue && p->k > 0 && p->k <= SMALL_K && p->m * p->n >= SMALL_K_LEAST;
    w.partition = wn__gemm_partition(p, kernel.mr, LINE, w.small_k ? WN_GEMM_SMALL_K_TALL : 1);
    /* c is written once and larger than the caches: a non-temporal store does not read its lines first. It needs whole
     * lines, one in each row of a micro-tile. */
    w.stream = w.small_k && (p->c_panels || (!column_panels(p) && p->n % SMALL_K_WIDTH == 0)) &&
               numel >= STREAM_LEAST && (uintptr_t)p->c % 64 == 0;
    wn__parallel_tasks(w.partition.tasks, w.partition.grain, run_tasks, &w);
    return WN_OK;
}
