/* The driver of f32 products: partitions a batch into tasks, one block of c each, and feeds the micro-kernel. gemm.h
 * has the terms and the pictures; the chain over k of an output is the same in all five variants:
 *
 *   general     micro-panels of b are packed once for all rows of a block; a is read in place, or packed where that is
 *               cheaper.
 *   in place    b has its columns along memory: the first micro-tile of a micro-panel packs it while it computes.
 *   transposed  few rows, b has k along memory (the forward of a layer): c' = b' a', so only a, the small operand, is
 *               packed, and b is read once, in place, in whole rows. Sums wait in a buffer and are transposed at last.
 *   small m     few rows, b has its columns along memory (dX of a layer): small_m.c.
 *   small k     many outputs of few steps of k (dW of a layer at a small batch): small_k.c.
 *
 * Panels. A panel of a forward is a packed micro-panel already and is read in place. For dX, general transposes a
 * micro-panel in pieces that end at panels; transposed reads the rows of all panels of a k-block side by side.
 * Measured: one panel after the other, 48 steps each, which loads and stores the sums more often: 1.3x time (32 x 4096
 * x 4096).
 *
 * Blocks. General and in place compute all of k for as many outputs as the second-level cache holds, then the next
 * block:
 *
 *     for each block of c (BLOCK outputs, sums on the stack)
 *         for each k-block of WN_GEMM_KC steps: pack a, unless it is read in place
 *             for each micro-panel of b (nr columns): pack it
 *                 for each micro-tile (mr rows): micro-kernel
 *
 * Measured: k outside all outputs, which loads and stores c once a k-block: 1.2-1.5x time (k 384 to 3072, shared
 * caches).
 *
 * Tasks divide outputs, never k. Nothing here allocates. */
#include <stddef.h>
#include <string.h>
#include "gemm.h"
#include "../micro.h"
#include "../nontemporal.h"
#include "../../../runtime/base/number.h"

/* Each limit says its unit, then what was measured with another value. */
#define LINE 16                 /* columns of a part are a multiple; 48: parts of 1024 columns differed by 6 % */
#define TRANSPOSED_ROWS 64      /* most rows of the variant transposed */
#define TRANSPOSED_PACKED 65536 /* words of packed a', in the second-level cache; k-blocks of 128: 15-20 % slower */
#define TRANSPOSED_SUMS 8192    /* words of sums of transposed; 32768: the same */
#define DIRECT_ROWS 192         /* least rows with which a is read in place */
#define TALL 512                /* most rows of a block whose a is read in place */
#define BLOCK 49152             /* outputs of a block; 24576: the same */
#define A_FLOATS 16384          /* words of packed a of a block */
#define SMALL_K_LEAST (1 << 18) /* least outputs of small k; half as many: the same, 3 % slower on a shared core */
#define STREAM_LEAST (1 << 20)  /* least outputs of small k that are stored non-temporally */

/* One product, for all its tasks. */
struct job {
    const struct wn__gemm *p;
    const struct wn__gemm_kernel *kernel;
    struct wn__gemm_partition partition;
    int32_t small_k; /* parts with more than WN_GEMM_SMALL_M rows use small k */
    int32_t stream;  /* small k stores c non-temporally */
};

/* A block of outputs: rows [row0, row1) and columns [column0, column1) of matrix number `batch` of c. */
struct block {
    const float *a, *b; /* the matrices of a and of b */
    float *c;           /* the matrix of c */
    int64_t batch, row0, row1, column0, column1;
};

/* ---- transposed ---------------------------------------------------------------------------------- */

/* Packs a' of the k-block [k, k + kc): micro-panel s, (kc, width), at packed + s * kc * width, zeros beyond the
 * rows. */
static void pack_transposed(const struct job *w, const struct block *q, int64_t k, int64_t kc, int64_t width,
                            float *packed)
{
    const struct wn__gemm *p = w->p;
    for (int64_t row = q->row0; row < q->row1; row += width, packed += kc * width) {
        int64_t m = wn_min(q->row1 - row, width);
        const float *from = q->a + row * p->ai + k * p->ak;
        if (m < width) memset(packed, 0, (size_t)(kc * width) * sizeof *packed);
        if (p->ak == 1) {
            w->kernel->transpose(from, p->ai, m, kc, packed, width);
        } else {
            for (int64_t i = 0; i < kc; i++) memcpy(packed + i * width, from + i * p->ak, (size_t)m * sizeof *packed);
        }
    }
}

