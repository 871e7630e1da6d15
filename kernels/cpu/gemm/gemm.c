/* The f32 product's driver: cuts a batch of products into blocks, one a task, and feeds the tile of this machine.
 * Five ways through a block; an output's chain over k is the same in all of them (gemm.h):
 *   general   micro-panels of B packed once for all rows; A is read in place, or packed where that is cheaper;
 *   in place  B's rows lie along the columns: the first tile of a micro-panel packs it while it computes;
 *   transposed   few rows, and B's rows lie along k (a layer's forward): c' = B a', so that only A, the small one, is
 *             packed, and B is read once, whole rows of it, where it lies. Partial sums wait in a buffer and turn at
 *             the end;
 *   few       few rows, and B's rows lie along the columns (a layer's dX): gemm/small_m.c;
 *   short k   many outputs of few steps (a layer's dW at a small batch): gemm/small_k.c.
 * A weight in panels comes in where a micro-panel of b or c is placed (wn__gemm_b_at, wn__gemm_c_at). A forward's panel is a packed
 * micro-panel already, so it is read where it lies; general turns a dX's micro-panel in pieces that end at panels, and transposed (its few
 * rows) walks all panels of a k-block side by side: one after the other, 48 steps each, the sums came and went too often, and
 * 32 x 4096 x 4096 took 1.3 times as long.
 * The first two go block by block: all of k for as many outputs as the second cache holds, then the next ones. (k
 * outside instead, over all outputs, writes and reads c once a k-block: 1.2 to 1.5 times slower where k is 384 to 3072
 * and the caches are shared with others.)
 * Work is cut over outputs, never over k. Nothing here allocates. */
#include <stddef.h>
#include <string.h>
#include "gemm.h"
#include "../nontemporal.h"
#include "../../../runtime/base/number.h"

#define LINE 16                 /* floats; columns are cut at multiples: 48 left parts of 1024 columns unequal by 6 % */
#define TRANSPOSED_ROWS 64      /* rows of A up to which transposing pays */
#define TRANSPOSED_PACKED 65536 /* words of A: stays in the second cache; k-blocks of 128 steps were 15-20 % slower */
#define TRANSPOSED_SUMS 8192    /* 32768: the same */
#define DIRECT_ROWS 192         /* rows of A from which it is read in place */
#define TALL 512                /* rows of a block when A is read in place */
#define BLOCK 49152             /* outputs of a block; 24576: the same */
#define A_FLOATS 16384          /* packed rows of A of a block */
#define SMALL_K_LEAST (1 << 18) /* outputs from which short k pays; half as many: the same, 3 % less on a shared core */
#define STREAM_LEAST (1 << 20)  /* outputs that go past the caches then */

struct job {
    const struct wn__gemm *p;
    const struct wn__gemm_kernel *kernel;
    struct wn__gemm_partition partition;
    int32_t small_k; /* k is short */
    int32_t stream;
};

/* The block of outputs one task makes, of one matrix of the batch. */
struct block {
    const float *a, *b;
    float *c;
    int64_t batch, row0, row1, column0, column1;
};

const struct wn__gemm_kernel *wn__gemm_best(void)
{
    const struct wn__gemm_kernel *kernel = wn__gemm_avx512();
    if (!kernel) kernel = wn__gemm_avx2();
    return kernel ? kernel : wn__gemm_plain();
}

const char *wn__gemm_name(void)
{
    if (wn__gemm_bf16_avx512()) return "AVX-512, bf16 too";
    if (wn__gemm_avx512()) return "AVX-512";
    if (wn__gemm_avx2()) return "AVX2";
    return "plain C: this processor has neither AVX2 with FMA nor AVX-512";
}

/* ---- transposed --------------------------------------------------------------------------------------- */

/* The micro-panels a' of one k-block of k: micro-panel s at packed + s * kc * width, (kc, width), zeros beyond m. */
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

/* Steps of k from `k` on: so many panels of `steps` each, `apart` floats from one to the next; plain: one. */
struct k_block {
    int64_t k, steps, panels, apart;
};