/* A k-block from step k on: `panels` panels of `steps` steps each, `apart` words from one to the next; one panel where
 * b is plain. */
struct k_block {
    int64_t k, steps, panels, apart;
};

/* Returns the k-block from step k on, of at most n steps: a part of a panel, or as many whole panels as fit. */
static struct k_block k_block_at(const struct wn__gemm *p, int64_t k, int64_t n)
{
    struct k_block s = {k, p->b_panels ? wn__gemm_in_panel(k, n) : n, 1, p->n * WN_PANEL};
    if (p->b_panels && s.steps == WN_PANEL) s.panels = n / WN_PANEL;
    return s;
}

/* Computes a micro-tile over a k-block; t.a is in its first panel. */
static void transposed_tile(const struct job *w, const struct k_block *s, struct wn__gemm_microtile t)
{
    const float *row_bias = t.row_bias;
    if (w->kernel->panels_kernel && w->p->b_panels && t.m == w->kernel->mr && s->steps == WN_PANEL) {
        w->kernel->panels_kernel(&t, s->panels, s->apart);
        return;
    }
    for (int64_t i = 0; i < s->panels; i++, t.a += s->apart, t.b += t.kc * t.bk, t.first = 0) {
        t.row_bias = i == s->panels - 1 ? row_bias : NULL;
        w->kernel->microkernel(&t);
    }
}

/* Adds a k-block to the sums of columns [column, column + n) of c. t.b: a' in micro-panels of t.n columns, `micropanel`
 * words from one to the next; t.c: the sums, (n, rows), rows t.ldc words apart. */
static void transposed_steps(const struct job *w, const struct block *q, const struct k_block *s, int64_t column,
                             int64_t n, int64_t micropanel, struct wn__gemm_microtile t)
{
    const struct wn__gemm *p = w->p;
    const int64_t mr = w->kernel->mr, end = s->k + s->panels * s->steps;
    const float *packed = t.b, *a = q->b + wn__gemm_b_at(p, 0, s->k, column, &t.ai), *after = a + n * t.ai;
    float *sums = t.c;
    if (end < p->k) after = q->b + wn__gemm_b_at(p, 0, end, column, &(int64_t){0});
    t.kc = s->steps;
    t.ak = 1;
    t.first = s->k == 0;
    for (int64_t i = 0; i < n; i += mr, sums += mr * t.ldc) {
        t.m = wn_min(n - i, mr);
        t.a = a + i * t.ai;
        t.row_bias = p->bias && end == p->k ? (const float *)p->bias + column + i : NULL;
        wn__gemm_prefetch_rows(&t, i + mr < n ? t.a + mr * t.ai : after);
        for (int64_t j = 0; j < t.ldc; j += t.n) {
            t.b = packed + j / t.n * micropanel;
            t.c = sums + j;
            transposed_tile(w, s, t);
        }
    }
}

/* Computes columns [column, column + n) of all rows of a block: sums (n, rows), transposed into c. width: rows of a in
 * a micro-panel. */