/* The k-block from step k on, of at most n steps. */
static struct k_block k_block_at(const struct wn__gemm *p, int64_t k, int64_t n)
{
    struct k_block s = {k, p->b_panels ? wn__gemm_in_panel(k, n) : n, 1, p->n * WN_PANEL};
    if (p->b_panels && s.steps == WN_PANEL) s.panels = n / WN_PANEL;
    return s;
}

/* A tile over a k-block; t->a: in its first panel. */
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

/* Columns [column, column + n) over a k-block. t: a' in micro-panels of t.n columns, the next one `micro-panel`
 * floats on; the sums. */
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

/* Columns [column, column + n) of c, all rows of the block: (n, rows) sums, turned into c. */
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

/* ---- packing A ------------------------------------------------------------------------------------------ */

/* Two groups of 8 rows that lie along memory: a whole cache line of each step is read once. */
WN_CLONES static void pack_two(const float *from, int64_t ak, int64_t kc, float *out)
{
    for (int64_t k = 0; k < kc; k++, from += ak, out += 8) {
        memcpy(out, from, 8 * sizeof *out);
        memcpy(out + kc * 8, from + 8, 8 * sizeof *out);
    }
}

/* Rows in groups of mr: (group, kc, mr); nothing is written beyond m. */
static void pack_a(const struct job *w, const float *from, int64_t rows, int64_t kc, float *out)
{
    const struct wn__gemm *p = w->p;
    int64_t mr = w->kernel->mr, i = 0;
    if (p->ak != 1 && mr == 8)
        for (; rows - i >= 16; i += 16) pack_two(from + i, p->ak, kc, out + i * kc);
    for (; i < rows; i += mr) {
        int64_t m = wn_min(rows - i, mr);
        float *to = out + i * kc;
        if (p->ak == 1) w->kernel->transpose(from + i * p->ai, p->ai, m, kc, to, mr);
        else
            for (int64_t k = 0; k < kc; k++)
                for (int64_t j = 0; j < m; j++) to[k * mr + j] = from[i + k * p->ak + j];
    }
}

/* ---- packing B ------------------------------------------------------------------------------------------ */

#define STRIP 48

/* A whole micro-panel of STRIP columns that lie along memory. */
WN_CLONES static void pack_whole(const float *b, int64_t bk, int64_t kc, float *to)
{
    for (int64_t k = 0; k < kc; k++, b += bk, to += STRIP) memcpy(to, b, STRIP * sizeof *to);
}

/* A micro-panel: n columns of B, (kc, nr), zeros beyond n. ld: b's stride that is not 1. */
static void pack_micropanel(const struct job *w, const float *b, int64_t ld, int64_t n, int64_t kc, float *to)
{
    const struct wn__gemm *p = w->p;
    int64_t nr = w->kernel->nr;
    if (n < nr) memset(to, 0, (size_t)(kc * nr) * sizeof *to);
    if (p->bk == 1) w->kernel->transpose(b, ld, n, kc, to, nr);
    else if (n == STRIP && nr == STRIP) pack_whole(b, ld, kc, to);
    else
        for (int64_t k = 0; k < kc; k++) memcpy(to + k * nr, b + k * ld, (size_t)n * sizeof *to);
}

/* The micro-panel of columns [column, column + n), steps [k, k + kc), of b whose rows lie along k: in pieces of one
 * panel. */
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

/* ---- few rows, short k: gemm/small_m.c, gemm/small_k.c
 * -------------------------------------------------------------- */

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

/* ---- general and in place ---------------------------------------------------------------------------- */

/* What a k-block's tiles touch while they compute. */
struct prefetch {
    const float *b; /* the matrix; its next micro-panel: */
    int64_t k, column;
    const float *rows;    /* the next k-block of A when it is to be packed, else NULL */
    int64_t parts, given; /* of rows: quarters of its steps, four lines of each; given: prefetched already */
};

/* Four cache lines together, as memory likes it, of each row from `from` on; rows `row` floats apart. */
static void prefetch_rows(const float *from, int64_t row, struct wn__gemm_microtile *t)
{
    t->prefetch = (const char *)from;
    t->prefetch_row = row * (int64_t)sizeof(float);
    t->prefetch_step = 64;
    t->prefetch_near = 0;
}