static void run_transposed_part(const struct job *w, const struct block *q, int64_t column, int64_t n, int64_t width)
{
    float packed[TRANSPOSED_PACKED] __attribute__((aligned(64)));
    float sums[TRANSPOSED_SUMS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    int64_t rows = q->row1 - q->row0, wide = (rows + width - 1) / width * width;
    int64_t step = TRANSPOSED_PACKED / wide / WN_PANEL * WN_PANEL;
    for (int64_t k = 0; k < p->k; k += step) {
        int64_t kc = wn_min(p->k - k, step);
        pack_transposed(w, q, k, kc, width, packed);
        struct wn__gemm_microtile t = {.bk = width, .c = sums, .ldc = wide, .n = width}; /* zeros beyond the rows */
        struct k_block s;
        for (int64_t at = 0; at < kc; at += s.panels * s.steps) {
            s = k_block_at(p, k + at, kc - at);
            t.b = packed + at * width;
            transposed_steps(w, q, &s, column, n, kc * width, t);
        }
    }
    w->kernel->transpose(sums, wide, n, rows, q->c + q->row0 * p->n + column, p->n);
    wn__gemm_epilogue(p, q->batch, q->row0, q->row0 + rows, column, n);
}

static void run_transposed(const struct job *w, const struct block *q)
{
    int64_t rows = q->row1 - q->row0, micropanels = (rows + w->kernel->nr - 1) / w->kernel->nr;
    int64_t width = ((rows + micropanels - 1) / micropanels + 15) / 16 * 16;
    int64_t step = TRANSPOSED_SUMS / (micropanels * width) / w->kernel->mr * w->kernel->mr;
    for (int64_t column = q->column0; column < q->column1; column += step)
        run_transposed_part(w, q, column, wn_min(q->column1 - column, step), width);
}

/* ---- packing A ----------------------------------------------------------------------------------- */

/* Packs groups of mr rows that are along memory, 16 rows in all, so that a whole cache line of each step is read
 * once. */
static inline __attribute__((always_inline)) void pack_line_of(const float *from, int64_t ak, int64_t kc,
                                                               const int64_t mr, float *out)
{
    for (int64_t k = 0; k < kc; k++, from += ak, out += mr)
        for (int64_t i = 0; i < 16; i += mr) memcpy(out + i * kc, from + i, (size_t)mr * sizeof *out);
}

static void pack_line(const float *from, int64_t ak, int64_t kc, int64_t mr, float *out)
{
    if (mr == 8) pack_line_of(from, ak, kc, 8, out);
    else pack_line_of(from, ak, kc, 4, out);
}

/* Packs rows of a: out (groups of mr rows, kc, mr); writes nothing beyond the rows. */
static void pack_a(const struct job *w, const float *from, int64_t rows, int64_t kc, float *out)
{
    const struct wn__gemm *p = w->p;
    int64_t mr = w->kernel->mr, i = 0;
    if (p->ak != 1)
        for (; rows - i >= 16; i += 16) pack_line(from + i, p->ak, kc, mr, out + i * kc);
    for (; i < rows; i += mr) {
        int64_t m = wn_min(rows - i, mr);
        float *to = out + i * kc;
        if (p->ak == 1) w->kernel->transpose(from + i * p->ai, p->ai, m, kc, to, mr);
        else
            for (int64_t k = 0; k < kc; k++)
                for (int64_t j = 0; j < m; j++) to[k * mr + j] = from[i + k * p->ak + j];
    }
}

/* ---- packing B ----------------------------------------------------------------------------------- */

#define PANEL_COLUMNS 48

/* Packs a micro-panel of PANEL_COLUMNS columns that are along memory. */
static void pack_whole(const float *b, int64_t bk, int64_t kc, float *to)
{
    for (int64_t k = 0; k < kc; k++, b += bk, to += PANEL_COLUMNS) memcpy(to, b, PANEL_COLUMNS * sizeof *to);
}

/* Packs n columns of b: to (kc, nr), zeros beyond n. ld: the stride of b that is not 1. */
static void pack_micropanel(const struct job *w, const float *b, int64_t ld, int64_t n, int64_t kc, float *to)
{
    const struct wn__gemm *p = w->p;
    int64_t nr = w->kernel->nr;
    if (n < nr) memset(to, 0, (size_t)(kc * nr) * sizeof *to);
    if (p->bk == 1) w->kernel->transpose(b, ld, n, kc, to, nr);
    else if (n == PANEL_COLUMNS && nr == PANEL_COLUMNS) pack_whole(b, ld, kc, to);
    else
        for (int64_t k = 0; k < kc; k++) memcpy(to + k * nr, b + k * ld, (size_t)n * sizeof *to);
}

/* Packs columns [column, column + n), steps [k, k + kc), of a b that has k along memory, in pieces that end at
 * panels. */
static void pack_transposed_b(const struct job *w, const struct block *q, int64_t k, int64_t column, int64_t n,
                              int64_t kc, float *to)
{
    const struct wn__gemm *p = w->p;
    for (int64_t at = 0, part, ld; at < kc; at += part) {
        part = p->b_panels ? wn__gemm_in_panel(k + at, kc - at) : kc;
        const float *b = q->b + wn__gemm_b_at(p, 0, k + at, column, &ld);
        pack_micropanel(w, b, ld, n, part, to + at * w->kernel->nr);
    }
}

/* ---- what small_m.c and small_k.c call ----------------------------------------------------------- */

static void pack_variant_a(const struct wn__gemm_variant *f, const struct wn__gemm_part *t, int64_t k, int64_t kc,
                           float *to)
{
    const struct job *w = f->job;
    const struct wn__gemm *p = w->p;
    const float *a = (const float *)p->a + t->offset[0] * p->m * p->k + t->row0 * p->ai + k * p->ak;
    int64_t rows = t->row1 - t->row0, full = rows / f->mr * f->mr;
    if (full < rows) memset(to + full * kc, 0, (size_t)(f->mr * kc) * sizeof *to);
    pack_a(w, a, rows, kc, to);
}

static void pack_variant_b(const struct wn__gemm_variant *f, const float *b, int64_t ld, int64_t n, int64_t kc,
                           float *to)
{
    pack_micropanel(f->job, b, ld, n, kc, to);
}

static void store_variant(const float *sums, const void *bias, int64_t n, void *c)
{
    const float *add = bias;
    if (add == NULL) memcpy(c, sums, (size_t)n * sizeof *sums);
    else
        for (int64_t j = 0; j < n; j++) ((float *)c)[j] = sums[j] + add[j];
}

static void set_output(struct wn__gemm_microtile *t, void *c, const void *bias)
{
    t->c = c;
    t->bias = bias;
}

/* ---- general and in place ------------------------------------------------------------------------ */

/* The prefetches that the micro-tiles of a k-block request. */
struct prefetch {
    const float *b;       /* the matrix b */
    int64_t k, column;    /* where its next micro-panel begins */
    const float *rows;    /* the next k-block of a where it will be packed, else NULL */
    int64_t parts, given; /* parts of `rows`: four lines of a quarter of its steps; given: parts prefetched already */
};

/* Requests four neighbouring cache lines of each row from `from` on, rows `row` words apart. */
static void prefetch_rows(const float *from, int64_t row, struct wn__gemm_microtile *t)
{
    t->prefetch = (const char *)from;
    t->prefetch_row = row * (int64_t)sizeof(float);
    t->prefetch_step = 64;
    t->prefetch_near = 0;
}

/* Requests quarter i, 0 to 3, of the next micro-panel of b. */
static void prefetch_micropanel(const struct wn__gemm *p, const struct prefetch *to, int64_t i,
                                struct wn__gemm_microtile *t)
{
    int64_t quarter = t->kc / 4, ld;
    const float *b = to->b + wn__gemm_b_at(p, 0, to->k, to->column, &ld);
    if (p->b_panels && p->bk == 1) { /* a piece of each panel */
        int64_t k = wn_min(to->k + i * WN_PANEL, p->k - 1);
        prefetch_rows(to->b + wn__gemm_b_at(p, 0, k, to->column, &ld), WN_GEMM_FAR_STEPS * LINE, t);
    } else if (p->b_panels) { /* dense */
        prefetch_rows(b + i * t->kc * LINE, WN_GEMM_FAR_STEPS * LINE, t);
    } else if (p->bk == 1) { /* half of a row's steps, of half of the rows */
        prefetch_rows(b + (i >> 1) * quarter * ld + (i & 1) * 2 * quarter, ld, t);
    } else {
        prefetch_rows(b + i * quarter * ld, ld, t);
    }
}

/* Requests the prefetches of micro-tile number i of a micro-panel: 0 to 3 the next micro-panel of b, then the next
 * k-block of a, then the rows of a of the next micro-tile. */
static void prefetch_next(const struct job *w, struct prefetch *to, int64_t i, struct wn__gemm_microtile *t)
{
    const struct wn__gemm *p = w->p;
    if (i < 4) {
        prefetch_micropanel(p, to, i, t);
    } else if (to->rows && to->given < to->parts) {
        prefetch_rows(to->rows + (to->given >> 2) * 64 + (to->given & 3) * (t->kc / 4) * p->ak, p->ak, t);
        to->given++;
    } else {
        t->prefetch = (const char *)(t->a + w->kernel->mr * t->ai);
        t->prefetch_row = t->ak == 1 ? t->ai * (int64_t)sizeof(float) : 64;
        t->prefetch_step = t->ak == 1 ? t->kc / 4 : 0;
        t->prefetch_near = 1;
    }
}

/* Computes k-block [k, k + t.kc) of a block, one micro-panel of b after the other. t: where a and the sums are. */
static void run_micropanels(const struct job *w, const struct block *q, int64_t k, struct wn__gemm_microtile t)
{
    float packed_b[WN_GEMM_B_FLOATS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    const int32_t transposed = p->bk == 1,
                  in_panels = p->b_panels && !transposed; /* a panel is a packed micro-panel, read in place */
    int64_t mr = w->kernel->mr, nr = w->kernel->nr, rows = q->row1 - q->row0, kc = t.kc, last = k + kc == p->k;
    int64_t after = last ? 0 : k + kc, group = mr * (t.ak == 1 ? t.ai : kc);
    const float *a = t.a;
    float *sums = t.c;
    struct prefetch prefetch = {.b = q->b, .k = k, .parts = (rows + 63) / 64 * 4};
    if (t.ak != 1 && p->ak != 1) prefetch.rows = q->a + q->row0 * p->ai + after * p->ak;
    for (int64_t column = q->column0; column < q->column1; column += nr) {
        int64_t ld;
        const float *b = q->b + wn__gemm_b_at(p, 0, k, column, &ld);
        float *c = q->c + wn__gemm_c_at(p, 0, q->row0, column, &t.out_ld);
        t.n = wn_min(q->column1 - column, nr);
        if (transposed) pack_transposed_b(w, q, k, column, t.n, kc, packed_b);
        t.bias = p->bias && last ? (const float *)p->bias + column : NULL;
        prefetch.column = column + nr;
        if (column + nr >= q->column1) prefetch.column = last ? q->column1 : q->column0, prefetch.k = after;
        for (int64_t i = 0; i < rows; i += mr) {
            t.copy = i == 0 && !transposed && !in_panels ? packed_b : NULL;
            t.b = t.copy || in_panels ? b : packed_b;
            t.bk = t.copy || in_panels ? ld : nr;
            t.a = a + i / mr * group;
            t.out = last ? c + i * t.out_ld : NULL;
            t.c = last && t.first ? t.out : sums + i * t.ldc + column - q->column0; /* a single k-block needs no sums */
            t.m = wn_min(rows - i, mr);
            prefetch_next(w, &prefetch, i / mr, &t);
            w->kernel->microkernel(&t);
            if (last) wn__gemm_epilogue(p, q->batch, q->row0 + i, q->row0 + i + t.m, column, t.n);
        }
    }
}

/* Computes a block whose sums and packed a stay in the second-level cache, over all of k. The sums are dense and c is
 * written once, because rows of c that are a power of two apart share few sets of the cache. direct: a is read in
 * place. */
static void run_block(const struct job *w, const struct block *q, int32_t direct)
{
    float sums[BLOCK] __attribute__((aligned(64)));
    float packed_a[A_FLOATS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    int64_t rows = q->row1 - q->row0, k = 0;
    struct wn__gemm_microtile t = {.c = sums, .ldc = (q->column1 - q->column0 + 15) / 16 * 16};
    t.ai = direct ? p->ai : 1;
    t.ak = direct ? 1 : w->kernel->mr;
    do { /* once where k = 0, too: c is then the bias, or zeros */
        const float *a = q->a + q->row0 * p->ai + k * p->ak;
        t.first = k == 0;
        t.kc = wn_min(p->k - k, WN_GEMM_KC);
        t.a = direct ? a : packed_a;
        if (!direct) pack_a(w, a, rows, t.kc, packed_a);
        run_micropanels(w, q, k, t);
        k += t.kc;
    } while (k < p->k);
}

/* Divides a task into blocks. */
static void run_general(const struct job *w, const struct block *q)
{
    const struct wn__gemm *p = w->p;
    int64_t mr = w->kernel->mr, rows = q->row1 - q->row0;
    int32_t direct = p->ak == 1 && rows >= DIRECT_ROWS;
    int64_t most = direct ? TALL : A_FLOATS / WN_GEMM_KC;
    int64_t parts = (rows + most - 1) / most, tall = wn_min((rows / parts + mr) / mr * mr, most / mr * mr);
    int64_t wide = p->k <= WN_GEMM_KC ? p->n : BLOCK / tall / w->kernel->nr * w->kernel->nr;
    for (int64_t row = q->row0; row < q->row1; row += tall)
        for (int64_t column = q->column0; column < q->column1; column += wide) {
            struct block part = *q;
            part.row0 = row;
            part.row1 = wn_min(row + tall, q->row1);
            part.column0 = column;
            part.column1 = wn_min(column + wide, q->column1);
            run_block(w, &part, direct);
        }
}

/* ---- tasks --------------------------------------------------------------------------------------- */

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    const struct wn__gemm *p = w->p;
    const struct wn__gemm_variant variant = {.p = p,
                                             .job = w,
                                             .mr = w->kernel->mr,
                                             .nr = w->kernel->nr,
                                             .per = 1,
                                             .size = sizeof(float),
                                             .direct = 1,
                                             .packing_kernel = w->kernel->packing_kernel,
                                             .macrokernel = w->kernel->macrokernel,
                                             .microkernel = w->kernel->microkernel,
                                             .pack_a = pack_variant_a,
                                             .pack_b = pack_variant_b,
                                             .store = store_variant,
                                             .set_output = set_output};
    const int32_t small_m = p->bk != 1 && p->k > 0 && (p->b_panels || w->kernel->packing_kernel);
    const int32_t is_transposed = p->bk == 1 && p->k > 0 && !p->c_panels; /* transposed writes rows of c */
    for (int64_t task = begin; task < end; task++) {
        struct wn__gemm_part t;
        if (!wn__gemm_part(p, &w->partition, task, &t)) continue;
        struct block q = {.a = (const float *)p->a + t.offset[0] * p->m * p->k,
                          .b = (const float *)p->b + t.offset[1] * p->n * p->k,
                          .c = (float *)p->c + t.batch * p->m * p->n,
                          .batch = t.batch,
                          .row0 = t.row0,
                          .row1 = t.row1,
                          .column0 = t.column0,
                          .column1 = t.column1};
        if (is_transposed && q.row1 - q.row0 <= TRANSPOSED_ROWS) run_transposed(w, &q);
        else if (small_m && q.row1 - q.row0 <= WN_GEMM_SMALL_M) wn__gemm_small_m(&variant, &t);
        else if (w->small_k) wn__gemm_small_k(&variant, &t, w->stream);
        else run_general(w, &q);
    }
    if (w->stream) wn__stream_end();
}

int32_t wn__gemm_f32(const struct wn__gemm *p)
{
    int64_t numel = p->batch * p->m * p->n;
    if (numel == 0) return WN_OK;
    struct job w = {.p = p, .kernel = wn__micro.gemm};
    w.small_k = !p->epilogue && p->k > 0 && p->k <= WN_GEMM_SMALL_K && p->m * p->n >= SMALL_K_LEAST;
    w.partition = wn__gemm_partition(p, w.kernel->mr, LINE, w.small_k ? WN_GEMM_SMALL_K_TALL : 1);
    /* c is written once and larger than the caches: a non-temporal store does not read its lines first. It needs whole
     * lines. */
    w.stream = w.small_k && p->n % LINE == 0 && numel >= STREAM_LEAST && (uintptr_t)p->c % 64 == 0;
    wn__parallel_tasks(w.partition.tasks, w.partition.grain, run_tasks, &w);
    return WN_OK;
}