/* Part i (0..3) of the next micro-panel of B. */
static void prefetch_micropanel(const struct wn__gemm *p, const struct prefetch *to, int64_t i,
                                struct wn__gemm_microtile *t)
{
    int64_t quarter = t->kc / 4, ld;
    const float *b = to->b + wn__gemm_b_at(p, 0, to->k, to->column, &ld);
    if (p->b_panels && p->bk == 1) { /* a run of each panel */
        int64_t k = wn_min(to->k + i * WN_PANEL, p->k - 1);
        prefetch_rows(to->b + wn__gemm_b_at(p, 0, k, to->column, &ld), WN_GEMM_FAR_STEPS * LINE, t);
    } else if (p->b_panels) { /* one run */
        prefetch_rows(b + i * t->kc * LINE, WN_GEMM_FAR_STEPS * LINE, t);
    } else if (p->bk == 1) { /* half of what a row has, of some of its rows */
        prefetch_rows(b + (i >> 1) * quarter * ld + (i & 1) * 2 * quarter, ld, t);
    } else {
        prefetch_rows(b + i * quarter * ld, ld, t);
    }
}

/* Tile number i of a micro-panel: first the next micro-panel of B, then the next k-block of A, then the next tile's
 * rows of A. */
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

/* One k-block of k of a block: every micro-panel of B in turn. t says where A and the sums are. */
static void run_micropanels(const struct job *w, const struct block *q, int64_t k, struct wn__gemm_microtile t)
{
    float packed_b[WN_GEMM_B_FLOATS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    const int32_t transposed = p->bk == 1,
                  in_panels = p->b_panels && !transposed; /* then a micro-panel is packed where it lies */
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
            t.c = last && t.first ? t.out : sums + i * t.ldc + column - q->column0; /* one k-block: no sums */
            t.m = wn_min(rows - i, mr);
            prefetch_next(w, &prefetch, i / mr, &t);
            w->kernel->microkernel(&t);
            if (last) wn__gemm_epilogue(p, q->batch, q->row0 + i, q->row0 + i + t.m, column, t.n);
        }
    }
}

/* A block of which the sums and what is packed of A stay in the second cache: all of k for it, then the next one. The
 * sums are dense and c is written once: with c itself for sums, its rows meet in few of the cache's sets. */
static void run_block(const struct job *w, const struct block *q, int32_t direct)
{
    float sums[BLOCK] __attribute__((aligned(64)));
    float packed_a[A_FLOATS] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    int64_t rows = q->row1 - q->row0, k = 0;
    struct wn__gemm_microtile t = {.c = sums, .ldc = (q->column1 - q->column0 + 15) / 16 * 16};
    t.ai = direct ? p->ai : 1;
    t.ak = direct ? 1 : w->kernel->mr;
    do { /* once even when k is 0: then the result is the bias, or zeros */
        const float *a = q->a + q->row0 * p->ai + k * p->ak;
        t.first = k == 0;
        t.kc = wn_min(p->k - k, WN_GEMM_KC);
        t.a = direct ? a : packed_a;
        if (!direct) pack_a(w, a, rows, t.kc, packed_a);
        run_micropanels(w, q, k, t);
        k += t.kc;
    } while (k < p->k);
}

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

/* ---- tasks --------------------------------------------------------------------------------------------- */

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
    const int32_t is_transposed = p->bk == 1 && p->k > 0 && !p->c_panels; /* it turns its sums into rows */
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
    struct job w = {.p = p, .kernel = wn__gemm_best()};
    w.small_k = !p->epilogue && p->k > 0 && p->k <= WN_GEMM_SMALL_K && p->m * p->n >= SMALL_K_LEAST;
    w.partition = wn__gemm_partition(p, w.kernel->mr, LINE, w.small_k ? WN_GEMM_SMALL_K_TALL : 1);
    /* Written once and larger than the caches: do not read it in first. Whole lines only. */
    w.stream = w.small_k && p->n % LINE == 0 && numel >= STREAM_LEAST && (uintptr_t)p->c % 64 == 0;
    wn__parallel_tasks(w.partition.tasks, w.partition.grain, run_tasks, &w);
    return WN_OK;
}
